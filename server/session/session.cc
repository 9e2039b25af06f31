// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/session.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<Session>> Session::Create(Engine& engine) {
  RIVULET_ASSIGN_OR_RETURN(CheckpointHandle checkpoint, CheckpointHandle::Acquire(engine));
  RIVULET_ASSIGN_OR_RETURN(TailHandle tail, TailHandle::Acquire(engine));
  return std::unique_ptr<Session>(new Session(engine, std::move(checkpoint), std::move(tail)));
}

Session::Session(Engine& engine, CheckpointHandle checkpoint, TailHandle tail)
    : engine_(engine), checkpoint_(std::move(checkpoint)), tail_(std::move(tail)) {}

absl::StatusOr<std::unique_ptr<Session>> Session::Fork() const {
  RIVULET_CHECK(!segment_planned(), "forks while a segment is planned");
  RIVULET_ASSIGN_OR_RETURN(TailHandle tail, tail_.Copy());
  std::unique_ptr<Session> fork(new Session(engine_, checkpoint_.Share(), std::move(tail)));
  fork->tokens_ = tokens_;
  fork->token_counts_ = token_counts_;
  fork->position_ = position_;
  return fork;
}

void Session::Append(uint32_t token) {
  tokens_.push_back(token);
  token_counts_.Add(token);
}

void Session::Append(std::span<const uint32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  token_counts_.Add(tokens);
}

absl::StatusOr<Segment> Session::PlanSegment(size_t first_token, size_t count) {
  RIVULET_CHECK(!segment_planned(), "plans a segment while one is planned");
  RIVULET_CHECK(count > 0 && count <= pending(), "plans more tokens than are pending");
  Segment segment;
  segment.first_token = first_token;
  segment.tokens = count;
  segment.position = position_;
  segment.tail = tail_.slot();
  segment.checkpoint_in = segment.checkpoint_out = checkpoint_.slot();
  if (Folds(position_, count) && checkpoint_.shared()) {
    RIVULET_ASSIGN_OR_RETURN(next_checkpoint_, CheckpointHandle::Acquire(engine_));
    segment.checkpoint_out = next_checkpoint_.slot();
  }
  planned_ = count;
  return segment;
}

void Session::CommitSegment() {
  RIVULET_CHECK(segment_planned(), "commits a segment that was not planned");
  position_ += std::exchange(planned_, 0);
  if (next_checkpoint_.held()) checkpoint_ = std::move(next_checkpoint_);
  next_checkpoint_ = CheckpointHandle();
}

void Session::CancelSegment() {
  planned_ = 0;
  next_checkpoint_ = CheckpointHandle();
}

}  // namespace rivulet
