// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests: drafts that are mostly right, so that every pattern of right and wrong ones occurs. An
// engine of its own says what the session's tokens are followed by, and some of that is changed at
// random. It does not know the penalties of the turn nor its stops, so it drafts beyond the end.
// Some completions are drafted by look-up instead, by the model itself as a draft model, or by its
// own head. On an engine that runs ahead some get no drafts, since only those rows do.
#ifndef RIVULET_SERVER_SCHEDULER_ORACLE_DRAFTER_H_
#define RIVULET_SERVER_SCHEDULER_ORACLE_DRAFTER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "server/drafts/drafter.h"
#include "server/drafts/lookup_drafter.h"
#include "server/drafts/model_drafter.h"
#include "server/drafts/mtp_drafter.h"
#include "server/scheduler/stack_fixture.h"

namespace rivulet {

class OracleSource final : public DrafterSource {
 public:
  // `vocab`: drafts are below it.
  OracleSource(std::shared_ptr<const LoadedModel> model, uint32_t vocab, uint64_t seed)
      : random_(seed), vocab_(vocab), alone_(model, 1, 1, seed) {
    auto source = ModelSource::Make(*MakeCpuEngine(model, EngineOptions()), kContext, metrics_);
    if (source.ok()) model_ = *std::move(source);
  }

  // Drafts for rows of this engine, and with the head of its model too, if it has one. The engine
  // outlives its use.
  void Bind(Engine& engine) {
    runs_ahead_ = engine.depth() > 1;
    auto source = MtpSource::Make(engine);
    if (source.ok()) mtp_ = *std::move(source);
  }

  std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& completion) override {
    if (runs_ahead_ && Below(4) == 0) return nullptr;
    if (mtp_ != nullptr && Below(2) == 0) return mtp_->MakeDrafter(completion);
    if (Below(4) == 0) return lookup_.MakeDrafter(completion);
    if (model_ != nullptr && Below(4) == 0) return model_->MakeDrafter(completion);
    return std::make_unique<Oracle>(*this, completion, kWrong[random_() % std::size(kWrong)]);
  }

  double Prepare(std::span<const DraftAsk> asks) override {
    std::vector<DraftAsk> for_head;
    for (const DraftAsk& ask : asks) {
      if (ask.drafter->source() == DraftSource::kMtp) for_head.push_back(ask);
    }
    return mtp_ == nullptr ? 0 : mtp_->Prepare(for_head);
  }

  // As many tokens as fit, without regard to their cost.
  DraftOptions Options() {
    DraftOptions options;
    options.source = this;
    options.always = true;
    return options;
  }

 private:
  static constexpr uint32_t kWrong[] = {0, 10, 30, 70};  // of a hundred drafts
  static constexpr uint32_t kAhead = 40;
  static constexpr uint64_t kContext = 4096;

  class Oracle final : public Drafter {
   public:
    Oracle(OracleSource& source, const DraftedCompletion& completion, uint32_t wrong)
        : source_(source), completion_(completion), wrong_(wrong) {}

    DraftSource source() const override { return DraftSource::kModel; }
    size_t Outlook(const TokenSequence& /*tokens*/, std::span<float> chances) override {
      if (source_.Below(8) == 0) return 0;
      std::fill(chances.begin(), chances.end(), 0.9f);
      return chances.empty() ? 0 : source_.Below(chances.size() + 1);
    }
    void Draft(const TokenSequence& tokens, size_t count, std::vector<uint32_t>& drafts) override {
      Foresee(tokens, count);
      for (size_t i = 0; i < count; ++i) {
        const bool wrong = source_.Below(100) < wrong_;
        drafts.push_back(wrong ? static_cast<uint32_t>(source_.Below(source_.vocab_))
                               : foreseen_[tokens.size() + i]);
      }
    }
    double hit_rate() const override { return 0.5; }

   private:
    // Asks again where the tokens went another way.
    void Foresee(const TokenSequence& tokens, size_t count) {
      const std::vector<uint32_t> now = tokens.Copy();
      const bool same = foreseen_.size() >= now.size() + count &&
                        std::equal(now.begin(), now.end(), foreseen_.begin());
      if (same) return;
      Ask ask;
      ask.prompt = now;
      ask.max_tokens = kAhead;
      ask.completions = completion_.index + 1;
      ask.sampling = *completion_.sampling;
      ask.stop.ignore_eos = true;
      foreseen_ = now;
      const auto next = source_.alone_.Run(ask).tokens(completion_.index);
      foreseen_.insert(foreseen_.end(), next.begin(), next.end());
      source_.alone_.ForgetClients();  // each step reads all that it knows
    }

    OracleSource& source_;
    const DraftedCompletion completion_;
    const uint32_t wrong_;
    std::vector<uint32_t> foreseen_;
  };

  uint64_t Below(uint64_t limit) { return random_() % limit; }

  std::mt19937_64 random_;
  const uint32_t vocab_;
  bool runs_ahead_ = false;
  Stack alone_;
  Metrics metrics_;
  LookupSource lookup_{{}, metrics_};
  std::unique_ptr<MtpSource> mtp_;      // null: the model has no head
  std::unique_ptr<ModelSource> model_;  // null: its states cannot forget tokens
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_ORACLE_DRAFTER_H_
