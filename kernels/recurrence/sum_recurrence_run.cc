// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The execution of a declaration: one unit of work over the pieces of its chunks.
#include <algorithm>
#include <cstring>

#include "kernels/recurrence/delta.h"
#include "kernels/recurrence/fenwick.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

// y += scale · x over [n, columns].
void AddScaledRows(float scale, ConstFloatMatrix x, FloatMatrix y) {
  for (size_t r = 0; r < y.rows; ++r) {
    const float* from = x.row(r);
    float* to = y.row(r);
    for (size_t i = 0; i < y.columns; ++i) to[i] += scale * from[i];
  }
}

void DivideRow(Division division, float denominator, size_t columns, float* row) {
  if (division == Division::kReciprocal) {
    const float scale = 1.0f / denominator;
    for (size_t i = 0; i < columns; ++i) row[i] *= scale;
  } else {
    for (size_t i = 0; i < columns; ++i) row[i] /= denominator;
  }
}

// to [padded] = scale · from [count], zeros behind it.
void ScaleRow(float scale, const float* from, size_t count, float* to, size_t padded) {
  for (size_t i = 0; i < count; ++i) to[i] = scale * from[i];
  std::fill(to + count, to + padded, 0.0f);
}

// The piece's rows of columns [first, first + padded) of `input`, to places from `begin` of a tail
// plane with rows of `stride` floats.
void CopyRows(ConstFloatMatrix input, size_t begin, size_t stride, float* plane) {
  for (size_t r = 0; r < input.rows; ++r) {
    std::memcpy(plane + (begin + r) * stride, input.row(r), input.columns * sizeof(float));
  }
}

}  // namespace

struct SumRecurrence::Call {
  const LayerStep& step;
  const TokenInputs& inputs;
  FloatMatrix out;
  FloatMatrix temporaries[kMaxTemporaries];  // [T, H · columns]
};

// One piece of a chunk of one unit.
class SumRecurrence::Unit {
 public:
  Unit(const SumRecurrence& recurrence, const Call& call, const HeadPiece& piece)
      : r_(recurrence),
        declaration_(recurrence.declaration_),
        shape_(recurrence.declaration_.shape),
        call_(call),
        state_(call.step.state),
        piece_(piece),
        group_(r_.heads_apart() ? piece.head / shape_.group() : piece.head),
        first_(r_.heads_apart() ? piece.head : piece.head * shape_.group()),
        last_(first_ + (r_.heads_apart() ? 1 : shape_.group())) {}

  // Rows, then reads, then folds: a fold may write the base that the reads use.
  void Run() const {
    if (!r_.heads_apart()) AppendRows(false, group_);
    if (r_.appends_decay() && !r_.decay_per_head()) AppendDecay(group_);
    DeltaScores scores;
    if (declaration_.delta && declaration_.levels == 0 && !channel_decay()) {
      ScoreDelta(Tail(r_.sums_[0], first_), Queries(r_.reads_[0], first_), piece_.begin, scores);
    }
    for (size_t head = first_; head < last_; ++head) RunHead(head, scores);
    FoldSums(false, first_);
  }

 private:
  void RunHead(size_t head, const DeltaScores& scores) const {
    AppendRows(true, head);
    if (r_.appends_decay() && r_.decay_per_head()) AppendDecay(head);
    if (declaration_.levels != 0) {
      RunPages(head);
    } else if (declaration_.delta) {
      Solve(head, scores);
    } else if (declaration_.low_rank) {
      SolveLowRankForm(head);
    } else {
      RunReads(head);
    }
    if (!declaration_.skip.empty()) AddSkip(head);
    FoldSums(true, head);
  }

  bool channel_decay() const { return declaration_.decay.kind == Decay::kChannel; }
  size_t Index(bool per_head, size_t head) const { return per_head ? head : group_; }
  template <typename T>
  MatrixView<T> Columns(const MatrixView<T>& matrix, size_t index, size_t padded) const {
    return piece_.Of(matrix, index * padded, padded);
  }
  float* TailAt(size_t offset, size_t index, size_t columns) const {
    return state_.Tail<float>(piece_.tail, offset) + index * r_.fold_interval_ * columns;
  }
  float* RowAt(const Row& row, size_t head) const {
    return TailAt(row.offset, Index(row.per_head, head), row.padded);
  }
  float* ExtraAt(const Row& row, size_t head) const {
    return row.extra ? TailAt(row.extra_offset, Index(row.per_head, head), 1) : nullptr;
  }

  // --- rows --------------------------------------------------------------------------------------

  void AppendRows(bool per_head, size_t index) const {
    for (const Row& row : r_.rows_) {
      if (row.per_head != per_head) continue;
      float* to = TailAt(row.offset, index, row.padded);
      if (row.times_step) {
        AppendScaled(row, index, to);
        continue;
      }
      for (const Source& source : row.copies) {
        CopyRows(Columns(call_.inputs.*source.input, index, source.padded), piece_.begin,
                 row.padded, to);
        to += source.padded;
      }
    }
  }

  void AppendScaled(const Row& row, size_t head, float* to) const {
    const size_t width = shape_.value_dim;
    for (size_t r = 0; r < piece_.rows(); ++r) {
      const size_t token = piece_.first_token + r;
      ScaleRow(call_.inputs.decay.row(token)[head], call_.inputs.v.row(token) + head * width, width,
               to + (piece_.begin + r) * row.padded, row.padded);
    }
  }

  void AppendDecay(size_t index) const {
    const size_t columns = r_.decay_columns();
    const std::vector<float>& rates = declaration_.decay.rate;
    const float rate = rates.empty() ? 1.0f : rates[index];
    for (size_t r = 0; r < piece_.rows(); ++r) {
      const size_t place = piece_.begin + r;
      const float* g = call_.inputs.decay.row(piece_.first_token + r) + index * columns;
      float* c = TailAt(r_.decay_offset_, index, columns) + place * columns;
      const float* before = c - columns;
      for (size_t i = 0; i < columns; ++i) c[i] = (place == 0 ? 0.0f : before[i]) + rate * g[i];
    }
  }

  const float* DecayAt(size_t head) const {
    if (declaration_.decay.kind == Decay::kNone) return nullptr;
    if (!r_.appends_decay()) return r_.constant_decay_.data() + head * r_.fold_interval_;
    return TailAt(r_.decay_offset_, Index(r_.decay_per_head(), head), r_.decay_columns());
  }

  // --- sums in a base ----------------------------------------------------------------------------

  SumTail Tail(const Sum& sum, size_t head) const {
    const Row &key = r_.rows_[sum.key], &value = r_.rows_[sum.value];
    const size_t rows = r_.rows_a_token();
    SumTail tail{.key = RowAt(key, head),
                 .key_stride = key.padded / rows,
                 .value = RowAt(value, head) + sum.value_column,
                 .value_stride = value.padded / rows,
                 .extra = ExtraAt(value, head),
                 .extra_stride = 1,
                 .log_decay = DecayAt(head),
                 .decay_stride = r_.decay_columns(),
                 .decay_power = sum.decay_power,
                 .chunk = r_.fold_interval_,
                 .rows_a_token = rows};
    if (r_.heads_apart() && piece_.begin == 0) {  // KeepGroupRows
      const ConstFloatMatrix& keys = call_.inputs.*key.copies[0].input;
      tail.key = keys.row(piece_.first_token) + group_ * key.padded;
      tail.key_stride = keys.stride;
    }
    return tail;
  }

  // What the piece reads: before the session's first border, zero.
  SumBase From(const Sum& sum, size_t head) const {
    return piece_.chunk == 0 ? SumBase{} : Base(sum, piece_.from, head);
  }
  SumBase Base(const Sum& sum, uint32_t slot, size_t head) const {
    const size_t index = Index(sum.per_head, head);
    const size_t bytes = sum.shape.matrix_elements() * DTypeSize(sum.shape.dtype);
    SumBase base{.matrix = state_.Base<std::byte>(slot, sum.offset) + index * bytes};
    if (sum.shape.normaliser) {
      base.normaliser =
          state_.Base<float>(slot, sum.normaliser_offset) + index * sum.shape.padded_key();
    }
    return base;
  }

  ConstFloatMatrix Queries(const Read& read, size_t head) const {
    const size_t d = shape_.padded_key();
    if (read.query == nullptr) return Columns(call_.temporaries[read.temporary], head, d);
    return Columns(call_.inputs.*read.query, Index(read.query_per_head, head), d);
  }

  FloatMatrix Out(size_t head) const { return Columns(call_.out, head, shape_.padded_value()); }

  // Where a read goes.
  FloatMatrix TargetOf(const Read& read, size_t head) const {
    if (read.target == Target::kOutput) return Out(head);
    if (read.target == Target::kRow) {
      const Row& row = r_.rows_[read.to];
      return {RowAt(row, head) + piece_.begin * row.padded, piece_.rows(), row.padded, row.padded};
    }
    return Columns(call_.temporaries[read.to], head, r_.temporaries_[read.to].columns);
  }

  void RunReads(size_t head) const {
    float normaliser[kMaxFoldInterval];
    for (const Read& read : r_.reads_) RunRead(read, head, normaliser);
    if (declaration_.division == Division::kNone) return;
    const FloatMatrix out = Out(head);
    for (size_t r = 0; r < out.rows; ++r) {
      DivideRow(declaration_.division, normaliser[r] + declaration_.denominator_eps,
                shape_.value_dim, out.row(r));
    }
  }

  // `normaliser` [n] goes with the output.
  void RunRead(const Read& read, size_t head, float* normaliser) const {
    const Sum& sum = r_.sums_[read.sum];
    const SumQuery query{Queries(read, head), piece_.begin, read.strict};
    const FloatMatrix to = TargetOf(read, head);
    float summand[kMaxFoldInterval];
    float* extra = normaliser;
    if (read.target == Target::kSummand) extra = summand;
    if (read.target == Target::kRow && sum.shape.normaliser) {
      extra = ExtraAt(r_.rows_[read.to], head) + piece_.begin;
    }
    ReadSum(sum.shape, From(sum, head), Tail(sum, head), query, to, extra);
    if (read.ridge != 0.0f) AddScaledRows(read.ridge, query.queries, to);
    if (read.target != Target::kSummand) return;
    AddScaledRows(read.add, to, Out(head));
    if (!sum.shape.normaliser) return;
    for (size_t r = 0; r < piece_.rows(); ++r) normaliser[r] += read.add * summand[r];
  }

  void FoldSums(bool per_head, size_t head) const {
    if (!piece_.folds || declaration_.levels != 0) return;
    for (const Sum& sum : r_.sums_) {
      if (sum.per_head != per_head) continue;
      FoldSum(sum.shape, From(sum, head), Base(sum, piece_.to, head), Tail(sum, head));
    }
  }

  // --- the delta rule ----------------------------------------------------------------------------

  void Solve(size_t head, const DeltaScores& scores) const {
    const Sum& sum = r_.sums_[0];
    const ConstFloatMatrix& beta = call_.inputs.beta;
    const DeltaPiece rows{.queries = Queries(r_.reads_[0], head),
                          .values = Columns(call_.inputs.v, head, shape_.padded_value()),
                          .beta = beta.row(piece_.first_token) + head,
                          .beta_stride = beta.stride,
                          .begin = piece_.begin,
                          .solved = RowAt(r_.rows_[sum.value], head)};
    if (!channel_decay()) {
      return SolveDelta(sum.shape, From(sum, head), Tail(sum, head), rows, scores, Out(head));
    }
    DeltaScores own;
    ScoreDecayedDelta(Tail(sum, head), rows.queries, piece_.begin, own);
    SolveDelta(sum.shape, From(sum, head), Tail(sum, head), rows, own, Out(head));
  }

  void SolveLowRankForm(size_t head) const {
    const Sum& sum = r_.sums_[0];
    const size_t d = shape_.padded_key();
    const LowRankPiece rows{.queries = Queries(r_.reads_[0], head),
                            .readers = Columns(call_.inputs.a, head, d),
                            .log_decays = Columns(call_.inputs.decay, head, d),
                            .begin = piece_.begin,
                            .solved = RowAt(r_.rows_[sum.value], head) + shape_.padded_value()};
    SolveLowRank(sum.shape, From(sum, head), Tail(sum, head), rows, Out(head));
  }

  // --- a sum in pages ----------------------------------------------------------------------------

  FenwickPages Pages(size_t fold, uint32_t slot, size_t head) const {
    const Sum& sum = r_.sums_[0];
    const uint32_t* table = piece_.pages[state_.page_kind].Table(fold);
    const uint32_t count = FenwickPageCount(declaration_.levels, r_.fold_interval_);
    const size_t bytes = sum.shape.matrix_elements() * DTypeSize(sum.shape.dtype);
    FenwickPages pages;
    for (uint32_t p = 0; p < count; ++p) {
      pages.matrix[p] = nullptr;
      if (table[p] == kNoPage) continue;
      pages.matrix[p] = state_.Page<std::byte>(table[p], sum.offset) + head * bytes;
    }
    pages.log_decay = state_.Base<float>(slot, r_.page_decay_offset_) + head * size_t{2} * count;
    return pages;
  }

  FenwickTail PagedTail(size_t head) const {
    FenwickTail tail{Tail(r_.sums_[0], head)};
    if (!declaration_.delta) return tail;
    float* beta = TailAt(r_.beta_offset_, head, 1);
    for (size_t r = 0; r < piece_.rows(); ++r) {
      beta[piece_.begin + r] = call_.inputs.beta.row(piece_.first_token + r)[head];
    }
    tail.beta = beta;
    tail.overlap = TailAt(r_.overlap_offset_, head, r_.fold_interval_);
    return tail;
  }

  void RunPages(size_t head) const {
    const FenwickShape shape{shape_.key_dim,     shape_.value_dim,   declaration_.levels,
                             declaration_.delta, shape_.state_dtype, r_.fold_interval_};
    const FenwickTail tail = PagedTail(head);
    if (shape.delta) AppendOverlap(shape, tail, piece_.begin, piece_.rows());
    const FenwickPages from = Pages(piece_.fold, piece_.from, head);
    ReadFenwick(shape, from, tail,
                {Queries(r_.reads_[0], head), Columns(call_.inputs.levels, head, shape.levels),
                 piece_.begin},
                Out(head));
    if (!piece_.folds) return;
    FoldFenwick(shape, piece_.chunk, from, Pages(piece_.fold + 1, piece_.to, head), tail);
  }

  // --- the output --------------------------------------------------------------------------------

  void AddSkip(size_t head) const {
    const size_t width = shape_.value_dim;
    const float* skip = declaration_.skip.data() + head * width;
    const ConstFloatMatrix v = Columns(call_.inputs.v, head, width);
    const FloatMatrix out = Out(head);
    for (size_t r = 0; r < out.rows; ++r) {
      for (size_t i = 0; i < width; ++i) out.row(r)[i] += skip[i] * v.row(r)[i];
    }
  }

  const SumRecurrence& r_;
  const RecurrenceDeclaration& declaration_;
  const HeadShape& shape_;
  const Call& call_;
  const LayerState& state_;
  const HeadPiece& piece_;
  size_t group_;         // the unit's
  size_t first_, last_;  // its heads
};

// The floats that one token of a unit reads, which decides whether waking the pool is worth it.
// With several reads the sums of a head are in L1 or L2, where an element costs an eighth of what
// one of a norm or an activation does. Of pages, a token reads about half of as many as its session
// has, which is not known here.
size_t SumRecurrence::UnitWork() const {
  size_t elements = 0;
  for (const Read& read : reads_) elements += sums_[read.sum].shape.matrix_elements();
  if (declaration_.levels != 0) elements *= 2;
  if (!heads_apart()) elements *= shape().group();
  return reads_.size() > 1 ? elements / 8 : elements;
}

// Where heads are units of their own, none may write the rows of their group while others read
// them. A piece that starts a chunk therefore reads those rows from the step's input, where all of
// them are; only a piece that goes on with an older chunk reads the tail. Before the reads, the
// rows of such a piece are kept; after them, those of a chunk that the step starts and does not
// finish.
void SumRecurrence::KeepGroupRows(const Call& call, bool before_reads) const {
  if (!heads_apart()) return;
  for (const Segment& segment : call.step.segments) {
    ForEachChunkPiece(segment, fold_interval_, [&](const ChunkPiece& piece) {
      if (before_reads ? piece.begin == 0 : piece.begin != 0 || piece.folds) return;
      for (const Row& row : rows_) {
        if (row.per_head) continue;
        const Source& source = row.copies[0];
        float* to = call.step.state.Tail<float>(segment.tail, row.offset);
        for (size_t g = 0; g < shape().groups; ++g) {
          CopyRows((call.inputs.*source.input)
                       .Rows(piece.first_token, piece.end - piece.begin)
                       .Columns(g * row.padded, row.padded),
                   piece.begin, row.padded, to + g * fold_interval_ * row.padded);
        }
      }
    });
  }
}

void SumRecurrence::Run(const LayerStep& step, const TokenInputs& inputs, FloatMatrix out) const {
  Call call{step, inputs, out, {}};
  for (size_t i = 0; i < temporaries_.size(); ++i) {
    call.temporaries[i] = step.workspace->Take(out.rows, shape().heads * temporaries_[i].columns);
  }
  KeepGroupRows(call, true);
  ForEachHeadUnit(step.segments, fold_interval_, heads_apart() ? shape().heads : shape().groups,
                  UnitWork(), *step.pool,
                  [&](const HeadPiece& piece) { Unit(*this, call, piece).Run(); });
  KeepGroupRows(call, false);
}

}  // namespace rivulet
