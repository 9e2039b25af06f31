// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Drafts by a smaller model with the same vocabulary (--draft-model). It has an engine and slots of
// its own: each completion that it drafts for takes a base, a tail and pages there. It draws with
// the random number of the token that it guesses, so that two models that agree draw the same
// token at any temperature; it does not know the penalties.
//
// A context is read when the first draft is asked for, and what was drafted and turned out wrong is
// forgotten: no draft folds, as in the model that it drafts for.
//
// It drafts for all rows of a step side by side. A context that is longer than its slots are for
// (--state-context), or for which none is left, gets no drafts.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_DRAFTS_MODEL_DRAFTER_H_
#define RIVULET_SERVER_DRAFTS_MODEL_DRAFTER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model_loader/tokenizer.h"
#include "server/drafts/draft_record.h"
#include "server/drafts/drafter.h"
#include "server/engine/engine.h"
#include "server/metrics/metrics.h"
#include "server/session/slot_handle.h"

namespace rivulet {

// Whether token ids mean the same to both: as many, and the same bytes. A tokenizer may be null.
// INVALID_ARGUMENT naming the difference.
absl::Status CheckSameVocabulary(const Tokenizer* target, uint32_t target_vocab,
                                 const Tokenizer* draft, uint32_t draft_vocab);

class ModelDrafter;

class ModelSource final : public DrafterSource {
 public:
  // `context`: tokens of the longest context. INVALID_ARGUMENT if the model's tail cannot forget
  // tokens. `metrics` outlives it.
  static absl::StatusOr<std::unique_ptr<ModelSource>> Make(std::unique_ptr<Engine> engine,
                                                           uint64_t context, Metrics& metrics);
  std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& completion) override;
  double Prepare(std::span<const DraftAsk> asks) override;

 private:
  friend class ModelDrafter;
  // A drafter that is to know `count` guesses of what follows `tokens`.
  struct Wanted {
    ModelDrafter* drafter;
    const TokenSequence* tokens;
    size_t count;
  };
  ModelSource(std::unique_ptr<Engine> engine, uint64_t context, Metrics& metrics)
      : engine_(std::move(engine)), context_(context), metrics_(metrics) {}
  // Steps until all know what they are to, or have failed. Returns the seconds that they took.
  double Fill(std::span<const Wanted> wanted);
  void LearnCost(size_t rows, size_t tokens, double seconds);

  const std::unique_ptr<Engine> engine_;
  const uint64_t context_;
  Metrics& metrics_;
  // Moving means: of a row in a step of one token each, and of a token in steps that read contexts.
  double guess_seconds_ = 0;
  double read_seconds_ = 0;
  DraftRecord record_;  // of all completions
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_DRAFTS_MODEL_DRAFTER_H_
