// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One conversation: the tokens it holds and the slots that hold what the model made of them.
//
//   tokens    t0 t1 t2 ... t(p-1) | tp ... t(n-1)
//                processed        |   pending         p = position()
//
// A prompt is appended and runs as pending tokens, in as many segments as the scheduler likes; a
// sampled token is appended and is pending until the next step feeds it (after the last step of a
// turn it stays pending, and is fed first in the next turn).
//
// Each segment goes plan, run, commit: PlanSegment fixes the slots, the engine runs it, and then
// CommitSegment moves the position, or CancelSegment if it did not run. If it ran and failed, the
// state is undefined: destroy the session.
//
// It knows no request, stream, sampling parameter or stop rule, and no other session
// (session_table.h keeps those that outlive a request).
//
// Threading: engine thread only, destruction included. The StatePool must outlive the session.
#ifndef RIVULET_SERVER_SESSION_SESSION_H_
#define RIVULET_SERVER_SESSION_SESSION_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops/sampling/sampling.h"
#include "kernels/recurrence/pages.h"
#include "server/engine/state_pool.h"
#include "server/session/slot_handle.h"

namespace rivulet {

class Session {
 public:
  // A session without tokens. Takes one base and one tail, or nothing and RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<Session>> Create(StatePool& states);

  // A second session that goes on from here: the base and the pages are shared, the tail is
  // copied, so it costs the same however long the context is (but for the token ids and numbers of
  // pages, 4 bytes each). Takes one tail, or
  // nothing and RESOURCE_EXHAUSTED. The two may come to need a base more: count one for each
  // session that lives. REQUIRES: no segment is planned.
  absl::StatusOr<std::unique_ptr<Session>> Fork() const;

  void Append(uint32_t token);
  void Append(std::span<const uint32_t> tokens);

  // All tokens, processed and pending.
  const std::vector<uint32_t>& tokens() const { return tokens_; }
  // How many of them the state holds.
  uint64_t position() const { return position_; }
  size_t pending() const { return tokens_.size() - position_; }
  // Of all tokens, for repetition_penalty.
  const TokenCounts& token_counts() const { return token_counts_; }

  // The next `count` pending tokens as a segment of a step in which they stand from `first_token`:
  // tokens()[position(), position() + count). Chunk borders that it reaches are folded in place if
  // nobody else holds the base, else into a slot taken here; RESOURCE_EXHAUSTED if none is
  // left, and then nothing has changed and a later step may succeed.
  // REQUIRES: 0 < count <= pending(), and no segment is planned.
  absl::StatusOr<Segment> PlanSegment(size_t first_token, size_t count);
  // The planned segment ran: the position moves, a base that was folded elsewhere is let go.
  void CommitSegment();
  // The planned segment did not run: back to where PlanSegment found it. Does nothing if none is
  // planned.
  void CancelSegment();
  bool segment_planned() const { return planned_ != 0; }

  // Bytes of the slots that it holds; what it shares with a fork counts for both.
  uint64_t state_bytes() const;
  size_t page_kinds() const { return page_tables_.size(); }
  // Pages of the engine's kind that it holds.
  uint64_t pages(size_t kind) const { return page_tables_[kind].pages(); }
  // The most that it may still take until it holds `tokens` tokens.
  uint64_t MissingPages(size_t kind, uint64_t tokens) const;
  // The same for a Fork of it.
  uint64_t MissingPagesInFork(size_t kind, uint64_t tokens) const;

 private:
  Session(StatePool& states, SlotHandle base, SlotHandle tail, std::vector<PageTable> page_tables);
  absl::Status PlanPages(size_t count);

  StatePool& states_;
  SlotHandle base_;
  SlotHandle next_base_;  // held while a segment that folds elsewhere is planned
  SlotHandle tail_;
  std::vector<PageTable> page_tables_;       // one for each of the engine's kinds
  std::vector<SegmentPages> segment_pages_;  // of the planned segment
  std::vector<uint32_t> tokens_;
  TokenCounts token_counts_;
  uint64_t position_ = 0;
  size_t planned_ = 0;  // tokens of the planned segment; 0: none
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_SESSION_H_
