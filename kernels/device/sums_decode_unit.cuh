// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One token of each segment where decays are by unit and blocks are few: what sums_decode.cu does
// with many. Then the time from the end of the kernel before to the end of this one counts, and the
// fewest instructions on that way. A block has up to 64 value columns of one unit; warps that read
// have 16 of them each, and one warp more computes the scores meanwhile.
//
// Before the kernel before has ended, the state and the rows of the tail are on their way. Then a
// warp asks for one or two pieces of the token's rows, and there are two barriers: one before the
// state is read and scores are computed, one before the outputs.
//
// The order of every sum is that of sums.cu, so the bits are the same.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_DECODE_UNIT_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_DECODE_UNIT_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/projected_row.cuh"
#include "kernels/device/rehearsal.cuh"
#include "kernels/device/row_convolution.cuh"
#include "kernels/device/sums.cuh"
#include "kernels/device/sums_decode.cuh"

namespace rivulet::cuda {

// A processor's threads up to which a state waits in registers and not in shared memory, which is
// then free for the rings of the product that comes next. Threads of two launches have to fit in
// the registers of a processor: otherwise the later ones begin when the earlier ones have ended. 0:
// always in shared memory.
template <bool kBf16State>
constexpr uint32_t kMostHoldingThreads = kBf16State ? 256 : 192;

// The kernel for a kind of state and keys up to 16 · kTiles. kHeld: states wait in registers.
// kPrepares: the kernel prepares its rows (UnpreparedRows), of gated outputs. kProjects: of numbers
// that other warps of its block leave in shared memory (ProjectedRow), one unit's 16 value columns.
template <bool kBf16State_, int kTiles_, bool kNormaliser_, bool kHeld_, bool kPrepares_ = false,
          bool kProjects_ = false>
struct UnitForm {
  static constexpr bool kBf16State = kBf16State_, kNormaliser = kNormaliser_, kHeld = kHeld_;
  static constexpr bool kPrepares = kPrepares_, kProjects = kProjects_;
  static constexpr int kTiles = kTiles_;
  static constexpr uint32_t kNumber = kBf16State ? 2 : 4;
  static constexpr uint32_t kKey = kTiles * 16;     // numbers of a row of keys in shared memory
  static constexpr uint32_t kStride = kKey + kPad;  // of rows of bf16 there
  static constexpr uint32_t kMostThreads = 32 * (kMostWarps + 1);
  // Blocks that share a processor.
  static constexpr int kResident = !kHeld ? 4 : kBf16State ? 3 : 2;
};

// Where a block's arrays are in its shared memory, in bytes.
template <typename Form>
struct UnitLayout {
  // fp32 [C]; bf16 [columns, C + pad]; fp32 [columns]; fp32 [Dp]; bf16 [Dp + pad], zeros; bf16
  // [C, Dp + pad].
  static constexpr uint32_t kKeyScores = 0;
  static constexpr uint32_t kScores = kKeyScores + kChunk * 4;
  static constexpr uint32_t kDivisors = kScores + kMostColumns * (kChunk + kPad) * 2;
  static constexpr uint32_t kSums = kDivisors + kMostColumns * 4;
  static constexpr uint32_t kZeros = kSums + (Form::kNormaliser ? Form::kKey * 4 : 0);
  static constexpr uint32_t kKeys = kZeros + Form::kStride * 2;
  static constexpr uint32_t kQueries = kKeys + kChunk * Form::kStride * 2;

  __host__ __device__ UnitLayout(uint32_t queries, uint32_t values, uint32_t padded_key)
      : v(kQueries + queries * Form::kStride * 2),
        unscaled(v + kChunk * (values + kPad) * 2),
        state(unscaled + (Form::kPrepares ? values * 4 : 0)),
        bytes(state + (Form::kHeld ? 0 : values * padded_key * Form::kNumber)) {}

  // After bf16 [queries, Dp + pad]: bf16 [C, values + pad]; fp32 [values] of a kernel that prepares
  // its rows, for D; the tiles of the state.
  const uint32_t v, unscaled, state, bytes;
};

template <typename Form>
class DecodeByUnit : public DecodeReader {
  using Layout = UnitLayout<Form>;
  using Tiles = HeldTile<Form::kBf16State>;
  static constexpr uint32_t kKey = Form::kKey, kStride = Form::kStride;
  static constexpr uint32_t kPieces = kKey / 128;  // of a row of keys
  static constexpr uint32_t kAtOnce = 2;           // pieces that a warp asks for at once
  static constexpr bool kGates = !Form::kNormaliser && Form::kTiles <= kHeldTiles;  // CanGate

  // Four numbers of a lane, of one piece of the token's rows.
  struct Four {
    const float* from = nullptr;  // null: nothing
    uint32_t to = 0;              // in shared memory
    bf16* keeps = nullptr;        // in the tail; null: not by this block
    bool scaled = false;          // by the step Δ
    // Of rows that the kernel prepares:
    float* unscaled = nullptr;         // in shared memory, for D; null: not a value
    bool keeps_input = false;          // of the convolution
    const float* projected = nullptr;  // in shared memory
  };

 public:
  __device__ DecodeByUnit(const RecurCall& call, uint32_t values, std::byte* memory,
                          const UnpreparedRows* rows = nullptr, ProjectedRow* projected = nullptr)
      : DecodeByUnit(call, values, memory, Layout(Queries(call), values, call.padded_key), rows,
                     projected) {}

  // Rows of queries beside the key, which is a column of a delta rule itself.
  __host__ __device__ static uint32_t Queries(const RecurCall& call) {
    return call.delta ? 1 : call.unit_heads;
  }

  // rehearsed: of the blocks, the first so many.
  __device__ void Run(uint32_t rehearsed) {
    if (segment_.tokens == 0) return AwaitLastKernel();
    place_ = static_cast<uint32_t>(segment_.position % kChunk);
    fresh_ = segment_.position < kChunk;
    BringState();
    CopyTail();
    CommitCopies();
    FindToken();
    if constexpr (Form::kPrepares) StartRows();
    FindDecays();
    RunRehearsed(rehearsed, [this](bool real) { Work(real); });
    if (place_ + 1 == kChunk) Fold();
  }

 private:
  __device__ DecodeByUnit(const RecurCall& call, uint32_t values, std::byte* memory,
                          const Layout& layout, const UnpreparedRows* rows, ProjectedRow* projected)
      : DecodeReader(call, values, memory, layout.v, layout.state),
        queries_(Queries(call)),
        scores_(SameInWarp(warp_) == values / 16),
        rows_(rows),
        unscaled_(reinterpret_cast<float*>(memory + layout.unscaled)),
        projected_(projected) {}

  // The block's threads that take part, and a barrier of these.
  __device__ static uint32_t Threads() {
    return Form::kProjects ? ProjectedRow::kReaders : blockDim.x;
  }
  __device__ static void Meet() {
    if constexpr (Form::kProjects) {
      ProjectedRow::MeetReaders();
    } else {
      __syncthreads();
    }
  }

  __device__ bf16* KeyAt(uint32_t place) const { return At<bf16>(Layout::kKeys) + place * kStride; }
  // Where in shared memory what column g is multiplied by is, from the lane's first number on: a
  // query, or the key of a delta rule, or zeros.
  __device__ uint32_t ColumnAt() const {
    uint32_t row = Layout::kQueries + (c_.delta ? 0 : g_) * kStride * 2;
    if (c_.delta && g_ == 0) row = Layout::kKeys + place_ * kStride * 2;
    if (g_ >= columns_) row = Layout::kZeros;
    return row + t_ * 4;
  }

  // Calls body(kt) for each of the unit's tiles. Keys of the most tiles, as most models have, take
  // no branch in between.
  template <typename Body>
  __device__ void ForTiles(const Body& body) const {
    if (c_.padded_key == kKey) {
#pragma unroll
      for (uint32_t kt = 0; kt < Form::kTiles; ++kt) body(kt);
    } else {
#pragma unroll
      for (uint32_t kt = 0; kt < Form::kTiles; ++kt) {
        if (kt < key_tiles_) body(kt);
      }
    }
  }

  // --- before the kernel before has ended --------------------------------------------------------

  __device__ void BringState() {
    if constexpr (Form::kHeld) {
      if (fresh_ || !reads_) return;
      const std::byte* matrix = Matrix(segment_.base_in, Form::kNumber);
      ForTiles([&](uint32_t kt) { held_[kt].Load(matrix, Tile(kt)); });
    } else {
      CopyState<Form::kNumber>();
    }
  }

  // Rows before the token's. Scores of those after it are not used, so that keys need no zeros
  // there; values do, since zero times anything is not zero. So does the token's row where it is
  // solved for.
  __device__ void CopyTail() const {
    constexpr uint32_t kThreads = kKey / 8;  // of a row
    const uint32_t d = threadIdx.x % kThreads * 8, step = Threads() / kThreads;
    if (d < c_.padded_key) {
      const bf16* rows = KeyRow(0) + d;
      for (uint32_t s = threadIdx.x / kThreads; s < place_; s += step) {
        CopyAsync(KeyAt(s) + d, rows + s * c_.padded_key);
      }
    }
    if (threadIdx.x < kKey / 4) {
      *reinterpret_cast<uint2*>(At<bf16>(Layout::kZeros) + threadIdx.x * 4) = {0, 0};
    }
    CopyValues();
    if (Form::kNormaliser && !fresh_ && threadIdx.x * 4 < c_.padded_key) {
      CopyAsync(At<float>(Layout::kSums) + threadIdx.x * 4,
                NormaliserAt(c_, segment_.base_in, blockIdx.x) + threadIdx.x * 4);
    }
  }

  __device__ void CopyValues() const {
    const uint32_t column = threadIdx.x % 8 * 8, first = place_ + (c_.delta ? 0 : 1);
    if (column >= width_) return;
    const bf16* rows = ValueRow(0) + first_ + column;
    for (uint32_t s = threadIdx.x / 8; s < kChunk; s += Threads() / 8) {
      bf16* to = At<bf16>(v_) + s * dv_ + column;
      if (s < place_) CopyAsync(to, rows + s * c_.padded_value);
      if (s >= first) *reinterpret_cast<uint4*>(to) = {0, 0, 0, 0};
    }
  }

  // Of the key, of the queries, and of the block's values unless they are solved for.
  __device__ uint32_t TokenPieces() const { return (1 + queries_) * kPieces + (c_.delta ? 0 : 1); }
  __device__ Four FourAt(uint32_t piece) const {
    const uint32_t row = piece / kPieces, d = piece % kPieces * 128 + lane_ * 4;
    if (row > queries_) return ValuesAt(lane_ * 4);
    if (d >= c_.padded_key) return {};
    const bool keeps = KeepsKey();
    if (row > 0) {
      const uint32_t to = Layout::kQueries + ((row - 1) * kStride + d) * 2;
      return {Query(row - 1) + d, to, nullptr, false, nullptr, keeps};
    }
    return {Key() + d,
            Layout::kKeys + (place_ * kStride + d) * 2,
            keeps ? KeyRow(place_) + d : nullptr,
            false,
            nullptr,
            keeps};
  }
  __device__ Four ValuesAt(uint32_t column) const {
    if (column >= width_) return {};
    const bool keeps = KeepsValues();
    return {Value() + first_ + column,
            v_ + (place_ * dv_ + column) * 2,
            keeps ? ValueRow(place_) + first_ + column : nullptr,
            c_.times_step,
            Form::kPrepares ? unscaled_ + column : nullptr,
            keeps};
  }

  // Where the lane's numbers of the token are and are kept: divisions take longer than the rest of
  // what follows the kernel before.
  __device__ void FindToken() {
    const uint32_t pieces = TokenPieces(), step = Threads() / 32;
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      const uint32_t piece = warp_ + j * step;
      if (piece < pieces) fours_[j] = FourAt(piece);
      if constexpr (Form::kProjects) fours_[j].projected = projected_->Piece(piece) + lane_ * 4;
    }
    const uint32_t column = first_ + warp_ * 16 + g_;
    v_at_ = Value() + column;
    to_ = Outputs();
    column_ = ColumnAt();
    if (!reads_) return;
    if (c_.delta) {
      keeps_v_ = ValueRow(place_) + column;
      beta_at_ = Beta();
    }
    if (kGates && Gates()) return FindGate();
    const bool skips = c_.skip != nullptr && 2 * t_ < columns_;
    takes_values_ = c_.delta || skips;
    if (!skips) return;
    skip_[0] = c_.skip[unit_ * c_.value_dim + column];
    skip_[1] = c_.skip[unit_ * c_.value_dim + column + 8];
  }

  __device__ void FindGate() {
    takes_values_ = HasGate();
    if (!takes_values_) return;
    const uint32_t column = GatedColumn();
    v_at_ += t_ * 8;
    second_at_ = static_cast<int64_t>(GateAt() - v_at_);
    if (c_.skip != nullptr) skip_[0] = c_.skip[column];
    skip_[1] = c_.gated.weight[column];
  }

  // Cumulative decays of the rows before the token's; constants are those of all rows. None is used
  // here: a rehearsal asks for the token while they are on their way.
  __device__ void FindDecays() {
    takes_decay_ = TakesDecay();
    if (takes_decay_) {
      g_at_ = c_.g + size_t{Token()} * c_.g_stride + unit_;
      if (c_.rate != nullptr) rate_ = c_.rate[unit_];
      if (place_ != 0) before_ = DecayRow()[place_ - 1];
      LoadDecays(DecayRow(), place_);
    } else if (c_.constant != nullptr) {
      const float* row = c_.constant + unit_ * kChunk;
      now_ = row[place_];
      LoadDecays(row, kChunk);
    }
  }
  __device__ void LoadDecays(const float* row, uint32_t count) {
    if (lane_ < count) decay_ = row[lane_];
    if (g_ < count) near_ = row[g_];
    if (g_ + 8 < count) far_ = row[g_ + 8];
  }

  // --- rows that the kernel prepares -------------------------------------------------------------

  __device__ RowConvolution Convolution() const { return {*rows_, c_, segment_}; }
  __device__ void StartRows() {
    if (rows_->step_bias != nullptr) step_bias_ = rows_->step_bias[unit_];
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      if (fours_[j].from == nullptr) continue;
      const uint32_t channel = Convolution().Channel(fours_[j].from);
      convolved_[j].Ask(Convolution(), channel), convolved_[j].Start(Convolution(), channel);
    }
  }
  // Numbers x of fours that were started, as they are in the projection.
  __device__ void PrepareNumbers(const ConvolvedFour& convolved, const Four& four, float4 x,
                                 float step) const {
    const float4 now = AsRow(x);
    x = convolved.Finish(now);
    if (four.unscaled != nullptr) StoreFour(four.unscaled, x);
    StoreNumbers(four, x, step);
    if (real_ && four.keeps_input) {
      Convolution().Keep(Convolution().Channel(four.from), now);
    }
  }

  // --- the token's row ---------------------------------------------------------------------------

  __device__ void Work(bool real) {
    real_ = real;
    ArrangeRegisters();
    if (Form::kProjects && real) projected_->AwaitNumbers();
    TakeToken();
    WaitForCopies<0>();
    Meet();
    float sum[4] = {};
    Solved rows;
    if (scores_) Score();
    if (reads_) {
      ReadState(sum);
      if (c_.delta) LoadSolved(rows);
    }
    Meet();
    if (reads_) Read(sum, rows);
    if (!real) Meet();  // before the token is taken again
  }

  // Where the compiler's choice costs time after the kernel before: it would work out these two
  // addresses again where they are used. And it would split the state into parts before the work,
  // which takes registers and makes a rehearsal wait for the state before it asks for the token.
  __device__ void ArrangeRegisters() {
    ForgetAddresses();
    asm volatile("" : "+l"(to_));
    asm volatile("" : "+r"(column_));
    if constexpr (Form::kHeld) {
#pragma unroll
      for (uint32_t kt = 0; kt < Form::kTiles; ++kt) held_[kt].Forget();
    }
  }

  // All that the thread takes is asked for before the first of it is used.
  __device__ void TakeToken() {
    float step = 0.0f;
    float4 x[kAtOnce];
    if (takes_decay_) step = Form::kProjects ? projected_->step : ReadLate(g_at_);
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      if (fours_[j].from != nullptr) x[j] = ReadFour(fours_[j]);
    }
    if constexpr (Form::kPrepares) {
      if (!Form::kProjects && takes_values_) values_now_[1] = ReadLate(v_at_ + second_at_);
      step = StepOf(*rows_, step, step_bias_);
    } else {
      if (takes_values_) TakeValues();
    }
    if (beta_at_ != nullptr) beta_ = ReadLate(beta_at_);
    if (takes_decay_) AddDecay(rate_ * step);
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      if (fours_[j].from == nullptr) continue;
      if constexpr (Form::kPrepares) {
        PrepareNumbers(convolved_[j], fours_[j], x[j], step);
      } else {
        StoreNumbers(fours_[j], x[j], step);
      }
    }
    // One query, keys of one piece and values are no more than two warps have taken.
    if constexpr (!Form::kPrepares) TakeOthers(step);
  }
  __device__ void TakeOthers(float step) const {
    const uint32_t pieces = TokenPieces(), warps = blockDim.x / 32;
#pragma unroll 1
    for (uint32_t piece = warp_ + kAtOnce * warps; piece < pieces; piece += warps) {
      const Four four = FourAt(piece);
      if (four.from != nullptr) StoreNumbers(four, ReadFour(four), step);
    }
  }

  __device__ static float4 ReadFour(const Four& four) {
    if constexpr (Form::kProjects) return *reinterpret_cast<const float4*>(four.projected);
    return ReadLate(reinterpret_cast<const float4*>(four.from));
  }
  __device__ void StoreNumbers(const Four& four, float4 x, float step) const {
    if (four.scaled) x.x *= step, x.y *= step, x.z *= step, x.w *= step;
    StoreFour(At<bf16>(four.to), x);
    if (real_ && four.keeps != nullptr) StoreFour(four.keeps, x);
  }

  __device__ void AddDecay(float g) {
    now_ = before_ + g;
    if (lane_ != place_) return;
    decay_ = now_;
    if (real_ && split_ == 0 && warp_ == 0) DecayRow()[place_] = now_;
  }

  // --- scores ------------------------------------------------------------------------------------

  __device__ void Score() const {
    float score[4] = {}, n[4] = {};
    const bf16* column = At<bf16>(column_);
    const uint32_t keys = SharedAddress(KeyAt(lane_ % 8 + lane_ / 8 % 2 * 8) + lane_ / 16 * 8);
    // One tile's keys are loaded while another's are multiplied; the last load is not used.
    uint32_t k[2][4];
    LoadMatrices(k[0], keys);
    ForTiles([&](uint32_t kt) {
      const uint32_t b0 = Two(column + kt * 16), b1 = Two(column + kt * 16 + 8);
      LoadMatrices(k[(kt + 1) % 2], keys + (kt + 1) % Form::kTiles * 32);
      MultiplyAdd(score, k[kt % 2], b0, b1);
      if (Form::kNormaliser && !fresh_) ReadSums(kt, b0, b1, n);
    });
    const float near = expf(now_ - (g_ == place_ ? now_ : near_));
    const float far = expf(now_ - (g_ + 8 == place_ ? now_ : far_));
    score[0] = g_ <= place_ ? score[0] * near : 0.0f;
    score[1] = g_ <= place_ ? score[1] * near : 0.0f;
    score[2] = g_ + 8 <= place_ ? score[2] * far : 0.0f;
    score[3] = g_ + 8 <= place_ ? score[3] * far : 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) StoreScore(2 * t_ + i % 2, g_ + i / 2 * 8, score[i]);
    if constexpr (Form::kNormaliser) StoreDivisors(TransposedScores(score, g_ < columns_), n);
  }

  __device__ void StoreScore(uint32_t column, uint32_t s, float score) const {
    const bool of_key = c_.delta && column == 0;
    if (of_key) At<float>(Layout::kKeyScores)[s] = s < place_ ? score : 0.0f;
    At<bf16>(Layout::kScores)[column * kScoreStride + s] =
        __float2bfloat16_rn(of_key ? 0.0f : score);
  }

  // The normaliser's reads, in the order of sums.cu.
  __device__ void ReadSums(uint32_t kt, uint32_t b0, uint32_t b1, float (&n)[4]) const {
    uint32_t high[4], low[4];
    SplitRows(At<float>(Layout::kSums) + kt * 16 + 2 * t_, high, low);
    MultiplyAdd(n, high, b0, b1);
    MultiplyAdd(n, low, b0, b1);
  }
  __device__ void StoreDivisors(uint2 p, float (&n)[4]) const {
    const float weight = expf(now_);
    n[0] *= weight, n[1] *= weight;
    MultiplyAdd(n, {kTwoOnes, kTwoOnes, kTwoOnes, kTwoOnes}, p.x, p.y);
    if (g_ == 0) *(At<float2>(Layout::kDivisors) + t_) = {n[0], n[1]};
  }

  // --- read --------------------------------------------------------------------------------------

  __device__ void ReadState(float (&sum)[4]) {
    const float weight = expf(now_);
    if (!fresh_) {
      const bf16* column = At<bf16>(column_);
      ForTiles([&](uint32_t kt) {
        Tiles& tile = held_[Form::kHeld ? kt : 0];
        if constexpr (!Form::kHeld) LoadCopied(tile, warp_, kt);
        tile.Multiply(sum, Two(column + kt * 16), Two(column + kt * 16 + 8));
      });
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) sum[i] *= weight;
  }

  // The block's tile `row` of value columns and kt of keys.
  __device__ void LoadCopied(Tiles& tile, uint32_t row, uint32_t kt) const {
    tile.Load(At<std::byte>(state_), row * key_tiles_ + kt);
  }

  __device__ void Read(float (&sum)[4], const Solved& rows) {
    if (c_.delta) Solve(sum, rows, Layout::kKeyScores);
    ReadTail(sum, Layout::kScores);
    if constexpr (Form::kNormaliser) {
      const float2 n = At<float2>(Layout::kDivisors)[t_];
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) sum[i] = Divided(c_, sum[i], i % 2 == 0 ? n.x : n.y);
    }
    if (kGates && Gates()) {
      float x = OwnOutput(sum[0], sum[2]);
      if constexpr (Form::kProjects) TakeGate();
      if (Form::kPrepares && HasGate()) values_now_[0] = unscaled_[warp_ * 16 + g_ + t_ * 8];
      if (c_.skip != nullptr) x = fmaf(skip_[0], values_now_[0], x);
      return WriteGated(x, values_now_[1], skip_[1], real_);
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      if (c_.skip != nullptr) sum[i] = fmaf(skip_[i / 2], values_now_[i / 2], sum[i]);
      Write(i % 2, i / 2, sum[i]);
    }
  }

  __device__ void TakeGate() {
    if (real_) projected_->AwaitGate();
    if (HasGate()) values_now_[1] = projected_->gate[g_ + t_ * 8];
  }

  // --- fold --------------------------------------------------------------------------------------

  __device__ float DecayAt(uint32_t place) const { return __shfl_sync(0xffffffffu, decay_, place); }

  __device__ void Fold() {
    WeightKeys();
    const float weight = expf(DecayAt(kChunk - 1));
    Meet();  // weighted keys, and solved values
    if constexpr (Form::kNormaliser) {
      FoldNormaliser<1>(c_, KeyAt(0), kStride, weight, fresh_, At<float>(Layout::kSums),
                        NormaliserAt(c_, segment_.base_out, blockIdx.x));
    }
    if constexpr (Form::kHeld) {
      if (!reads_) return;
      uint32_t v[4];
      LoadTransposed(v, Values(warp_));
      ForTiles([&](uint32_t kt) { FoldTile(v, held_[kt], weight, warp_, kt); });
    } else {
      FoldCopied(weight);
    }
  }

  // All reads of the keys are before the last barrier.
  __device__ void WeightKeys() const {
    for (uint32_t s = warp_; s < kChunk; s += Threads() / 32) {
      const float weight = expf(DecayAt(kChunk - 1) - DecayAt(s));
      for (uint32_t d = lane_ * 2; d < c_.padded_key; d += 64) {
        auto* two = reinterpret_cast<uint32_t*>(KeyAt(s) + d);
        *two = PackRounded(FirstOf(*two) * weight, SecondOf(*two) * weight);
      }
    }
  }

  // All warps fold the block's tiles.
  __device__ void FoldCopied(float weight) const {
    for (uint32_t row = 0; row * 16 < width_; ++row) {
      uint32_t v[4];
      LoadTransposed(v, Values(row));
      for (uint32_t kt = warp_; kt < key_tiles_; kt += blockDim.x / 32) {
        Tiles tile;
        if (!fresh_) LoadCopied(tile, row, kt);
        FoldTile(v, tile, weight, row, kt);
      }
    }
  }

  __device__ void FoldTile(const uint32_t (&v)[4], const Tiles& tile, float weight, uint32_t row,
                           uint32_t kt) const {
    StateTile s = {};
    if (!fresh_) s = tile.Numbers();
    FoldedTile folded(s, {weight, weight, weight, weight});
    uint32_t k[4];
    LoadTransposed(k, KeyAt(lane_ % 8 + lane_ / 8 % 2 * 8) + kt * 16 + lane_ / 16 * 8);
    folded.Add(v, k);
    StoreTile<Form::kBf16State>(Matrix(segment_.base_out, Form::kNumber),
                                (first_ / 16 + row) * key_tiles_ + kt, folded.Tile());
  }

  const uint32_t queries_;
  const bool scores_;
  uint32_t column_ = 0;
  Four fours_[kAtOnce];
  const float *g_at_ = nullptr, *beta_at_ = nullptr;
  bool takes_decay_ = false, takes_values_ = false;
  // Cumulative decays: of row `lane`, of rows g and g + 8, of the row before the token's, and of
  // the token's.
  float decay_ = 0.0f, near_ = 0.0f, far_ = 0.0f, before_ = 0.0f, now_ = 0.0f;
  float rate_ = 1.0f;
  float skip_[2] = {};  // of gated outputs: D and the norm's weight
  Tiles held_[Form::kHeld ? Form::kTiles : 1];
  const UnpreparedRows* const rows_;  // null: all are prepared
  float* const unscaled_;             // in shared memory
  ConvolvedFour convolved_[kAtOnce];
  float step_bias_ = 0.0f;
  ProjectedRow* const projected_;  // null: rows are in device memory
};

template <typename Form>
__global__ void __launch_bounds__(Form::kMostThreads, Form::kResident)
    DecodeByUnitKernel(const __grid_constant__ RecurCall call, uint32_t values,
                       uint32_t rehearsed) {
  extern __shared__ __align__(16) std::byte unit_memory[];
  AllowNextKernel();
  DecodeByUnit<Form>(call, values, unit_memory).Run(rehearsed);
}

template <typename Form>
__global__ void __launch_bounds__(Form::kMostThreads, Form::kResident)
    PreparingUnitKernel(const __grid_constant__ RecurCall call,
                        const __grid_constant__ UnpreparedRows rows, uint32_t values,
                        uint32_t rehearsed) {
  extern __shared__ __align__(16) std::byte unit_memory[];
  __builtin_assume(!call.delta);
  AllowNextKernel();
  DecodeByUnit<Form>(call, values, unit_memory, &rows).Run(rehearsed);
}

// With a normaliser a unit has as many blocks as there are copies.
inline uint32_t UnitValues(const RecurCall& call, int processors) {
  return call.normaliser ? WarpsOf(call, processors) * 16
                         : DecodeValues(call, kMostWarps * 16, processors);
}

template <typename Form, typename Kernel, typename... Rows>
void LaunchUnitForm(Kernel kernel, const RecurCall& call, uint32_t values,
                    const LaunchContext& context, const Rows&... rows) {
  static const cudaError_t prepared = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedOfBlocks / 2 - kSharedReserve);
  context.Check(prepared);
  const UnitLayout<Form> layout(DecodeByUnit<Form>::Queries(call), values, call.padded_key);
  const uint32_t blocks = DecodeBlocks(call, values);
  const uint32_t rehearsed = context.RehearsedBlocks(blocks) == 0 ? 0 : blocks;
  const dim3 grid(blocks / call.rows.segment_count, call.rows.segment_count);
  context.Run(kernel, grid, values * 2 + 32, layout.bytes, call, rows..., values, rehearsed);
}

// rows: as LaunchDecode.
template <bool kBf16State, int kTiles, bool kNormaliser, bool kHeld>
void LaunchUnitForm(const RecurCall& call, const UnpreparedRows* rows, uint32_t values,
                    const LaunchContext& context) {
  using Form = UnitForm<kBf16State, kTiles, kNormaliser, kHeld>;
  if constexpr (!kNormaliser && kTiles <= kHeldTiles) {
    using Preparing = UnitForm<kBf16State, kTiles, kNormaliser, kHeld, /*kPrepares=*/true>;
    if (rows != nullptr) {
      return LaunchUnitForm<Preparing>(PreparingUnitKernel<Preparing>, call, values, context,
                                       *rows);
    }
  }
  LaunchUnitForm<Form>(DecodeByUnitKernel<Form>, call, values, context);
}

template <bool kBf16State, bool kNormaliser>
bool LaunchUnitTiles(const RecurCall& call, const UnpreparedRows* rows,
                     const LaunchContext& context) {
  constexpr int kFewTiles = static_cast<int>(kHeldTiles);
  constexpr uint32_t kMostHolding = kMostHoldingThreads<kBf16State>;
  const auto processors = static_cast<uint32_t>(context.processors);
  const uint32_t values = UnitValues(call, context.processors), blocks = DecodeBlocks(call, values);
  if (blocks > 2 * processors) return false;
  const uint32_t threads = (blocks + processors - 1) / processors * (values * 2 + 32);
  if (call.padded_key > kFewTiles * 16) {
    LaunchUnitForm<kBf16State, 2 * kFewTiles, kNormaliser, false>(call, rows, values, context);
  } else if (threads <= kMostHolding) {
    LaunchUnitForm<kBf16State, kFewTiles, kNormaliser, true>(call, rows, values, context);
  } else {
    LaunchUnitForm<kBf16State, kFewTiles, kNormaliser, false>(call, rows, values, context);
  }
  return true;
}

// False: there are more than two blocks a processor.
template <bool kBf16State>
bool LaunchDecodeByUnit(const RecurCall& call, const UnpreparedRows* rows,
                        const LaunchContext& context) {
  return call.normaliser ? LaunchUnitTiles<kBf16State, true>(call, rows, context)
                         : LaunchUnitTiles<kBf16State, false>(call, rows, context);
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_DECODE_UNIT_CUH_
