// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One token of each segment where decays are by channel: what sums_decode.cu does for the others. A
// query is scaled before it is rounded, and a score is a sum of products with a decay each, so that
// scores take more work than reading the state. With few blocks eight warps compute scores while
// one or two others read; otherwise four do both. A warp that reads has 16 value columns.
//
// Before the kernel before has ended, the state, the rows of the tail and their decays are on their
// way to shared memory. Then each thread asks for its numbers of the token at once, and there are
// two barriers: one before the state is read and scores are computed, one before the outputs.
//
// The order of every sum is that of sums.cu, so the bits are the same.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_DECODE_CHANNEL_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_DECODE_CHANNEL_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/rehearsal.cuh"
#include "kernels/device/sums.cuh"
#include "kernels/device/sums_decode.cuh"

namespace rivulet::cuda {

// The kernel for a kind of state and keys up to 16 · kTiles. kFew: with few blocks, where latency
// counts, eight warps compute scores while one or two others read; otherwise four warps do both.
template <bool kBf16State_, int kTiles_, bool kFew_>
struct ChannelForm {
  static constexpr bool kBf16State = kBf16State_;
  static constexpr int kTiles = kTiles_;
  static constexpr bool kFew = kFew_;
  static constexpr uint32_t kNumber = kBf16State ? 2 : 4;
  static constexpr uint32_t kKey = kTiles * 16;     // numbers of a row of keys in shared memory
  static constexpr uint32_t kStride = kKey + kPad;  // of rows of bf16 there
  static constexpr uint32_t kScorers = kFew ? 8 : kMostWarps;  // warps
  static constexpr uint32_t kMostReaders = kFew ? 2 : kMostWarps;
  static constexpr uint32_t kMostThreads = 32 * (kScorers + (kFew ? kMostReaders : 0));
  // Numbers of a row for a lane: lane, lane + 32, ...; and for a thread.
  static constexpr uint32_t kNumbers = kKey / 32;
  static constexpr uint32_t kOwn = (kKey + 32 * kScorers - 1) / (32 * kScorers);
  // Blocks that share a processor.
  static constexpr int kResident = kFew         ? 2
                                   : kTiles > 8 ? (kBf16State ? 3 : 2)
                                                : (kBf16State ? 6 : 4);

  static constexpr uint32_t Threads(uint32_t values) {
    return 32 * kScorers + (kFew ? values * 2 : 0);
  }
};

// Where a block's arrays are in its shared memory, in bytes.
template <typename Form>
struct ChannelLayout {
  static constexpr uint32_t kScoreStride = kChunk + kPad;
  // fp32 [C, Dp], [Dp], [C]; bf16 [queries or key and query, C + pad]; bf16 [C, Dp + pad].
  static constexpr uint32_t kDecays = 0;
  static constexpr uint32_t kStateDecay = kDecays + kChunk * Form::kKey * 4;
  static constexpr uint32_t kKeyScores = kStateDecay + Form::kKey * 4;
  static constexpr uint32_t kScores = kKeyScores + kChunk * 4;
  static constexpr uint32_t kKeys = kScores + kMostColumns * kScoreStride * 2;
  static constexpr uint32_t kQueries = kKeys + kChunk * Form::kStride * 2;

  __host__ __device__ ChannelLayout(uint32_t columns, uint32_t values, uint32_t padded_key)
      : rows(kQueries + columns * Form::kStride * 2),
        v(rows + columns * Form::kKey * 4),
        state(v + kChunk * (values + kPad) * 2),
        bytes(state + values * padded_key * Form::kNumber) {}

  // After bf16 [columns, Dp + pad] with decays: fp32 [columns, Dp] without; bf16 [C, values + pad];
  // the tiles of the state.
  const uint32_t rows, v, state, bytes;
};

template <typename Form>
class DecodeByChannel : public DecodeReader {
  using Layout = ChannelLayout<Form>;
  static constexpr uint32_t kKey = Form::kKey, kStride = Form::kStride;
  static constexpr uint32_t kNumbers = Form::kNumbers, kOwn = Form::kOwn;
  static constexpr uint32_t kScorers = Form::kScorers;
  static constexpr uint32_t kStep = 32 * kScorers;  // between numbers of a thread
  static constexpr uint32_t kAtOnce = 2;            // rows that a warp scores side by side
  using RowNumbers = float[kAtOnce][kNumbers];

 public:
  __device__ DecodeByChannel(const RecurCall& call, uint32_t values, std::byte* memory)
      : DecodeByChannel(call, values, memory,
                        Layout(call.delta ? 2 : call.unit_heads, values, call.padded_key)) {}

  // rehearsed: of the blocks, the first so many.
  __device__ void Run(uint32_t resident, uint32_t rehearsed) {
    if (segment_.tokens == 0) return AwaitLastKernel();
    place_ = static_cast<uint32_t>(segment_.position % kChunk);
    fresh_ = segment_.position < kChunk;
    CopyState<Form::kNumber>();
    CopyTail();
    CommitCopies();
    const uint32_t block = blockIdx.x + blockIdx.y * gridDim.x, later = block + resident;
    if (threadIdx.x == 0 && block < resident && later < gridDim.x * gridDim.y) {
      FetchState(later / gridDim.x, later % gridDim.x, Form::kNumber);
    }
    FindToken();
    RunRehearsed(rehearsed, [this](bool real) { Work(real); });
    if (place_ + 1 == kChunk) Fold();
  }

 private:
  __device__ DecodeByChannel(const RecurCall& call, uint32_t values, std::byte* memory,
                             const Layout& layout)
      : DecodeReader(call, values, memory, layout.v, layout.state),
        rows_(layout.rows),
        scorer_(SameInWarp(warp_) - (Form::kFew ? values / 16 : 0)) {}

  __device__ float* Decays(uint32_t place) const {
    return At<float>(Layout::kDecays) + place * kKey;
  }
  __device__ bf16* KeyAt(uint32_t place) const { return At<bf16>(Layout::kKeys) + place * kStride; }
  __device__ bf16* QueryAt(uint32_t column) const {
    return At<bf16>(Layout::kQueries) + column * kStride;
  }
  __device__ float* TokenRow(uint32_t column) const { return At<float>(rows_) + column * kKey; }
  __device__ float* ChannelDecays(uint32_t place) const {
    return reinterpret_cast<float*>(Tail(c_.decay_offset)) +
           (size_t{unit_ / c_.units_per_decay} * kChunk + place) * c_.padded_key;
  }
  // Which number of a row the thread has.
  __device__ uint32_t Own(uint32_t i) const { return threadIdx.x + i * kStep; }

  // --- before the kernel before has ended --------------------------------------------------------

  // Rows before the token's. Values after it are zeros: their scores are zero, but zero times
  // anything is not. So is the token's row where it is solved for.
  __device__ void CopyTail() const {
    for (uint32_t s = warp_; s < place_; s += blockDim.x / 32) {
      for (uint32_t d = lane_ * 8; d < c_.padded_key; d += 256) {
        CopyAsync(KeyAt(s) + d, KeyRow(s) + d);
      }
      for (uint32_t d = lane_ * 4; d < c_.padded_key; d += 128) {
        CopyAsync(Decays(s) + d, ChannelDecays(s) + d);
      }
    }
    const uint32_t s = threadIdx.x / 8, column = threadIdx.x % 8 * 8;  // up to 64 columns
    if (s >= kChunk || column >= width_) return;
    bf16* to = At<bf16>(v_) + s * dv_ + column;
    if (s < place_) CopyAsync(to, ValueRow(s) + first_ + column);
    if (s > place_ || (s == place_ && c_.delta)) *reinterpret_cast<uint4*>(to) = {0, 0, 0, 0};
  }

  // The cumulative decays of the token before, and where the thread's numbers of the token are and
  // are kept: divisions take longer than the rest of what follows the kernel before.
  __device__ void FindToken() {
    const size_t row = unit_ / c_.units_per_decay;
    g_at_ = c_.g + size_t{Token()} * c_.g_stride + row * c_.padded_key + threadIdx.x;
    k_at_ = Key() + threadIdx.x;
    q_at_ = Query(0) + threadIdx.x;
    const uint32_t column = first_ + (c_.delta ? warp_ * 16 + g_ : threadIdx.x);
    v_at_ = Value() + column;
    to_ = Outputs();
    if (c_.delta || KeepsValues()) keeps_v_ = ValueRow(place_) + column;
    if (split_ == 0 && unit_ % c_.units_per_decay == 0) {
      keeps_g_ = ChannelDecays(place_) + threadIdx.x;
    }
    if (KeepsKey()) keeps_k_ = KeyRow(place_) + threadIdx.x;
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      const bool present = place_ != 0 && Own(i) < c_.padded_key;
      before_[i] = present ? ReadLate(ChannelDecays(place_ - 1) + Own(i)) : 0.0f;
    }
  }

  // --- the token's row ---------------------------------------------------------------------------

  __device__ void Work(bool real) {
    real_ = real;
    ForgetAddresses();
    TakeToken();
    WaitForCopies<0>();
    __syncthreads();
    if (scorer_ < kScorers) Score();
    float sum[4] = {};
    Solved rows;
    if (reads_) {
      if (!fresh_) ReadState(sum);
      if (c_.delta) LoadSolved(rows);
    }
    __syncthreads();
    if (reads_) Read(sum, rows);
    if (!real) __syncthreads();  // before the token is taken again
  }

  // All that the thread takes is asked for before the first of it is used.
  __device__ void TakeToken() {
    float g[kOwn], k[kOwn], q[kOwn], v = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      if (Own(i) >= c_.padded_key) continue;
      g[i] = ReadLate(g_at_ + i * kStep);
      k[i] = ReadLate(k_at_ + i * kStep);
      q[i] = ReadLate(q_at_ + i * kStep);
    }
    if (c_.delta && reads_) {
      TakeValues();
      beta_ = ReadLate(Beta());
    }
    if (!c_.delta && threadIdx.x < width_) v = ReadLate(v_at_);
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      if (Own(i) < c_.padded_key) StoreNumbers(i, before_[i] + g[i], k[i], q[i]);
    }
    if (!c_.delta && threadIdx.x < width_) StoreValue(v);
  }

  // The thread's number i of the cumulative decays, the key and the queries.
  __device__ void StoreNumbers(uint32_t i, float sum, float k, float q) const {
    const uint32_t d = Own(i);
    const bf16 key = __float2bfloat16_rn(k);
    const float decay = expf(sum);
    Decays(place_)[d] = sum;
    At<float>(Layout::kStateDecay)[d] = decay;
    KeyAt(place_)[d] = key;
    if (c_.delta) StoreColumn(0, d, k, decay);
    StoreColumn(c_.delta ? 1 : 0, d, q, decay);
    if (real_ && keeps_g_ != nullptr) keeps_g_[i * kStep] = sum;
    if (real_ && keeps_k_ != nullptr) keeps_k_[i * kStep] = key;
    if (c_.delta) return;
    const uint32_t next = c_.query_per_head ? c_.padded_key : 0;
#pragma unroll 1
    for (uint32_t column = 1; column < c_.unit_heads; ++column) {
      StoreColumn(column, d, ReadLate(q_at_ + column * next + i * kStep), decay);
    }
  }

  // Number d of a query, or of the key of a delta rule, as it is and with its decay.
  __device__ void StoreColumn(uint32_t column, uint32_t d, float x, float decay) const {
    TokenRow(column)[d] = x;
    QueryAt(column)[d] = __float2bfloat16_rn(x * decay);
  }

  __device__ void StoreValue(float v) const {
    const bf16 rounded = __float2bfloat16_rn(v);
    At<bf16>(v_)[place_ * dv_ + threadIdx.x] = rounded;
    if (real_ && keeps_v_ != nullptr) *keeps_v_ = rounded;
  }

  // --- scores ------------------------------------------------------------------------------------

  // Of the warp's rows, kAtOnce at a time; those after the token's are zero.
  __device__ void Score() {
#pragma unroll 1
    for (uint32_t s = scorer_; s < kChunk; s += kAtOnce * kScorers) {
      if (s > place_) {
        StoreNone(s);
      } else {
        ScoreRows(s);
      }
    }
  }

  __device__ void StoreNone(uint32_t first) const {
    if (lane_ >= columns_) return;
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) StoreScore(lane_, first + i * kScorers, 0.0f);
  }

  // Rows `first` and first + kScorers, side by side and without branches: the second may be after
  // the token's, whose numbers are not used, and numbers from Dp on are not.
  __device__ void ScoreRows(uint32_t first) const {
    RowNumbers keys, decays;
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const uint32_t d = lane_ + 32 * j;
      const float now = Decays(place_)[d];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        decays[i][j] = expf(now - Decays(first + i * kScorers)[d]);
        keys[i][j] = __bfloat162float(KeyAt(first + i * kScorers)[d]);
      }
    }
    if (real_ && place_ + 1 == kChunk) WeightKeys(first, keys, decays);
    if (c_.delta) {
      ScoreColumns<2>(0, first, keys, decays);
    } else {
      for (uint32_t c = 0; c < c_.unit_heads; ++c) ScoreColumns<1>(c, first, keys, decays);
    }
  }

  template <uint32_t kColumns>
  __device__ void ScoreColumns(uint32_t column, uint32_t first, const RowNumbers& keys,
                               const RowNumbers& decays) const {
    float sum[kColumns][kAtOnce] = {};
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const uint32_t d = lane_ + 32 * j;
      const bool present = d < c_.padded_key;
#pragma unroll
      for (uint32_t c = 0; c < kColumns; ++c) {
        const float x = TokenRow(column + c)[d];
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          const float more = fmaf(x * keys[i][j], decays[i][j], sum[c][i]);
          sum[c][i] = present ? more : sum[c][i];
        }
      }
    }
    // The sums of WarpSum, side by side.
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      float other[kColumns][kAtOnce];
#pragma unroll
      for (uint32_t n = 0; n < kColumns * kAtOnce; ++n) {
        other[n / kAtOnce][n % kAtOnce] =
            __shfl_xor_sync(0xffffffffu, sum[n / kAtOnce][n % kAtOnce], step);
      }
#pragma unroll
      for (uint32_t n = 0; n < kColumns * kAtOnce; ++n) {
        sum[n / kAtOnce][n % kAtOnce] += other[n / kAtOnce][n % kAtOnce];
      }
    }
    if (lane_ != 0) return;
#pragma unroll
    for (uint32_t n = 0; n < kColumns * kAtOnce; ++n) {
      const uint32_t c = n / kAtOnce, i = n % kAtOnce;
      StoreScore(column + c, first + i * kScorers, sum[c][i]);
    }
  }

  __device__ void StoreScore(uint32_t column, uint32_t s, float score) const {
    const bool of_key = c_.delta && column == 0;
    if (of_key) At<float>(Layout::kKeyScores)[s] = s < place_ ? score : 0.0f;
    At<bf16>(Layout::kScores)[column * kScoreStride + s] =
        __float2bfloat16_rn(s <= place_ && !of_key ? score : 0.0f);
  }

  // For the fold: the decays to the token's row are those to the border.
  __device__ void WeightKeys(uint32_t first, const RowNumbers& keys,
                             const RowNumbers& decays) const {
#pragma unroll
    for (uint32_t n = 0; n < kAtOnce * kNumbers; ++n) {
      const uint32_t i = n / kNumbers, j = n % kNumbers;
      KeyAt(first + i * kScorers)[lane_ + 32 * j] = __float2bfloat16_rn(keys[i][j] * decays[i][j]);
    }
  }

  // --- read --------------------------------------------------------------------------------------

  __device__ void ReadState(float (&sum)[4]) const {
    if (c_.padded_key == kKey) {
#pragma unroll
      for (uint32_t kt = 0; kt < Form::kTiles; ++kt) ReadTile(kt, Form::kTiles, sum);
    } else {
#pragma unroll 1
      for (uint32_t kt = 0; kt < key_tiles_; ++kt) ReadTile(kt, key_tiles_, sum);
    }
  }

  __device__ void ReadTile(uint32_t kt, uint32_t tiles, float (&sum)[4]) const {
    HeldTile<Form::kBf16State> tile;
    tile.Load(At<std::byte>(state_), warp_ * tiles + kt);
    const bool present = g_ < columns_;
    const bf16* query = QueryAt(g_) + kt * 16 + 2 * t_;
    tile.Multiply(sum, Two(query, present), Two(query + 8, present));
  }

  __device__ void Read(float (&sum)[4], const Solved& rows) {
    if (c_.delta) Solve(sum, rows, Layout::kKeyScores);
    ReadTail(sum, Layout::kScores);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) Write(i % 2, i / 2, sum[i]);
  }

  // --- fold --------------------------------------------------------------------------------------

  // All warps fold the block's tiles.
  __device__ void Fold() const {
    __syncthreads();  // keys with their decays, and solved values
    for (uint32_t tile = 0; tile * 16 < width_; ++tile) {
      uint32_t v[4];
      LoadTransposed(v, Values(tile));
      for (uint32_t kt = warp_; kt < key_tiles_; kt += blockDim.x / 32) FoldTile(v, tile, kt);
    }
  }

  __device__ void FoldTile(const uint32_t (&v)[4], uint32_t tile, uint32_t kt) const {
    HeldTile<Form::kBf16State> held;
    StateTile s = {};
    if (!fresh_) {
      held.Load(At<std::byte>(state_), tile * key_tiles_ + kt);
      s = held.Numbers();
    }
    const float* decay = At<float>(Layout::kStateDecay) + kt * 16 + 2 * t_;
    FoldedTile folded(s, {decay[0], decay[1], decay[8], decay[9]});
    uint32_t k[4];
    LoadTransposed(k, KeyAt(lane_ % 8 + lane_ / 8 % 2 * 8) + kt * 16 + lane_ / 16 * 8);
    folded.Add(v, k);
    StoreTile<Form::kBf16State>(Matrix(segment_.base_out, Form::kNumber),
                                (first_ / 16 + tile) * key_tiles_ + kt, folded.Tile());
  }

  const uint32_t rows_;    // where the token's rows without decays are
  const uint32_t scorer_;  // which of the warps that score; kScorers or more: it does not
  // Of the token, and where it is kept in the tail; null: not by this block.
  const float *g_at_ = nullptr, *k_at_ = nullptr, *q_at_ = nullptr;
  float* keeps_g_ = nullptr;
  bf16* keeps_k_ = nullptr;
  float before_[kOwn];
};

template <typename Form>
__global__ void __launch_bounds__(Form::kMostThreads, Form::kResident)
    DecodeByChannelKernel(const __grid_constant__ RecurCall call, uint32_t values,
                          uint32_t resident, uint32_t rehearsed) {
  extern __shared__ __align__(16) std::byte channel_memory[];
  AllowNextKernel();
  DecodeByChannel<Form>(call, values, channel_memory).Run(resident, rehearsed);
}

template <typename Form>
void LaunchChannelForm(const RecurCall& call, uint32_t values, const LaunchContext& context) {
  static const cudaError_t prepared =
      cudaFuncSetAttribute(DecodeByChannelKernel<Form>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kSharedOfBlocks / 2 - kSharedReserve);
  context.Check(prepared);
  const ChannelLayout<Form> layout(call.delta ? 2 : call.unit_heads, values, call.padded_key);
  const uint32_t blocks = DecodeBlocks(call, values);
  const uint32_t rehearsed = context.RehearsedBlocks(blocks) == 0 ? 0 : blocks;
  const auto resident = static_cast<uint32_t>(context.processors * Form::kResident);
  const dim3 grid(blocks / call.rows.segment_count, call.rows.segment_count);
  context.Run(DecodeByChannelKernel<Form>, grid, Form::Threads(values), layout.bytes, call, values,
              resident, rehearsed);
}

template <bool kBf16State, int kTiles>
void LaunchChannelTiles(const RecurCall& call, const LaunchContext& context) {
  using Few = ChannelForm<kBf16State, kTiles, true>;
  using Many = ChannelForm<kBf16State, kTiles, false>;
  const uint32_t values = DecodeValues(call, Few::kMostReaders * 16, context.processors);
  if (DecodeBlocks(call, values) <= 2 * static_cast<uint32_t>(context.processors)) {
    return LaunchChannelForm<Few>(call, values, context);
  }
  LaunchChannelForm<Many>(call, DecodeValues(call, Many::kMostReaders * 16, context.processors),
                          context);
}

template <bool kBf16State>
void LaunchDecodeByChannel(const RecurCall& call, const LaunchContext& context) {
  constexpr int kFewTiles = static_cast<int>(kHeldTiles);
  call.padded_key <= kHeldTiles * 16 ? LaunchChannelTiles<kBf16State, kFewTiles>(call, context)
                                     : LaunchChannelTiles<kBf16State, 2 * kFewTiles>(call, context);
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_DECODE_CHANNEL_CUH_
