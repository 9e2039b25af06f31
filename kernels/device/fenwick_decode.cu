// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One token of each of few segments: what fenwick.cu does, with everything that need not wait done
// first. The order of every sum is that of fenwick.cu, so the bits are the same.
//
// A block has 16 value columns of one head of one segment, a warp these columns of two pages. It
// asks for all of them at once, into shared memory and, with pages of fp32, registers. So a block
// is small, and blocks of more than one launch find room on the processors: the reads of a launch
// overlap with the end of the one before. Numbers of fp32 are split into their parts as they come.
// After the wait the token's numbers are asked for at once; then there are two barriers, with the
// delta rule five. The last warp scores the tail's rows and adds up what the others read.
//
// Before the wait it reads
//   - the step's description, rates and skips, which no kernel of the step writes;
//   - pages and page decays: those that a block reads are written by its own fold alone, which
//     comes after its reads;
//   - rows of the tail before the token's place, which this launch does not write. It writes the
//     token's row: blocks that share a key take that row from the input.
// Queries, keys, values, log decays, β and λ come from kernels of the step and are read after it.
//
// Bytes expected: as in fenwick.cu.
#include <algorithm>

#include "kernels/device/fenwick_fold.cuh"
#include "kernels/device/rehearsal.cuh"

namespace rivulet::cuda {
namespace {

using namespace fenwick;

constexpr uint32_t kHeldPages = 2;  // of a warp
constexpr uint32_t kMostKeyTiles = 8;
constexpr uint32_t kMostLive = 32;  // pages: one a lane

// Of a lane: an fp32 tile's upper and lower numbers, or, as left operands, high and low parts; or
// what a bf16 tile has in place of `high`.
struct PageTile {
  uint4 high = {}, low = {};

  __device__ void ToParts() {
    uint32_t first[4], second[4];
    SplitTile({Floats(high), Floats(low)}, first, second);
    high = {first[0], first[1], first[2], first[3]};
    low = {second[0], second[1], second[2], second[3]};
  }
  __device__ static float4 Floats(uint4 x) {
    return {__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z), __uint_as_float(x.w)};
  }
};

template <int kParts, bool kBf16Pages, bool kDelta>
class FenwickDecode : public FenwickFold<true, kParts, kBf16Pages> {
 public:
  using Block = FenwickBlock<true, kParts, kBf16Pages>;
  using Block::begin_, Block::BetaRow, Block::c_, Block::chunk_, Block::columns_, Block::DecayRow,
      Block::dk_, Block::dv_, Block::end_, Block::first_tile_, Block::g_, Block::head_, Block::k_,
      Block::KeepOverlap, Block::Key, Block::key_tiles_, Block::KeyRow, Block::lane_, Block::live_,
      Block::LoadColumns, Block::MultiplyKeys, Block::Page, Block::PageDecay, Block::q_,
      Block::Query, Block::s_, Block::segment_, Block::t_, Block::table_, Block::token_, Block::v_,
      Block::Value, Block::ValueRow, Block::warp_, Block::Warps, Block::WritesHead,
      Block::WritesKey;
  using Row = typename Block::Row;
  static constexpr uint32_t kTileBytes = kBf16Pages ? 512 : 1024;
  // Tiles of 16 keys that are held of a page.
  static constexpr uint32_t kInRegisters = kBf16Pages ? 0 : 3;
  static constexpr uint32_t kInShared = kMostKeyTiles - kInRegisters;
  static constexpr uint32_t kHeldBytes = kInShared * kTileBytes;  // of a page, in shared memory

  __device__ FenwickDecode(const FenwickCall& call, std::byte* memory)
      : FenwickFold<true, kParts, kBf16Pages>(call, memory, 1, blockIdx.y) {
    const Sizes<true, kParts> sizes(call, 1);
    query_ = reinterpret_cast<float*>(memory + sizes.end);
    reads_ = query_ + call.padded_key;
    held_in_shared_ = reinterpret_cast<std::byte*>(reads_ + kMostLive * 16) +
                      size_t{warp_} * kHeldPages * kHeldBytes + lane_ * 16;
  }

  static uint32_t SharedBytes(const FenwickCall& call, uint32_t warps) {
    return Sizes<true, kParts>(call, 1).end +
           static_cast<uint32_t>(sizeof(float)) * (call.padded_key + kMostLive * 16) +
           warps * kHeldPages * kHeldBytes;
  }

  __device__ void Run() {
    // Volatile: asked for beside the number of tokens, and not after it.
    const volatile uint64_t& at = c_.rows.segments[blockIdx.y].position;
    const volatile uint32_t& table = c_.pages.segments[blockIdx.y].first;
    const uint64_t position = at;
    const uint32_t first_slot = table;
    if (segment_.tokens == 0) return AwaitLastKernel();
    begin_ = static_cast<uint32_t>(position % kChunk), end_ = begin_ + 1;
    const uint64_t chunk = position / kChunk;
    token_ = segment_.first_token, columns_ = 1;
    live_ = LivePages(chunk, c_.pages.levels), pages_ = __popcll(live_);
    if (Lives()) slot_ = c_.pages.slots[first_slot + lane_];
    StartPages();
    StartTail();
    FindItem();
    if (Adds()) TakeConstants();
    StagePageDecays();
    HoldPages();
    AwaitLastKernel();
    RunToken();
    if (end_ == kChunk) FoldChunk();
  }

 private:
  // Of the token's row, what a thread copies: four numbers of the key or of the query, or a value.
  // The last warp copies nothing.
  enum class Part : uint32_t { kNone, kKey, kQuery, kValue };
  static_assert(2 * kMostKeyTiles * 4 + 16 <= (kWarps / 2 - 1) * 32);

  __device__ void FoldChunk() {
    chunk_ = segment_.position / kChunk;
    table_ = c_.pages.slots + c_.pages.segments[blockIdx.y].first;
    this->Fold();
  }

  // Whether this warp scores the tail and adds up.
  __device__ bool Adds() const { return warp_ + 1 == Warps(); }

  // --- before the kernel before has ended --------------------------------------------------------

  // A lane knows the page of its number: whether it lives, how many do before it, and its slot.
  __device__ bool Lives() const { return (static_cast<uint32_t>(live_) >> lane_ & 1) != 0; }
  __device__ uint32_t LiveBefore() const {
    return __popc(static_cast<uint32_t>(live_) & ((1u << lane_) - 1));
  }
  // The page that has `index` live ones before it.
  __device__ uint32_t LivePage(uint32_t index) const {
    return __ffs(__ballot_sync(0xffffffffu, Lives() && LiveBefore() == index)) - 1;
  }
  // The block's columns of it.
  __device__ const std::byte* Strip(uint32_t page) const {
    return Page(__shfl_sync(0xffffffffu, slot_, page)) +
           size_t{first_tile_} * key_tiles_ * kTileBytes;
  }
  // Number j that the warp holds; as many as there are, or more: none.
  __device__ uint32_t Held(uint32_t j) const { return warp_ + j * Warps(); }

  // Asks for what shared memory holds. Pages for which there is no room go to L2 meanwhile.
  __device__ void StartPages() {
#pragma unroll
    for (uint32_t j = 0; j < kHeldPages; ++j) {
      if (Held(j) >= pages_) continue;
      const std::byte* strip = Strip(LivePage(Held(j)));
      CopyTiles(held_in_shared_ + j * kHeldBytes, strip, kInRegisters);
    }
    CommitCopies();
#pragma unroll 1
    for (uint32_t index = Held(kHeldPages); index < pages_; index += Warps()) {
      FetchTiles(Strip(LivePage(index)), key_tiles_);
    }
  }

  // kInShared tiles from `first` on. A lane copies what it will read.
  __device__ void CopyTiles(std::byte* to, const std::byte* strip, uint32_t first) const {
#pragma unroll
    for (uint32_t i = 0; i < kInShared; ++i) {
      if (first + i >= key_tiles_) continue;
      const std::byte* from = strip + (first + i) * kTileBytes + lane_ * 16;
      CopyAsync(to + i * kTileBytes, from);
      if constexpr (!kBf16Pages) CopyAsync(to + i * kTileBytes + 512, from + 512);
    }
  }
  __device__ void FetchTiles(const std::byte* strip, uint32_t tiles) const {
    if (lane_ * 128 < tiles * kTileBytes) PrefetchToL2(strip + lane_ * 128);
    static_assert(kMostKeyTiles * kTileBytes <= 64 * 128);
    if ((lane_ + 32) * 128 < tiles * kTileBytes) PrefetchToL2(strip + (lane_ + 32) * 128);
  }

  // Rows before the token's, and zeros behind it: their scores are masked, but zero times anything
  // is not zero.
  __device__ void StartTail() {
    StageRows<kParts>(k_, dk_, c_.padded_key, begin_, end_, [&](uint32_t a) { return KeyRow(a); });
    StageRows<kParts>(v_, dv_, 16, begin_, end_, [&](uint32_t a) { return ValueRow(a); });
    CommitCopies();
  }

  __device__ void FindItem() {
    const uint32_t fours = c_.padded_key / 4, first = first_tile_ * 16;
    uint32_t i = threadIdx.x;
    if (i < fours) {
      part_ = Part::kKey, from_ = Key(token_) + i * 4, to_ = begin_ * dk_ + i * 4;
      if (WritesKey()) row_ = KeyRow(begin_) + i * 4;
      return;
    }
    i -= fours;
    if (i < fours) {
      part_ = Part::kQuery, from_ = Query(token_) + i * 4;
      to_ = static_cast<uint32_t>(q_ - k_) + i * 4;
      return;
    }
    i -= fours;
    if (i >= 16) return;
    part_ = Part::kValue, row_ = ValueRow(begin_) + i;
    to_ = static_cast<uint32_t>(v_ - k_) + begin_ * dv_ + i;
    if (first + i < c_.value_dim) from_ = Value(token_) + first + i;
  }

  // Of place `lane` of the chunk, and of page `lane`.
  __device__ void TakeConstants() {
    if (lane_ < begin_) {
      decay_ = DecayRow()[lane_];
      if (kDelta) beta_ = BetaRow()[lane_];
    }
    if (c_.rate != nullptr) rate_ = c_.rate[head_];
    level_ = c_.levels + size_t{token_} * c_.levels_stride + head_ * c_.level_count;
    if (c_.skip == nullptr || t_ != 0) return;
    from_ = Value(token_) + first_tile_ * 16 + g_;
    for (uint32_t half = 0; half < 2; ++half) {
      if (HasValue(half)) Skip(half) = c_.skip[head_ * c_.value_dim + ValueColumn(half)];
    }
  }

  // The two value columns that a lane of column 0 adds up.
  __device__ uint32_t ValueColumn(uint32_t half) const { return first_tile_ * 16 + g_ + half * 8; }
  __device__ bool HasValue(uint32_t half) const { return ValueColumn(half) < c_.value_dim; }
  // What a skip multiplies them with, where fenwick.cu has weights of pages: registers are few.
  __device__ float& Skip(uint32_t half) const { return s_->weight[g_ + half * 8]; }

  __device__ void StagePageDecays() {
    const float* from = PageDecay(segment_.base_in, 0);
    for (uint32_t i = threadIdx.x; i < 2 * c_.pages.levels; i += blockDim.x) {
      s_->page_decay[i] = live_ == 0 ? 0.0f : from[i];
    }
  }

  // fp32 pages: the registers' part; and everything as parts.
  __device__ void HoldPages() {
    if constexpr (!kBf16Pages) HoldTiles();
    WaitForCopies<0>();
    __syncwarp();
    if constexpr (!kBf16Pages) SplitPages();
  }
  __device__ void HoldTiles() {
#pragma unroll
    for (uint32_t j = 0; j < kHeldPages; ++j) {
      if (Held(j) >= pages_) continue;
      const std::byte* strip = Strip(LivePage(Held(j))) + lane_ * 16;
#pragma unroll
      for (uint32_t i = 0; i < kInRegisters; ++i) {
        if (i < key_tiles_) held_[j][i] = AskForTile(strip + i * kTileBytes);
      }
    }
  }
  __device__ void SplitPages() {
#pragma unroll
    for (uint32_t j = 0; j < kHeldPages; ++j) {
      if (Held(j) >= pages_) continue;
#pragma unroll
      for (uint32_t i = 0; i < kInRegisters; ++i) held_[j][i].ToParts();
#pragma unroll
      for (uint32_t i = 0; i < kInShared; ++i) SplitInShared(held_in_shared_ + j * kHeldBytes, i);
    }
  }
  __device__ void SplitInShared(std::byte* page, uint32_t i) const {
    if (kInRegisters + i >= key_tiles_) return;
    PageTile tile = TileAt(page + i * kTileBytes);
    tile.ToParts();
    *reinterpret_cast<uint4*>(page + i * kTileBytes) = tile.high;
    *reinterpret_cast<uint4*>(page + i * kTileBytes + 512) = tile.low;
  }
  // In device memory. Volatile: not after the wait for what shared memory holds.
  __device__ static PageTile AskForTile(const std::byte* lane) {
    return {AskForFour(lane), AskForFour(lane + 512)};
  }
  __device__ static uint4 AskForFour(const std::byte* numbers) {
    uint4 x;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(numbers));
    return x;
  }
  __device__ static PageTile TileAt(const std::byte* lane) {
    PageTile tile;
    tile.high = *reinterpret_cast<const uint4*>(lane);
    if constexpr (!kBf16Pages) tile.low = *reinterpret_cast<const uint4*>(lane + 512);
    return tile;
  }

  // --- the token ---------------------------------------------------------------------------------

  __device__ void RunToken() {
    TakeToken();
    __syncthreads();
    if constexpr (kDelta) {
      ScoreAll();
      __syncthreads();
      if (Adds()) Solve();
      __syncthreads();
      CorrectQuery();
      __syncthreads();
    } else if (Adds()) {
      ScoreQuery();
      __syncwarp();
      if (lane_ < kChunk) KeepWeight(s_->score[lane_]);
    }
    if (pages_ != 0) ReadHeld();
    ReadOthers();
    __syncthreads();
    if (Adds()) AddUp();
  }

  // Everything is asked for before the first number is used.
  __device__ void TakeToken() {
    const bool value = part_ == Part::kValue;
    float step = 0.0f;
    if (Adds() || (value && c_.times_step)) {
      step = ReadLate(c_.g + size_t{token_} * c_.g_stride + head_);
    }
    if (Adds()) {
      AskForToken();
      KeepDecays(step);
    } else {
      float4 x = {};
      if (from_ != nullptr && value) x.x = ReadLate(from_);
      if (from_ != nullptr && !value) x = ReadLate(reinterpret_cast<const float4*>(from_));
      StoreItem(x, step);
    }
  }

  __device__ void StoreItem(float4 x, float step) {
    bf16* const to = k_ + to_;
    if (part_ == Part::kValue) {
      if (c_.times_step) x.x *= step;
      StoreParts<kParts>(to, kChunk * dv_, x.x);
      if (row_ != nullptr) Store(row_, x.x);
    } else if (part_ != Part::kNone) {
      StoreFour<kParts>(to, part_ == Part::kKey ? kChunk * dk_ : dk_, x);
      if (row_ != nullptr) StoreFour(row_, x);
      if (kDelta && part_ == Part::kQuery) {
        *reinterpret_cast<float4*>(query_ + threadIdx.x * 4 - c_.padded_key) = x;
      }
    }
  }

  // λ of the rows and pages, β, and the values that a skip adds.
  __device__ void AskForToken() {
    if (lane_ <= begin_) {
      row_lambda_ = ReadLate(level_ + FenwickLevel(32 - __clz(begin_ ^ lane_), c_.level_count));
    }
    if (Lives()) page_lambda_ = ReadLate(level_ + LevelOfPage(lane_, c_.level_count));
    if (kDelta && lane_ == begin_) {
      beta_ = ReadLate(c_.beta + size_t{token_} * c_.beta_stride + head_);
    }
    if (from_ == nullptr) return;
    for (uint32_t half = 0; half < 2; ++half) {
      if (HasValue(half)) skipped_[half] = ReadLate(from_ + half * 8);
    }
  }

  // Cumulative from the border.
  __device__ void KeepDecays(float step) {
    const float last = __shfl_sync(0xffffffffu, decay_, begin_ == 0 ? 0 : begin_ - 1);
    float sum = begin_ == 0 ? 0.0f : last;
    sum += c_.rate != nullptr ? rate_ * step : step;
    if (lane_ == begin_) {
      decay_ = sum;
      if (WritesHead()) DecayRow()[begin_] = sum;
      if (kDelta && WritesHead()) BetaRow()[begin_] = beta_;
    }
    if (lane_ >= kChunk) return;
    s_->decay[lane_] = decay_;
    if (kDelta) s_->beta[lane_] = beta_;
  }

  // --- scores ------------------------------------------------------------------------------------

  __device__ void ScoreQuery() {
    float sum[4] = {};
    MultiplyKeys(true, 0, sum);
    if (t_ != 0) return;
    s_->score[g_] = sum[0];
    s_->score[g_ + 8] = sum[2];
  }

  // Of the delta rule: keys times the query and, eight of them a warp, times each other.
  __device__ void ScoreAll() {
    if (Adds()) return ScoreQuery();
    if (warp_ >= 2) return;
    float sum[4] = {};
    MultiplyKeys(false, warp_ * 8, sum);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      KeepOverlap(g_ + i / 2 * 8, warp_ * 8 + 2 * t_ + i % 2, sum[i]);
    }
  }

  // x (I + N) = scores, place s in lane s; then the weights.
  __device__ void Solve() {
    const uint32_t s = lane_ % kChunk;
    float x = s <= begin_ ? s_->score[s] : 0.0f;
    for (uint32_t r = begin_; r > 0; --r) {
      const float known = __shfl_sync(0xffffffffu, x, r);
      if (s < r) x = fmaf(-known, s_->overlap[r * kChunk + s], x);
    }
    if (lane_ >= kChunk) return;
    x = s <= begin_ ? x * s_->beta[s] : 0.0f;
    s_->score[s] = x;
    KeepWeight(x);
  }

  // The weight of the value row of this lane; zero for rows behind the token's.
  __device__ void KeepWeight(float score) const {
    const float now = s_->decay[begin_];
    float x = 0.0f;
    if (lane_ <= begin_) x = score * (expf(now - decay_) * row_lambda_);
    StoreParts<kParts>(s_->p + lane_, kSquare, x);
  }

  // q̂ in the place of q.
  __device__ void CorrectQuery() {
    static_assert(kMostKeyTiles * 16 <= kWarps / 2 * 32);
    const uint32_t d = threadIdx.x;
    if (d >= c_.padded_key) return;
    constexpr uint32_t kAtOnce = 4;  // keys that are loaded before the first is used
    float x = query_[d];
    for (uint32_t first = 0; first <= begin_; first += kAtOnce) {
      float weights[kAtOnce], keys[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        weights[i] = -s_->score[first + i];
        keys[i] = LoadParts<kParts>(k_ + (first + i) * dk_ + d, kChunk * dk_);
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (first + i <= begin_) x = fmaf(weights[i], keys[i], x);
      }
    }
    StoreParts<kParts>(q_ + d, dk_, x);
  }

  // --- reads -------------------------------------------------------------------------------------

  __device__ void MultiplyTile(const PageTile& tile, uint32_t kt, float (&sum)[4]) const {
    const uint4 x = tile.high, y = tile.low;
    const uint32_t high[4] = {x.x, x.y, x.z, x.w}, low[4] = {y.x, y.y, y.z, y.w};
    Block::template Multiply<!kBf16Pages>(sum, high, low, q_, dk_, 0, 1, kt);
  }

  // The warp's pages side by side. A page that is not there gives numbers that are not used.
  __device__ void ReadHeld() const {
    float sum[kHeldPages][4] = {};
    if constexpr (!kBf16Pages) ReadRegisters(sum);
#pragma unroll
    for (uint32_t i = 0; i < kInShared; ++i) {
      if (kInRegisters + i >= key_tiles_) continue;
#pragma unroll
      for (uint32_t j = 0; j < kHeldPages; ++j) {
        const std::byte* tile = held_in_shared_ + j * kHeldBytes + i * kTileBytes;
        MultiplyTile(TileAt(tile), kInRegisters + i, sum[j]);
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < kHeldPages; ++j) {
      if (Held(j) < pages_) KeepRead(LivePage(Held(j)), sum[j]);
    }
  }
  __device__ void ReadRegisters(float (&sum)[kHeldPages][4]) const {
#pragma unroll
    for (uint32_t i = 0; i < kInRegisters; ++i) {
      if (i >= key_tiles_) continue;
#pragma unroll
      for (uint32_t j = 0; j < kHeldPages; ++j) MultiplyTile(held_[j][i], i, sum[j]);
    }
  }

  __device__ void KeepRead(uint32_t page, const float (&sum)[4]) const {
    if (t_ != 0) return;
    reads_[page * 16 + g_] = sum[0];
    reads_[page * 16 + g_ + 8] = sum[2];
  }

  // Pages for which there was no room, each in the shared memory of those that were read.
  __device__ void ReadOthers() const {
    static_assert(kHeldPages == 2 && kHeldPages * kInShared >= kMostKeyTiles);
#pragma unroll 1
    for (uint32_t index = Held(kHeldPages); index < pages_; index += Warps()) {
      const uint32_t page = LivePage(index);
      const std::byte* strip = Strip(page);
      CopyTiles(held_in_shared_, strip, 0);
      CopyTiles(held_in_shared_ + kHeldBytes, strip, kInShared);
      CommitCopies();
      WaitForCopies<0>();
      __syncwarp();
      float sum[4] = {};
#pragma unroll 1
      for (uint32_t kt = 0; kt < key_tiles_; ++kt) {
        PageTile tile = TileAt(held_in_shared_ + kt * kTileBytes);
        if constexpr (!kBf16Pages) tile.ToParts();
        MultiplyTile(tile, kt, sum);
      }
      KeepRead(page, sum);
    }
  }

  // --- sums --------------------------------------------------------------------------------------

  // Lanes of column 0 have value columns g and g + 8.
  __device__ void AddUp() const {
    float total[4] = {};
    const float now = s_->decay[begin_];
    float weight = 0.0f;
    if (Lives()) {
      const float* decay = s_->page_decay + 2 * lane_;
      weight = expf((now + decay[1]) + decay[0]) * page_lambda_;
    }
    constexpr uint32_t kAtOnce = 8;  // reads that are loaded before the first is added
#pragma unroll 1
    for (auto left = static_cast<uint32_t>(live_); left != 0;) {
      float near[kAtOnce], far[kAtOnce], weights[kAtOnce];
      bool exists[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        exists[i] = left != 0;
        const uint32_t page = exists[i] ? __ffs(left) - 1 : 0;
        left &= left - 1;
        near[i] = reads_[page * 16 + g_], far[i] = reads_[page * 16 + g_ + 8];
        weights[i] = __shfl_sync(0xffffffffu, weight, page);
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (!exists[i]) continue;
        total[0] = fmaf(weights[i], near[i], total[0]);
        total[2] = fmaf(weights[i], far[i], total[2]);
      }
    }
    AddTail(total);
    if (t_ != 0) return;
    Write(0, total[0]);
    Write(1, total[2]);
  }

  __device__ void AddTail(float (&total)[4]) const {
    uint32_t v[kParts][4];
    LoadColumns(v, v_, dv_);
    const bool present = g_ == 0;
    const bf16* row = s_->p + 2 * t_;
    const uint32_t b0 = Two(row, present), b1 = Two(row + 8, present);
    MultiplyAdd(total, v[0], b0, b1);
    if constexpr (kParts == 2) {
      MultiplyAdd(total, v[1], b0, b1);
      row += kSquare;
      MultiplyAdd(total, v[0], Two(row, present), Two(row + 8, present));
    }
  }

  __device__ void Write(uint32_t half, float x) const {
    const uint32_t e = ValueColumn(half);
    if (c_.skip != nullptr && HasValue(half)) x = fmaf(Skip(half), skipped_[half], x);
    c_.out.data[size_t{token_} * c_.out.stride + size_t{head_} * c_.padded_value + e] = x;
  }

  float *query_, *reads_;      // [Dp] of the delta rule, [pages, 16]
  std::byte* held_in_shared_;  // [held pages, tiles], the lane's
  uint32_t pages_ = 0;         // that live
  uint32_t slot_ = 0;          // of page `lane`
  PageTile held_[kHeldPages][kBf16Pages ? 1 : kInRegisters];
  Part part_ = Part::kNone;
  // Null: zeros. Of the last warp: the values that a skip adds; null: none.
  const float* from_ = nullptr;
  uint32_t to_ = 0;     // from k_ on
  Row* row_ = nullptr;  // of the tail; null: not kept
  // Of the last warp, by lane: cumulative decay, β and λ of a place, and λ of a page.
  float decay_ = 0.0f, beta_ = 0.0f, row_lambda_ = 0.0f, page_lambda_ = 0.0f, rate_ = 0.0f;
  float skipped_[2] = {};
  const float* level_ = nullptr;
};

// Four blocks of four warps share a processor, or five with pages of bf16. With keys of 128 shared
// memory has room for as many where rows are bf16 and there is no delta rule, otherwise for two to
// four. Nothing is rehearsed (rehearsal.cuh): with it steps of one row were up to 6 % slower.
constexpr int Registers(bool bf16_pages) { return bf16_pages ? 96 : 128; }

template <int kParts, bool kBf16Pages, bool kDelta>
__global__ void __maxnreg__(Registers(kBf16Pages))
    FenwickDecodeKernel(const __grid_constant__ FenwickCall call) {
  extern __shared__ __align__(16) std::byte memory[];
  AllowNextKernel();
  FenwickDecode<kParts, kBf16Pages, kDelta>(call, memory).Run();
}

// If all blocks find room at once. Four warps have room for eight pages; more of them read and
// fold faster where processors have a block each.
template <int kParts, bool kBf16Pages, bool kDelta>
bool Launch(const FenwickCall& call, const LaunchContext& context) {
  const auto kernel = FenwickDecodeKernel<kParts, kBf16Pages, kDelta>;
  const auto processors = static_cast<uint32_t>(context.processors);
  const uint32_t of_segment = call.heads * (call.padded_value / 16);
  const uint32_t blocks = of_segment * call.rows.segment_count;
  const uint32_t threads = 32 * (blocks <= processors ? kWarps : kWarps / 2);
  const uint32_t shared =
      FenwickDecode<kParts, kBf16Pages, kDelta>::SharedBytes(call, threads / 32);
  const uint32_t resident = std::min(kSharedOfBlocks / (shared + kSharedReserve),
                                     65536 / (threads * Registers(kBf16Pages)));
  if (blocks > processors * resident) return false;
  static const cudaError_t prepared = AllowAllShared(kernel);
  context.Check(prepared);
  context.Run(kernel, dim3(of_segment, call.rows.segment_count), threads, shared, call);
  return true;
}

template <int kParts, bool kBf16Pages>
bool LaunchForRule(const FenwickCall& call, const LaunchContext& context) {
  return call.delta ? Launch<kParts, kBf16Pages, true>(call, context)
                    : Launch<kParts, kBf16Pages, false>(call, context);
}

template <int kParts>
bool LaunchForPages(const FenwickCall& call, const LaunchContext& context) {
  return call.bf16_pages ? LaunchForRule<kParts, true>(call, context)
                         : LaunchForRule<kParts, false>(call, context);
}

}  // namespace

bool LaunchFenwickDecode(const FenwickCall& call, bool fp32_rows, const LaunchContext& context) {
  if (!call.rows.single || call.padded_key > kMostKeyTiles * 16 || call.pages.levels > kMostLive) {
    return false;
  }
  return fp32_rows ? LaunchForPages<2>(call, context) : LaunchForPages<1>(call, context);
}

}  // namespace rivulet::cuda
