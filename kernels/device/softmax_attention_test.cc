// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention on the GPU beside the definition on the host (fake_device.h): near it, the same
// pages and tails, and the same bits for every cut of a session and every company.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/device.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/device/softmax_operations.h"

namespace rivulet {
namespace {

constexpr uint32_t kChunk = 16;

struct Shape {
  const char* name;
  uint32_t heads, kv_heads, width;
  uint64_t window;
  bool bf16_pages;
  ProductPrecision precision;
  uint32_t pool = 0;  // tokens of a pool; 0: a token sees all before it
  uint64_t unseen = 0;
  bool values_are_keys = false;

  uint32_t planes() const { return values_are_keys ? 1 : 2; }  // of a page
};

// Of one kv head whose rows are keys and values.
Shape Latent(const char* name, uint32_t heads, uint32_t width, bool bf16_pages,
             ProductPrecision precision, uint32_t pool = 0) {
  return {name, heads, 1, width, 0, bf16_pages, precision, pool, 0, true};
}

// Tokens of one session that run in a step.
struct Piece {
  uint32_t session;
  uint64_t position;
  uint32_t tokens;
};

struct Step {
  std::vector<Piece> pieces;
  bool single;  // DeviceRows::single
};

// Sessions with pages on a device. Inputs are functions of session, position and head, so that
// every cut of a session has the same ones.
class Sessions {
 public:
  static constexpr uint64_t kMostTokens = 8448;
  static constexpr uint32_t kPages = kMostTokens / kChunk;

  Sessions(Device* device, const Shape& shape, uint32_t sessions)
      : device_(device), shape_(shape), padded_(PaddedColumns(shape.width)) {
    head_bytes_ = size_t{kChunk} * padded_ * (shape.bf16_pages ? 2 : 4);
    plane_bytes_ = head_bytes_ * shape.kv_heads;
    tail_stride_ = kTailOffset + shape.planes() * plane_bytes_;
    page_stride_ = kPageOffset + shape.planes() * plane_bytes_;
    tails_.resize(sessions * tail_stride_);
    pages_.resize(sessions * kPages * page_stride_);
    for (uint32_t s = 0; s < sessions; ++s) {
      for (uint64_t t = 0; t < kMostTokens; ++t) WriteRow(s, t, PageOf(s, t / kChunk));
    }
    device_tails_ = Copied(tails_.data(), tails_.size());
    device_pages_ = Copied(pages_.data(), pages_.size());
  }

  // The tail as it is before the token at `position`; with numbers that are not, behind it.
  void SetTail(uint32_t session, uint64_t position) {
    std::byte* tail = tails_.data() + session * tail_stride_ + kTailOffset;
    std::memset(tail, 0xff, shape_.planes() * plane_bytes_);
    for (uint64_t t = position / kChunk * kChunk; t < position; ++t) WriteRow(session, t, tail);
    // Pages that are not written yet.
    for (uint64_t page = position / kChunk; page < kPages; ++page) {
      std::memset(PageOf(session, page), 0xff, shape_.planes() * plane_bytes_);
    }
    EXPECT_TRUE(device_->Upload(device_tails_, tails_.data(), tails_.size()).ok());
    EXPECT_TRUE(device_->Upload(device_pages_, pages_.data(), pages_.size()).ok());
  }

  // [T, heads · width], of all pieces in order.
  std::vector<float> Run(const std::vector<Piece>& pieces, bool single, bool keeps_alone = false) {
    const AttendCall call = CallFor({pieces, single});
    AttendCall run = call;
    if (keeps_alone) run.out.data = nullptr, run.partials = nullptr;
    device_->Attend(run);
    return ResultsOf(call);
  }

  // The same of each step. Between one step's attention and the next step's lies only the
  // embedding, the kernel of a step that waits before it lets the next one begin.
  std::vector<std::vector<float>> RunInARow(const std::vector<Step>& steps) {
    std::vector<AttendCall> calls;
    uint32_t tokens = 0;
    for (const Step& step : steps) {
      calls.push_back(CallFor(step));
      tokens = std::max(tokens, calls.back().rows.tokens);
    }
    const DeviceTable table{.data = Copied(std::vector<float>{1.0f}), .vocab = 1, .width = 1};
    const uint32_t* const ids = Copied(std::vector<uint32_t>(tokens));
    const FloatMatrix x{Copied(std::vector<float>(tokens)), tokens, 1, 1};
    for (const AttendCall& call : calls) {
      device_->Embed(table, ids, call.rows, nullptr, x);
      device_->Attend(call);
    }
    std::vector<std::vector<float>> results;
    for (const AttendCall& call : calls) results.push_back(ResultsOf(call));
    return results;
  }

  // Tails, then pages, after these pieces have run. Rows of a tail behind the session's last token
  // are not looked at.
  std::vector<std::byte> State(const std::vector<Piece>& pieces) {
    std::vector<std::byte> result = Fetched(device_tails_, tails_.size());
    for (const Piece& piece : pieces) {
      const size_t used = (piece.position + piece.tokens) % kChunk * head_bytes_ / kChunk;
      std::byte* head = result.data() + piece.session * tail_stride_ + kTailOffset;
      for (uint32_t i = 0; i < shape_.planes() * shape_.kv_heads; ++i, head += head_bytes_) {
        std::memset(head + used, 0, head_bytes_ - used);
      }
    }
    const std::vector<std::byte> pages = Fetched(device_pages_, pages_.size());
    result.insert(result.end(), pages.begin(), pages.end());
    return result;
  }

 private:
  static constexpr size_t kMostPools = 9;
  static constexpr size_t kTailOffset = 192, kPageOffset = 64;

  // Pages of a session lie apart and out of order.
  uint32_t SlotOf(uint32_t session, uint64_t page) const {
    const auto sessions = static_cast<uint32_t>(tails_.size() / tail_stride_);
    return static_cast<uint32_t>(page * 7 % kPages) * sessions + session;
  }
  std::byte* PageOf(uint32_t session, uint64_t page) {
    return pages_.data() + SlotOf(session, page) * page_stride_ + kPageOffset;
  }

  // Number i of a row, about normal; kind 0: keys, 1: values, 2: queries.
  static float Number(uint32_t session, uint64_t position, uint32_t kind, uint32_t i) {
    uint64_t x = (position * 4 + kind) * 8192 + i + (uint64_t{session} << 40);
    float sum = 0.0f;
    for (int round = 0; round < 3; ++round) {
      x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
      sum += static_cast<float>(x >> 40) / static_cast<float>(1 << 24) - 0.5f;
    }
    return 2.0f * sum;
  }

  void WriteRow(uint32_t session, uint64_t position, std::byte* to) const {
    for (uint32_t kind = 0; kind < shape_.planes(); ++kind) {
      for (uint32_t i = 0; i < shape_.kv_heads * padded_; ++i) {
        const uint32_t head = i / padded_, d = i % padded_;
        const float x = d < shape_.width ? Number(session, position, kind, i) : 0.0f;
        const size_t at = (head * kChunk + position % kChunk) * padded_ + d;
        const uint16_t bits = FloatToBFloat16(x);
        std::byte* plane = to + kind * plane_bytes_;
        if (shape_.bf16_pages) {
          std::memcpy(plane + 2 * at, &bits, 2);
        } else {
          std::memcpy(plane + 4 * at, &x, 4);
        }
      }
    }
  }

  void AppendInputs(uint32_t session, uint64_t position, std::vector<float>& q,
                    std::vector<float>& k, std::vector<float>& v) const {
    const auto append = [&](uint32_t kind, uint32_t heads, float scale, std::vector<float>& to) {
      for (uint32_t i = 0; i < heads * padded_; ++i) {
        const bool padding = i % padded_ >= shape_.width;
        to.push_back(padding ? 0.0f : scale * Number(session, position, kind, i));
      }
    };
    append(0, shape_.kv_heads, 1.0f, k);
    append(1, shape_.kv_heads, 1.0f, v);
    append(2, shape_.heads, 3.0f / std::sqrt(static_cast<float>(shape_.width)), q);
  }

  template <typename T>
  T* Copied(const T* data, size_t count) {
    void* memory = *device_->Allocate(count * sizeof(T));
    EXPECT_TRUE(device_->Upload(memory, data, count * sizeof(T)).ok());
    return static_cast<T*>(memory);
  }
  template <typename T>
  T* Copied(const std::vector<T>& data) {
    return Copied(data.data(), data.size());
  }
  std::vector<std::byte> Fetched(const void* from, size_t bytes) {
    auto* pinned = static_cast<std::byte*>(device_->AllocatePinned(bytes));
    device_->CopyToHost(pinned, from, bytes);
    EXPECT_TRUE(device_->Synchronize().ok());
    std::vector<std::byte> result(pinned, pinned + bytes);
    device_->FreePinned(pinned);
    return result;
  }

  // What each token sees of at most kMostPools pools: [T, 1 + kMostPools].
  std::vector<float> ChosenPools(const std::vector<DeviceSegment>& segments, bool single) const {
    std::vector<float> chosen;
    for (const DeviceSegment& segment : segments) {
      for (uint32_t i = 0; i < std::max(segment.tokens, single ? 1u : 0u); ++i) {
        const uint64_t position = segment.position + i, pools = (position + 1) / shape_.pool;
        std::mt19937_64 random(segment.tail * 100'000 + position);
        std::set<uint64_t> numbers;
        while (numbers.size() < std::min<uint64_t>(pools, kMostPools)) {
          numbers.insert(random() % pools);
        }
        chosen.push_back(static_cast<float>(numbers.size()));
        chosen.insert(chosen.end(), numbers.begin(), numbers.end());
        chosen.resize(chosen.size() + kMostPools - numbers.size(), 0.0f);
      }
    }
    return chosen;
  }

  struct StepRows {
    std::vector<DeviceSegment> segments;
    std::vector<DeviceSegmentPages> pages;
    std::vector<uint32_t> slots, segment_of;
    std::vector<float> q, k, v;
  };

  StepRows RowsOf(const Step& step) const {
    StepRows rows;
    for (const Piece& piece : step.pieces) {
      const auto first = static_cast<uint32_t>(rows.segment_of.size());
      const auto segment = static_cast<uint32_t>(rows.segments.size());
      rows.segments.push_back({first, piece.tokens, piece.position, 0, 0, piece.session, 0});
      const uint64_t first_page = FirstSeen(piece.position, shape_.window) / kChunk;
      const uint64_t end_page = (piece.position + piece.tokens) / kChunk;
      rows.pages.push_back({static_cast<uint32_t>(rows.slots.size()),
                            static_cast<uint32_t>(end_page - first_page), first_page});
      for (uint64_t p = first_page; p < end_page; ++p) {
        rows.slots.push_back(SlotOf(piece.session, p));
      }
      for (uint32_t i = 0; i < std::max(piece.tokens, step.single ? 1u : 0u); ++i) {
        rows.segment_of.push_back(segment);
        AppendInputs(piece.session, piece.position + i, rows.q, rows.k, rows.v);
      }
    }
    return rows;
  }

  // With its inputs on the device.
  AttendCall CallFor(const Step& step) {
    const StepRows rows = RowsOf(step);
    const auto tokens = static_cast<uint32_t>(rows.segment_of.size());
    AttendCall call = CallWithoutRows(tokens, static_cast<uint32_t>(rows.segments.size()));
    call.rows.segments = Copied(rows.segments);
    call.rows.segment_of = Copied(rows.segment_of);
    call.rows.single = step.single;
    call.pages = {Copied(rows.pages), Copied(rows.slots), 0};
    call.q = Copied(rows.q);
    call.k = Copied(rows.k);
    call.v = Copied(rows.v);
    if (shape_.pool != 0) {
      call.pool = shape_.pool;
      call.chosen = {Copied(ChosenPools(rows.segments, step.single)), tokens, 1 + kMostPools,
                     1 + kMostPools};
    }
    return call;
  }

  AttendCall CallWithoutRows(uint32_t tokens, uint32_t segments) {
    const size_t columns = size_t{shape_.heads} * padded_;
    const size_t values = (shape_.planes() - 1) * plane_bytes_;
    const std::vector<float> out(tokens * columns, NAN);
    const std::vector<float> partials(AttendPartialFloats(segments, shape_.heads, padded_), NAN);
    return {.rows = {.segment_count = segments, .tokens = tokens},
            .slots = {nullptr, 0, device_tails_, tail_stride_, device_pages_, page_stride_},
            .pages = {},
            .heads = shape_.heads,
            .kv_heads = shape_.kv_heads,
            .padded = padded_,
            .window = shape_.window,
            .unseen = shape_.unseen,
            .bf16_pages = shape_.bf16_pages,
            .values_are_keys = shape_.values_are_keys,
            .q_stride = shape_.heads * padded_,
            .k_stride = shape_.kv_heads * padded_,
            .v_stride = shape_.kv_heads * padded_,
            .tail_key_offset = kTailOffset,
            .tail_value_offset = kTailOffset + values,
            .page_key_offset = kPageOffset,
            .page_value_offset = kPageOffset + values,
            .partials = Copied(partials),
            .out = {Copied(out), tokens, columns, columns}};
  }

  // Frees what is large in the call.
  std::vector<float> ResultsOf(const AttendCall& call) {
    std::vector<float> out(call.out.rows * call.out.columns);
    const std::vector<std::byte> bytes = Fetched(call.out.data, out.size() * sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    for (const void* memory :
         {static_cast<const void*>(call.q), static_cast<const void*>(call.k),
          static_cast<const void*>(call.v), static_cast<const void*>(call.partials),
          static_cast<const void*>(call.out.data)}) {
      device_->Free(const_cast<void*>(memory));
    }
    return out;
  }

  Device* device_;
  const Shape shape_;
  const uint32_t padded_;
  size_t head_bytes_, plane_bytes_, tail_stride_, page_stride_;
  std::vector<std::byte> tails_, pages_;
  std::byte* device_tails_;
  std::byte* device_pages_;
};

class SoftmaxOperation : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    RIVULET_NEED_GPU();
    auto device = OpenCudaDevice(GetParam().precision);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }
  static double bound() { return GetParam().precision == ProductPrecision::kFloat32 ? 1e-4 : 2e-2; }
  std::unique_ptr<Device> device_;
};

void ExpectNear(const std::vector<float>& expected, const std::vector<float>& got, double bound,
                const char* what) {
  ASSERT_EQ(expected.size(), got.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) continue;  // a row that does not run
    worst = WorstDifference(worst, expected[i], got[i]);
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  std::printf("%s, %s: worst difference %.2g of %.2g\n",
              testing::UnitTest::GetInstance()->current_test_info()->name(), what, worst, largest);
  EXPECT_TRUE(std::isfinite(worst)) << what;
  EXPECT_LE(worst, bound * largest) << what;
}

TEST_P(SoftmaxOperation, IsNearTheDefinitionAndKeepsTheSameRows) {
  const std::vector<Piece> mixed = {{0, 0, 1},    {1, 5, 40}, {2, 15, 1},   {3, 31, 0},
                                    {4, 300, 17}, {5, 16, 1}, {6, 8189, 6}, {7, 8200, 1}};
  FakeDevice fake;
  Sessions expected(&fake, GetParam(), 8), got(device_.get(), GetParam(), 8);
  std::vector<Piece> decode;
  for (const Piece& piece : mixed) {
    expected.SetTail(piece.session, piece.position);
    got.SetTail(piece.session, piece.position);
    decode.push_back({piece.session, piece.position + piece.tokens, piece.tokens == 0 ? 0u : 1u});
  }
  ExpectNear(expected.Run(mixed, false), got.Run(mixed, false), bound(), "pieces");
  EXPECT_TRUE(expected.State(mixed) == got.State(mixed)) << "after pieces";
  ExpectNear(expected.Run(decode, true), got.Run(decode, true), bound(), "decode");
  EXPECT_TRUE(expected.State(decode) == got.State(decode)) << "after decode";
}

// Where the sessions of SealAndRead are when its last step begins. A span begins 64 or 128 tokens
// before.
constexpr uint64_t kAfterSealing[] = {64, 128, 1600, 1664};
constexpr uint32_t kSealing = 4, kBusyPosition = 8000;  // sessions, and where the one after them is

// A step whose one walk keeps the device busy, so that the next two are in the queue before they
// may begin; one whose `tokens` of each session end with a page; and one that reads it. `copies` of
// each row.
std::vector<Step> SealAndRead(uint32_t tokens, uint32_t copies) {
  Step seal{{}, tokens == 1}, read{{}, true};
  for (uint32_t i = 0; i < copies * kSealing; ++i) {
    const uint32_t session = i % kSealing;
    const uint64_t position = kAfterSealing[session];
    seal.pieces.push_back({session, position - tokens, tokens});
    read.pieces.push_back({session, position, 1});
  }
  return {{{{kSealing, kBusyPosition, 2}}, false}, seal, read};
}

std::vector<std::vector<float>> SealedAndRead(Sessions& sessions, uint32_t tokens,
                                              uint32_t copies) {
  for (uint32_t s = 0; s < kSealing; ++s) sessions.SetTail(s, kAfterSealing[s] - tokens);
  sessions.SetTail(kSealing, kBusyPosition);
  return sessions.RunInARow(SealAndRead(tokens, copies));
}

std::vector<float> Repeated(const std::vector<float>& once, uint32_t times) {
  std::vector<float> result;
  for (uint32_t i = 0; i < times; ++i) result.insert(result.end(), once.begin(), once.end());
  return result;
}

// A block copies as many of its first tokens as it has room for before it waits for the kernel
// before it, if earlier steps have written them: here the last of their pages is one that the step
// before has just sealed, and only the embedding lies between. Shapes that choose their tokens copy
// nothing early, and with a small window the step before is too short for the next ones to queue up
// behind it: there this is a test of correct results only.
TEST_P(SoftmaxOperation, ReadsThePageThatTheStepBeforeHasSealed) {
  FakeDevice fake;
  Sessions expected(&fake, GetParam(), kSealing + 1), got(device_.get(), GetParam(), kSealing + 1);
  for (const uint32_t tokens : {1, 3}) {
    const auto once = SealedAndRead(expected, tokens, 1);
    for (const uint32_t copies : {1, 4}) {
      const auto results = SealedAndRead(got, tokens, copies);
      ExpectNear(once[0], results[0], bound(), "busy");
      ExpectNear(Repeated(once[1], copies), results[1], bound(), "sealing");
      ExpectNear(Repeated(once[2], copies), results[2], bound(), "reading");
    }
  }
}

// Without an output, keys and values are kept all the same.
TEST_P(SoftmaxOperation, MayKeepRowsAlone) {
  const std::vector<Piece> pieces = {{0, 0, 1}, {1, 5, 40}, {2, 15, 1}};
  FakeDevice fake;
  Sessions expected(&fake, GetParam(), 3), got(device_.get(), GetParam(), 3);
  for (const Piece& piece : pieces) {
    expected.SetTail(piece.session, piece.position);
    got.SetTail(piece.session, piece.position);
  }
  expected.Run(pieces, false);
  const std::vector<float> out = got.Run(pieces, false, /*keeps_alone=*/true);
  EXPECT_TRUE(std::isnan(out[0])) << "nothing has written it";
  EXPECT_TRUE(expected.State(pieces) == got.State(pieces));
}

// Across the position at which spans become longer.
TEST_P(SoftmaxOperation, HasTheSameBitsForEveryCut) {
  constexpr uint64_t kFirst = 8150;
  constexpr uint32_t kTokens = 150;
  Sessions sessions(device_.get(), GetParam(), 3);
  sessions.SetTail(0, kFirst);
  sessions.SetTail(1, 40);
  sessions.SetTail(2, 700);
  const std::vector<float> whole = sessions.Run({{0, kFirst, kTokens}}, false);
  const size_t columns = whole.size() / kTokens;
  uint64_t beside = 40;
  for (const uint32_t piece : {1, 1000, 7, 16, 33}) {
    sessions.SetTail(0, kFirst);
    for (uint32_t done = 0; done < kTokens;) {
      const uint32_t tokens = std::min(piece == 1000 ? 1u : piece, kTokens - done);
      std::vector<Piece> pieces = {{0, kFirst + done, tokens}};
      // One token at a time: as a decode step, and beside a prompt.
      const bool single = piece == 1;
      if (!single) {
        pieces.push_back({1, beside, 5});
        std::swap(pieces[0], pieces[1]);
        beside += 5;
      }
      const std::vector<float> out = sessions.Run(pieces, single);
      const size_t first = single ? 0 : 5;
      ASSERT_EQ(std::memcmp(out.data() + first * columns, whole.data() + done * columns,
                            tokens * columns * sizeof(float)),
                0)
          << "pieces of " << piece << ", after token " << done;
      done += tokens;
    }
  }
}

// Blocks take several spans of a row at a time then, if it has 8 kv heads or more, in any order;
// and a launch has 256 rows at most.
TEST_P(SoftmaxOperation, HasTheSameBitsInALargeStep) {
  constexpr size_t kRows = 300;
  const std::vector<Piece> rows = {{0, 8201, 1}, {1, 40, 1}, {2, 4099, 1}};
  Sessions sessions(device_.get(), GetParam(), 3);
  std::vector<std::vector<float>> alone;
  for (const Piece& row : rows) {
    sessions.SetTail(row.session, row.position);
    alone.push_back(sessions.Run({row}, true));
  }
  std::vector<Piece> many;
  for (size_t i = 0; i < kRows; ++i) many.push_back(rows[i % rows.size()]);
  const std::vector<float> out = sessions.Run(many, true);
  for (size_t i = 0; i < kRows; ++i) {
    const std::vector<float>& expected = alone[i % rows.size()];
    const float* got = out.data() + i * expected.size();
    ASSERT_EQ(std::memcmp(got, expected.data(), expected.size() * sizeof(float)), 0) << "row " << i;
  }
}

constexpr auto kExact = ProductPrecision::kFloat32;
constexpr auto kRounded = ProductPrecision::kBFloat16;

INSTANTIATE_TEST_SUITE_P(
    Shapes, SoftmaxOperation,
    testing::Values(Shape{"fp32", 4, 2, 24, 0, false, kExact},
                    Shape{"fp32_wide", 4, 1, 256, 0, false, kExact},
                    Shape{"fp32_window", 3, 1, 80, 500, false, kExact},
                    Shape{"fp32_bf16_pages", 6, 2, 128, 0, true, kExact},
                    Shape{"bf16_fp32_pages", 2, 2, 40, 0, false, kRounded},
                    Shape{"bf16_16", 3, 3, 16, 0, true, kRounded},
                    Shape{"bf16_64_groups_of_7", 14, 2, 64, 0, true, kRounded},
                    Shape{"bf16_128", 4, 1, 128, 0, true, kRounded},
                    Shape{"bf16_200", 8, 1, 200, 0, true, kRounded},
                    Shape{"bf16_256", 2, 1, 256, 0, true, kRounded},
                    Shape{"bf16_70_heads", 70, 1, 32, 0, true, kRounded},
                    Shape{"bf16_8_kv_heads", 8, 8, 64, 0, true, kRounded},
                    Shape{"bf16_16_kv_heads", 16, 16, 16, 0, true, kRounded},
                    Shape{"bf16_64_groups_of_20", 40, 2, 64, 0, true, kRounded},
                    Shape{"fp32_bf16_pages_40", 2, 2, 40, 0, true, kExact},
                    Shape{"fp32_bf16_pages_64", 10, 2, 64, 0, true, kExact},
                    Shape{"fp32_bf16_pages_100", 5, 1, 100, 0, true, kExact},
                    Shape{"fp32_bf16_pages_200", 4, 1, 200, 0, true, kExact},
                    Shape{"fp32_bf16_pages_256", 4, 1, 256, 0, true, kExact},
                    Shape{"bf16_window_1", 2, 1, 32, 1, true, kRounded},
                    Shape{"bf16_window_40", 4, 2, 96, 40, true, kRounded},
                    Shape{"bf16_window_8000", 4, 2, 64, 8000, true, kRounded},
                    Shape{"fp32_unseen_1", 4, 2, 24, 0, false, kExact, 0, 1},
                    Shape{"bf16_unseen_1", 8, 2, 128, 0, true, kRounded, 0, 1},
                    Shape{"bf16_unseen_300_window_40", 4, 2, 96, 40, true, kRounded, 0, 300},
                    Shape{"fp32_pools_of_4", 4, 2, 24, 0, false, kExact, 4},
                    Shape{"bf16_pools_of_1", 6, 2, 100, 0, true, kRounded, 1},
                    Shape{"bf16_pools_of_8", 2, 1, 40, 0, true, kExact, 8},
                    Shape{"bf16_pools_of_16", 8, 1, 256, 0, true, kRounded, 16},
                    Latent("fp32_latent_576", 4, 576, false, kExact),
                    Latent("fp32_latent_576_bf16_pages", 4, 576, true, kExact),
                    Latent("bf16_latent_576", 4, 576, true, kRounded),
                    Latent("bf16_latent_100_20_heads", 20, 100, true, kRounded),
                    Latent("bf16_latent_576_pools_of_4", 4, 576, true, kRounded, 4)),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace rivulet
