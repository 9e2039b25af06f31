// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One block of the grid of AttendKernel (softmax_launch.cuh): it finds its share of the step, and
// reads keys and values for up to 16 · kTiles query rows at a time.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENDER_CUH_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENDER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/softmax_item.cuh"
#include "kernels/device/softmax_partials.cuh"
#include "kernels/device/softmax_weights.cuh"

namespace rivulet::cuda::softmax {

// Which query rows a kernel is for.
enum class RowKind : uint8_t {
  kDecoded,   // segments of one token: pages of fp32, values that are keys, chosen pools
  kStreamed,  // segments of one token: all others (softmax_stream.cuh)
  kWalked,    // of longer segments
};

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
  // Threads that fetch items and that count partials, and the place in units_ for the next item.
  static constexpr uint32_t kFetcher = kStream ? kThreads : 0, kCounter = kThreads - 32;
  static constexpr uint32_t kNextItem = kSpanSegments + 1, kUnits = kSpanSegments + 4;
  static constexpr uint32_t kStages = sizeof(Kv) == 4 ? 1 : 2;
  static constexpr uint32_t kValuesAhead = kStages - 1;
  static constexpr uint32_t kRows = 16 * kTiles;
  static_assert(kPlanes <= kParts);

  // `slots`: of streamed rows, blocks of keys or values that are kept.
  __host__ __device__ static constexpr size_t SharedBytes(uint32_t padded, uint32_t slots) {
    const size_t row = (padded + kPad) * sizeof(bf16);
    return row * (kRows * kParts + StoredBlocks(slots) * kPlanes * kBlock) +
           kRows * (kScoreStride + 3) * sizeof(float) + sizeof(EndedItem) +
           kUnits * sizeof(uint32_t);
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
    ended_ = reinterpret_cast<EndedItem*>(join_ + kRows);
    units_ = reinterpret_cast<uint32_t*>(ended_ + 1);
  }

  __device__ void Run() {
    if (warp_ == 0) CountUnits<kWalk>(c_, range_, tiling_.tokens, units_);
    __syncthreads();
    const uint32_t heads = c_.kv_heads * tiling_.head_tiles;
    const uint32_t items = units_[range_.count] * heads;
    bool first = true;
    for (uint32_t item = blockIdx.x; item < items; item = NextItem(item), first = false) {
      // Later tiles read more tokens: they come first.
      const uint32_t at = kWalk ? items - 1 - item : item;
      item_ = TakeItem<kWalk>(c_, range_, tiling_, units_, at);
      const bool early = first && BeginsWithOldPages();
      if (first && !early) AwaitLastKernel();
      StartCopies();
      if (early) AwaitLastKernel();
      FetchNextItem();
      Attend();
      Meet();
    }
    if (first) AwaitLastKernel();
    if (!kWalk) LeaveItems(items);
  }

 protected:
  // Of the block's shared memory that this class uses.
  __device__ std::byte* End() const { return reinterpret_cast<std::byte*>(units_ + kUnits); }

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
  // the chunk of `item_.first`, later ones and the tail.
  __device__ bool IsOld(uint32_t end_block) const {
    return end_block * kBlock <= item_.first / kChunk * kChunk;
  }
  // Whether StartCopies reads old pages alone. Which pools a row chose is found in the step itself.
  __device__ bool BeginsWithOldPages() const {
    return !kWalk && !kChosen && IsOld(item_.block + kStages);
  }

  // Of the threads that attend.
  __device__ static void Meet() {
    if (kStream) {
      asm volatile("bar.sync 1, %0;\n" ::"n"(kThreads) : "memory");
    } else {
      __syncthreads();
    }
  }

  // --- items -------------------------------------------------------------------------------------

  // Decode rows have contexts of any length, so a block takes the next item that is left.
  __device__ void FetchNextItem() {
    if (!kWalk && threadIdx.x == kFetcher) next_ = atomicAdd(range_.counter, 1);
  }
  __device__ uint32_t NextItem(uint32_t item) {
    if (kWalk) return item + gridDim.x;
    if (threadIdx.x == kFetcher) units_[kNextItem] = next_;
    __syncthreads();
    return gridDim.x + units_[kNextItem];
  }
  // Each item is followed by a fetch. The one that comes last leaves zero.
  __device__ void LeaveItems(uint32_t items) const {
    if (threadIdx.x == kFetcher && next_ + 1 == items) *range_.counter = 0;
  }

  // --- an item -----------------------------------------------------------------------------------

  // After item_ is set.
  __device__ void ResetRows() {
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) {
      const uint32_t row = SoftmaxRow(pass), at = item_.first + TokenIn(row);
      seen_from_[pass] =
          Present(row) ? static_cast<uint32_t>(FirstSeen(at, c_.window, c_.unseen)) : UINT32_MAX;
      seen_to_[pass] = at;
      m_[pass] = kNothing;
      l_[pass] = 0.0f;
    }
    ClearOutputs(o_);
    if (kWalk) ResetJoined();
  }
  __device__ void ResetJoined() {
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) joined_m_[pass] = kNothing, joined_l_[pass] = 0.0f;
    ClearOutputs(joined_);
  }

  __device__ void Attend() {
    ResetRows();
    TakeQueries();
    for (uint32_t stage = 0; item_.block <= item_.last_block; ++item_.block) {
      kShared ? AddSharedBlock(stage) : AddBlock(stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if (EndsSpan()) EndSpan();
    }
    WaitForCopies<0>();
    if (EndItem()) JoinIfLast();
  }

  // Whether the item has all that its rows see.
  __device__ bool IsWhole() const { return kWalk || item_.all_spans == 1; }

  __device__ bool EndsSpan() const {
    return ((item_.block + 1) * kBlock & (item_.span - 1)) == 0 || item_.block == item_.last_block;
  }
  __device__ void EndSpan() {
    if (kWalk) return Join();
    if (IsWhole()) return WriteSpan();
    WritePartial();
    ++item_.span_index;
    ClearOutputs(o_);
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) m_[pass] = kNothing, l_[pass] = 0.0f;
  }

  // Whether others have parts of what the rows see. Then JoinIfLast is to follow, before another
  // item ends; the count is on its way until then.
  __device__ bool EndItem() {
    if (kWalk) WriteOutput();
    if (IsWhole()) return false;
    Meet();
    if (threadIdx.x == kCounter) {
      *ended_ = {{item_.place, item_.token, item_.all_spans},
                 item_.first_head,
                 item_.heads,
                 item_.unit_head,
                 item_.spans,
                 0};
      counted_ = AddReleasing(PartialCount(c_, item_.place, item_.unit_head), item_.spans);
    }
    return true;
  }

  // The block that is the last to write partials of a row joins them, a warp one head at a time.
  __device__ void JoinIfLast() {
    if (threadIdx.x == kCounter) {
      const bool last = counted_ + ended_->written == ended_->spans.count;
      if (last) FenceDevice();
      ended_->last = last;
    }
    Meet();
    if (ended_->last == 0) return;
    for (uint32_t head = warp_; head < ended_->heads; head += kWarps) {
      JoinHead<kExact, kWidest>(c_, ended_->spans, ended_->first_head + head);
    }
    if (threadIdx.x == 0) *PartialCount(c_, ended_->spans.place, ended_->unit_head) = 0;
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
    const uint32_t page = block * kBlockPages + part, open = item_.end / kChunk;
    if (block > item_.last_block || page > open || page < item_.pages.first_page) return {};
    if (page == open) return {item_.tail, item_.end % kChunk, true};
    if (kChosen && !kWalk && !SeesPage(page)) return {};
    return {SlotOf(c_, item_.pages, page), kChunk, false};
  }

  __device__ const Kv* PageOf(const Rows& rows, size_t tail_offset, size_t page_offset) const {
    const std::byte* plane = rows.tail
                                 ? c_.slots.tails + rows.slot * c_.slots.tail_stride + tail_offset
                                 : c_.slots.pages + rows.slot * c_.slots.page_stride + page_offset;
    return reinterpret_cast<const Kv*>(plane) + size_t{item_.kv_head} * kChunk * Padded();
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
      const uint32_t block = item_.block + stage;
      const Rows rows = RowsOf(block, warp_);
      const int ahead = static_cast<int>(stage) - static_cast<int>(kValuesAhead);
      if (ahead >= 0) rows_[ahead] = rows;
      if (block <= item_.last_block) CopyKeys(Place(k_ + stage * kPlanes * Plane(), warp_), rows);
      CommitCopies();
      if (kShared || ahead >= 0) continue;
      if (block <= item_.last_block) CopyValues(Place(v_ + stage * kPlanes * Plane(), warp_), rows);
      CommitCopies();
    }
    rows_[kStages - kValuesAhead] = RowsOf(item_.block + kStages, warp_);
  }
  __device__ void CopyValues(uint32_t stage) {
    const bool present = item_.block + kValuesAhead <= item_.last_block;
    if (present) CopyValues(Place(v_ + stage * kPlanes * Plane(), warp_), rows_[0]);
    CommitCopies();
  }
  __device__ void CopyKeys(uint32_t stage) {
    constexpr uint32_t kKeys = kStages - kValuesAhead;
    bf16* const to = Place(k_ + stage * kPlanes * Plane(), warp_);
    if (item_.block + kStages <= item_.last_block) CopyKeys(to, rows_[kKeys]);
    CommitCopies();
#pragma unroll
    for (uint32_t i = 0; i < kKeys; ++i) rows_[i] = rows_[i + 1];
    rows_[kKeys] = RowsOf(item_.block + kStages + 1, warp_);
  }

  // --- queries -----------------------------------------------------------------------------------

  // A decode row's token has one tile of heads.
  __device__ uint32_t TokenIn(uint32_t row) const { return kWalk ? row / tiling_.heads : 0; }
  __device__ uint32_t HeadIn(uint32_t row) const { return kWalk ? row % tiling_.heads : row; }
  // Of the row's token, counted in the step.
  __device__ uint32_t TokenOf(uint32_t row) const { return item_.token + TokenIn(row); }
  __device__ uint32_t HeadOf(uint32_t row) const { return item_.first_head + HeadIn(row); }
  __device__ bool Present(uint32_t row) const {
    return item_.first + TokenIn(row) <= item_.last && HeadIn(row) < item_.heads;
  }

  __device__ void TakeQueries() {
    for (uint32_t i = threadIdx.x; i < kRows * Eights(); i += kThreads) {
      const uint32_t row = i / Eights(), column = i % Eights() * 8;
      float x[8] = {};
      if (Present(row)) {
        const float* q = c_.q + size_t{TokenOf(row)} * c_.q_stride + size_t{HeadOf(row)} * Padded();
        LoadEight(x, q + column);
      }
      uint4 high, low;
      SplitEight(x, high, low);
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

  // Eight lanes have a row; or a warp, where none has more than one.
  __device__ bool WarpsHaveRows() const { return !kWalk && tiling_.heads <= kWarps; }
  __device__ uint32_t LanesOfRow() const { return WarpsHaveRows() ? 32 : 8; }
  __device__ uint32_t SoftmaxRow(int pass) const { return pass * 16 + threadIdx.x / LanesOfRow(); }
  __device__ bool LeadsRow() const { return threadIdx.x % LanesOfRow() == 0; }

  // Scores to weights. A warp without rows has nothing to do, since nothing reads theirs.
  __device__ void Weigh() {
    if (WarpsHaveRows()) {
      if (warp_ < item_.heads) WeighRows<32>(0);
    } else if (kWalk || warp_ * 4 < item_.heads) {
#pragma unroll
      for (int pass = 0; pass < kTiles; ++pass) WeighRows<8>(pass);
    }
  }
  template <uint32_t kLanes>
  __device__ void WeighRows(int pass) {
    constexpr uint32_t kTokens = kBlock / kLanes;
    const uint32_t lane = threadIdx.x % kLanes, row = pass * 16 + threadIdx.x / kLanes;
    const uint32_t token = item_.block * kBlock + lane * kTokens;
    const uint32_t seen = kChosen ? ChosenOfEight(pass, token & ~7u) >> token % 8 : UINT32_MAX;
    const float scale =
        WeighRow<kLanes, kParts>(s_ + row * kScoreStride, lane, m_[pass], l_[pass],
                                 [&](uint32_t i) { return Sees(pass, token + i, seen >> i); });
    if (lane == 0) scale_[row] = scale;
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
    if (end > (item_.last + 1) / c_.pool * c_.pool) return true;
    return IsListed(c_.chosen.data + item_.token * c_.chosen.stride, first / c_.pool,
                    end / c_.pool);
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
      if (LeadsRow()) join_[SoftmaxRow(pass)] = {w.first, w.second};
    }
    Meet();
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
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) {
      if (LeadsRow()) scale_[SoftmaxRow(pass)] = 1.0f / joined_l_[pass];
    }
    Meet();
    ForEachTwo(joined_, [&](uint32_t row, uint32_t column, float first, float second) {
      if (!IsThere(column) || !Present(row)) return;
      float* out = c_.out.data + TokenOf(row) * c_.out.stride + size_t{HeadOf(row)} * Padded();
      const float inverse = scale_[row];
      *reinterpret_cast<float2*>(out + column) = {first * inverse, second * inverse};
    });
  }

  // Of a decode row that sees one span. Joined to nothing, so that no zero has another sign.
  __device__ void WriteSpan() {
    ResetJoined();
    Join();
    WriteOutput();
  }

  __device__ void WritePartial() {
#pragma unroll
    for (int pass = 0; pass < kTiles; ++pass) {
      const uint32_t row = SoftmaxRow(pass);
      if (!LeadsRow() || !Present(row)) continue;
      const size_t index = PartialIndex(c_, item_.place, HeadOf(row), item_.span_index);
      *PartialLength(c_, index) = {m_[pass], l_[pass]};
    }
    ForEachTwo(o_, [&](uint32_t row, uint32_t column, float first, float second) {
      if (!IsThere(column) || !Present(row)) return;
      float* to = PartialOutput(c_, PartialIndex(c_, item_.place, HeadOf(row), item_.span_index));
      *reinterpret_cast<float2*>(to + column) = {first, second};
    });
  }

  const AttendCall& c_;
  const SegmentRange range_;
  const Tiling tiling_;
  const uint64_t policy_;  // in L2, of decode rows' keys and values in bf16
  const uint32_t warp_, lane_;
  bf16* q_;       // [kParts, kRows, stride]
  bf16 *k_, *v_;  // [kStages, kPlanes, kBlock, stride]
  float* s_;      // [kRows, kScoreStride]: scores, then weights
  float* scale_;  // [kRows]: of what is before the block; at the end 1 / l
  float2* join_;  // [kRows]
  EndedItem* ended_;
  uint32_t* units_;  // [kUnits]: see CountUnits, and kNextItem

  uint32_t next_ = UINT32_MAX;  // of the fetcher: what FetchNextItem found

  uint32_t counted_ = 0;  // of the counter: partials that were there when the last item ended
  Item item_ = {};
  uint32_t seen_from_[kTiles], seen_to_[kTiles];
  float m_[kTiles], l_[kTiles], joined_m_[kTiles], joined_l_[kTiles];
  Rows rows_[kStages - kValuesAhead + 1];  // of the values that are copied next, to the keys
  Outputs o_, joined_;
};

}  // namespace rivulet::cuda::softmax

#endif  // RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENDER_CUH_
