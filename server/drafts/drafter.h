// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Guesses the next tokens of one completion. A step then checks them all at once: each guess that
// is what the model samples there saves a step (docs/architecture.md#speculation). A wrong guess
// costs time and never changes a token.
//
// A drafter knows neither steps nor slots of the model that it drafts for, nor whether its guesses
// are worth their time (server/scheduler/draft_choice.h decides that).
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_DRAFTS_DRAFTER_H_
#define RIVULET_SERVER_DRAFTS_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops/sampling/sampling.h"
#include "server/session/token_sequence.h"

namespace rivulet {

class Session;

// Where drafts come from: a label of metrics.
enum class DraftSource : uint8_t {
  kLookup,  // what followed the same tokens before
  kModel,   // a smaller model
  kMtp,     // the model's own head for further tokens
};

// Drafts that one step can check: a chunk has 16 tokens, one of which is known.
inline constexpr size_t kMostDrafts = 15;

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual DraftSource source() const = 0;

  // Takes in what `tokens` has gained, which Outlook would do otherwise: for a time at which
  // nothing waits for the caller. Arguments as of Outlook.
  virtual void Follow(const TokenSequence& /*tokens*/) {}

  // How many of the next tokens it can guess, at most chances.size(). Sets `chances` to how likely
  // each is to be right if those before it are. `tokens`: those of the session, which have only
  // grown since the last call.
  virtual size_t Outlook(const TokenSequence& tokens, std::span<float> chances) = 0;

  // Appends guesses of the next `count` tokens, or of fewer, to `drafts`. REQUIRES: Outlook of the
  // same tokens said that it can.
  virtual void Draft(const TokenSequence& tokens, size_t count, std::vector<uint32_t>& drafts) = 0;

  // The part of all tokens since it was made that it has guessed right, or would have, 0 to 1.
  virtual double hit_rate() const = 0;

  // Seconds that it takes to guess one token, beside the step that checks it.
  virtual double seconds_a_draft() const { return 0; }
  // Those that it takes before its next guess, to read what it has not read of these tokens.
  virtual double seconds_before_drafts(const TokenSequence& /*tokens*/) const { return 0; }
};

// What a drafter is made for. All that it points to outlives the drafter.
struct DraftedCompletion {
  const SamplingParams* sampling;
  uint32_t index;  // of the completion among the n of its prompt
};

// What the next step wants of a drafter.
struct DraftAsk {
  Drafter* drafter;
  // Of its completion: awake, with one token pending and no segment planned. It is so afterwards.
  Session* session;
  size_t count;  // as of Draft
};

// Makes the drafters of a server.
class DrafterSource {
 public:
  virtual ~DrafterSource() = default;
  // Null: not for this one.
  virtual std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& completion) = 0;
  // Does the work of the Draft calls that follow for all rows of a step together, and returns the
  // seconds that it took. `asks`: of drafters that this has made.
  virtual double Prepare(std::span<const DraftAsk> /*asks*/) { return 0; }
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_DRAFTS_DRAFTER_H_
