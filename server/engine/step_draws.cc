// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/step_draws.h"

#include <algorithm>

namespace rivulet {
namespace {

// At least as many as the edits of the row's draws.
size_t EditsOf(const StepPlan& plan, const StepRow& row) {
  if (row.samples == 0) return 0;
  const size_t last = row.samples - 1, forbidden = ForbiddenFor(row.spec, 0).size();
  return row.samples * EditWriter::Bound(*row.spec.params, HistoryOf(plan, row, last), forbidden);
}

}  // namespace

bool IsPromised(const StepPlan& plan, const StepRow& row) {
  return plan.tokens[row.segment.first_token] == kLastSampled;
}

std::vector<bool> RowsForHost(const StepPlan& plan, size_t most_edits) {
  std::vector<bool> rows(plan.rows.size());
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const size_t edits = EditsOf(plan, plan.rows[r]);
    rows[r] = edits > most_edits;
    if (!rows[r]) most_edits -= edits;
  }
  return rows;
}

SampleRow DrawOf(const StepPlan& plan, const Place& place, EditWriter& writer,
                 StepDescription& here) {
  const StepRow& row = plan.rows[place.row];
  const SampleSpec& spec = row.spec;
  SampleRow draw;
  if (place.sample != Place::kNone) {
    const SamplingParams& params = *spec.params;
    draw = DescribeDraw(params, {spec.index, spec.position + place.sample});
    here.AddEdits(draw, [&](LogitEdit* to) {
      return writer.Write(params, HistoryOf(plan, row, place.sample),
                          ForbiddenFor(spec, place.sample), to);
    });
    if (place.sample + 1 == row.samples) draw.slot = row.segment.tail;
    const bool counts = params.NeedsSessionCounts() || params.NeedsTurnCounts();
    draw.counts_last = counts && IsPromised(plan, row) ? 1 : 0;
    if (spec.logprobs != 0) draw.top_logits = spec.logprobs;
  }
  if (place.score != Place::kNone) {
    draw.scored = row.score_targets[place.score];
    draw.top_logits = std::max(spec.logprobs, row.score_top);
  }
  return draw;
}

PendingAnswer AnswerFor(const StepPlan& plan, const Place& place, size_t index) {
  const StepRow& row = plan.rows[place.row];
  PendingAnswer pending{index, place, PositionOf(row, place), row.spec.logprobs, 0, row.score_top};
  if (place.score != Place::kNone) pending.score_target = row.score_targets[place.score];
  return pending;
}

void TakeAnswer(const PendingAnswer& pending, const SampleResult& answer,
                const LogprobResult& logits, uint32_t vocab, StepResult& result) {
  const Place& place = pending.place;
  RowResult& row = result.rows[place.row];
  if (answer.broken != kNoToken) {
    const absl::Status status = LogitNotFinite(answer.broken, vocab, answer.broken_logit);
    NoteFailure(At(status, place, pending.position), place, row);
    return;
  }
  if (place.score != Place::kNone) {
    row.scores[place.score] = LogprobsFrom(logits, pending.score_target, logits.scored,
                                           std::min(pending.score_top, vocab));
  }
  if (place.sample == Place::kNone) return;
  if (!pending.mask.empty()) {
    const absl::Status status = CheckConfined(answer.token, pending.mask);
    if (!status.ok()) return NoteFailure(At(status, place, pending.position), place, row);
  }
  SampledToken& sample = row.samples[place.sample];
  sample.token = answer.token;
  if (pending.logprobs == 0) return;
  sample.logprob =
      LogprobsFrom(logits, answer.token, logits.sampled, std::min(pending.logprobs, vocab));
}

}  // namespace rivulet
