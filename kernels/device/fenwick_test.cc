// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sums in pages on the GPU: near the fake device, and the same bits for every cut of a session and
// any neighbours. The harness itself runs on the fake device too.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/fenwick_operations.h"
#include "kernels/device/gpu_testing.h"

namespace rivulet {
namespace {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kNone = UINT32_MAX;
constexpr size_t kTokens = 340;  // 21 chunks: four pages of different sizes, and carries over them

struct Shape {
  const char* name;
  uint32_t heads, heads_per_key, key_dim, value_dim, levels;
  bool delta, mamba;  // mamba: values times the step, a rate, a skip
  bool bf16_pages = false;

  uint32_t pages() const { return levels > 5 ? levels - 5 : 1; }
  uint32_t keys() const { return heads / heads_per_key; }
  uint32_t dp() const { return (key_dim + 15) / 16 * 16; }
  uint32_t ep() const { return (value_dim + 15) / 16 * 16; }
  uint32_t value_stride() const { return mamba ? value_dim : ep(); }
};

// A session's inputs, all tokens' rows after each other.
struct Inputs {
  size_t tokens;
  std::vector<float> q, k, v, g, levels, beta;

  Inputs(const Shape& s, std::mt19937& random, size_t count = kTokens) : tokens(count) {
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform(0.05f, 1.0f);
    const float scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim));
    for (auto* rows : {&q, &k}) {
      rows->assign(tokens * s.keys() * s.dp(), 0.0f);
      for (size_t i = 0; i < rows->size(); ++i) {
        if (i % s.dp() < s.key_dim) (*rows)[i] = scale * normal(random);
      }
    }
    v.assign(tokens * s.heads * s.value_stride(), 0.0f);
    for (size_t i = 0; i < v.size(); ++i) {
      if (i % s.value_stride() < s.value_dim) v[i] = normal(random);
    }
    for (size_t i = 0; i < tokens * s.heads; ++i) {
      g.push_back((s.mamba ? 1.0f : -0.05f) * uniform(random));
      beta.push_back(uniform(random));
    }
    for (size_t i = 0; i < tokens * s.heads * s.levels; ++i) levels.push_back(uniform(random));
  }
};

// Some sessions on one device, and their slots: two bases, one tail and two slots for each page.
class Sessions {
 public:
  Sessions(Device& device, const Shape& shape, const std::vector<Inputs>& inputs)
      : device_(device), s_(shape), inputs_(inputs), sessions_(inputs.size()) {
    const size_t count = inputs.size();
    page_bytes_ = size_t{s_.heads} * s_.ep() * s_.dp() * (s_.bf16_pages ? 2 : 4);
    base_bytes_ = size_t{s_.heads} * (s_.ep() / 16) * s_.pages() * 2 * sizeof(float);
    value_offset_ = size_t{s_.keys()} * kChunk * s_.dp() * sizeof(float);
    decay_offset_ = value_offset_ + size_t{s_.heads} * kChunk * s_.ep() * sizeof(float);
    beta_offset_ = decay_offset_ + size_t{s_.heads} * kChunk * sizeof(float);
    tail_bytes_ = beta_offset_ + size_t{s_.heads} * kChunk * sizeof(float);
    // Contents are undefined until they are written.
    pages_ = Filled<std::byte>(std::vector<std::byte>(count * 2 * s_.pages() * page_bytes_, kJunk));
    bases_ = Filled<std::byte>(std::vector<std::byte>(count * 2 * base_bytes_, kJunk));
    tails_ = Filled<std::byte>(std::vector<std::byte>(count * tail_bytes_, kJunk));
    for (Session& session : sessions_) session.table.assign(s_.pages(), kNone);
    const size_t heads = s_.heads;
    for (size_t i = 0; i < heads; ++i) rate_.push_back(-0.02f * static_cast<float>(i + 1));
    for (size_t i = 0; i < heads * s_.value_dim; ++i) skip_.push_back(0.01f * (i % 17));
    rate_memory_ = Filled(rate_), skip_memory_ = Filled(skip_);
  }
  ~Sessions() {
    for (void* memory : memory_) device_.Free(memory);
  }

  uint64_t position(size_t session) const { return sessions_[session].position; }
  const std::vector<float>& outputs(size_t session) const { return sessions_[session].outputs; }

  // The next counts[i] tokens of each session. `single`: as a decode step, of at most one each.
  void Step(const std::vector<uint32_t>& counts, bool single, std::mt19937& random) {
    std::vector<DeviceSegment> segments;
    std::vector<DeviceSegmentPages> tables;
    std::vector<uint32_t> slots;
    uint32_t tokens = 0;
    Rows rows(s_);
    for (uint32_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0 && !single) continue;
      Session& session = sessions_[i];
      const bool moves = random() % 2 == 0;
      const uint32_t to = moves ? 1 - session.base : session.base;
      segments.push_back(
          {tokens, counts[i], session.position, i * 2 + session.base, i * 2 + to, i, 0});
      tables.push_back({static_cast<uint32_t>(slots.size()), 0, 0});
      Plan(i, counts[i], moves, slots);
      if (session.position / kChunk != (session.position + counts[i]) / kChunk) session.base = to;
      const uint32_t own = single ? 1 : counts[i];
      rows.Add(inputs_[i], session.position, own);
      tokens += own;
    }
    const std::vector<float> out = Launch(segments, tables, slots, rows, tokens, single);
    for (const DeviceSegment& segment : segments) {
      Session& session = sessions_[segment.tail];
      const size_t width = size_t{s_.heads} * s_.ep();
      session.outputs.insert(session.outputs.end(), out.begin() + segment.first_token * width,
                             out.begin() + (segment.first_token + segment.tokens) * width);
      session.position += segment.tokens;
    }
  }

 private:
  static constexpr std::byte kJunk{0xff};  // NaN
  struct Session {
    uint64_t position = 0;
    uint32_t base = 0;
    std::vector<uint32_t> table;
    std::vector<float> outputs;
  };
  // The inputs of a step.
  struct Rows {
    explicit Rows(const Shape& shape) : s(shape) {}
    void Add(const Inputs& in, uint64_t position, uint32_t count) {
      const auto add = [&](const std::vector<float>& from, size_t width, std::vector<float>& to) {
        const size_t first =
            std::min<size_t>(position, in.tokens - 1);  // of a session that has ended
        to.insert(to.end(), from.begin() + first * width, from.begin() + (first + count) * width);
      };
      add(in.q, s.keys() * s.dp(), q), add(in.k, s.keys() * s.dp(), k);
      add(in.v, s.heads * s.value_stride(), v);
      add(in.g, s.heads, g), add(in.beta, s.heads, beta);
      add(in.levels, s.heads * s.levels, levels);
    }
    const Shape& s;
    std::vector<float> q, k, v, g, levels, beta;
  };

  template <typename T>
  T* Filled(const std::vector<T>& from) {
    auto* memory = static_cast<T*>(*device_.Allocate(from.size() * sizeof(T)));
    memory_.push_back(memory);
    EXPECT_TRUE(device_.Upload(memory, from.data(), from.size() * sizeof(T)).ok());
    return memory;
  }

  // Tables before and after each fold. Page p has the session's slots 2p and 2p + 1; a page that
  // lives on under the delta rule stays or moves.
  void Plan(uint32_t index, uint32_t count, bool moves, std::vector<uint32_t>& slots) {
    Session& session = sessions_[index];
    std::vector<uint32_t>& table = session.table;
    slots.insert(slots.end(), table.begin(), table.end());
    const uint64_t first = session.position / kChunk, last = (session.position + count) / kChunk;
    for (uint64_t chunk = first; chunk < last; ++chunk) {
      const uint32_t made = PageMadeBy(chunk, s_.pages());
      for (uint32_t p = 0; p < s_.pages(); ++p) {
        const uint32_t slot = (index * s_.pages() + p) * 2;
        const uint32_t other = table[p] == slot ? slot + 1 : slot;
        if (p < made) table[p] = kNone;
        if (p == made || (p > made && table[p] != kNone && s_.delta && moves)) table[p] = other;
      }
      slots.insert(slots.end(), table.begin(), table.end());
    }
  }

  std::vector<float> Launch(const std::vector<DeviceSegment>& segments,
                            const std::vector<DeviceSegmentPages>& tables,
                            const std::vector<uint32_t>& slots, const Rows& rows, uint32_t tokens,
                            bool single) {
    const size_t kept = memory_.size(), columns = size_t{s_.heads} * s_.ep();
    float* out = Filled(std::vector<float>(tokens * columns, NAN));
    FenwickCall call{.rows = {.segments = Filled(segments),
                              .segment_count = static_cast<uint32_t>(segments.size()),
                              .tokens = tokens,
                              .single = single},
                     .slots = {bases_, base_bytes_, tails_, tail_bytes_, pages_, page_bytes_},
                     .pages = {Filled(tables), Filled(slots), s_.pages()},
                     .heads = s_.heads,
                     .heads_per_key = s_.heads_per_key,
                     .level_count = s_.levels,
                     .value_dim = s_.value_dim,
                     .padded_key = s_.dp(),
                     .padded_value = s_.ep(),
                     .out = {out, tokens, columns, columns}};
    call.q = Filled(rows.q), call.k = Filled(rows.k), call.v = Filled(rows.v);
    call.q_stride = call.k_stride = s_.keys() * s_.dp();
    call.v_head_stride = s_.value_stride(), call.v_stride = s_.heads * s_.value_stride();
    call.g = Filled(rows.g), call.g_stride = s_.heads;
    call.levels = Filled(rows.levels), call.levels_stride = s_.heads * s_.levels;
    if (s_.mamba) call.rate = rate_memory_, call.skip = skip_memory_, call.times_step = true;
    call.delta = s_.delta;
    call.beta = Filled(rows.beta), call.beta_stride = s_.heads;
    call.bf16_pages = s_.bf16_pages;
    call.value_offset = value_offset_, call.decay_offset = decay_offset_;
    call.beta_offset = beta_offset_;
    device_.Fenwick(call);
    std::vector<float> result(tokens * columns);
    void* pinned = device_.AllocatePinned(result.size() * sizeof(float));
    device_.CopyToHost(pinned, out, result.size() * sizeof(float));
    EXPECT_TRUE(device_.Synchronize().ok());
    std::memcpy(result.data(), pinned, result.size() * sizeof(float));
    device_.FreePinned(pinned);
    for (; memory_.size() > kept; memory_.pop_back()) device_.Free(memory_.back());
    return result;
  }

  Device& device_;
  const Shape s_;
  const std::vector<Inputs>& inputs_;
  std::vector<Session> sessions_;
  std::vector<void*> memory_;
  std::vector<float> rate_, skip_;
  float *rate_memory_ = nullptr, *skip_memory_ = nullptr;
  std::byte *pages_ = nullptr, *bases_ = nullptr, *tails_ = nullptr;
  size_t page_bytes_ = 0, base_bytes_ = 0, tail_bytes_ = 0;
  size_t value_offset_ = 0, decay_offset_ = 0, beta_offset_ = 0;
};

// Sessions of kTokens tokens in steps of at most `longest` tokens each; 0: all of them at once.
void Feed(Sessions& sessions, size_t count, uint32_t longest, std::mt19937& random) {
  while (true) {
    std::vector<uint32_t> counts(count);
    bool left = false;
    for (size_t i = 0; i < count; ++i) {
      const auto rest = static_cast<uint32_t>(kTokens - sessions.position(i));
      counts[i] = longest == 0 ? rest : std::min<uint32_t>(rest, random() % (longest + 1));
      left = left || rest != 0;
    }
    if (!left) return;
    if (std::all_of(counts.begin(), counts.end(), [](uint32_t n) { return n == 0; })) continue;
    sessions.Step(counts, longest == 1, random);
  }
}

std::unique_ptr<Device> Opened(ProductPrecision precision) {
  auto device = OpenCudaDevice(precision);
  EXPECT_TRUE(device.ok()) << device.status();
  return device.ok() ? *std::move(device) : nullptr;
}

// The same outputs, bit for bit, whole, in pieces and token by token.
void CheckSchedules(Device& device, const Shape& shape, std::mt19937& random) {
  std::vector<Inputs> inputs;
  for (int i = 0; i < 3; ++i) inputs.emplace_back(shape, random);
  Sessions whole(device, shape, inputs);
  Feed(whole, inputs.size(), 0, random);
  for (const uint32_t longest : {1, 7, 40}) {
    Sessions pieces(device, shape, inputs);
    Feed(pieces, inputs.size(), longest, random);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::vector<float>&a = whole.outputs(i), &b = pieces.outputs(i);
      ASSERT_EQ(a.size(), b.size());
      const auto at = std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
      ASSERT_EQ(static_cast<size_t>(at), a.size())
          << "session " << i << " in pieces of up to " << longest << " differs at token "
          << static_cast<size_t>(at) / (shape.heads * shape.ep());
    }
  }
}

// Nine live pages, one more than the blocks of a step of few rows have room for: the same bits from
// decode steps, of which one folds, as from a prompt.
void CheckManyLivePages(Device& device, const Shape& shape, std::mt19937& random) {
  constexpr uint32_t kPrompt = 511 * kChunk, kDecoded = 20;
  const std::vector<Inputs> inputs = {Inputs(shape, random, kPrompt + kDecoded)};
  Sessions whole(device, shape, inputs), pieces(device, shape, inputs);
  whole.Step({kPrompt + kDecoded}, false, random);
  pieces.Step({kPrompt}, false, random);
  for (uint32_t i = 0; i < kDecoded; ++i) pieces.Step({1}, true, random);
  const std::vector<float>&a = whole.outputs(0), &b = pieces.outputs(0);
  ASSERT_EQ(a.size(), b.size());
  const auto at = std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
  EXPECT_EQ(static_cast<size_t>(at), a.size())
      << shape.name << " differs at token " << static_cast<size_t>(at) / (shape.heads * shape.ep());
}

// With more heads than a GPU has processors.
const Shape kManyPages[] = {
    {"scalar", 144, 144, 16, 16, 15, false, false},
    {"scalar_bf16_pages", 144, 144, 16, 16, 15, false, false, true},
    {"delta", 144, 144, 16, 16, 15, true, false},
};

const Shape kShapes[] = {
    {"mamba", 4, 4, 128, 64, 15, false, true},
    {"mamba_groups_odd", 6, 3, 24, 40, 15, false, true},
    {"mamba_bf16_pages", 4, 2, 128, 64, 15, false, true, true},
    {"scalar_last_level_absorbs", 2, 1, 64, 128, 7, false, false},
    {"scalar_few_levels", 3, 1, 16, 16, 3, false, false},
    {"delta", 2, 1, 128, 256, 15, true, false},
    {"delta_groups_odd", 4, 2, 12, 24, 15, true, false},
    {"delta_last_level_absorbs", 2, 1, 256, 48, 7, true, false},
    {"delta_bf16_pages", 2, 1, 128, 64, 15, true, false, true},
    // More blocks than processors, and more than find room on them at once.
    {"mamba_many_blocks", 24, 24, 128, 64, 15, false, true},
    {"mamba_many_blocks_bf16_pages", 24, 24, 128, 64, 15, false, true, true},
    {"mamba_more_blocks", 60, 60, 128, 64, 15, false, true},
    {"delta_many_blocks", 24, 12, 128, 64, 15, true, false},
};

class DeviceFenwickTest : public testing::TestWithParam<Shape> {
 protected:
  std::mt19937 random_{TestSeed()};
};

TEST_P(DeviceFenwickTest, IsNearTheFakeDevice) {
  RIVULET_NEED_GPU();
  const Shape& shape = GetParam();
  std::vector<Inputs> inputs;
  for (int i = 0; i < 3; ++i) inputs.emplace_back(shape, random_);
  FakeDevice fake;
  Sessions expected(fake, shape, inputs);
  Feed(expected, inputs.size(), 0, random_);
  const std::unique_ptr<Device> device = Opened(ProductPrecision::kFloat32);
  ASSERT_NE(device, nullptr);
  for (const uint32_t longest : {0, 1, 20}) {
    Sessions sessions(*device, shape, inputs);
    Feed(sessions, inputs.size(), longest, random_);
    double worst = 0, largest = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::vector<float>&a = expected.outputs(i), &b = sessions.outputs(i);
      ASSERT_EQ(a.size(), b.size());
      for (size_t j = 0; j < a.size(); ++j) {
        worst = WorstDifference(worst, a[j], b[j]);
        largest = std::max(largest, std::abs(double{a[j]}));
      }
    }
    std::printf("%s, steps of up to %u: off by %.2g of %.2g\n", shape.name, longest, worst,
                largest);
    EXPECT_LE(worst / largest, shape.bf16_pages ? 1e-2 : 2e-4);
  }
}

TEST_P(DeviceFenwickTest, HasTheSameBitsFromEverySchedule) {
  RIVULET_NEED_GPU();
  for (const ProductPrecision precision :
       {ProductPrecision::kBFloat16, ProductPrecision::kFloat32}) {
    const std::unique_ptr<Device> device = Opened(precision);
    ASSERT_NE(device, nullptr);
    CheckSchedules(*device, GetParam(), random_);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeviceFenwickTest, testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DeviceFenwickPagesTest, ManyHaveTheSameBitsFromDecodingAsFromAPrompt) {
  RIVULET_NEED_GPU();
  std::mt19937 random(TestSeed());
  for (const ProductPrecision precision :
       {ProductPrecision::kBFloat16, ProductPrecision::kFloat32}) {
    const std::unique_ptr<Device> device = Opened(precision);
    ASSERT_NE(device, nullptr);
    for (const Shape& shape : kManyPages) CheckManyLivePages(*device, shape, random);
  }
}

TEST(FakeFenwick, ManyPagesHaveTheSameBitsFromDecodingAsFromAPrompt) {
  std::mt19937 random(TestSeed());
  for (Shape shape : kManyPages) {
    shape.heads = shape.heads_per_key = 1;
    FakeDevice fake;
    CheckManyLivePages(fake, shape, random);
  }
}

TEST(FakeFenwick, HasTheSameBitsFromEverySchedule) {
  std::mt19937 random(TestSeed());
  for (const Shape& shape : kShapes) {
    if (shape.key_dim > 64) continue;
    FakeDevice fake;
    CheckSchedules(fake, shape, random);
  }
}

}  // namespace
}  // namespace rivulet
