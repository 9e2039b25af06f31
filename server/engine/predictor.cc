// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/predictor.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status.h"

namespace rivulet {
namespace {

// Logits exist for this many rows at a time.
constexpr size_t kLogitRows = 64;

uint64_t Border(uint64_t position, size_t interval) { return position - position % interval; }
uint64_t End(const Segment& segment) { return segment.position + segment.tokens; }

// Appends the guess of these logits [vocab]. False if they are not finite.
bool DrawOne(const GuessRow& row, std::span<const float> logits, std::vector<uint32_t>& guesses) {
  static thread_local SamplingScratch scratch;  // of each thread of the pool
  const DrawPlace place{row.place.index, row.place.position + guesses.size()};
  const auto token = Sample(logits, *row.params, {}, place, scratch);
  if (token.ok()) guesses.push_back(*token);
  return token.ok();
}

}  // namespace

class Predictor::Kept {
 public:
  Kept(const Predictor& owner, const LayerState& state)
      : owner_(owner), state_(state), interval_(owner.kept_.fold_interval()) {}

  float* BaseStream(uint32_t base) const { return state_.Base<float>(base, owner_.base_stream_); }
  float* Stream(uint32_t tail, uint64_t position) const {
    return state_.Tail<float>(tail, owner_.tail_streams_) +
           position % interval_ * PaddedColumns(owner_.model_.hidden());
  }
  uint32_t& Id(uint32_t tail, uint64_t position) const {
    return state_.Tail<uint32_t>(tail, owner_.tail_ids_)[position % interval_];
  }
  // The head's rows of the tail that are up to date: those before this position. `id`: the token at
  // segment.position. A row that a guess has made for it beforehand counts, unless it was made for
  // another token. At a border the tail may have been another session's.
  uint64_t Done(const Segment& segment, uint32_t id) const {
    const uint64_t border = Border(segment.position, interval_);
    if (border == segment.position) return border;
    const uint64_t done = border + *state_.Tail<uint32_t>(segment.tail, owner_.tail_done_);
    const bool is_same = Id(segment.tail, segment.position) == id;
    return std::min(done, segment.position + (is_same ? 1 : 0));
  }
  void SetDone(uint32_t tail, uint64_t position, uint64_t done) const {
    const uint64_t border = Border(position, interval_);
    *state_.Tail<uint32_t>(tail, owner_.tail_done_) =
        static_cast<uint32_t>(done > border ? done - border : 0);
  }

  // What the head reads for the token at `position`, which is not behind the segment's first: the
  // stream before it. Null: none.
  const float* StreamBefore(const Segment& segment, uint64_t position) const {
    if (position == 0) return nullptr;
    const bool at_border = position == Border(segment.position, interval_);
    return at_border ? BaseStream(segment.base_in) : Stream(segment.tail, position - 1);
  }

 private:
  const Predictor& owner_;
  const LayerState state_;
  const size_t interval_;
};

// Rows for the head, of several sessions. It points to streams that stay where they are until the
// run.
class Predictor::Inputs {
 public:
  explicit Inputs(size_t interval) : interval_(interval) {}

  // The rows that follow are of a session from `position` on.
  void Begin(const Segment& slots, uint64_t position) {
    Segment& segment = segments_.emplace_back(slots);
    segment.first_token = ids_.size();
    segment.position = position;
    segment.tokens = 0;
    const bool after_fold = position / interval_ > slots.position / interval_;
    if (segment.fold_bases != nullptr && after_fold) ++segment.fold_bases;
  }
  void Add(uint32_t id, const float* stream) {
    ids_.push_back(id);
    streams_.push_back(stream);
    ++segments_.back().tokens;
  }

  size_t rows() const { return ids_.size(); }
  std::span<const uint32_t> ids() const { return ids_; }
  std::span<const Segment> segments() const { return segments_; }
  void CopyStreams(FloatMatrix to) const {
    for (size_t row = 0; row < to.rows; ++row) {
      if (streams_[row] == nullptr) {
        std::fill_n(to.row(row), to.columns, 0.0f);
      } else {
        std::copy_n(streams_[row], to.columns, to.row(row));
      }
    }
  }

 private:
  size_t interval_;
  std::vector<uint32_t> ids_;
  std::vector<const float*> streams_;
  std::vector<Segment> segments_;
};

Predictor::Predictor(const LanguageModel& model)
    : model_(model),
      first_layer_(model.StateLayouts().size()),
      kept_(model.StateLayouts()[0]->Empty()) {
  const size_t hidden = PaddedColumns(model.hidden()), interval = kept_.fold_interval();
  const DType words = DType::kFloat32;  // ids and counts take as many bytes
  base_stream_ = kept_.Add(StatePart::kBase, "stream", words, {hidden});
  tail_streams_ = kept_.Add(StatePart::kTail, "streams", words, {interval, hidden});
  tail_ids_ = kept_.Add(StatePart::kTail, "ids", words, {interval});
  tail_done_ = kept_.Add(StatePart::kTail, "done", words, {1});
}

std::vector<const StateLayout*> Predictor::StateLayouts() const {
  std::vector<const StateLayout*> layouts = model_.PredictorLayouts();
  layouts.push_back(&kept_);
  return layouts;
}

Predictor::Kept Predictor::KeptIn(const StatePool& states) const {
  return Kept(*this, states.Layer(first_layer_ + model_.PredictorLayouts().size()));
}

absl::Status Predictor::Run(const Inputs& inputs, const StatePool& states,
                            const LanguageModel::Lent& lent, FloatMatrix normed) const {
  const FloatMatrix streams = lent.step_workspace->Take(inputs.rows(), model_.hidden());
  inputs.CopyStreams(streams);
  return model_.Predict(inputs.ids(), streams, inputs.segments(), states, first_layer_, lent,
                        normed);
}

absl::Status Predictor::Advance(const Inputs& inputs, const StatePool& states,
                                const LanguageModel::Lent& lent) const {
  const FloatMatrix streams = lent.step_workspace->Take(inputs.rows(), model_.hidden());
  inputs.CopyStreams(streams);
  return model_.AdvancePredictor(inputs.ids(), streams, inputs.segments(), states, first_layer_,
                                 lent);
}

absl::Status Predictor::Follow(std::span<const uint32_t> ids, std::span<const Segment> segments,
                               ConstFloatMatrix stream, const StatePool& states,
                               const LanguageModel::Lent& lent) const {
  const FloatMatrix normed = lent.step_workspace->Take(stream.rows, stream.columns);
  model_.NormStream(stream, lent, normed);
  RIVULET_RETURN_IF_ERROR(FollowFolds(ids, segments, normed, states, lent));
  const Kept kept = KeptIn(states);
  const size_t interval = kept_.fold_interval();
  for (const Segment& segment : segments) {
    const uint64_t border = Border(End(segment), interval);
    const uint64_t done = kept.Done(segment, ids[segment.first_token]);
    const auto row_of = [&](uint64_t position) {
      return segment.first_token + (position - segment.position);
    };
    const size_t folds = FoldsIn(segment.position, segment.tokens, interval);
    for (size_t fold = 0; fold < folds; ++fold) {
      const uint64_t after = Border(segment.position, interval) + (fold + 1) * interval;
      std::copy_n(normed.row(row_of(after - 1)), normed.columns,
                  kept.BaseStream(segment.BaseAfter(fold)));
    }
    for (uint64_t at = std::max(border, segment.position); at < End(segment); ++at) {
      std::copy_n(normed.row(row_of(at)), normed.columns, kept.Stream(segment.tail, at));
      kept.Id(segment.tail, at) = ids[row_of(at)];
    }
    kept.SetDone(segment.tail, End(segment), done);
  }
  return absl::OkStatus();
}

// Advances the head for the chunks that end in the segments.
absl::Status Predictor::FollowFolds(std::span<const uint32_t> ids,
                                    std::span<const Segment> segments, ConstFloatMatrix normed,
                                    const StatePool& states,
                                    const LanguageModel::Lent& lent) const {
  const Kept kept = KeptIn(states);
  Inputs inputs(kept_.fold_interval());
  for (const Segment& segment : segments) {
    const uint64_t border = Border(End(segment), kept_.fold_interval());
    if (border <= segment.position) continue;
    const uint32_t* own = ids.data() + segment.first_token;
    const uint64_t done = kept.Done(segment, *own);
    inputs.Begin(segment, done);
    for (uint64_t at = done; at < border; ++at) {
      const bool is_new = at > segment.position;  // the token before it is of this step
      const uint64_t place = at - segment.position;
      inputs.Add(
          at < segment.position ? kept.Id(segment.tail, at) : own[place],
          is_new ? normed.row(segment.first_token + place - 1) : kept.StreamBefore(segment, at));
    }
  }
  if (inputs.rows() == 0) return absl::OkStatus();
  return Advance(inputs, states, lent);
}

// The rows that are missing, up to the plan's tokens.
Predictor::Inputs Predictor::InputsOf(const GuessPlan& plan, const StatePool& states) const {
  const Kept kept = KeptIn(states);
  Inputs inputs(kept_.fold_interval());
  for (const GuessRow& row : plan.rows) {
    const Segment& segment = row.segment;
    const uint32_t token = plan.tokens[segment.first_token];
    const uint64_t done = std::min(kept.Done(segment, token), segment.position);
    inputs.Begin(segment, done);
    for (uint64_t at = done; at < segment.position; ++at) {
      inputs.Add(kept.Id(segment.tail, at), kept.StreamBefore(segment, at));
    }
    inputs.Add(token, kept.StreamBefore(segment, segment.position));
    kept.Id(segment.tail, segment.position) = token;
    kept.SetDone(segment.tail, segment.position, segment.position + 1);
  }
  return inputs;
}

// Samples the next guess of each open row after the last of its rows in `normed`. Rows without a
// finite draw are closed.
void Predictor::Draw(const GuessPlan& plan, const Inputs& inputs, ConstFloatMatrix normed,
                     const LanguageModel::Lent& lent, OpenRows& open, GuessResult& result) const {
  const size_t block = std::min(kLogitRows, open.size());
  const FloatMatrix wanted = lent.step_workspace->Take(block, model_.hidden());
  const FloatMatrix logits = lent.step_workspace->Take(block, model_.vocab());
  for (size_t first = 0; first < open.size(); first += block) {
    const size_t count = std::min(block, open.size() - first);
    for (size_t i = 0; i < count; ++i) {
      const Segment& segment = inputs.segments()[first + i];
      std::copy_n(normed.row(segment.first_token + segment.tokens - 1), normed.columns,
                  wanted.row(i));
    }
    lent.layer_workspace->Reset();
    model_.NormedLogits(wanted.Rows(0, count), lent, logits.Rows(0, count));
    lent.threads->ParallelFor(count, [&](size_t i) {
      OpenRow& row = open[first + i];
      row.stream = normed.row(inputs.segments()[first + i].first_token +
                              inputs.segments()[first + i].tokens - 1);
      row.goes_on =
          DrawOne(plan.rows[row.row], {logits.row(i), logits.columns}, result.guesses[row.row]);
    });
  }
  std::erase_if(open, [&](const OpenRow& row) {
    return !row.goes_on || result.guesses[row.row].size() == plan.rows[row.row].count;
  });
}

absl::Status Predictor::Guess(const GuessPlan& plan, const StatePool& states,
                              const LanguageModel::Lent& lent, GuessResult& result) const {
  OpenRows open;
  result.guesses.resize(plan.rows.size());
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    result.guesses[row].reserve(plan.rows[row].count);
    open.push_back({row});
  }
  Inputs inputs = InputsOf(plan, states);
  while (!open.empty()) {
    const FloatMatrix normed = lent.step_workspace->Take(inputs.rows(), model_.hidden());
    RIVULET_RETURN_IF_ERROR(Run(inputs, states, lent, normed));
    Draw(plan, inputs, normed, lent, open, result);
    inputs = Inputs(kept_.fold_interval());
    for (const OpenRow& row : open) {
      const std::vector<uint32_t>& guesses = result.guesses[row.row];
      const Segment& segment = plan.rows[row.row].segment;
      inputs.Begin(segment, segment.position + guesses.size());
      inputs.Add(guesses.back(), row.stream);
    }
  }
  return absl::OkStatus();
}

}  // namespace rivulet
