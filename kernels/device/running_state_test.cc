// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Running states, RWKV's operations and sums with decays by channel on the GPU: near the fake
// device's numbers, and the same bits for every cut of the sessions into steps.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/device/running_state_layers.h"

namespace rivulet {
namespace {

// The numbers of every token of every session, [session][token][columns], for each input.
using Inputs = std::vector<std::vector<float>>;

Inputs RandomInputs(const Layer& layer, std::mt19937& random) {
  Inputs inputs;
  for (size_t i = 0; i < layer.widths.size(); ++i) {
    const auto [low, high] = layer.ranges.empty() ? std::pair(-1.5f, 1.5f) : layer.ranges[i];
    inputs.push_back(Random(kSessions * kTokens * layer.widths[i], low, high, random));
  }
  return inputs;
}

// Feeds the sessions to a layer on a device, some tokens of each in a step. Of each session there
// are `copies`, which go their own ways.
class Sessions {
 public:
  Sessions(Device& device, const Layer& layer, const Inputs& inputs, uint32_t copies)
      : device_(device),
        layer_(layer),
        inputs_(inputs),
        workspace_(&device),
        count_(kSessions * copies),
        positions_(count_, 0),
        base_(count_) {
    std::iota(base_.begin(), base_.end(), 0);
    const uint32_t strays = ~0u;  // NaN: what a slot holds before its first use is not read
    const std::vector<uint32_t> bases(2 * count_ * layer.base_bytes / 4, strays);
    const std::vector<uint32_t> tails(count_ * layer.tail_bytes / 4, strays);
    slots_.bases = static_cast<std::byte*>(Copy(bases));
    slots_.base_stride = layer.base_bytes;
    slots_.tails = static_cast<std::byte*>(Copy(tails));
    slots_.tail_stride = layer.tail_bytes;
  }

  uint32_t count() const { return count_; }
  bool Done() const { return *std::min_element(positions_.begin(), positions_.end()) == kTokens; }
  uint32_t Left(uint32_t session) const { return kTokens - positions_[session]; }

  // One step with counts[s] tokens of session s. `single`: of at most one each.
  void Step(const std::vector<uint32_t>& counts, bool single, std::mt19937& random) {
    std::vector<DeviceSegment> segments;
    std::vector<uint32_t> owners, rows;
    for (uint32_t s = 0; s < count_; ++s) {
      if (counts[s] == 0 && !single) continue;
      const uint32_t position = positions_[s], in = base_[s];
      const bool folds = (position % kChunk + counts[s]) / kChunk > 0;
      if (folds && random() % 2 == 0) base_[s] = in < count_ ? in + count_ : in - count_;
      const auto first = static_cast<uint32_t>(rows.size());
      segments.push_back({first, counts[s], position, in, base_[s], s, 0});
      for (uint32_t i = 0; i < std::max(counts[s], single ? 1u : 0u); ++i) {
        owners.push_back(static_cast<uint32_t>(segments.size()) - 1);
        rows.push_back(s * kTokens + std::min(position + i, kTokens - 1));
      }
      positions_[s] += counts[s];
    }
    Run(segments, owners, rows, single);
  }

  // Of every token: [session][token][outputs, padded].
  std::vector<float> TakeOutputs() { return std::move(outputs_); }

 private:
  template <typename T>
  void* Copy(const std::vector<T>& from) {
    void* to = workspace_.TakeBytes(from.size() * sizeof(T));
    EXPECT_TRUE(device_.Upload(to, from.data(), from.size() * sizeof(T)).ok());
    return to;
  }

  FloatMatrix Rows(size_t input, const std::vector<uint32_t>& rows) {
    const size_t width = layer_.widths[input];
    const FloatMatrix x = workspace_.Take(rows.size(), width);
    std::vector<float> host(rows.size() * x.stride, NAN);
    for (size_t r = 0; r < rows.size(); ++r) {
      const uint32_t row = rows[r] % (kSessions * kTokens);  // copies have the same inputs
      std::copy_n(inputs_[input].data() + row * width, width, host.data() + r * x.stride);
    }
    EXPECT_TRUE(device_.Upload(x.data, host.data(), host.size() * sizeof(float)).ok());
    return x;
  }

  void Run(const std::vector<DeviceSegment>& segments, const std::vector<uint32_t>& owners,
           const std::vector<uint32_t>& rows, bool single) {
    DeviceStep step{&device_, &workspace_, {}, slots_};
    step.rows = {.segments = static_cast<const DeviceSegment*>(Copy(segments)),
                 .segment_of = static_cast<const uint32_t*>(Copy(owners)),
                 .segment_count = static_cast<uint32_t>(segments.size()),
                 .tokens = static_cast<uint32_t>(rows.size()),
                 .single = single};
    std::vector<FloatMatrix> inputs;
    for (size_t i = 0; i < layer_.widths.size(); ++i) inputs.push_back(Rows(i, rows));
    const Operand y = workspace_.TakeOperand(rows.size(), layer_.outputs);
    const size_t numbers = rows.size() * y.stride;
    const std::vector<uint16_t> strays(numbers, 0xffff);
    EXPECT_TRUE(device_.Upload(y.data, strays.data(), numbers * 2).ok());
    layer_.run(step, inputs, y);
    const std::vector<float> result = NumbersOf(device_, y);
    outputs_.resize(size_t{count_} * kTokens * y.columns);
    for (size_t r = 0; r < rows.size(); ++r) {
      if (segments[owners[r]].tokens == 0) continue;
      std::copy_n(result.data() + r * y.columns, y.columns,
                  outputs_.data() + size_t{rows[r]} * y.columns);
    }
  }

  Device& device_;
  const Layer& layer_;
  const Inputs& inputs_;
  DeviceWorkspace workspace_;
  DeviceSlots slots_;
  const uint32_t count_;
  std::vector<uint32_t> positions_, base_;
  std::vector<float> outputs_;
};

enum class Cut { kWhole, kSingle, kPieces };

std::vector<float> Feed(Device& device, const Layer& layer, const Inputs& inputs, Cut cut,
                        std::mt19937& random, uint32_t copies = 1) {
  Sessions sessions(device, layer, inputs, copies);
  while (!sessions.Done()) {
    std::vector<uint32_t> counts(sessions.count(), kTokens);
    // In a step of single tokens some sessions sit out and leave a segment without tokens.
    if (cut == Cut::kSingle) {
      for (uint32_t& count : counts) count = random() % 5 == 0 ? 0 : 1;
    }
    if (cut == Cut::kPieces) {
      for (uint32_t& count : counts) count = random() % 40;
    }
    for (uint32_t s = 0; s < counts.size(); ++s) counts[s] = std::min(counts[s], sessions.Left(s));
    if (std::all_of(counts.begin(), counts.end(), [](uint32_t c) { return c == 0; })) continue;
    sessions.Step(counts, cut == Cut::kSingle, random);
  }
  return sessions.TakeOutputs();
}

// The largest difference, by the largest number.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY, largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = WorstDifference(worst, a[i], b[i]);
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return worst / largest;
}

std::vector<Layer> Layers(std::mt19937& random) {
  return {GatedScan(300, random),
          GatedScan(7, random),
          SelectiveScan(64, 16, random),
          SelectiveScan(37, 6, random),
          SelectiveScan(1, 1, random),
          SelectiveScan(200, 8, random),
          SelectiveScan(40, 24, random),
          SelectiveScan(50, 64, random),
          ShiftAndModes(64, 1, 64, 32, random),
          ShiftAndModes(19, 1, 1, 1, random),
          ShiftAndModes(7, 2, 17, 8, random),
          ShiftAndModes(33, 1, 100, 50, random),
          ShiftAndModes(5, 4, 18, 3, random),
          ShiftAndModes(9, 1, 200, 100, random),
          ShiftAndModes(6, 1, 300, 150, random),
          TokenShift(40, 6, random),
          TokenShift(300, 1, random),
          TimeMix({3, 64, 64, true}, random),
          TimeMix({2, 24, 40}, random),
          TimeMix({2, 64, 300, true}, random),  // columns of a head in two turns
          TimeMix({1, 8, 5}, random),
          TimeMix({2, 128, 128}, random),
          TimeMix({1, 400, 70, true}, random),
          TimeMix({2, 64, 32, true, true}, random),
          OwnMixtures(40, random),
          OwnMixtures(300, random),
          TimeMix({3, 64, 64, false, false, TimeMixForm::kRwkv6}, random),
          TimeMix({2, 24, 40, false, false, TimeMixForm::kRwkv6}, random),
          TimeMix({2, 64, 300, false, false, TimeMixForm::kRwkv6}, random),
          TimeMix({1, 400, 70, false, false, TimeMixForm::kRwkv6}, random),
          TimeMix({2, 64, 32, false, true, TimeMixForm::kRwkv6}, random),
          Sum({3, 1, 64, 64}, random),
          Sum({2, 1, 256, 128}, random),
          Sum({2, 2, 128, 80}, random),
          Sum({2, 1, 176, 48, false, true}, random),
          Sum({2, 1, 128, 128, true}, random),
          Sum({1, 1, 240, 64, true}, random),
          Sum({2, 1, 32, 32, true, true}, random)};
}

// Sums that many sessions stream through, with every kind of decay and width of keys.
std::vector<Layer> StreamedSums(std::mt19937& random) {
  std::vector<Layer> sums;
  for (const bool bf16 : {false, true}) {
    const std::vector<SumShape> shapes = {
        {4, 1, 128, 64, true, bf16, Decay::kScalar},
        {8, 1, 128, 128, true, bf16, Decay::kScalar, 2},
        {8, 1, 128, 64, false, bf16, Decay::kScalar, 4, true},
        {8, 1, 64, 64, false, bf16, Decay::kScalar, 8, true},
        {4, 2, 64, 80, false, bf16, Decay::kScalar, 1, false, true},
        {4, 1, 256, 48, false, bf16, Decay::kNone},
        {4, 1, 64, 16, true, bf16, Decay::kNone},
        {4, 1, 128, 128, true, bf16},
        {2, 1, 256, 128, false, bf16},
        {4, 3, 64, 64, false, bf16}};
    for (const SumShape& shape : shapes) sums.push_back(Sum(shape, random));
  }
  return sums;
}

// Sums that fewer sessions decode at once. With so many sessions there are more than two blocks a
// processor, which sums_decode.cu takes, but too few for streams. Some units share keys; keys of
// 176 are left to sums.cu.
constexpr uint32_t kDecodedCopies = 10;
std::vector<Layer> DecodedSums(std::mt19937& random) {
  std::vector<Layer> sums;
  for (const bool bf16 : {false, true}) {
    const std::vector<SumShape> shapes = {
        {8, 1, 128, 64, false, bf16, Decay::kScalar, 4, true},
        {8, 1, 64, 48, false, bf16, Decay::kScalar, 8, true},
        {6, 1, 96, 80, false, bf16, Decay::kScalar, 2},
        {18, 1, 96, 48, false, bf16, Decay::kScalar, 2, true},
        {6, 1, 128, 64, false, bf16, Decay::kScalar, 2, false, true},
        {6, 1, 112, 64, false, bf16, Decay::kNone, 6},
        {6, 2, 96, 64, false, bf16, Decay::kScalar, 1, true},
        {5, 1, 176, 64, false, bf16, Decay::kScalar},
        {6, 1, 96, 64, true, bf16, Decay::kScalar, 2},
        {6, 1, 128, 48, true, bf16, Decay::kNone}};
    for (const SumShape& shape : shapes) sums.push_back(Sum(shape, random));
  }
  return sums;
}

// The fake device's own numbers do not depend on the cut, and none of them is what a slot held.
TEST(RunningState, FakeDevice) {
  std::mt19937 random{TestSeed()};
  FakeDevice device;
  for (const Layer& layer : Layers(random)) {
    const Inputs inputs = RandomInputs(layer, random);
    const std::vector<float> whole = Feed(device, layer, inputs, Cut::kWhole, random);
    EXPECT_EQ(Distance(whole, whole), 0) << layer.name;
    EXPECT_EQ(Feed(device, layer, inputs, Cut::kSingle, random), whole) << layer.name;
    EXPECT_EQ(Feed(device, layer, inputs, Cut::kPieces, random), whole) << layer.name;
  }
}

// A session has the bits that it has among few, where other kernels run.
void CheckCompany(std::vector<Layer> (*layers_of)(std::mt19937&), uint32_t copies = 100) {
  std::mt19937 random{TestSeed()};
  auto device = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(device.ok()) << device.status();
  for (const std::vector<Layer> layers = layers_of(random); const Layer& layer : layers) {
    const Inputs inputs = RandomInputs(layer, random);
    const std::vector<float> whole = Feed(**device, layer, inputs, Cut::kWhole, random);
    EXPECT_EQ(Distance(whole, whole), 0) << layer.name;
    EXPECT_EQ(Feed(**device, layer, inputs, Cut::kSingle, random), whole) << layer.name;
    const std::vector<float> company = Feed(**device, layer, inputs, Cut::kSingle, random, copies);
    for (uint32_t copy = 0; copy < copies; ++copy) {
      EXPECT_TRUE(std::equal(whole.begin(), whole.end(), company.begin() + copy * whole.size()))
          << layer.name << ", copy " << copy;
    }
  }
}

TEST(StreamedSums, HaveTheSameBitsInMuchCompany) {
  RIVULET_NEED_GPU();
  CheckCompany(StreamedSums);
}

TEST(DecodedSums, HaveTheSameBitsInCompany) {
  RIVULET_NEED_GPU();
  CheckCompany(DecodedSums, kDecodedCopies);
}

TEST(TimeMixing, HasTheSameBitsInMuchCompany) {
  RIVULET_NEED_GPU();
  CheckCompany([](std::mt19937& random) {
    return std::vector<Layer>{TimeMix({3, 64, 64, true}, random),
                              TimeMix({3, 64, 64, false, false, TimeMixForm::kRwkv6}, random)};
  });
}

TEST(StreamedSums, AreNearTheFakeDevice) {
  RIVULET_NEED_GPU();
  std::mt19937 random{TestSeed()};
  auto device = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(device.ok()) << device.status();
  FakeDevice fake;
  const std::vector<Layer> layers = StreamedSums(random);
  for (const Layer& layer : layers) {
    const Inputs inputs = RandomInputs(layer, random);
    const double distance = Distance(Feed(**device, layer, inputs, Cut::kWhole, random),
                                     Feed(fake, layer, inputs, Cut::kWhole, random));
    std::printf("%s: differs from the fake device by %.2g\n", layer.name.c_str(), distance);
    EXPECT_LE(distance, layer.limit) << layer.name;
  }
}

TEST(RunningState, IsNearTheFakeDeviceAndHasTheSameBitsForEveryCut) {
  RIVULET_NEED_GPU();
  std::mt19937 random{TestSeed()};
  FakeDevice fake;
  for (const ProductPrecision precision :
       {ProductPrecision::kFloat32, ProductPrecision::kBFloat16}) {
    auto device = OpenCudaDevice(precision);
    ASSERT_TRUE(device.ok()) << device.status();
    // The device keeps constants by their address, so the layers live as long as it.
    const std::vector<Layer> layers = Layers(random);
    for (const Layer& layer : layers) {
      const Inputs inputs = RandomInputs(layer, random);
      const std::vector<float> whole = Feed(**device, layer, inputs, Cut::kWhole, random);
      if (precision == ProductPrecision::kFloat32) {
        const double distance = Distance(whole, Feed(fake, layer, inputs, Cut::kWhole, random));
        std::printf("%s: differs from the fake device by %.2g\n", layer.name.c_str(), distance);
        EXPECT_LE(distance, layer.limit) << layer.name;
      }
      EXPECT_EQ(Feed(**device, layer, inputs, Cut::kSingle, random), whole) << layer.name;
      EXPECT_EQ(Feed(**device, layer, inputs, Cut::kPieces, random), whole) << layer.name;
    }
  }
}

}  // namespace
}  // namespace rivulet
