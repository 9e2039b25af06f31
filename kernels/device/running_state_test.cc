// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Running states on the GPU: near the fake device's numbers, and the same bits for every cut of the
// sessions into steps.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/device/running_state_operations.h"

namespace rivulet {
namespace {

constexpr uint32_t kChunk = 16, kSessions = 6, kTokens = 75;

// What a layer does with its inputs, and the bytes that it keeps.
struct Layer {
  std::string name;
  std::vector<size_t> widths;  // columns of the inputs
  size_t outputs;
  size_t base_bytes, tail_bytes;  // with fp32 rows
  std::function<void(const DeviceStep&, const std::vector<FloatMatrix>&, const Operand&)> run;
};

std::vector<float> Random(size_t count, float low, float high, std::mt19937& random) {
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = distribution(random);
  return numbers;
}

Layer SelectiveScan(uint32_t channels, uint32_t states, std::mt19937& random) {
  const auto padded = static_cast<uint32_t>(PaddedColumns(channels));
  const uint32_t padded_state = PaddedScanStates(states);
  auto a = std::make_shared<std::vector<float>>(size_t{padded} * padded_state, 0.0f);
  for (uint32_t i = 0; i < channels * states; ++i) {
    (*a)[i / states * padded_state + i % states] = Random(1, -2.0f, -0.01f, random)[0];
  }
  auto skip = std::make_shared<std::vector<float>>(Random(channels, -1.0f, 1.0f, random));
  const size_t bytes = a->size() * sizeof(float);
  return {"scan_" + std::to_string(channels) + "_" + std::to_string(states),
          {channels, channels, channels, states, states},
          channels,
          bytes,
          bytes,
          [=](const DeviceStep& step, const std::vector<FloatMatrix>& inputs, const Operand& y) {
            step.device->SelectiveScan({.rows = step.rows,
                                        .slots = step.slots,
                                        .channels = channels,
                                        .state_size = states,
                                        .padded_state = padded_state,
                                        .a = step.device->Constant(*a),
                                        .skip = step.device->Constant(*skip),
                                        .x = inputs[0],
                                        .dt = inputs[1],
                                        .z = inputs[2],
                                        .b = inputs[3],
                                        .c = inputs[4],
                                        .y = y});
          }};
}

Layer GatedScan(uint32_t channels, std::mt19937& random) {
  auto rate = std::make_shared<std::vector<float>>(Random(channels, -4.0f, -0.01f, random));
  const size_t bytes = PaddedColumns(channels) * sizeof(float);
  return {"gated_scan_" + std::to_string(channels),
          {channels, channels, channels},
          channels,
          bytes,
          bytes,
          [=](const DeviceStep& step, const std::vector<FloatMatrix>& inputs, const Operand& y) {
            const FloatMatrix h = step.workspace->Take(inputs[0].rows, channels);
            step.device->GatedScan({.rows = step.rows,
                                    .slots = step.slots,
                                    .channels = channels,
                                    .rate = step.device->Constant(*rate),
                                    .x = inputs[0],
                                    .input_gate = inputs[1],
                                    .recurrent_gate = inputs[2],
                                    .h = h});
            step.device->Finish({.o = h,
                                 .width = channels,
                                 .padded = channels,
                                 .norm_width = 256,
                                 .order = FinishOrder::kGateOnly,
                                 .y = y});
          }};
}

// Filter and modes together, as an H3 layer has them.
Layer ShiftAndModes(uint32_t heads, uint32_t head_dim, uint32_t window, uint32_t modes,
                    std::mt19937& random) {
  const uint32_t channels = heads * head_dim, padded_modes = PaddedModes(modes);
  const auto padded = static_cast<uint32_t>(PaddedColumns(channels));
  const auto ring_rows = static_cast<uint32_t>(RoundUp(std::max(window - 1, 1u), kChunk));
  auto taps = std::make_shared<std::vector<float>>(Random(window * padded, -0.5f, 0.5f, random));
  auto poles = std::make_shared<std::vector<float>>(size_t{heads} * padded_modes * 2, 0.0f);
  auto weights = std::make_shared<std::vector<float>>(poles->size(), 0.0f);
  for (uint32_t i = 0; i < heads * modes; ++i) {
    const size_t at = (i / modes * padded_modes + i % modes) * 2;
    const float radius = Random(1, 0.3f, 0.99f, random)[0], angle = Random(1, 0, 3, random)[0];
    (*poles)[at] = radius * std::cos(angle), (*poles)[at + 1] = radius * std::sin(angle);
    for (size_t part : {0, 1}) (*weights)[at + part] = Random(1, -1.0f, 1.0f, random)[0];
  }
  auto skip = std::make_shared<std::vector<float>>(Random(heads, -1.0f, 1.0f, random));
  const size_t ring = size_t{ring_rows} * padded * sizeof(float);
  const size_t tail = size_t{kChunk} * padded * sizeof(float);
  const size_t state = size_t{head_dim} * padded * padded_modes * 2 * sizeof(float);
  return {"h3_" + std::to_string(heads) + "_" + std::to_string(head_dim) + "_" +
              std::to_string(window) + "_" + std::to_string(modes),
          {channels, channels, channels},
          channels,
          ring + state,
          tail + state,
          [=](const DeviceStep& step, const std::vector<FloatMatrix>& inputs, const Operand& y) {
            const FloatMatrix k = step.workspace->Take(inputs[1].rows, channels);
            step.device->Filter({.rows = step.rows,
                                 .slots = step.slots,
                                 .channels = channels,
                                 .padded = padded,
                                 .window = window,
                                 .ring_rows = ring_rows,
                                 .taps = step.device->Constant(*taps),
                                 .x = inputs[1],
                                 .y = k,
                                 .ring_offset = 0,
                                 .tail_offset = 0});
            step.device->ScanModes({.rows = step.rows,
                                    .slots = step.slots,
                                    .heads = heads,
                                    .head_dim = head_dim,
                                    .padded_columns = padded,
                                    .padded_modes = padded_modes,
                                    .poles = step.device->Constant(*poles),
                                    .weights = step.device->Constant(*weights),
                                    .skip = step.device->Constant(*skip),
                                    .q = inputs[0],
                                    .k = k,
                                    .v = inputs[2],
                                    .partial = step.workspace->Take(k.rows, channels),
                                    .base_offset = ring,
                                    .tail_offset = tail,
                                    .y = y});
          }};
}

// The numbers of every token of every session, [session][token][columns], for each input.
using Inputs = std::vector<std::vector<float>>;

Inputs RandomInputs(const Layer& layer, std::mt19937& random) {
  Inputs inputs;
  for (const size_t width : layer.widths) {
    inputs.push_back(Random(kSessions * kTokens * width, -1.5f, 1.5f, random));
  }
  return inputs;
}

// Feeds the sessions to a layer on a device, some tokens of each in a step.
class Sessions {
 public:
  Sessions(Device& device, const Layer& layer, const Inputs& inputs)
      : device_(device), layer_(layer), inputs_(inputs), workspace_(&device) {
    const uint32_t strays = ~0u;  // NaN: what a slot holds before its first use is not read
    const std::vector<uint32_t> bases(2 * kSessions * layer.base_bytes / 4, strays);
    const std::vector<uint32_t> tails(kSessions * layer.tail_bytes / 4, strays);
    slots_.bases = static_cast<std::byte*>(Copy(bases));
    slots_.base_stride = layer.base_bytes;
    slots_.tails = static_cast<std::byte*>(Copy(tails));
    slots_.tail_stride = layer.tail_bytes;
  }

  bool Done() const { return *std::min_element(positions_, positions_ + kSessions) == kTokens; }
  uint32_t Left(uint32_t session) const { return kTokens - positions_[session]; }

  // One step with counts[s] tokens of session s. `single`: of at most one each.
  void Step(const std::vector<uint32_t>& counts, bool single, std::mt19937& random) {
    std::vector<DeviceSegment> segments;
    std::vector<uint32_t> owners, rows;
    for (uint32_t s = 0; s < kSessions; ++s) {
      if (counts[s] == 0 && !single) continue;
      const uint32_t position = positions_[s], in = base_[s];
      const bool folds = (position % kChunk + counts[s]) / kChunk > 0;
      if (folds && random() % 2 == 0) base_[s] = in < kSessions ? in + kSessions : in - kSessions;
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
  const std::vector<float>& outputs() const { return outputs_; }

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
      std::copy_n(inputs_[input].data() + rows[r] * width, width, host.data() + r * x.stride);
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
    outputs_.resize(kSessions * kTokens * y.columns);
    for (size_t r = 0; r < rows.size(); ++r) {
      if (segments[owners[r]].tokens == 0) continue;
      std::copy_n(result.data() + r * y.columns, y.columns, outputs_.data() + rows[r] * y.columns);
    }
  }

  Device& device_;
  const Layer& layer_;
  const Inputs& inputs_;
  DeviceWorkspace workspace_;
  DeviceSlots slots_;
  uint32_t positions_[kSessions] = {};
  uint32_t base_[kSessions] = {0, 1, 2, 3, 4, 5};
  std::vector<float> outputs_;
};

enum class Cut { kWhole, kSingle, kPieces };

std::vector<float> Feed(Device& device, const Layer& layer, const Inputs& inputs, Cut cut,
                        std::mt19937& random) {
  Sessions sessions(device, layer, inputs);
  while (!sessions.Done()) {
    std::vector<uint32_t> counts(kSessions, kTokens);
    // In a step of single tokens some sessions sit out and leave a segment without tokens.
    if (cut == Cut::kSingle) {
      for (uint32_t& count : counts) count = random() % 5 == 0 ? 0 : 1;
    }
    if (cut == Cut::kPieces) {
      for (uint32_t& count : counts) count = random() % 40;
    }
    for (uint32_t s = 0; s < kSessions; ++s) counts[s] = std::min(counts[s], sessions.Left(s));
    if (std::all_of(counts.begin(), counts.end(), [](uint32_t c) { return c == 0; })) continue;
    sessions.Step(counts, cut == Cut::kSingle, random);
  }
  return sessions.outputs();
}

// The largest difference, by the largest number.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY, largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::isfinite(a[i]) ? std::max(worst, std::abs(double{a[i]} - b[i])) : INFINITY;
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
          ShiftAndModes(6, 1, 300, 150, random)};
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
        EXPECT_LE(distance, 2e-5) << layer.name;
      }
      EXPECT_EQ(Feed(**device, layer, inputs, Cut::kSingle, random), whole) << layer.name;
      EXPECT_EQ(Feed(**device, layer, inputs, Cut::kPieces, random), whole) << layer.name;
    }
  }
}

}  // namespace
}  // namespace rivulet
