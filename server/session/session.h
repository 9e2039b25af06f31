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
// Between turns a session rests: its base and pages are a point that forks and kept positions
// share, so each of those costs a reference and not a slot. To run it wakes, and takes what it may
// have to write. A fork and a rewound session have no tail; the tokens since the border, C - 1 at
// most, are pending again and give the same bits when they run.
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
#include "server/session/token_sequence.h"

namespace rivulet {

// A state at a chunk border. It does not change, and lives as long as a session holds it.
struct StatePoint : std::enable_shared_from_this<StatePoint> {
  uint64_t position = 0;  // a multiple of C
  SlotHandle base;
  std::vector<PageTable> pages;  // of each kind
  // IdlePoints's alone: how often idle sessions hold it, and its place among those that they do.
  struct Idle {
    int64_t holders = 0;
    const StatePoint* before = nullptr;
    const StatePoint* next = nullptr;
  };
  mutable Idle idle;
};

// What a session holds to be rewound to, in the order in which it goes where slots are needed.
enum class KeptStates : uint8_t {
  kBorder,          // one of its borders
  kOldestPosition,  // the oldest kept position, with the borders before the next one
};

// Which of the borders within a segment its session keeps, beside the last one, which is its state.
struct BorderRule {
  uint64_t every = 0;  // those at multiples of this, itself one of C; 0: none
  size_t most = 0;     // of the session, in all
};

class Session {
 public:
  // A session without tokens, awake. Takes one base and one tail, or nothing and
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<Session>> Create(StatePool& states);
  // One at rest, without slots. `ledger` counts its tokens.
  static std::unique_ptr<Session> CreateAtRest(StatePool& states,
                                               std::shared_ptr<TokenLedger> ledger);

  // One at rest that holds `tokens`, all of them in its state. REQUIRES: as many as
  // point->position.
  static std::unique_ptr<Session> CreateFrom(StatePool& states, std::shared_ptr<TokenLedger> ledger,
                                             std::shared_ptr<StatePoint> point,
                                             std::span<const uint32_t> tokens);

  // A second session that continues from here. The base and the pages are shared and the tail is
  // copied, so apart from token ids and page numbers, 4 bytes each, the cost does not depend on the
  // length of the context. Takes one tail, or nothing and RESOURCE_EXHAUSTED. Either session may
  // need a base of its own later: count one for each session. REQUIRES: no segment is planned.
  absl::StatusOr<std::unique_ptr<Session>> Fork() const;

  // A fork of what it was when it held `tokens` tokens, at rest: with a part of its tokens and kept
  // positions, and the state at the last border that is held. So it takes no slot, and no memory
  // but for TokenSequence's. What is pending then are, at a kept position, at most C - 1 tokens
  // more than were pending there; between two of them, the tokens since the last border() or the
  // one before the earlier position. `with_borders`: the fork has those too, as one that is to take
  // this session's place. OUT_OF_RANGE for more tokens than it has, and before the oldest kept
  // position. REQUIRES: resting(). Any thread, while nothing changes this session.
  absl::StatusOr<std::unique_ptr<Session>> ForkAt(uint64_t tokens, bool with_borders) const;

  // ---- Rest.

  bool resting() const { return !base_.held(); }
  // REQUIRES: awake, and no segment is planned.
  void Rest();
  // Takes what it may have to write, or nothing and RESOURCE_EXHAUSTED. REQUIRES: resting().
  absl::Status Wake();
  // The state at the last border, for others to start from; null without tokens in it. A session
  // that is awake then needs another base, and pages, to go on: count missing_bases and
  // MissingPages again. REQUIRES: no segment is planned.
  std::shared_ptr<StatePoint> SharePoint() const;
  // The slots that it still needs to run until its end: by Wake, or by the fold of a shared base.
  uint32_t missing_bases() const;
  uint32_t missing_tails() const { return tail_.held() ? 0 : 1; }
  // Whether a slot would be free without it. REQUIRES: resting().
  bool holds_slots_alone() const { return tail_.held() || missing_bases() == 0; }

  // ---- Kept positions, oldest first: where its turns began.

  // What the owner wants to find with a position. The session does not look into it.
  using Notes = std::shared_ptr<const void>;
  struct KeptPosition {
    uint64_t tokens;
    std::shared_ptr<StatePoint> point;  // null: of a session whose state has no tokens
    Notes notes;
  };
  // Keeps the present one, and of those before it the last `most` - 1. REQUIRES: resting().
  void Keep(size_t most, Notes notes);
  // Instead, of a session of CreateFrom whose first turn begins without tokens: that position. The
  // state that it was made from is a border. REQUIRES: resting(), and nothing is kept.
  void KeepStart();
  const std::vector<KeptPosition>& kept() const { return kept_; }
  // Those of a session that this one was forked from.
  void ShareKept(const Session& source) { kept_ = source.kept_; }
  // Up to `most` borders, or one position. How many; 0: there is none. REQUIRES: most > 0.
  size_t DropKept(KeptStates what, size_t most);
  bool keeps(KeptStates what) const {
    return what == KeptStates::kBorder ? !borders_.empty() : !kept_.empty();
  }
  // Whether no other session keeps the state that DropKept would drop. Borders are not shared.
  bool keeps_alone(KeptStates what) const {
    if (what == KeptStates::kBorder) return true;
    return !kept_.empty() && kept_.front().point.use_count() == 1;
  }

  // ---- Borders: states within its turns, oldest first, so that a rewind between two kept
  // positions computes little again. Of many, those that go leave gaps that grow with the distance
  // from the end, so that a number of them covers a context of any length.

  // Whether the last border, also that of a planned segment, is behind all that are held, and some
  // kept position before it is.
  bool has_new_border() const;
  // Keeps the state there, and drops one if there are more than `most` then. As after SharePoint,
  // it needs another base, and pages, to go on. REQUIRES: has_new_border(), awake, most > 0, and no
  // segment is planned.
  void KeepBorder(size_t most);
  // Forgets the last one, and one more to make room for the next. Returns how many there were.
  size_t TakeBorderBack();
  // How many borders a segment of the next `count` tokens would keep with such a rule: each takes a
  // base.
  size_t BordersWithin(size_t count, uint64_t every) const;
  // The most pages that they take beside those of the segment, while the session grows to `tokens`
  // tokens.
  uint64_t PagesOfBorders(size_t kind, size_t count, uint64_t tokens) const;
  size_t borders() const { return borders_.size(); }

  void Append(uint32_t token);
  void Append(std::span<const uint32_t> tokens);

  // All tokens, processed and pending.
  const TokenSequence& tokens() const { return tokens_; }
  // How many of them the state holds.
  uint64_t position() const { return position_; }
  size_t pending() const { return tokens_.size() - position_; }
  // Of all tokens, for repetition_penalty. Those of a session that is awake are counted here: most
  // are never asked for.
  const TokenCounts& token_counts();

  // The next `count` pending tokens as a segment of a step in which they begin at `first_token`:
  // tokens()[position(), position() + count). If the segment folds, an unshared base is folded in
  // place and a shared one into a slot taken here. RESOURCE_EXHAUSTED if no slot is left; nothing
  // has changed then, and a later step may succeed.
  // `borders`: kept when it is committed. Fewer if no slot is left.
  // REQUIRES: 0 < count <= pending(), and no segment is planned. StateCapacity::fold_bases, or no
  // borders.
  absl::StatusOr<Segment> PlanSegment(size_t first_token, size_t count, BorderRule borders = {});
  // The same for one token that a step in flight will sample, and that is appended once it is
  // known. The segment overwrites nothing of the state before it, so it may be cancelled after it
  // has run. RESOURCE_EXHAUSTED also if this state cannot do that
  // (docs/architecture.md#running-ahead). REQUIRES: nothing is pending, and no segment is planned.
  absl::StatusOr<Segment> PlanPromised(size_t first_token);
  // Whether this state lets PlanPromised plan the next token, once a planned segment is committed,
  // if there is a slot for its fold; and whether it folds. REQUIRES: awake.
  bool MayPromise() const;
  bool PromiseFolds() const;
  // The pending token and `drafts` guesses of those after it. They are not appended: each is once a
  // sample has confirmed it. The segment may be committed in part, since no guess folds.
  // RESOURCE_EXHAUSTED: as PlanSegment. REQUIRES: one token is pending, drafts <= MostDrafts, and
  // no segment is planned.
  absl::StatusOr<Segment> PlanDrafts(size_t first_token, size_t drafts);
  // How many guesses may follow the pending token in one segment: those before the next one that
  // folds (docs/architecture.md#speculation). REQUIRES: awake.
  size_t MostDrafts() const;
  // The planned segment ran: the position moves, and a base that was folded elsewhere is released.
  void CommitSegment() { CommitTokens(planned_); }
  // The same for the next `count` of its tokens. The others remain planned: commit them too, or
  // forget them with CancelSegment. REQUIRES: 0 < count <= planned(), and all unless PlanDrafts has
  // planned them.
  void CommitTokens(size_t count);
  // The planned segment did not run, or was promised, or what is left of it is wrong: back to the
  // session before it was planned, or after what was committed of it. Does nothing if none is
  // planned.
  void CancelSegment();
  bool segment_planned() const { return planned_ != 0; }
  size_t planned() const { return planned_; }  // tokens of the planned segment

  // Bytes of the slots that it holds. Slots shared with a fork count for both.
  uint64_t state_bytes() const;
  // Of the kept positions and borders beside that, what they share once. What other sessions share
  // counts for all of them. REQUIRES: resting().
  uint64_t kept_bytes() const;
  // visit(point) for each that it holds, once or more.
  template <typename Visit>
  void ForEachPoint(Visit&& visit) const {
    if (point_ != nullptr) visit(point_);
    for (const KeptPosition& kept : kept_) {
      if (kept.point != nullptr) visit(kept.point);
    }
    for (const auto& border : borders_) visit(border);
  }
  size_t page_kinds() const { return states_.capacity().pages.size(); }
  // Pages of the engine's kind that it holds.
  uint64_t pages(size_t kind) const;
  // Of these, how many are free without it. REQUIRES: resting().
  uint64_t OwnPages(size_t kind) const;
  // The most pages that it may still take until it holds `tokens` tokens.
  uint64_t MissingPages(size_t kind, uint64_t tokens) const;
  // The same for a Fork of it.
  uint64_t MissingPagesInFork(size_t kind, uint64_t tokens) const;

 private:
  Session(StatePool& states, TokenSequence tokens, std::shared_ptr<TokenCounts> counts,
          uint64_t counted);
  uint64_t Border(uint64_t tokens) const;
  bool holds_point_alone() const { return point_ != nullptr && point_.use_count() == 1; }
  void CountTokens();
  std::shared_ptr<TokenCounts> CountsOf(uint64_t tokens) const;
  absl::Status CheckReaches(uint64_t tokens) const;
  std::shared_ptr<StatePoint> LatestPoint(uint64_t tokens) const;
  uint64_t BytesBeside(const StatePoint& point, const StatePoint* next) const;
  void ThinBorders(size_t count);
  absl::StatusOr<Segment> Plan(size_t first_token, size_t count, bool keep_base,
                               BorderRule borders = {});
  absl::Status PlanPages(size_t count, bool keep_folds);
  void PlanBorders(Segment& segment, BorderRule rule);
  void KeepPlannedBorders();

  StatePool& states_;
  std::shared_ptr<StatePoint> point_;  // while it rests; null: without tokens in its state
  SlotHandle base_;                    // while it is awake
  SlotHandle next_base_;               // held while a segment that folds elsewhere is planned
  SlotHandle tail_;
  std::vector<PageTable> page_tables_;       // one for each of the engine's kinds; awake
  std::vector<SegmentPages> segment_pages_;  // of the planned segment
  TokenSequence tokens_;
  std::shared_ptr<TokenCounts> token_counts_;  // forks share them until one of them counts more
  uint64_t counted_;                           // tokens in them; all while it rests
  std::vector<KeptPosition> kept_;
  std::vector<std::shared_ptr<StatePoint>> borders_;
  uint64_t position_ = 0;
  size_t planned_ = 0;  // tokens of the planned segment; 0: none
  // Of the planned segment: borders to keep, and Segment::fold_bases.
  struct PlannedBorder {
    size_t fold;
    uint64_t position;
    SlotHandle base;
  };
  std::vector<PlannedBorder> planned_borders_;
  std::vector<uint32_t> fold_bases_;
  size_t most_borders_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_SESSION_H_
