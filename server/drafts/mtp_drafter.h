// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Drafts by the served model's own head for further tokens (--speculate mtp; Engine::Guess). The
// head's state lies in the session's slots, so a guess depends on the session's tokens alone. It
// draws with the random number of the token that it guesses, and does not know the penalties.
//
// There is no guess where the token before it ends a chunk: the head's state would have to fold. A
// completion for which the head once had none, since it was left out of a step (GuessResult), is
// not drafted for any more.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_DRAFTS_MTP_DRAFTER_H_
#define RIVULET_SERVER_DRAFTS_MTP_DRAFTER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "server/drafts/draft_record.h"
#include "server/drafts/drafter.h"
#include "server/engine/engine.h"

namespace rivulet {

class MtpSource final : public DrafterSource {
 public:
  // `engine`: the one that serves; it outlives this. INVALID_ARGUMENT if it does not guess, or its
  // states cannot forget tokens.
  static absl::StatusOr<std::unique_ptr<MtpSource>> Make(Engine& engine);
  std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& completion) override;
  double Prepare(std::span<const DraftAsk> asks) override;

 private:
  friend class MtpDrafter;
  // By the guess's place after the token that is known; the last one is that of all later places.
  using Records = std::array<DraftRecord, 4>;

  explicit MtpSource(Engine& engine) : engine_(engine) {}

  Engine& engine_;
  double guess_seconds_ = 0;  // a moving mean
  Records records_;           // of all completions
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_DRAFTS_MTP_DRAFTER_H_
