// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/drafts/mtp_drafter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/session/session.h"

namespace rivulet {
namespace {

// What a new call moves the mean by.
constexpr double kWeight = 0.1;

static_assert(kMostDrafts <= kMostGuesses, "an engine guesses no more");

}  // namespace

class MtpDrafter final : public Drafter {
 public:
  MtpDrafter(MtpSource& source, const DraftedCompletion& completion)
      : source_(source), completion_(completion) {
    for (size_t i = 0; i < records_.size(); ++i) {
      records_[i].right = records_[i].made * source.records_[i].rate();
    }
  }

  DraftSource source() const override { return DraftSource::kMtp; }
  double hit_rate() const override { return has_none_ ? 0 : records_[0].rate(); }
  double seconds_a_draft() const override { return source_.guess_seconds_; }

  size_t Outlook(const TokenSequence& tokens, std::span<float> chances) override {
    Learn(tokens);
    if (has_none_) return 0;
    const size_t interval = source_.engine_.capacity().fold_interval;
    const size_t left = (interval - tokens.size() % interval) % interval;
    const size_t count = std::min(chances.size(), left);
    for (size_t i = 0; i < count; ++i) chances[i] = static_cast<float>(records_[Of(i)].rate());
    return count;
  }

  void Draft(const TokenSequence& tokens, size_t count, std::vector<uint32_t>& drafts) override {
    if (guessed_at_ != tokens.size()) return;
    const auto made = static_cast<ptrdiff_t>(std::min(count, guesses_.size()));
    drafts.insert(drafts.end(), guesses_.begin(), guesses_.begin() + made);
  }

  bool Knows(const DraftAsk& ask) const {
    return guessed_at_ == ask.session->tokens().size() && guesses_.size() >= ask.count;
  }
  GuessRow RowFor(const DraftAsk& ask, const Segment& segment) const {
    const DrawPlace place{completion_.index, ask.session->tokens().size()};
    return {segment, static_cast<uint32_t>(ask.count), completion_.sampling, place};
  }
  void Take(uint64_t at, std::vector<uint32_t> guesses) {
    guessed_at_ = at;
    guesses_ = std::move(guesses);
    has_none_ = guesses_.empty();
  }

 private:
  static size_t Of(size_t place) {
    return std::min(place, std::tuple_size_v<MtpSource::Records> - 1);
  }

  // What has become of the last guesses.
  void Learn(const TokenSequence& tokens) {
    if (guesses_.empty() || tokens.size() == guessed_at_) return;
    for (size_t i = 0; i < guesses_.size() && guessed_at_ + i < tokens.size(); ++i) {
      const bool is_right = tokens[guessed_at_ + i] == guesses_[i];
      records_[Of(i)].Note(is_right);
      source_.records_[Of(i)].Note(is_right);
      if (!is_right) break;
    }
    guesses_.clear();
  }

  MtpSource& source_;
  const DraftedCompletion completion_;
  std::vector<uint32_t> guesses_;  // of the tokens from guessed_at_ on
  uint64_t guessed_at_ = 0;
  bool has_none_ = false;  // the head was left out of a step of the session, so that it stays so
  MtpSource::Records records_;
};

absl::StatusOr<std::unique_ptr<MtpSource>> MtpSource::Make(Engine& engine) {
  if (!engine.guesses()) {
    return absl::InvalidArgumentError("the model's head for further tokens is not loaded");
  }
  if (engine.capacity().running_tail) {
    return absl::InvalidArgumentError("the model's states cannot forget tokens");
  }
  return std::unique_ptr<MtpSource>(new MtpSource(engine));
}

std::unique_ptr<Drafter> MtpSource::MakeDrafter(const DraftedCompletion& completion) {
  return std::make_unique<MtpDrafter>(*this, completion);
}

double MtpSource::Prepare(std::span<const DraftAsk> asks) {
  GuessPlan plan;
  std::vector<const DraftAsk*> rows;
  for (const DraftAsk& ask : asks) {
    const auto& drafter = static_cast<const MtpDrafter&>(*ask.drafter);
    if (drafter.Knows(ask)) continue;
    const auto segment = ask.session->PlanSegment(plan.tokens.size(), 1);
    if (!segment.ok()) continue;
    plan.rows.push_back(drafter.RowFor(ask, *segment));
    plan.tokens.push_back(ask.session->tokens()[ask.session->position()]);
    rows.push_back(&ask);
  }
  if (rows.empty()) return 0;
  GuessResult result = engine_.Guess(plan);
  size_t made = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i]->session->CancelSegment();
    if (!result.status.ok()) continue;
    made += result.guesses[i].size();
    auto& drafter = static_cast<MtpDrafter&>(*rows[i]->drafter);
    drafter.Take(rows[i]->session->tokens().size(), std::move(result.guesses[i]));
  }
  if (made == 0) return result.seconds;
  const double seconds = result.seconds / static_cast<double>(made);
  guess_seconds_ += (guess_seconds_ == 0 ? 1.0 : kWeight) * (seconds - guess_seconds_);
  return result.seconds;
}

}  // namespace rivulet
