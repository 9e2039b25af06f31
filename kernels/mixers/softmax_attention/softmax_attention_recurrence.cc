// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"

#include <algorithm>
#include <new>

#include "absl/functional/function_ref.h"
#include "kernels/base/parallel.h"
#include "kernels/mixers/softmax_attention/chosen_attention.h"

namespace rivulet {
namespace {

// Rows that share a pass over keys and values: their sums of a head of 128 fit the first cache.
constexpr size_t kUnitRows = 64;
// A segment of one unit a kv head has its spans computed side by side, unless their partials would
// need more than this. One token always has: its partials are small beside what it reads.
constexpr size_t kMostPartialFloats = size_t{1} << 22;

}  // namespace

SoftmaxAttentionRecurrence::SoftmaxAttentionRecurrence(const SoftmaxAttentionShape& shape,
                                                       StateLayout& layout)
    : shape_(shape), planes_{.fold_interval = layout.fold_interval()} {
  const size_t heads = shape.kv_heads, d = shape.head_dim, c = planes_.fold_interval;
  const auto add = [&](StatePart part, const char* k, const char* v, size_t* k_at, size_t* v_at) {
    if (layout.device()) {
      *k_at = *v_at = layout.Add(part, k, shape.state_dtype, {heads, c, shape.padded()});
      if (shape.values_are_keys()) return;
    } else {
      *k_at = layout.Add(part, k, shape.state_dtype, {heads, d, c});
    }
    *v_at = layout.Add(part, v, shape.state_dtype, {heads, c, shape.padded_values()});
  };
  add(StatePart::kTail, "k", "v", &planes_.tail_k, &planes_.tail_v);
  add(StatePart::kPage, "k_page", "v_page", &planes_.page_k, &planes_.page_v);
  layout.SetPageKind({.rule = PageRule::kAppended, .window = shape.window});
}

// One call of Run.
class SoftmaxAttentionRecurrence::Step {
 public:
  Step(const SoftmaxAttentionRecurrence& owner, std::span<const Segment> segments,
       const LayerState& state, const SoftmaxAttentionInput& input, FloatMatrix out)
      : shape_(owner.shape_),
        fold_interval_(owner.planes_.fold_interval),
        pages_(owner.shape_, owner.planes_, state),
        segments_(segments),
        input_(input),
        out_(out) {}

  void Run(Workspace& workspace, ThreadPool& pool) {
    ForEachHead(pool, AppendFloats(), [this](size_t segment, size_t head) {
      pages_.Append(segments_[segment], head, input_);
    });
    if (input_.chosen.size != 0) {
      return AttendToChosen(shape_, pages_, fold_interval_, segments_, input_, out_, workspace,
                            pool);
    }
    PlanJobs(workspace);
    RunUnits(pool);
    if (partials_ == 0) return;
    ForEachHead(pool, partials_, [this](size_t job, size_t head) {
      if (jobs_[job].partials != nullptr) JoinSpans(jobs_[job], head);
    });
  }

 private:
  // The work of a segment, in units for each kv head: its tiles of rows, each of which
  // walks all spans; or, of a segment that is one tile, the spans, whose partials are kept.
  struct Job {
    const Segment* segment;
    size_t first_unit;  // among the units of all jobs
    size_t units;
    uint64_t first_span;  // that its first token sees
    size_t spans;
    float* partials;  // [Hkv, spans, rows, PartialFloats]; null: its units walk
  };

  // --- plan --------------------------------------------------------------------------------------

  static uint64_t End(const Segment& segment) { return segment.position + segment.tokens; }
  uint64_t FirstSeen(uint64_t position) const {
    const bool all = shape_.window == 0 || position < shape_.window;
    return std::max(all ? 0 : position + 1 - shape_.window, std::min(shape_.unseen, position));
  }
  size_t Rows(const Segment& segment) const { return segment.tokens * shape_.group(); }
  size_t Tiles(const Segment& segment) const { return (Rows(segment) + kUnitRows - 1) / kUnitRows; }
  size_t JobPartials(const Job& job) const {
    return shape_.kv_heads * job.spans * Rows(*job.segment) * PartialFloats(shape_.values());
  }
  // Whether its spans are units of their own. Speed only.
  bool Splits(const Job& job) const {
    if (Tiles(*job.segment) > 1 || job.spans == 1) return false;
    return job.segment->tokens == 1 || JobPartials(job) <= kMostPartialFloats;
  }

  void PlanJobs(Workspace& workspace) {
    // Workspaces hold floats; a Job is plain words, which any memory may become.
    jobs_ = reinterpret_cast<Job*>(
        workspace.TakeFloats(segments_.size() * sizeof(Job) / sizeof(float) + 1));
    for (size_t i = 0; i < segments_.size(); ++i) {
      const Segment& segment = segments_[i];
      const uint64_t first = FirstSeen(segment.position) / kSpanTokens;
      Job* job = new (jobs_ + i)
          Job{&segment, units_, Tiles(segment), first, (End(segment) - 1) / kSpanTokens + 1 - first,
              nullptr};
      if (Splits(*job)) {
        job->units = job->spans;
        job->partials = workspace.TakeFloats(JobPartials(*job));
        partials_ += JobPartials(*job);
      }
      units_ += job->units;
    }
  }

  size_t AppendFloats() const { return 2 * input_.k.rows * shape_.kv_heads * shape_.padded(); }
  // Floats of keys and values that the step's units pass over.
  size_t ReadFloats() const {
    size_t floats = 0;
    for (const Segment& segment : segments_) {
      const size_t seen = End(segment) - FirstSeen(segment.position);
      floats += Tiles(segment) * seen * 2 * shape_.kv_heads * shape_.head_dim;
    }
    return floats;
  }

  static void Parallel(ThreadPool& pool, size_t floats, size_t tasks,
                       absl::FunctionRef<void(size_t)> task) {
    if (floats >= kFloatsWorthAThread) return pool.ParallelFor(tasks, task);
    for (size_t i = 0; i < tasks; ++i) task(i);
  }

  template <typename Visit>  // void(size_t segment, size_t head)
  void ForEachHead(ThreadPool& pool, size_t floats, Visit&& visit) {
    Parallel(pool, floats, segments_.size() * shape_.kv_heads,
             [&](size_t task) { visit(task / shape_.kv_heads, task % shape_.kv_heads); });
  }

  // --- attend ------------------------------------------------------------------------------------

  void RunUnits(ThreadPool& pool) const {
    Parallel(pool, ReadFloats(), units_ * shape_.kv_heads, [this](size_t task) {
      const size_t unit = task / shape_.kv_heads, head = task % shape_.kv_heads;
      const Job& job = JobOf(unit);
      if (job.partials == nullptr) return WalkSpans(job, unit - job.first_unit, head);
      RunSpan(job, job.first_span + unit - job.first_unit, head);
    });
  }

  // The last job that begins at this unit or before: every job has units.
  const Job& JobOf(size_t unit) const {
    const auto begins_after = [](size_t u, const Job& job) { return u < job.first_unit; };
    return *(std::upper_bound(jobs_, jobs_ + segments_.size(), unit, begins_after) - 1);
  }

  void RunSpan(const Job& job, uint64_t span, size_t head) const {
    Tile tile = TileOf(*job.segment, 0, head);
    for (size_t r = 0; r < tile.rows; ++r) tile.partials[r] = Partial(job, head, span, r);
    Attend(tile, span);
  }

  // Rows of one kv head, a token's query heads side by side.
  struct Tile {
    const Segment* segment;
    size_t head;       // kv head
    size_t first_row;  // of the segment's rows
    size_t rows;
    float* partials[kUnitRows];
  };

  Tile TileOf(const Segment& segment, size_t tile, size_t head) const {
    const size_t first = tile * kUnitRows;
    return {&segment, head, first, std::min(kUnitRows, Rows(segment) - first), {}};
  }
  uint64_t Position(const Tile& tile, size_t row) const {
    return tile.segment->position + (tile.first_row + row) / shape_.group();
  }
  // The row of the step's token arrays, and the query head.
  size_t Token(const Tile& tile, size_t row) const {
    return tile.segment->first_token + (tile.first_row + row) / shape_.group();
  }
  size_t QueryHead(const Tile& tile, size_t row) const {
    return tile.head * shape_.group() + (tile.first_row + row) % shape_.group();
  }

  // The rows' partials of one span; of the rows that see nothing of it, nothing is written.
  void Attend(const Tile& tile, uint64_t span) const {
    SpanQuery queries[kUnitRows];
    size_t count = 0;
    for (size_t r = 0; r < tile.rows; ++r) {
      const uint64_t begin = std::max(FirstSeen(Position(tile, r)), span * kSpanTokens);
      const uint64_t end = std::min(Position(tile, r) + 1, (span + 1) * kSpanTokens);
      if (begin >= end) continue;
      const float* query = input_.q.row(Token(tile, r)) + QueryHead(tile, r) * shape_.padded();
      queries[count++] = {query, begin % kSpanTokens, end - span * kSpanTokens, tile.partials[r]};
    }
    if (count == 0) return;
    SpanTokens tokens{.head_dim = shape_.head_dim,
                      .value_dim = shape_.values(),
                      .dtype = shape_.state_dtype,
                      .key_stride = fold_interval_};
    FindTokens(tile, span, std::span(queries, count), tokens);
    AttendSpan(tokens, std::span(queries, count));
  }

  // The addresses of the pages that these queries see.
  void FindTokens(const Tile& tile, uint64_t span, std::span<const SpanQuery> queries,
                  SpanTokens& tokens) const {
    size_t begin = kSpanTokens, end = 0;
    for (const SpanQuery& query : queries) {
      begin = std::min(begin, query.begin);
      end = std::max(end, query.end);
    }
    const Segment& segment = *tile.segment;
    const size_t value_row = shape_.padded_values() * DTypeSize(shape_.state_dtype);
    for (size_t g = begin / kBlock; g * kBlock < end; ++g) {
      const uint64_t token = span * kSpanTokens + g * kBlock;
      const uint64_t page = token / fold_interval_, row = token % fold_interval_;
      const KeyValuePages::Place place = pages_.Find(segment, page, tile.head);
      tokens.keys[g] = place.keys + row * DTypeSize(shape_.state_dtype);
      tokens.values[g] = place.values + row * value_row;
    }
  }

  // --- join --------------------------------------------------------------------------------------

  float* Partial(const Job& job, size_t head, uint64_t span, size_t row) const {
    const size_t at = (head * job.spans + span - job.first_span) * Rows(*job.segment) + row;
    return job.partials + at * PartialFloats(shape_.values());
  }

  uint64_t FirstSpan(const Tile& tile, size_t row) const {
    return FirstSeen(Position(tile, row)) / kSpanTokens;
  }

  void Finish(const Tile& tile, size_t row, const float* partial) const {
    float* out = out_.row(Token(tile, row)) + QueryHead(tile, row) * shape_.values();
    FinishPartial(shape_.values(), partial, out);
  }

  void JoinSpans(const Job& job, size_t head) const {
    const Tile tile = TileOf(*job.segment, 0, head);
    for (size_t r = 0; r < tile.rows; ++r) {
      uint64_t span = FirstSpan(tile, r);
      float* joined = Partial(job, head, span, r);
      while (++span <= Position(tile, r) / kSpanTokens) {
        JoinPartials(shape_.values(), joined, Partial(job, head, span, r));
      }
      Finish(tile, r, joined);
    }
  }

  // The same for a unit that keeps one partial of what it has walked, and one of the next span.
  void WalkSpans(const Job& job, size_t unit, size_t head) const {
    constexpr size_t kMostFloats = PartialFloats(kMostAttendedValues);
    alignas(kAlignment) float joined[kUnitRows * kMostFloats];
    alignas(kAlignment) float next[kUnitRows * kMostFloats];
    Tile tile = TileOf(*job.segment, unit, head);
    const size_t floats = PartialFloats(shape_.values());
    const uint64_t last = Position(tile, tile.rows - 1) / kSpanTokens;
    for (uint64_t span = FirstSpan(tile, 0); span <= last; ++span) {
      for (size_t r = 0; r < tile.rows; ++r) {
        tile.partials[r] = (span <= FirstSpan(tile, r) ? joined : next) + r * floats;
      }
      Attend(tile, span);
      JoinNext(tile, span, joined);
    }
    for (size_t r = 0; r < tile.rows; ++r) Finish(tile, r, joined + r * floats);
  }

  void JoinNext(const Tile& tile, uint64_t span, float* joined) const {
    for (size_t r = 0; r < tile.rows; ++r) {
      if (span <= FirstSpan(tile, r) || span > Position(tile, r) / kSpanTokens) continue;
      JoinPartials(shape_.values(), joined + r * PartialFloats(shape_.values()), tile.partials[r]);
    }
  }

  const SoftmaxAttentionShape& shape_;
  const size_t fold_interval_;
  const KeyValuePages pages_;
  std::span<const Segment> segments_;
  const SoftmaxAttentionInput& input_;
  FloatMatrix out_;
  Job* jobs_ = nullptr;  // one for each segment
  size_t units_ = 0;     // of all jobs, for each kv head
  size_t partials_ = 0;  // floats, of all jobs
};

void SoftmaxAttentionRecurrence::Run(std::span<const Segment> segments, const LayerState& state,
                                     const SoftmaxAttentionInput& input, FloatMatrix out,
                                     Workspace& workspace, ThreadPool& pool) const {
  Step(*this, segments, state, input, out).Run(workspace, pool);
}

}  // namespace rivulet
