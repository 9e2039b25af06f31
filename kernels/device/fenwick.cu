// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Read and fold of a sum in pages (fenwick_operations.h), one launch for both (fenwick_decode.cu
// has one token of each of few segments):
//
//   o_a = Σ_p λ_a[p] e^{c_a + decay_p} q̂_a S_p + Σ_{s<=a} λ_a[ℓ(a, s)] e^{c_a - c_s} x_as β_s v_s
//
// Without the delta rule q̂ = q, x = q·k and β = 1. With it, x (I + N) = (q·k_s)_s, solved from the
// last row down, and q̂ = q - Σ_s x_s β_s k_s. So what the pages are read with is a query in both
// cases, and N, which the tail's keys give, is computed again for every piece of a chunk.
//
// A block has some value columns of one head of one segment. Pages are spread over its warps: a
// warp has the reads of 16 columns of one page in flight, and these reads are added up page after
// page, from the smallest, by one warp. Decode is a chunk piece with one query, prefill one with up
// to 16: the same code, the queries in columns of the same products. A page is read as bf16 high
// and low parts. The fold is the CPU's (fenwick_fold_cpu.cc): M + Σ_s k_sᵀ u_s, where M is the sum
// of the pages that are taken up, or for the delta rule a page that lives on.
//
// Who writes what: a block writes its own columns of pages, of page decays and of the tail's values
// and no other block reads them. What blocks share (keys, log decays, β) is written by one of them
// where every segment has one token (others have it from the input), else by KeepFenwickRowsKernel.
//
// Bytes expected for a token: every page once, the tail's rows, and for a token that ends a chunk
// the pages that its fold takes up, and those that it writes; of the delta rule, every page twice
// more.
#include "kernels/device/fenwick_fold.cuh"

namespace rivulet::cuda {
namespace {

using namespace fenwick;

template <bool kSingle, int kParts, bool kBf16Pages>
class FenwickUnit : public FenwickFold<kSingle, kParts, kBf16Pages> {
 public:
  using Block = FenwickBlock<kSingle, kParts, kBf16Pages>;
  using Block::begin_, Block::BetaRow, Block::c_, Block::chunk_, Block::columns_, Block::DecayRow,
      Block::dk_, Block::dv_, Block::end_, Block::first_tile_, Block::g_, Block::head_, Block::k_,
      Block::KeepOverlap, Block::Key, Block::key_tiles_, Block::KeyRow, Block::KeyUnit,
      Block::lane_, Block::Level, Block::live_, Block::LoadColumns, Block::Page, Block::PageDecay,
      Block::PageOf, Block::q_, Block::Query, Block::s_, Block::scratch_, Block::segment_,
      Block::t_, Block::table_, Block::Tile, Block::tiles_, Block::token_, Block::TokenAt,
      Block::v_, Block::Value, Block::ValueRow, Block::warp_, Block::WritesHead, Block::WritesKey;
  using Row = typename Block::Row;
  static constexpr uint32_t kQueries = Block::kQueries;
  static constexpr uint32_t kGroup = Fixed<kSingle, kParts>::kGroup;
  static constexpr uint32_t kAtOnce = AtOnce(kBf16Pages);
  static constexpr int kColumnTiles = kSingle ? 1 : 2;  // of 8 queries

  __device__ FenwickUnit(const FenwickCall& call, std::byte* memory, uint32_t tiles)
      : FenwickFold<kSingle, kParts, kBf16Pages>(call, memory, tiles, SegmentOfBlock(call)) {}

  // `ahead`: all pages of the launch fit into L2.
  __device__ void Run(bool ahead) {
    if (segment_.tokens == 0) return AwaitLastKernel();
    const uint32_t tokens = kSingle ? 1 : segment_.tokens;
    auto begin = static_cast<uint32_t>(segment_.position % kChunk);
    uint32_t done = 0;
    chunk_ = segment_.position / kChunk;
    table_ = c_.pages.slots + c_.pages.segments[SegmentOfBlock(c_)].first;
    live_ = LivePages(chunk_, c_.pages.levels);
    // Neither the pages nor the tail depends on the kernels of this step.
    StartPages(ahead);
    StageTail(begin, min(begin + tokens, kChunk));
    TakePageDecays();
    AwaitLastKernel();
    if (kSingle) FetchLevels();
    while (done < tokens) {
      const uint32_t end = min(begin + tokens - done, kChunk);
      if (done != 0) StageTail(0, end);
      Piece(begin, end, segment_.first_token + done);
      done += end - begin;
      if (end == kChunk) {
        this->Fold();
        ++chunk_;
        table_ += c_.pages.levels;
        live_ = LivePages(chunk_, c_.pages.levels);
      }
      begin = 0;
      if (done < tokens) __syncthreads();
    }
  }

 private:
  // Blocks begin in the order of their numbers.
  __device__ static uint32_t SegmentOfBlock(const FenwickCall& call) {
    return SegmentInTurn(call.rows, blockIdx.y);
  }

  // --- before the kernel before has ended --------------------------------------------------------

  // The first tiles that this warp will multiply; and the rest of its pages on their way to L2,
  // where they must not push out each other.
  __device__ void StartPages(bool ahead) {
    const uint32_t items = __popcll(live_) * tiles_;
    if (warp_ >= items) return;
    started_ = true;
    Load(Page(table_[PageOf(live_, warp_ / tiles_)]), warp_ % tiles_, 0);
    if (!ahead) return;
    const uint32_t bytes = key_tiles_ * (kBf16Pages ? 512 : 1024);
    for (uint32_t item = warp_; item < items; item += kWarps) {
      const std::byte* page = Page(table_[PageOf(live_, item / tiles_)]);
      const std::byte* from = page + size_t{first_tile_ + item % tiles_} * bytes;
      for (uint32_t at = lane_ * 128; at < bytes; at += 32 * 128) PrefetchToL2(from + at);
    }
  }

  __device__ void Load(const std::byte* page, uint32_t tile, uint32_t kt) {
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (kt + i < key_tiles_) held_[i].Load(page, Tile(tile, kt + i));
    }
  }

  // Both the scores' weights and those of pages need them later.
  __device__ void FetchLevels() const {
    const float* levels = c_.levels + size_t{segment_.first_token} * c_.levels_stride;
    if (threadIdx.x == 0) {
      asm volatile("prefetch.global.L1 [%0];\n" ::"l"(levels + head_ * c_.level_count));
    }
  }

  __device__ void TakePageDecays() {
    if (chunk_ == 0) {
      for (uint32_t i = threadIdx.x; i < 2 * c_.pages.levels; i += blockDim.x) {
        s_->page_decay[i] = 0.0f;
      }
      return;
    }
    const float* from = PageDecay(segment_.base_in, 0);
    for (uint32_t i = threadIdx.x; i < 2 * c_.pages.levels; i += blockDim.x) {
      s_->page_decay[i] = from[i];
    }
  }

  // Rows that the tail has, in the background, and zeros in the rows from `end` on: their scores
  // are masked, but zero times anything is not zero.
  __device__ void StageTail(uint32_t count, uint32_t end) {
    StageRows<kParts>(k_, dk_, c_.padded_key, count, end, [&](uint32_t a) { return KeyRow(a); });
    StageRows<kParts>(v_, dv_, tiles_ * 16, count, end, [&](uint32_t a) { return ValueRow(a); });
    CommitCopies();
    if (threadIdx.x >= count) return;
    s_->decay[threadIdx.x] = DecayRow()[threadIdx.x];
    if (c_.delta) s_->beta[threadIdx.x] = BetaRow()[threadIdx.x];
  }

  // --- a piece of a chunk ----------------------------------------------------------------------

  __device__ void Piece(uint32_t begin, uint32_t end, uint32_t token) {
    begin_ = begin, end_ = end, token_ = token, columns_ = end - begin;
    StageDecays();
    StageVectors();
    StageValues();
    WaitForCopies<0>();
    __syncthreads();
    Score();
    const uint32_t live = __popcll(live_);
    // Without the delta rule pages are read by the queries as they are, and the weights of the
    // tail's rows are needed after that.
    if (c_.delta || live == 0) __syncthreads();
    if (c_.delta) {
      Solve();
      __syncthreads();
      CorrectQueries();
      __syncthreads();
    }
    float total[kColumnTiles][4] = {};
    for (uint32_t first = 0; first < live; first += kGroup) {
      if (first != 0) __syncthreads();
      const uint32_t count = min(live - first, kGroup);
      WeighPages(first, count);
      ReadPages(first, count);
      __syncthreads();
      if (warp_ < tiles_) AddReads(count, total);
    }
    if (warp_ < tiles_) AddTail(total);
  }

  // --- the rows of the piece -------------------------------------------------------------------

  // Cumulative from the border, by the first warp: it staged the rows of the tail.
  __device__ void StageDecays() {
    if (warp_ != 0) return;
    __syncwarp();
    const bool mine = lane_ >= begin_ && lane_ < end_;
    float own = 0.0f;
    if (mine) {
      const uint32_t token = TokenAt(lane_);
      own = c_.g[size_t{token} * c_.g_stride + head_];
      if (c_.rate != nullptr) own = c_.rate[head_] * own;
      if (c_.delta) s_->beta[lane_] = c_.beta[size_t{token} * c_.beta_stride + head_];
      if (c_.delta && WritesHead()) BetaRow()[lane_] = s_->beta[lane_];
    }
    float sum = begin_ == 0 ? 0.0f : s_->decay[begin_ - 1], kept = 0.0f;
    for (uint32_t a = begin_; a < end_; ++a) {
      sum += __shfl_sync(0xffffffffu, own, a);
      if (lane_ == a) kept = sum;
    }
    if (!mine) return;
    s_->decay[lane_] = kept;
    if (WritesHead()) DecayRow()[lane_] = kept;
  }

  // Keys and queries.
  __device__ void StageVectors() {
    const uint32_t fours = c_.padded_key / 4, keys = columns_ * fours;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < 2 * keys; i += blockDim.x) {
      const bool key = i < keys;
      const uint32_t column = (key ? i : i - keys) / fours, d = i % fours * 4;
      const uint32_t a = begin_ + column, token = token_ + column;
      const float4 x = *reinterpret_cast<const float4*>((key ? Key(token) : Query(token)) + d);
      if (key) {
        StoreFour<kParts>(k_ + a * dk_ + d, kChunk * dk_, x);
        if (WritesKey()) StoreFour(KeyRow(a) + d, x);
      } else {
        StoreFour<kParts>(q_ + column * dk_ + d, kQueries * dk_, x);
      }
    }
  }

  __device__ void StageValues() {
    const uint32_t width = tiles_ * 16;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < columns_ * width; i += blockDim.x) {
      const uint32_t a = begin_ + i / width, e = i % width, token = TokenAt(a);
      const uint32_t column = first_tile_ * 16 + e;
      float x = column < c_.value_dim ? Value(token)[column] : 0.0f;
      if (c_.times_step) x *= c_.g[size_t{token} * c_.g_stride + head_];
      StoreParts<kParts>(v_ + a * dv_ + e, kChunk * dv_, x);
      if (kSingle) Store(ValueRow(a) + e, x);
    }
  }

  // --- scores ----------------------------------------------------------------------------------

  // All keys times the queries, and for the delta rule times each other, 8 columns a warp.
  __device__ void Score() {
    const bool queries = warp_ < kColumnTiles;
    if (queries ? warp_ * 8 >= columns_ : !c_.delta || warp_ >= kColumnTiles + 2) return;
    const uint32_t first = (queries ? warp_ : warp_ - kColumnTiles) * 8;
    float sum[4] = {};
    Block::MultiplyKeys(queries, first, sum);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t column = first + 2 * t_ + i % 2, s = g_ + i / 2 * 8;
      queries ? KeepScore(column, s, sum[i]) : KeepOverlap(s, column, sum[i]);
    }
  }

  __device__ void KeepScore(uint32_t column, uint32_t s, float score) {
    if (column >= columns_) return;
    const bool seen = s <= begin_ + column;
    if (c_.delta) {
      s_->score[column * kChunk + s] = seen ? score : 0.0f;
    } else {
      KeepWeight(column, s, seen, score);
    }
  }

  // The weight of value row s for a query; zero for rows after it.
  __device__ void KeepWeight(uint32_t column, uint32_t s, bool seen, float score) {
    const uint32_t a = begin_ + column;
    float x = 0.0f;
    if (seen) {
      const float lambda = Level(token_ + column, FenwickLevel(32 - __clz(a ^ s), c_.level_count));
      x = score * (expf(s_->decay[a] - s_->decay[s]) * lambda);
    }
    StoreParts<kParts>(s_->p + column * kSquare + s, kQueries * kSquare, x);
  }

  // x (I + N) = scores for two queries a warp, place s in lane s of half a warp; then the weights.
  __device__ void Solve() {
    const uint32_t pair = warp_ * 2;
    if (pair >= columns_) return;
    const uint32_t column = pair + lane_ / 16, s = lane_ % 16, a = begin_ + column;
    const bool exists = column < columns_;
    float x = exists ? s_->score[column * kChunk + s] : 0.0f;
    for (uint32_t r = begin_ + min(pair + 1, columns_ - 1); r > 0; --r) {
      const float known = __shfl_sync(0xffffffffu, x, (lane_ & 16) + r);
      if (r <= a && s < r) x = fmaf(-known, s_->overlap[r * kChunk + s], x);
    }
    if (!exists) return;
    const bool seen = s <= a;
    x = seen ? x * s_->beta[s] : 0.0f;
    s_->score[column * kChunk + s] = x;
    KeepWeight(column, s, seen, x);
  }

  // q̂ in the place of q.
  __device__ void CorrectQueries() {
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < columns_ * c_.padded_key; i += blockDim.x) {
      const uint32_t column = i / c_.padded_key, d = i % c_.padded_key;
      float x = Query(token_ + column)[d];
      for (uint32_t s = 0; s <= begin_ + column; ++s) {
        x = fmaf(-s_->score[column * kChunk + s], LoadParts<kParts>(k_ + s * dk_ + d, kChunk * dk_),
                 x);
      }
      StoreParts<kParts>(q_ + column * dk_ + d, kQueries * dk_, x);
    }
  }

  // --- reads -----------------------------------------------------------------------------------

  // Of `count` pages, `first` others before them.
  __device__ void WeighPages(uint32_t first, uint32_t count) {
    for (uint32_t i = threadIdx.x; i < count * columns_; i += blockDim.x) {
      const uint32_t index = i / columns_, column = i % columns_;
      const uint32_t page = PageOf(live_, first + index);
      const float* decay = s_->page_decay + 2 * page;
      const float lambda = Level(token_ + column, LevelOfPage(page, c_.level_count));
      s_->weight[index * kQueries + column] =
          expf((s_->decay[begin_ + column] + decay[1]) + decay[0]) * lambda;
    }
  }

  // [16] of a query.
  __device__ float* ReadOf(uint32_t index, uint32_t tile, uint32_t column) const {
    return reinterpret_cast<float*>(scratch_) + ((index * tiles_ + tile) * kQueries + column) * 16;
  }

  __device__ void ReadPages(uint32_t first, uint32_t count) {
    for (uint32_t item = warp_; item < count * tiles_; item += kWarps) {
      const uint32_t index = item / tiles_, tile = item % tiles_;
      const std::byte* page = Page(table_[PageOf(live_, first + index)]);
      float sum[kColumnTiles][4] = {};
      for (uint32_t kt = 0; kt < key_tiles_; kt += kAtOnce) {
        if (!started_) Load(page, tile, kt);
        started_ = false;
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          if (kt + i < key_tiles_) ReadTile(held_[i], kt + i, sum);
        }
      }
      KeepReads(index, tile, sum);
    }
  }

  __device__ static void Parts(const HeldTile<true>& tile, uint32_t (&high)[4], uint32_t (&)[4]) {
    high[0] = tile.bits.x, high[1] = tile.bits.y, high[2] = tile.bits.z, high[3] = tile.bits.w;
  }
  __device__ static void Parts(const HeldTile<false>& tile, uint32_t (&high)[4],
                               uint32_t (&low)[4]) {
    SplitTile(tile.tile, high, low);
  }
  __device__ void ReadTile(const HeldTile<kBf16Pages>& tile, uint32_t kt,
                           float (&sum)[kColumnTiles][4]) const {
    uint32_t high[4], low[4];
    Parts(tile, high, low);
#pragma unroll
    for (int columns = 0; columns < kColumnTiles; ++columns) {
      Block::template Multiply<!kBf16Pages>(sum[columns], high, low, q_, kQueries * dk_,
                                            columns * 8, columns_, kt);
    }
  }

  __device__ void KeepReads(uint32_t index, uint32_t tile, const float (&sum)[kColumnTiles][4]) {
#pragma unroll
    for (int columns = 0; columns < kColumnTiles; ++columns) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t column = columns * 8 + 2 * t_ + i % 2;
        if (column < columns_) ReadOf(index, tile, column)[g_ + i / 2 * 8] = sum[columns][i];
      }
    }
  }

  __device__ void AddReads(uint32_t count, float (&total)[kColumnTiles][4]) {
    for (uint32_t index = 0; index < count; ++index) {
#pragma unroll
      for (int columns = 0; columns < kColumnTiles; ++columns) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t column = columns * 8 + 2 * t_ + i % 2;
          if (column >= columns_) continue;
          total[columns][i] = fmaf(s_->weight[index * kQueries + column],
                                   ReadOf(index, warp_, column)[g_ + i / 2 * 8], total[columns][i]);
        }
      }
    }
  }

  __device__ void AddTail(float (&total)[kColumnTiles][4]) {
    uint32_t v[kParts][4];
    LoadColumns(v, v_ + warp_ * 16, dv_);
#pragma unroll
    for (int columns = 0; columns < kColumnTiles; ++columns) {
      const bool present = columns * 8 + g_ < columns_;
      const bf16* row = s_->p + (columns * 8 + g_) * kSquare + 2 * t_;
      const uint32_t b0 = Two(row, present), b1 = Two(row + 8, present);
      MultiplyAdd(total[columns], v[0], b0, b1);
      if constexpr (kParts == 2) {
        MultiplyAdd(total[columns], v[1], b0, b1);
        row += kQueries * kSquare;
        MultiplyAdd(total[columns], v[0], Two(row, present), Two(row + 8, present));
      }
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        Write(columns * 8 + 2 * t_ + i % 2, g_ + i / 2 * 8, total[columns][i]);
      }
    }
  }

  __device__ void Write(uint32_t column, uint32_t row, float x) {
    if (column >= columns_) return;
    const uint32_t token = token_ + column, e = (first_tile_ + warp_) * 16 + row;
    if (c_.skip != nullptr && e < c_.value_dim) {
      x = fmaf(c_.skip[head_ * c_.value_dim + e], Value(token)[e], x);
    }
    c_.out.data[size_t{token} * c_.out.stride + size_t{head_} * c_.padded_value + e] = x;
  }

  bool started_ = false;  // the first tiles are already held
  HeldTile<kBf16Pages> held_[kAtOnce];
};

// Three blocks for each processor hide the reads of pages best; with two bf16 parts they would
// spill.
template <bool kSingle, int kParts, bool kBf16Pages>
__global__ void __launch_bounds__(kWarps * 32, kSingle&& kParts == 1 ? 3 : 2)
    FenwickKernel(const __grid_constant__ FenwickCall call, uint32_t tiles, bool ahead) {
  extern __shared__ __align__(16) std::byte memory[];
  AllowNextKernel();
  FenwickUnit<kSingle, kParts, kBf16Pages>(call, memory, tiles).Run(ahead);
}

// The rows of the chunk that is open at the end of segments of any length. A thread owns a channel
// of a key or a value, or a head's log decays and β.
template <typename Row>
__global__ void KeepFenwickRowsKernel(const __grid_constant__ FenwickCall c) {
  AllowNextKernel();
  AwaitLastKernel();
  const DeviceSegment& segment = c.rows.segments[blockIdx.y];
  if (segment.tokens == 0) return;
  const uint64_t end = segment.position + segment.tokens, border = end / kChunk * kChunk;
  const uint64_t first = max(border, segment.position);
  const auto places = static_cast<uint32_t>(end - border);
  const auto begin = static_cast<uint32_t>(first - border);
  const uint32_t token = segment.first_token + static_cast<uint32_t>(first - segment.position);
  const uint32_t keys = c.heads / c.heads_per_key * c.padded_key;
  const uint32_t values = c.heads * c.padded_value;
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  std::byte* tail = c.slots.tails + segment.tail * c.slots.tail_stride;
  if (i < keys) {
    Row* row = reinterpret_cast<Row*>(tail + c.key_offset) +
               size_t{i / c.padded_key} * kChunk * c.padded_key + i % c.padded_key;
    for (uint32_t a = begin; a < places; ++a) {
      Store(row + a * c.padded_key, c.k[size_t{token + a - begin} * c.k_stride + i]);
    }
    return;
  }
  i -= keys;
  if (i < values) {
    const uint32_t head = i / c.padded_value, e = i % c.padded_value;
    Row* row =
        reinterpret_cast<Row*>(tail + c.value_offset) + size_t{head} * kChunk * c.padded_value + e;
    for (uint32_t a = begin; a < places; ++a) {
      const size_t at = token + a - begin;
      float x = e < c.value_dim ? c.v[at * c.v_stride + head * c.v_head_stride + e] : 0.0f;
      if (c.times_step) x *= c.g[at * c.g_stride + head];
      Store(row + a * c.padded_value, x);
    }
    return;
  }
  i -= values;
  if (i >= c.heads) return;
  float* decay = reinterpret_cast<float*>(tail + c.decay_offset) + i * kChunk;
  float* beta = reinterpret_cast<float*>(tail + c.beta_offset) + i * kChunk;
  float sum = begin == 0 ? 0.0f : decay[begin - 1];
  for (uint32_t a = begin; a < places; ++a) {
    const size_t at = token + a - begin;
    const float g = c.g[at * c.g_stride + i];
    sum += c.rate == nullptr ? g : c.rate[i] * g;
    decay[a] = sum;
    if (c.delta) beta[a] = c.beta[at * c.beta_stride + i];
  }
}

// Tiles of 16 columns of a block: fewer while that leaves processors without work. Bits do not
// depend on it.
uint32_t TilesOf(const FenwickCall& call, int processors) {
  const uint32_t all = call.padded_value / 16;
  uint32_t tiles = 4;
  while (tiles > 1 && tiles / 2 >= all) tiles /= 2;
  const uint32_t wanted = 2 * static_cast<uint32_t>(processors);
  while (tiles > 1 && call.heads * call.rows.segment_count * ((all + tiles - 1) / tiles) < wanted) {
    tiles /= 2;
  }
  return tiles;
}

template <bool kSingle, int kParts, bool kBf16Pages>
void Launch(const FenwickCall& call, const LaunchContext& context) {
  const auto kernel = FenwickKernel<kSingle, kParts, kBf16Pages>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
  context.Check(prepared);
  constexpr size_t kMostAhead = size_t{32} << 20;  // of L2; half of a session's pages are live
  const uint32_t tiles = TilesOf(call, context.processors), all = call.padded_value / 16;
  const size_t session = size_t{call.heads} * call.padded_key * call.padded_value *
                         (kBf16Pages ? 2 : 4) * call.pages.levels / 2;
  const bool ahead = call.rows.segment_count * session <= kMostAhead;
  const Sizes<kSingle, kParts> sizes(call, tiles);
  context.Run(kernel, dim3(call.heads * ((all + tiles - 1) / tiles), call.rows.segment_count),
              kWarps * 32, sizes.end, call, tiles, ahead);
}

template <bool kSingle, int kParts>
void LaunchForPages(const FenwickCall& call, const LaunchContext& context) {
  if (call.bf16_pages) return Launch<kSingle, kParts, true>(call, context);
  Launch<kSingle, kParts, false>(call, context);
}

template <bool kSingle>
void LaunchForRows(const FenwickCall& call, bool fp32_rows, const LaunchContext& context) {
  if (fp32_rows) return LaunchForPages<kSingle, 2>(call, context);
  LaunchForPages<kSingle, 1>(call, context);
}

void LaunchPart(const FenwickCall& call, bool fp32_rows, const LaunchContext& context) {
  if (LaunchFenwickDecode(call, fp32_rows, context)) return;
  if (call.rows.single) return LaunchForRows<true>(call, fp32_rows, context);
  LaunchForRows<false>(call, fp32_rows, context);
  const uint32_t threads = call.heads / call.heads_per_key * call.padded_key +
                           call.heads * call.padded_value + call.heads;
  const auto kernel = fp32_rows ? KeepFenwickRowsKernel<float> : KeepFenwickRowsKernel<bf16>;
  context.Run(kernel, dim3((threads + 127) / 128, call.rows.segment_count), 128, 0, call);
}

}  // namespace

void LaunchFenwick(const FenwickCall& call, bool fp32_rows, const LaunchContext& context) {
  FenwickByParts(call, [&](const FenwickCall& part) { LaunchPart(part, fp32_rows, context); });
}

}  // namespace rivulet::cuda
