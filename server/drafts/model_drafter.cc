// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/drafts/model_drafter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/recurrence/pages.h"
#include "server/engine/state_pool.h"
#include "server/session/session.h"

namespace rivulet {
namespace {

// Tokens of a step in which contexts are read.
constexpr size_t kPiece = 256;
// Tokens of a row from which on a step reads rather than guesses.
constexpr size_t kLeastRead = 8;
// What a new step moves the mean by, and what it counts for at most, in means: a disturbance only
// lengthens steps.
constexpr double kWeight = 0.1;
constexpr double kFarthest = 3.0;

// The slots of one context, without sharing.
class DraftState {
 public:
  static absl::StatusOr<DraftState> Make(StatePool& states) {
    DraftState state(states);
    RIVULET_ASSIGN_OR_RETURN(state.base_, SlotHandle::Acquire(states.bases()));
    RIVULET_ASSIGN_OR_RETURN(state.tail_, SlotHandle::Acquire(states.tails()));
    return state;
  }

  uint64_t position() const { return position_; }
  uint64_t interval() const { return states_->capacity().fold_interval; }
  // Back to an earlier position. REQUIRES: no fold since.
  void Forget(uint64_t position) { position_ = position; }

  // A row that feeds `count` tokens, the plan's from `first` on, or one that is a guess.
  // RESOURCE_EXHAUSTED: no page is left.
  absl::StatusOr<StepRow> Plan(size_t first, size_t count, bool is_guess) {
    for (size_t kind = 0; kind < tables_.size(); ++kind) {
      RIVULET_ASSIGN_OR_RETURN(pages_[kind], tables_[kind].Plan(position_, count));
    }
    StepRow row;
    row.segment = {first,        count,        position_,    base_.slot(),
                   base_.slot(), tail_.slot(), pages_.data()};
    row.segment.guesses = is_guess ? 1 : 0;
    return row;
  }
  void Commit(size_t count) {
    for (PageTable& table : tables_) table.Commit();
    position_ += count;
  }

  uint64_t bytes() const {
    const StateCapacity& capacity = states_->capacity();
    uint64_t bytes = capacity.base_bytes + capacity.tail_bytes;
    for (size_t kind = 0; kind < tables_.size(); ++kind) {
      bytes += tables_[kind].pages() * capacity.pages[kind].page_bytes;
    }
    return bytes;
  }

 private:
  explicit DraftState(StatePool& states) : states_(&states) {
    const std::vector<PageCapacity>& kinds = states.capacity().pages;
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      tables_.emplace_back(kinds[kind].kind, states.pages(kind));
    }
    pages_.resize(kinds.size());
  }

  StatePool* states_;
  SlotHandle base_, tail_;
  std::vector<PageTable> tables_;
  std::vector<SegmentPages> pages_;  // of the planned row
  uint64_t position_ = 0;
};

}  // namespace

class ModelDrafter final : public Drafter {
 public:
  ModelDrafter(ModelSource& source, const DraftedCompletion& completion, DraftState state)
      : source_(source), completion_(completion), state_(std::move(state)) {
    record_.right = record_.made * source.record_.rate();
    CountBytes(state_.bytes());
  }
  ~ModelDrafter() override { CountBytes(0); }

  DraftSource source() const override { return DraftSource::kModel; }
  double hit_rate() const override { return record_.rate(); }
  double seconds_a_draft() const override { return source_.guess_seconds_; }
  // The last token is read by the step that guesses what follows it.
  double seconds_before_drafts(const TokenSequence& tokens) const override {
    const uint64_t unread = tokens.size() - 1 - std::min(tokens.size() - 1, state_.position());
    return unread < kLeastRead ? 0 : source_.read_seconds_ * static_cast<double>(unread);
  }

  size_t Outlook(const TokenSequence& tokens, std::span<float> chances) override {
    Learn(tokens);
    if (failed_ || tokens.size() + kMostDrafts > source_.context_) return 0;
    // The guesses that it feeds itself, all but the last, must not fold.
    const uint64_t left = state_.interval() - tokens.size() % state_.interval();
    const size_t count = std::min<size_t>(chances.size(), left);
    std::fill_n(chances.begin(), count, static_cast<float>(record_.rate()));
    return count;
  }

  void Draft(const TokenSequence& tokens, size_t count, std::vector<uint32_t>& drafts) override {
    const ModelSource::Wanted wanted{this, &tokens, count};
    source_.Fill({&wanted, 1});
    const size_t made = std::min(count, guesses_.size());
    drafts.insert(drafts.end(), guesses_.begin(), guesses_.begin() + static_cast<ptrdiff_t>(made));
  }

  // Adds what it feeds next to reach so many guesses: of the context, or its last guess. False if
  // it feeds nothing in this step.
  bool AddRow(const TokenSequence& tokens, size_t count, StepPlan& plan) {
    drafted_at_ = tokens.size();
    if (failed_ || guesses_.size() >= count) return false;
    const size_t first = plan.tokens.size(), left = tokens.size() - state_.position();
    const bool reads = guesses_.empty();
    const size_t feeds = reads ? std::min(left, kPiece - std::min(kPiece, first)) : 1;
    if (feeds == 0) return false;
    auto row = state_.Plan(first, feeds, /*is_guess=*/!reads);
    failed_ = !row.ok();
    if (failed_) return false;
    if (reads) {
      tokens.CopyTo(state_.position(), feeds, plan.tokens);
    } else {
      plan.tokens.push_back(guesses_.back());
    }
    if (!reads || feeds == left) SetSample(*row);
    plan.rows.push_back(*std::move(row));
    return true;
  }
  // What came back for the row that was added.
  void TakeRow(const StepRow& row, const RowResult& result) {
    failed_ = !result.status.ok();
    if (failed_) return;
    state_.Commit(row.segment.tokens);
    CountBytes(state_.bytes());
    if (row.samples > 0) guesses_.push_back(result.samples[0].token);
  }

 private:
  // What has become of the last guesses. The state keeps those that were right. None of them has
  // folded.
  void Learn(const TokenSequence& tokens) {
    if (guesses_.empty() || tokens.size() == drafted_at_) return;
    size_t right = 0;
    for (; right < guesses_.size() && drafted_at_ + right < tokens.size(); ++right) {
      const bool is_right = tokens[drafted_at_ + right] == guesses_[right];
      record_.Note(is_right);
      source_.record_.Note(is_right);
      if (!is_right) break;
    }
    // The last token is read again where it was guessed: what follows it is not known any more.
    const uint64_t known = std::min<uint64_t>(drafted_at_ + right, tokens.size() - 1);
    state_.Forget(std::min(state_.position(), known));
    guesses_.clear();
  }

  void SetSample(StepRow& row) const {
    row.samples = 1;
    row.spec.params = completion_.sampling;
    row.spec.index = completion_.index;
    row.spec.position = row.segment.position + row.segment.tokens;
  }

  void CountBytes(uint64_t bytes) {
    source_.metrics_.draft_memory_bytes.Add(static_cast<int64_t>(bytes) -
                                            static_cast<int64_t>(bytes_));
    bytes_ = bytes;
  }

  ModelSource& source_;
  const DraftedCompletion completion_;
  DraftState state_;
  std::vector<uint32_t> guesses_;  // of the tokens from drafted_at_ on; all but the last were fed
  uint64_t drafted_at_ = 0;
  DraftRecord record_;
  bool failed_ = false;
  uint64_t bytes_ = 0;
};

absl::Status CheckSameVocabulary(const Tokenizer* target, uint32_t target_vocab,
                                 const Tokenizer* draft, uint32_t draft_vocab) {
  if (target_vocab != draft_vocab) {
    return absl::InvalidArgumentError(absl::StrCat("its vocabulary has ", draft_vocab,
                                                   " tokens and the model's has ", target_vocab));
  }
  if (target == nullptr || draft == nullptr) return absl::OkStatus();
  const size_t tokens = std::min(target->vocab_size(), draft->vocab_size());
  for (uint32_t id = 0; id < tokens; ++id) {
    if (target->TokenBytes(id) == draft->TokenBytes(id)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("token ", id, " is \"", std::string(draft->Piece(id)), "\" there and \"",
                     std::string(target->Piece(id)), "\" in the model"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ModelSource>> ModelSource::Make(std::unique_ptr<Engine> engine,
                                                               uint64_t context, Metrics& metrics) {
  if (engine->capacity().running_tail) {
    return absl::InvalidArgumentError(
        "its states cannot forget tokens: a layer keeps a running state");
  }
  return std::unique_ptr<ModelSource>(new ModelSource(std::move(engine), context, metrics));
}

std::unique_ptr<Drafter> ModelSource::MakeDrafter(const DraftedCompletion& completion) {
  auto state = DraftState::Make(engine_->states());
  if (!state.ok()) return nullptr;
  return std::make_unique<ModelDrafter>(*this, completion, *std::move(state));
}

double ModelSource::Prepare(std::span<const DraftAsk> asks) {
  std::vector<Wanted> wanted;
  for (const DraftAsk& ask : asks) {
    wanted.push_back({static_cast<ModelDrafter*>(ask.drafter), &ask.session->tokens(), ask.count});
  }
  return Fill(wanted);
}

double ModelSource::Fill(std::span<const Wanted> wanted) {
  double seconds = 0;
  for (;;) {
    StepPlan plan;
    std::vector<ModelDrafter*> drafters;
    for (const Wanted& one : wanted) {
      if (one.drafter->AddRow(*one.tokens, one.count, plan)) drafters.push_back(one.drafter);
    }
    if (drafters.empty()) return seconds;
    const StepResult result = engine_->Step(plan);
    for (size_t i = 0; i < drafters.size(); ++i) {
      drafters[i]->TakeRow(plan.rows[i], result.rows[i]);
    }
    LearnCost(plan.rows.size(), plan.tokens.size(), result.device_seconds);
    seconds += result.device_seconds;
  }
}

// A step that reads a few tokens costs what one that guesses does.
void ModelSource::LearnCost(size_t rows, size_t tokens, double seconds) {
  const bool reads = tokens >= kLeastRead * rows;
  double& mean = reads ? read_seconds_ : guess_seconds_;
  const double each = seconds / static_cast<double>(reads ? tokens : rows);
  mean = mean == 0 ? each : mean + kWeight * (std::min(each, kFarthest * mean) - mean);
}

}  // namespace rivulet
