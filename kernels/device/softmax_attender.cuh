// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One block of the grid of AttendKernel (softmax_attention.cu): it finds its share of the step, and
// reads keys and values for up to 16 · kTiles query rows at a time.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENDER_CUH_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENDER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/softmax_attention.cuh"

namespace rivulet::cuda::softmax {

// Which query rows a kernel is for.
enum class RowKind : uint8_t {
  kDecoded,   // segments of one token
  kStreamed,  // the same, with keys and values copied by a warp of their own (softmax_stream.cuh)
  kWalked,    // of longer segments
};

constexpr uint32_t kBlock = 64;  // tokens; a warp scores 16 of them, and has some value columns
constexpr uint32_t kBlockPages = kBlock / kChunk;
static_assert(kBlockPages == kWarps, "a warp copies a page");
constexpr uint32_t kPad = 8;           // bf16 numbers: rows then lie in different banks
constexpr uint32_t kScoreStride = 68;  // floats

// kChosen: rows see chosen pools (AttendCall::chosen).
// kParts: of queries and weights. Pages of fp32 are read as two parts, which takes two there too.
// kPairs: 16 value columns each that a warp has. kShared: values are the keys
// (AttendCall::values_are_keys), so a block's rows are copied once. kExact: heads are as wide as
// kPairs allows, so that loops over their columns have no conditions.
template <typename Kv, int kParts, int kTiles, int kPairs, RowKind kKind, bool kShared,
          bool kChosen = false, bool kExact = false>
class Attender {
 public:
  static constexpr uint32_t kWidest = kPairs * kWarps * 16;
  static constexpr int kPlanes = sizeof(Kv) == 4 ? 2 : 1;
  static constexpr bool kWalk = kKind == RowKind::kWalked;
  static constexpr bool kStream = kKind == RowKind::kStreamed;
  static constexpr uint32_t kFetcher = kStream ? kThreads : 0;  // the thread that fetches items
  static constexpr uint32_t kStages = sizeof(Kv) == 4 ? 1 : 2;
  static constexpr uint32_t kValuesAhead = kStages - 1;
  static constexpr uint32_t kRows = 16 * kTiles;
  static_assert(kPlanes <= kParts);

  // `slots`: of streamed rows, blocks of keys or values that are kept.
  __host__ __device__ static constexpr size_t SharedBytes(uint32_t padded, uint32_t slots) {
    const size_t row = (padded + kPad) * sizeof(bf16);
    return row * (kRows * kParts + StoredBlocks(slots) * kPlanes * kBlock) +
           kRows * (kScoreStride + 3) * sizeof(float) + (kSpanSegments + 4) * sizeof(uint32_t);
  }

  __device__ Attender(const AttendCall& call, SegmentRange range, std::byte* memory)
      : c_(call),
        range_(range),
        tiling_(Tiling::Of(call.heads / call.kv_heads, kRows, !kWalk)),
        policy_(KeysAreReadOnce() ? ReadOnce() : ReadAgain()),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {
    q_ = reinterpret_cast<bf16*>(memory);
    k_ = q_ + kParts * kRows * Stride();
    v_ = kShared ? k_ : k_ + kStages * kPlanes * Plane();
    s_ = reinterpret_cast<float*>(k_ + StoredBlocks(range.slots) * kPlanes * Plane());
    scale_ = s_ + kRows * kScoreStride;
    join_ = reinterpret_cast<float2*>(scale_ + kRows);
    units_ = reinterpret_cast<uint32_t*>(join_ + kRows);
  }

  __device__ void Run() {
    if (warp_ == 0) CountUnits<kWalk>(c_, range_, tiling_.tokens, units_);
    __syncthreads();
    const uint32_t heads = c_.kv_heads * tiling_.head_tiles;
    const uint32_t items = units_[kSpanSegments] * heads;
    bool first = true;
    for (uint32_t item = blockIdx.x; item < items; item = NextItem(item), first = false) {
      // Later tiles read more tokens: they come first.
      const uint32_t at = kWalk ? items - 1 - item : item;
      Take(at / heads, at % heads);
      const bool early = first && BeginsWithOldPages();
      if (first && !early) AwaitLastKernel();
      StartCopies();
      if (early) AwaitLastKernel();
      FetchNextItem();
      Attend();
      __syncthreads();
    }
    if (first) AwaitLastKernel();
    if (!kWalk) LeaveItems(items);
  }

 protected:
  __device__ uint32_t Padded() const { return kExact ? kWidest : c_.padded; }
  __device__ uint32_t Stride() const { return Padded() + kPad; }  // of a row in shared memory
  __device__ uint32_t Eights() const { return Padded() / 8; }
  // From the first parts of a block to the second ones.
  __device__ uint32_t Plane() const { return kBlock * Stride(); }

  __host__ __device__ static constexpr uint32_t StoredBlocks(uint32_t slots) {
    return kStream ? slots : kStages * (kShared ? 1 : 2);
  }

  // Whether one block reads a session's keys and values. Then they leave L2 before partials and the
  // slots of pages do, which are needed again. Sessions that share pages still read them again,
  // from memory if need be.
  __device__ bool KeysAreReadOnce() const { return tiling_.head_tiles == 1; }

  // Whether earlier steps wrote all pages of the blocks before this one. No kernel of this step
  // writes those, so they may be copied while the kernels before this one run. AppendKernel writes
  // the chunk of `first_`, later ones and the tail.
  __device__ bool IsOld(uint32_t end_block) const {
    return end_block * kBlock <= first_ / kChunk * kChunk;
  }
  // Whether StartCopies reads nothing else. Which pools a row chose is found in the step itself.
  __device__ bool BeginsWithOldPages() const {
    return !kWalk && !kChosen && IsOld(block_ + kStages);
  }

  // --- items -------------------------------------------------------------------------------------

  // Decode rows have contexts of any length, so a block takes the next item that is left.
  __device__ void FetchNextItem() {
    if (!kWalk && threadIdx.x == kFetcher) next_ = atomicAdd(range_.counter, 1);
  }
  __device__ uint32_t NextItem(uint32_t item) {
    if (kWalk) return item + gridDim.x;
    if (threadIdx.x == kFetcher) units_[kSpanSegments + 1] = next_;
    __syncthreads();
    return gridDim.x + units_[kSpanSegments + 1];
  }
  // Each item is followed by a fetch. The one that comes last leaves zero.
  __device__ void LeaveItems(uint32_t items) const {
    if (threadIdx.x == kFetcher && next_ + 1 == items) *range_.counter = 0;
  }

  // --- an item -----------------------------------------------------------------------------------

  // Finds the segment of a unit, and what the item's rows see.
  __device__ void Take(uint32_t unit, uint32_t head) {
    uint32_t low = 0, high = range_.count;  // units_[low] <= unit < units_[high]
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (units_[middle] <= unit ? low : high) = middle;
    }
    place_ = low;
    const DeviceSegment& segment = c_.rows.segments[range_.first + low];
    pages_ = c_.pages.segments[range_.first + low];
    tail_ = segment.tail;
    end_ = static_cast<uint32_t>(segment.position) + segment.tokens;
    kv_head_ = head / tiling_.head_tiles;
    const uint32_t group = c_.heads / c_.kv_heads,
                   skipped = head % tiling_.head_tiles * tiling_.heads;
    first_head_ = kv_head_ * group + skipped;
    heads_ = min(tiling_.heads, group - skipped);
    TakeTokens(segment, unit - units_[low]);
  }

  // Positions fit 32 bits: a session of more tokens has no place for its pages.
  __device__ void TakeTokens(const DeviceSegment& segment, uint32_t unit) {
    const auto position = static_cast<uint32_t>(segment.position);
    if (kWalk) {
      const uint32_t tile = (position / tiling_.tokens + unit) * tiling_.tokens;
      first_ = max(tile, position);
      last_ = min(tile + tiling_.tokens, end_) - 1;
    } else {
      first_ = last_ = position;
    }
    token_ = segment.first_token + (first_ - position);
    const uint32_t bits = SpanBits(first_, c_.window);
    span_ = 1u << bits;
    const auto seen = static_cast<uint32_t>(FirstSeen(first_, c_.window, c_.unseen));
    uint32_t begin = seen, end = last_;
    if (!kWalk) {
      span_index_ = unit * range_.spans;
      const uint32_t border = ((seen >> bits) + span_index_) << bits;
      begin = max(border, seen);
      end = min(border + range_.spans * span_ - 1, last_);
    }
    block_ = begin / kBlock;
    last_block_ = end / kBlock;
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) {
      const uint32_t row = SoftmaxRow(pass), at = first_ + TokenIn(row);
      seen_from_[pass] =
          Present(row) ? static_cast<uint32_t>(FirstSeen(at, c_.window, c_.unseen)) : UINT32_MAX;
      seen_to_[pass] = at;
      m_[pass] = joined_m_[pass] = kNothing;
      l_[pass] = joined_l_[pass] = 0.0f;
    }
  }

  __device__ void Attend() {
    ClearOutputs(o_);
    if (kWalk) ClearOutputs(joined_);
    TakeQueries();
    for (uint32_t stage = 0; block_ <= last_block_; ++block_) {
      kShared ? AddSharedBlock(stage) : AddBlock(stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if (EndsSpan()) EndSpan();
    }
    WaitForCopies<0>();
    if (kWalk) WriteOutput();
  }

  __device__ bool EndsSpan() const {
    return ((block_ + 1) * kBlock & (span_ - 1)) == 0 || block_ == last_block_;
  }
  __device__ void EndSpan() {
    if (kWalk) return Join();
    WritePartial();
    ++span_index_;
    ClearOutputs(o_);
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) m_[pass] = kNothing, l_[pass] = 0.0f;
  }

  // A block of tokens into the outputs.
  __device__ void AddBlock(uint32_t stage) {
    WaitForCopies<kStages - 1 + kValuesAhead>();
    __syncthreads();
    CopyValues(stage == 0 ? kStages - 1 : stage - 1);
    Score(k_ + stage * kPlanes * Plane());
    __syncthreads();
    CopyKeys(stage);
    Weigh();
    WaitForCopies<2 * kValuesAhead + 1>();
    __syncthreads();
    AddValues(v_ + stage * kPlanes * Plane());
  }

  // The same where the keys must stay until their values have been added.
  __device__ void AddSharedBlock(uint32_t stage) {
    WaitForCopies<kStages - 1>();
    __syncthreads();
    Score(k_ + stage * kPlanes * Plane());
    __syncthreads();
    Weigh();
    __syncthreads();
    AddValues(k_ + stage * kPlanes * Plane());
    __syncthreads();
    CopyKeys(stage);
  }

  // --- keys and values ---------------------------------------------------------------------------

  // Rows of 16 tokens in memory: of a page or the tail; none: behind the last token, before the
  // first page, or of pools that a decode row did not choose, which nothing sees.
  struct Rows {
    uint32_t slot = 0;
    uint32_t count = 0;
    bool tail = false;
  };

  // Of a block's pages the one with this number.
  __device__ Rows RowsOf(uint32_t block, uint32_t part) const {
    const uint32_t page = block * kBlockPages + part, open = end_ / kChunk;
    if (block > last_block_ || page > open || page < pages_.first_page) return {};
    if (page == open) return {tail_, end_ % kChunk, true};
    if (kChosen && !kWalk && !SeesPage(page)) return {};
    return {SlotOf(c_, pages_, page), kChunk, false};
  }

  __device__ const Kv* PageOf(const Rows& rows, size_t tail_offset, size_t page_offset) const {
    const std::byte* plane = rows.tail
                                 ? c_.slots.tails + rows.slot * c_.slots.tail_stride + tail_offset
                                 : c_.slots.pages + rows.slot * c_.slots.page_stride + page_offset;
    return reinterpret_cast<const Kv*>(plane) + size_t{kv_head_} * kChunk * Padded();
  }

  // Zeros where there is no row: weights there are zero, but zero times anything is not.
  __device__ void CopyRows(bf16* to, const Kv* from, uint32_t count) const {
    uint32_t row = lane_ / Eights(), column = lane_ % Eights();
    const uint32_t rows_a_step = 32 / Eights(), columns_a_step = 32 % Eights();
    for (uint32_t i = lane_; i < kChunk * Eights(); i += 32) {
      bf16* at = to + row * Stride() + column * 8;
      if (row < count) {
        CopyEight<!kWalk>(at, Plane(), from + i * 8, policy_);
      } else {
#pragma unroll
        for (int p = 0; p < kPlanes; ++p)
          *reinterpret_cast<uint4*>(at + p * Plane()) = {0, 0, 0, 0};
      }
      row += rows_a_step;
      column += columns_a_step;
      if (column >= Eights()) column -= Eights(), ++row;
    }
  }

  // A page's place in a stage.
  __device__ bf16* Place(bf16* stage, uint32_t part) const {
    return stage + part * kChunk * Stride();
  }
  __device__ const Kv* Keys(const Rows& rows) const {
    return PageOf(rows, c_.tail_key_offset, c_.page_key_offset);
  }
  __device__ const Kv* Values(const Rows& rows) const {
    return PageOf(rows, c_.tail_value_offset, c_.page_value_offset);
  }
  __device__ void CopyKeys(bf16* to, const Rows& rows) const {
    CopyRows(to, Keys(rows), rows.count);
  }
  __device__ void CopyValues(bf16* to, const Rows& rows) const {
    CopyRows(to, Values(rows), rows.count);
  }

  // The item's first copies. Copies run kStages blocks ahead for keys, kValuesAhead for values; the
  // slot of the page that is copied next has been read a block before. Each copy is a group, of
  // nothing behind the last block, so that the number of groups behind one is known.
  __device__ void StartCopies() {
#pragma unroll
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      const uint32_t block = block_ + stage;
      const Rows rows = RowsOf(block, warp_);
      const int ahead = static_cast<int>(stage) - static_cast<int>(kValuesAhead);
      if (ahead >= 0) rows_[ahead] = rows;
      if (block <= last_block_) CopyKeys(Place(k_ + stage * kPlanes * Plane(), warp_), rows);
      CommitCopies();
      if (kShared || ahead >= 0) continue;
      if (block <= last_block_) CopyValues(Place(v_ + stage * kPlanes * Plane(), warp_), rows);
      CommitCopies();
    }
    rows_[kStages - kValuesAhead] = RowsOf(block_ + kStages, warp_);
  }
  __device__ void CopyValues(uint32_t stage) {
    const bool present = block_ + kValuesAhead <= last_block_;
    if (present) CopyValues(Place(v_ + stage * kPlanes * Plane(), warp_), rows_[0]);
    CommitCopies();
  }
  __device__ void CopyKeys(uint32_t stage) {
    constexpr uint32_t kNext = kStages - kValuesAhead;
    bf16* const to = Place(k_ + stage * kPlanes * Plane(), warp_);
    if (block_ + kStages <= last_block_) CopyKeys(to, rows_[kNext]);
    CommitCopies();
#pragma unroll
    for (uint32_t i = 0; i < kNext; ++i) rows_[i] = rows_[i + 1];
    rows_[kNext] = RowsOf(block_ + kStages + 1, warp_);
  }

  // --- queries -----------------------------------------------------------------------------------

  // A decode row's token has one tile of heads.
  __device__ uint32_t TokenIn(uint32_t row) const { return kWalk ? row / tiling_.heads : 0; }
  __device__ uint32_t HeadIn(uint32_t row) const { return kWalk ? row % tiling_.heads : row; }
  // Of the row's token, counted in the step.
  __device__ uint32_t TokenOf(uint32_t row) const { return token_ + TokenIn(row); }
  __device__ uint32_t HeadOf(uint32_t row) const { return first_head_ + HeadIn(row); }
  __device__ bool Present(uint32_t row) const {
    return first_ + TokenIn(row) <= last_ && HeadIn(row) < heads_;
  }

  __device__ void TakeQueries() {
    for (uint32_t i = threadIdx.x; i < kRows * Eights(); i += kThreads) {
      const uint32_t row = i / Eights(), column = i % Eights() * 8;
      float4 a = {0, 0, 0, 0}, b = a;
      if (Present(row)) {
        const float* q = c_.q + size_t{TokenOf(row)} * c_.q_stride + size_t{HeadOf(row)} * Padded();
        a = *reinterpret_cast<const float4*>(q + column);
        b = *reinterpret_cast<const float4*>(q + column + 4);
      }
      uint4 high, low;
      Split(a.x, a.y, high.x, low.x);
      Split(a.z, a.w, high.y, low.y);
      Split(b.x, b.y, high.z, low.z);
      Split(b.z, b.w, high.w, low.w);
      bf16* to = q_ + row * Stride() + column;
      *reinterpret_cast<uint4*>(to) = high;
      if (kParts == 2) *reinterpret_cast<uint4*>(to + kRows * Stride()) = low;
    }
  }

  // --- scores and weights ------------------------------------------------------------------------

  // Scores of all rows and this warp's 16 tokens.
  __device__ void Score(const bf16* keys) {
    float score[kTiles][2][4] = {};
    const bf16* key =
        keys + (warp_ * 16 + lane_ / 16 * 8 + lane_ % 8) * Stride() + lane_ / 8 % 2 * 8;
    const bf16* query = q_ + lane_ % 16 * Stride() + lane_ / 16 * 8;
#pragma unroll(kExact ? kWidest / 16 : 4)
    for (uint32_t d = 0; d < Padded(); d += 16) {
      uint32_t b[kPlanes][4];
#pragma unroll
      for (int j = 0; j < kPlanes; ++j) LoadMatrices(b[j], key + j * Plane() + d);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          uint32_t a[4];
          LoadMatrices(a, query + (i * kRows + tile * 16) * Stride() + d);
#pragma unroll
          for (int j = 0; j < kPlanes && i + j < 2; ++j) {
            MultiplyAdd(score[tile][0], a, b[j][0], b[j][1]);
            MultiplyAdd(score[tile][1], a, b[j][2], b[j][3]);
          }
        }
      }
    }
    float* to = s_ + lane_ / 4 * kScoreStride + warp_ * 16 + lane_ % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* row = to + (tile * 16 + half * 8) * kScoreStride;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          *reinterpret_cast<float2*>(row + n * 8) = {score[tile][n][half * 2],
                                                     score[tile][n][half * 2 + 1]};
        }
      }
    }
  }

  // Eight lanes have a row, each eight of its tokens.
  __device__ uint32_t SoftmaxRow(int pass) const { return pass * 16 + threadIdx.x / 8; }

  // Scores to weights, in place: bf16 in the first half of a row, the second parts behind them. All
  // threads of a row take part; a warp without rows has nothing to do, since nothing reads them.
  __device__ void Weigh() {
    const uint32_t eight = threadIdx.x % 8, token = block_ * kBlock + eight * 8;
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) {
      if (!kWalk && warp_ * 4 >= heads_) continue;
      float* row = s_ + SoftmaxRow(pass) * kScoreStride;
      float x[8];
      *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(row + eight * 8);
      *reinterpret_cast<float4*>(x + 4) = *reinterpret_cast<const float4*>(row + eight * 8 + 4);
      const uint32_t seen = kChosen ? ChosenOfEight(pass, token) : UINT32_MAX;
      float top = kNothing;
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        x[i] = Sees(pass, token + i, seen >> i) ? x[i] : kNothing;
        top = fmaxf(top, x[i]);
      }
#pragma unroll
      for (int step = 4; step > 0; step /= 2) {
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
      }
      const float largest = fmaxf(m_[pass], top);
      // e^{kNothing - x} is zero for every number x, so no weight needs a branch.
      const float subtracted = largest == kNothing ? 0.0f : largest;
      const float scale = expf(m_[pass] - subtracted);
      float sum = 0.0f;
      uint4 high, low;
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        x[i] = expf(x[i] - subtracted);
        if (kParts == 1) x[i] = AsStored(static_cast<const bf16*>(nullptr), x[i]);
        sum += x[i];
      }
      Split(x[0], x[1], high.x, low.x);
      Split(x[2], x[3], high.y, low.y);
      Split(x[4], x[5], high.z, low.z);
      Split(x[6], x[7], high.w, low.w);
#pragma unroll
      for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      m_[pass] = largest;
      l_[pass] = fmaf(l_[pass], scale, sum);
      __syncwarp();  // the row's scores have been read
      bf16* to = reinterpret_cast<bf16*>(row) + eight * 8;
      *reinterpret_cast<uint4*>(to) = high;
      if (kParts == 2) *reinterpret_cast<uint4*>(to + kBlock) = low;
      if (eight == 0) scale_[SoftmaxRow(pass)] = scale;
    }
  }

  // `chosen`: whether the token is among those that a choice leaves, in the lowest bit.
  __device__ bool Sees(int pass, uint32_t token, uint32_t chosen) const {
    const bool between = token >= seen_from_[pass] && token <= seen_to_[pass];
    return kChosen ? between && (chosen & 1) != 0 : between;
  }

  // A bit for each of eight tokens, which begin at a multiple of eight.
  __device__ uint32_t ChosenOfEight(int pass, uint32_t first) const {
    if (first + 7 < seen_from_[pass] || first > seen_to_[pass]) return 0;
    const float* const chosen = c_.chosen.data + TokenOf(SoftmaxRow(pass)) * c_.chosen.stride;
    const uint32_t open = (seen_to_[pass] + 1) / c_.pool * c_.pool, step = min(c_.pool, 8u);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 8; i += step) {
      const uint32_t pool = (first + i) / c_.pool;
      const bool sees = first + i >= open || IsListed(chosen, pool, pool + 1);
      if (sees) seen |= ((1u << step) - 1) << i;
    }
    return seen;
  }

  // Whether a decode row sees a token of the page.
  __device__ bool SeesPage(uint32_t page) const {
    const uint32_t first = page * kChunk, end = first + kChunk;
    if (end > (last_ + 1) / c_.pool * c_.pool) return true;
    return IsListed(c_.chosen.data + token_ * c_.chosen.stride, first / c_.pool, end / c_.pool);
  }

  // Whether the ascending numbers behind their count have one from `first` on and below `end`.
  __device__ static bool IsListed(const float* chosen, uint32_t first, uint32_t end) {
    const auto count = static_cast<uint32_t>(chosen[0]);
    uint32_t low = 0, high = count;  // of the first one not below `first`
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (chosen[1 + middle] < static_cast<float>(first)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < count && chosen[1 + low] < static_cast<float>(end);
  }

  // --- values ------------------------------------------------------------------------------------

  using Outputs = float[kTiles][2 * kPairs][4];

  __device__ static void ClearOutputs(Outputs& o) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int n = 0; n < 2 * kPairs; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[tile][n][i] = 0.0f;
      }
    }
  }

  __device__ bool IsThere(uint32_t column) const { return kExact || column < Padded(); }
  // The first value column of one of this warp's pairs of tiles of eight.
  __device__ uint32_t Column(int pair) const { return (warp_ * kPairs + pair) * 16; }

  __device__ void AddValues(const bf16* values) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const float near = scale_[tile * 16 + lane_ / 4], far = scale_[tile * 16 + lane_ / 4 + 8];
#pragma unroll
      for (int n = 0; n < 2 * kPairs; ++n) {
        o_[tile][n][0] *= near;
        o_[tile][n][1] *= near;
        o_[tile][n][2] *= far;
        o_[tile][n][3] *= far;
      }
    }
    const bf16* weights =
        reinterpret_cast<const bf16*>(s_ + lane_ % 16 * kScoreStride) + lane_ / 16 * 8;
    const bf16* value = values + (lane_ / 8 % 2 * 8 + lane_ % 8) * Stride() + lane_ / 16 * 8;
#pragma unroll
    for (int step = 0; step < static_cast<int>(kBlock / 16); ++step) {
      uint32_t a[kTiles][kParts][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          LoadMatrices(a[tile][i],
                       weights + tile * 16 * (kScoreStride * 2) + i * kBlock + step * 16);
        }
      }
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        if (!IsThere(Column(pair))) continue;
        uint32_t b[kPlanes][4];
#pragma unroll
        for (int j = 0; j < kPlanes; ++j) {
          LoadTransposed(b[j], value + j * Plane() + step * 16 * Stride() + Column(pair));
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int i = 0; i < kParts; ++i) {
#pragma unroll
            for (int j = 0; j < kPlanes && i + j < 2; ++j) {
              MultiplyAdd(o_[tile][pair * 2], a[tile][i], b[j][0], b[j][1]);
              MultiplyAdd(o_[tile][pair * 2 + 1], a[tile][i], b[j][2], b[j][3]);
            }
          }
        }
      }
    }
  }

  // --- results -----------------------------------------------------------------------------------

  // visit(row, column, o's first of two neighbours, the second), for what this thread has.
  template <typename Visit>
  __device__ void ForEachTwo(Outputs& o, Visit&& visit) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t row = tile * 16 + half * 8 + lane_ / 4;
#pragma unroll
        for (int n = 0; n < 2 * kPairs; ++n) {
          const uint32_t column = Column(n / 2) + n % 2 * 8 + lane_ % 4 * 2;
          visit(row, column, o[tile][n][half * 2], o[tile][n][half * 2 + 1]);
        }
      }
    }
  }

  // The end of a span.
  __device__ void Join() {
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) {
      const JoinWeights w(joined_m_[pass], m_[pass]);
      joined_m_[pass] = w.largest;
      joined_l_[pass] = Joined(joined_l_[pass], l_[pass], w.first, w.second);
      m_[pass] = kNothing;
      l_[pass] = 0.0f;
      if (threadIdx.x % 8 == 0) join_[SoftmaxRow(pass)] = {w.first, w.second};
    }
    __syncthreads();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 w = join_[tile * 16 + half * 8 + lane_ / 4];
#pragma unroll
        for (int n = 0; n < 2 * kPairs; ++n) {
#pragma unroll
          for (int i = half * 2; i < half * 2 + 2; ++i) {
            joined_[tile][n][i] = Joined(joined_[tile][n][i], o_[tile][n][i], w.x, w.y);
            o_[tile][n][i] = 0.0f;
          }
        }
      }
    }
  }

  __device__ void WriteOutput() {
    __syncthreads();  // the last join's weights have been read
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) {
      if (threadIdx.x % 8 == 0) scale_[SoftmaxRow(pass)] = 1.0f / joined_l_[pass];
    }
    __syncthreads();
    ForEachTwo(joined_, [&](uint32_t row, uint32_t column, float first, float second) {
      if (!IsThere(column) || !Present(row)) return;
      float* out = c_.out.data + TokenOf(row) * c_.out.stride + size_t{HeadOf(row)} * Padded();
      const float inverse = scale_[row];
      *reinterpret_cast<float2*>(out + column) = {first * inverse, second * inverse};
    });
  }

  __device__ void WritePartial() {
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) {
      const uint32_t row = SoftmaxRow(pass);
      if (threadIdx.x % 8 != 0 || !Present(row)) continue;
      const size_t index = PartialIndex(c_, place_, HeadOf(row), span_index_);
      *PartialLength(c_, range_.count, index) = {m_[pass], l_[pass]};
    }
    ForEachTwo(o_, [&](uint32_t row, uint32_t column, float first, float second) {
      if (!IsThere(column) || !Present(row)) return;
      float* to = PartialOutput(c_, PartialIndex(c_, place_, HeadOf(row), span_index_));
      *reinterpret_cast<float2*>(to + column) = {first, second};
    });
  }

  const AttendCall& c_;
  const SegmentRange range_;
  const Tiling tiling_;
  const uint64_t policy_;  // in L2, of decode rows' keys and values in bf16
  const uint32_t warp_, lane_;
  bf16* q_;          // [kParts, kRows, stride]
  bf16 *k_, *v_;     // [kStages, kPlanes, kBlock, stride]
  float* s_;         // [kRows, kScoreStride]: scores, then weights
  float* scale_;     // [kRows]: of what is before the block; at the end 1 / l
  float2* join_;     // [kRows]
  uint32_t* units_;  // [kSpanSegments + 1], and the next item

  uint32_t next_ = UINT32_MAX;  // of the fetcher: what FetchNextItem found

  // The item.
  uint32_t place_ = 0;  // the segment, in the range
  DeviceSegmentPages pages_ = {};
  uint32_t tail_ = 0, end_ = 0;  // the segment's tail slot, and where it ends
  uint32_t kv_head_ = 0, first_head_ = 0, heads_ = 0;
  uint32_t first_ = 0, last_ = 0;  // positions of the rows' tokens
  uint32_t token_ = 0;             // the first of them, in the step
  uint32_t span_ = 0, span_index_ = 0;
  uint32_t block_ = 0, last_block_ = 0;
  uint32_t seen_from_[kTiles], seen_to_[kTiles];
  float m_[kTiles], l_[kTiles], joined_m_[kTiles], joined_l_[kTiles];
  Rows rows_[kStages - kValuesAhead + 1];  // of the values that are copied next, to the keys
  Outputs o_, joined_;
};

}  // namespace rivulet::cuda::softmax

#endif  // RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENDER_CUH_
