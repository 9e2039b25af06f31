// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One conversation: its tokens, and the slots that hold the model's state after them.
//
//   tokens    t0 t1 t2 ... t(p-1) | tp ... t(n-1)
//                processed        |   pending         p = position()
//
// A prompt is appended and runs as pending tokens, in any number of segments. A sampled token is
// appended and stays pending until the next step feeds it; the last token of a turn is fed first in
// the next turn.
//
// Each segment is planned, run and committed: PlanSegment fixes the slots, the engine runs the
// segment, and CommitSegment moves the position. CancelSegment is for a segment that did not run.
// If a segment ran and failed, the state is undefined: destroy the session.
//
// A session does not know requests, streams, sampling parameters or stop rules, nor other sessions
// (session_table.h keeps those that outlive a request). It holds its token ids, 4 bytes each, and
// does not limit them; the scheduler does (SchedulerOptions::max_context).
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

  // A second session that continues from here. The base and the pages are shared and the tail is
  // copied, so apart from token ids and page numbers, 4 bytes each, the cost does not depend on the
  // length of the context. Takes one tail, or nothing and RESOURCE_EXHAUSTED. Either session may
  // need a base of its own later: count one for each session. REQUIRES: no segment is planned.
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

  // The next `count` pending tokens as a segment of a step in which they begin at `first_token`:
  // tokens()[position(), position() + count). If the segment folds, an unshared base is folded in
  // place and a shared one into a slot taken here. RESOURCE_EXHAUSTED if no slot is left; nothing
  // has changed then, and a later step may succeed.
  // REQUIRES: 0 < count <= pending(), and no segment is planned.
  absl::StatusOr<Segment> PlanSegment(size_t first_token, size_t count);
  // The same for one token that a step in flight will sample, and that is appended once it is
  // known. The segment overwrites nothing of the state before it, so it may be cancelled after it
  // has run. RESOURCE_EXHAUSTED also if this state cannot do that
  // (docs/architecture.md#running-ahead). REQUIRES: nothing is pending, and no segment is planned.
  absl::StatusOr<Segment> PlanPromised(size_t first_token);
  // The planned segment ran: the position moves, and a base that was folded elsewhere is released.
  void CommitSegment();
  // The planned segment did not run, or was promised: back to the session before it was planned.
  // Does nothing if none is planned.
  void CancelSegment();
  bool segment_planned() const { return planned_ != 0; }
  size_t planned() const { return planned_; }  // tokens of the planned segment

  // Bytes of the slots that it holds. Slots shared with a fork count for both.
  uint64_t state_bytes() const;
  size_t page_kinds() const { return page_tables_.size(); }
  // Pages of the engine's kind that it holds.
  uint64_t pages(size_t kind) const { return page_tables_[kind].pages(); }
  // The most pages that it may still take until it holds `tokens` tokens.
  uint64_t MissingPages(size_t kind, uint64_t tokens) const {
    return page_tables_[kind].Missing(position_, tokens, kLongestSegment);
  }
  // The same for a Fork of it.
  uint64_t MissingPagesInFork(size_t kind, uint64_t tokens) const {
    return page_tables_[kind].MissingInFork(position_, tokens, kLongestSegment);
  }

 private:
  Session(StatePool& states, SlotHandle base, SlotHandle tail, std::vector<PageTable> page_tables);
  absl::StatusOr<Segment> Plan(size_t first_token, size_t count, bool keep_base);
  absl::Status PlanPages(size_t count);
  bool CanKeep(size_t count) const;

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
