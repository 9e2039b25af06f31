// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The sessions that outlive a request: id → name, times and state. A turn takes a lease first, and
// gives the state back with it; no other turn can run in between.
//
//   Create ──► empty ──lease, turn──► holds state ◄──lease, turn──► ...
//                └──────────── Delete, too long idle, room needed ────► gone
//
// Readers (Score) share a session: each copies the state and gives its lease back. A turn may take
// its lease while readers have theirs. It then waits for them, and no new reader gets a lease, so
// readers never starve a turn.
//
// A session holds no slot before its first turn. A session that has been idle longer than the time
// to live is dropped. When slots run out, so is the one that was used least recently
// (EvictLeastRecentlyUsed). A session with a lease is neither dropped nor deleted. Sessions of a
// tenant that is not served any more are closed (ServeTenants).
//
// The table does not know requests or what tokens mean. It touches the engine's slots only by
// destroying states.
//
// Threading: as each method says. States live and die on the engine thread alone: what Delete
// takes out on another thread waits for Reap. Destroy the table after the engine thread has ended
// and before the engine.
#ifndef RIVULET_SERVER_SESSION_SESSION_TABLE_H_
#define RIVULET_SERVER_SESSION_SESSION_TABLE_H_

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "server/metrics/metrics.h"
#include "server/session/idle_points.h"
#include "server/session/session.h"
#include "server/session/tenant_shares.h"

namespace rivulet {

class SessionTable;

// What the caller of a turn wants to find with the session's state in its next turn. The table does
// not look into it.
class SessionNotes {
 public:
  virtual ~SessionNotes() = default;
  // What it takes in memory, about; always the same.
  virtual size_t bytes() const = 0;
};

// Notes count with the tokens of sessions, whose ids take 4 bytes each.
inline uint64_t TokensOfNotes(size_t bytes) { return (bytes + 3) / 4; }

// 16 hexadecimal digits.
std::string MakeRandomId();

// Names a session: tenants do not see each other's, and may use the same ids.
struct SessionKey {
  SessionKey(std::string id) : id(std::move(id)) {}  // NOLINT: of the tenant without a name
  SessionKey(const char* id) : id(id) {}             // NOLINT
  SessionKey(std::string tenant, std::string id) : tenant(std::move(tenant)), id(std::move(id)) {}
  auto operator<=>(const SessionKey&) const = default;

  std::string tenant;  // empty: of a server that asks for no tokens
  std::string id;
};

// What clients may learn of a session. While a turn runs, `tokens` is what the session held before.
struct SessionInfo {
  std::string tenant;
  std::string id;
  std::string name;
  uint64_t tokens = 0;  // in its context
  bool holds_state = false;
  uint64_t state_bytes = 0;              // while a turn runs, before it
  uint64_t pages = 0;                    // of the state, of all kinds; likewise
  std::vector<uint64_t> kept_positions;  // ends of turns that Rewind can go back to; likewise
  uint64_t kept_borders = 0;             // states within turns beside them; likewise
  uint64_t kept_bytes = 0;               // of states that are held for all these; likewise
  size_t notes_bytes = 0;                // SessionNotes, those of Attach too
  std::string forked_from;               // id of a session, which may be gone; empty: none
  uint64_t forked_at = 0;                // the fork's tokens then
  uint64_t changes = 0;                  // turns that had its lease, and rewinds
  bool busy = false;
  int64_t created_unix_ms = 0;
  int64_t last_used_unix_ms = 0;
};

// The right to use a session until this is gone. Move-only.
class SessionLease {
 public:
  SessionLease() = default;
  SessionLease(SessionLease&&) noexcept = default;
  SessionLease& operator=(SessionLease&& other) noexcept;
  // The session is idle again. Any thread.
  ~SessionLease() { Release(); }

  bool held() const { return entry_ != nullptr; }
  // For a turn, which may change the session. Otherwise for reading.
  bool exclusive() const { return exclusive_; }

  // REQUIRES for all that follow: held().
  SessionKey key() const;  // any thread
  // Tokens of the session's context. Any thread, until TakeState.
  uint64_t tokens() const;
  // A copy of them from `first` on; fewer, or none, if the state was lost meanwhile. Any thread,
  // until TakeState.
  std::vector<uint32_t> CopyTokens(uint64_t first) const;
  // Those of the last turn; null if it left none. Any thread.
  std::shared_ptr<const SessionNotes> notes() const;

  // ---- The engine thread.

  // The state, to fork from; null before the session's first turn.
  const Session* state() const;
  // The session has left the table: LoseStates has taken its state.
  bool lost() const;
  // False while a turn's lease has to wait for readers that came before it. The on_reap callback is
  // called when the last of them has gone.
  bool alone() const;
  // The state itself; null before the first turn. REQUIRES: exclusive() and alone().
  std::unique_ptr<Session> TakeState();
  // Without it, a session whose state was taken leaves the table when the lease ends. REQUIRES:
  // exclusive(), and the state was taken.
  void PutState(std::unique_ptr<Session> state);
  // For the next turn, in place of those of the last one; null: none. REQUIRES: exclusive().
  void SetNotes(std::shared_ptr<const SessionNotes> notes);
  // Of the state in the table, as Session::DropKept. REQUIRES: exclusive().
  size_t DropKept(KeptStates what, size_t most);
  // The session leaves the table: its state is lost. REQUIRES: exclusive().
  void Drop();

  void Release();  // any thread

 private:
  friend class SessionTable;
  struct Entry;
  SessionLease(SessionTable* table, std::shared_ptr<Entry> entry, bool exclusive)
      : table_(table), entry_(std::move(entry)), exclusive_(exclusive) {}

  SessionTable* table_ = nullptr;
  std::shared_ptr<Entry> entry_;
  bool exclusive_ = false;
};

// What sessions of one tenant hold: of states, what they would hold alone; while a turn runs, what
// they held before it, but for the state that the turn has taken.
struct HeldBySessions {
  uint64_t bytes = 0;   // of states, also those that it can be rewound to
  uint64_t tokens = 0;  // with TokensOfNotes
  uint64_t sessions = 0;
  // Of these, the idle ones without state; with state; and of the latter, those that have an
  // attachment.
  uint64_t idle_empty = 0, idle_states = 0, idle_attached = 0;
};

class SessionTable {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  struct Options {
    std::chrono::seconds time_to_live{0};  // of an idle session; 0: for ever
    size_t max_sessions = size_t{1} << 16;
    // Tests have their own.
    std::function<TimePoint()> now = &Clock::now;
    std::function<std::string()> make_id = &MakeRandomId;  // of a session without one
  };
  static constexpr size_t kMaxIdBytes = 128;
  static constexpr size_t kMaxNameBytes = 256;

  // `metrics` outlives it: it keeps the number of sessions and why they left.
  SessionTable(Options options, Metrics& metrics);
  ~SessionTable();
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  // ---- Any thread.

  // A session without context. For an empty id, one is made up. INVALID_ARGUMENT for an id that is
  // not 1 to kMaxIdBytes letters, digits and -_.: or a name over kMaxNameBytes; ALREADY_EXISTS;
  // RESOURCE_EXHAUSTED when max_sessions exist and all of them were used (the oldest that never was
  // makes room, or else the idle one with an attachment that was used least recently). It is
  // one of the tenants that lose first (tenant_shares.h); for a tenant that has fewer, also one
  // that was used. PERMISSION_DENIED for a tenant that is not served (ServeTenants).
  absl::StatusOr<SessionInfo> Create(const SessionKey& key, const std::string& name);

  // NOT_FOUND, saying what became of the session if that is still known. Of another tenant's
  // session it says the same as of one that never was.
  absl::StatusOr<SessionInfo> Get(const SessionKey& key) const;

  // Of one that Get does not find: the reason alone, a constant.
  const char* WhyGone(const SessionKey& key) const;

  // Gives the session another name, also while a lease is out. Not a use of it: it expires, or is
  // evicted, as if this had not happened. INVALID_ARGUMENT for a name over kMaxNameBytes; NOT_FOUND
  // as Get.
  absl::StatusOr<SessionInfo> Rename(const SessionKey& key, const std::string& name);

  // Keeps something with the session until it leaves, beside the notes of its turns; in place of
  // what was kept before. Not a use of it, and possible while a lease is out. Forks do not have it.
  // A session that has it makes room for others where max_sessions exist. NOT_FOUND as Get.
  absl::Status Attach(const SessionKey& key, std::shared_ptr<const SessionNotes> attachment);
  // Null if there is none. NOT_FOUND as Get.
  absl::StatusOr<std::shared_ptr<const SessionNotes>> Attachment(const SessionKey& key) const;

  // The tenant's sessions in the order of their ids from the first id after `after`, at most
  // `limit`.
  std::vector<SessionInfo> List(const SessionKey& after, size_t limit) const;

  // NOT_FOUND as Get; ABORTED while a lease is out.
  absl::Status Delete(const SessionKey& key);

  // A session of the same tenant that continues from this one, as it is or, with a position, as it
  // was then. The new one holds no slots until its first turn. Not a use of this one. NOT_FOUND as
  // Get; ABORTED while a turn has its lease; OUT_OF_RANGE as Session::ForkAt; for `new_id` and
  // `name` as Create.
  absl::StatusOr<SessionInfo> Fork(const SessionKey& key, const std::string& new_id,
                                   const std::string& name, std::optional<uint64_t> position);
  // The session as it was at a position. What it held since is lost. NOT_FOUND as Get; ABORTED
  // while a lease is out; OUT_OF_RANGE as Session::ForkAt.
  absl::StatusOr<SessionInfo> Rewind(const SessionKey& key, uint64_t position);

  // From now on sessions belong to these tenants alone: those of others leave, or once their leases
  // have ended. Until the first call all tenants are served.
  void ServeTenants(TenantNames tenants);

  // For one turn. NOT_FOUND as Get; ABORTED while another turn has its lease.
  absl::StatusOr<SessionLease> LeaseForTurn(const SessionKey& key) { return Lease(key, true); }
  // To read; several at once. NOT_FOUND as Get; ABORTED while a turn has its lease.
  absl::StatusOr<SessionLease> LeaseForReading(const SessionKey& key) { return Lease(key, false); }

  // Called, without a lock held, when there is something to Reap, when NextExpiry is no longer
  // never, and when a request may be waiting for what has changed: a session is idle, so its slots
  // can be had, or a turn's lease is alone. Set once, before any Create.
  void set_on_reap(std::function<void()> on_reap) { on_reap_ = std::move(on_reap); }

  // Counts the tokens of all sessions that are made with it, in the table or not.
  const std::shared_ptr<TokenLedger>& ledger() const { return ledger_; }
  // States in the table, including those of deleted sessions that wait for Reap. Not the states
  // that a turn has taken.
  size_t states() const {
    MutexLock lock(&mutex_);
    return states_ + garbage_.size();
  }
  // Of these, how many EvictLeastRecentlyUsed could destroy.
  size_t idle_states() const {
    MutexLock lock(&mutex_);
    return idle_states_.size() + garbage_.size();
  }
  // That are out.
  size_t leases() const {
    MutexLock lock(&mutex_);
    return leases_;
  }
  // Those of the ledger, and TokensOfNotes.
  uint64_t tokens() const {
    MutexLock lock(&mutex_);
    return ledger_->held() + notes_tokens_;
  }
  // Of the sessions that EvictLeastRecentlyUsed could drop; shared ones count for each.
  uint64_t idle_tokens() const {
    MutexLock lock(&mutex_);
    return idle_tokens_;
  }

  // ---- The engine thread.

  // Makes a session of a state that a turn of the session `source` has forked from it when it had
  // `forked_at` tokens. RESOURCE_EXHAUSTED and PERMISSION_DENIED as Create; the state is gone then.
  absl::StatusOr<SessionInfo> Adopt(std::unique_ptr<Session> state,
                                    std::shared_ptr<const SessionNotes> notes,
                                    const SessionKey& source, uint64_t forked_at);
  // What would be free without the states that EvictLeastRecentlyUsed could destroy. Takes time for
  // each state that they hold.
  IdleSlots idle_slots() const {
    MutexLock lock(&mutex_);
    return idle_points_.slots();
  }
  // Adds what the sessions of each tenant hold, with leases or without.
  void AddHeld(uint64_t HeldBySessions::*what, TenantAmounts& amounts) const;
  // Of the idle session that was used least recently among those of `tenants` (null: of all) that
  // have some, and on until `most` are dropped that no other session keeps, or it has been long
  // enough. How many; 0 if none has. Each call takes time for all that the session keeps.
  size_t DropKept(KeptStates what, const TenantNames* tenants = nullptr, size_t most = 1);
  // Destroys the states of deleted sessions, and drops sessions that were idle too long.
  void Reap();
  // The contents of all states are lost: drops every session that has one. Leases on them are lost.
  // REQUIRES: no turn has taken a state.
  void LoseStates();
  // How much work DropKept and EvictLeastRecentlyUsed have been so far: sessions that they looked
  // at, and more for each that they changed or dropped. A tenth of a microsecond each, about.
  uint64_t work() const {
    MutexLock lock(&mutex_);
    return work_;
  }
  // When the next idle session will have been idle too long; TimePoint::max() for never.
  TimePoint NextExpiry() const;
  // Destroys the state of a deleted session if there is one. Otherwise drops, of the idle sessions
  // with state of `tenants` (null: of all), the one used least recently among those that hold a
  // slot that no other holds: a fork that never ran has none. If there is no such session, the one
  // used least recently, and of many a part. False if there is neither.
  bool EvictLeastRecentlyUsed(const TenantNames* tenants = nullptr);

 private:
  friend class SessionLease;
  using Entry = SessionLease::Entry;
  using EntryList = std::list<std::shared_ptr<Entry>>;
  using Reason = SessionEnd;

  absl::StatusOr<std::shared_ptr<Entry>> Find(const SessionKey& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const char* WhyMissing(const SessionKey& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<SessionInfo> Insert(const std::shared_ptr<Entry>& entry, bool& first_to_expire)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  struct Past {
    std::unique_ptr<Session> state;  // null: it has none
    std::shared_ptr<const SessionNotes> notes;
  };
  absl::StatusOr<SessionInfo> InsertFork(const std::shared_ptr<Entry>& fork, Past past,
                                         bool& first_to_expire)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Past> PastOf(const Entry& entry, std::optional<uint64_t> position,
                              bool with_borders) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<Entry>> NewEntry(const SessionKey& key, const std::string& name);
  // The engine thread destroys it, in Reap.
  void Discard(std::unique_ptr<Session> state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All of it, in place of `garbage`, which is empty.
  void TakeGarbage(std::vector<std::unique_ptr<Session>>& garbage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t DropKeptOf(Entry& entry, KeptStates what, size_t most)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Describe(Entry& entry, const Session& state);
  // Gives the entry a state and says what it is. REQUIRES: not idle.
  void SetState(Entry& entry, std::unique_ptr<Session> state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetNotes(Entry& entry, std::shared_ptr<const SessionNotes> notes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountNotes(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After every change of what the entry holds.
  void CountHeld(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After every change of what is idle, by +1 or -1.
  static void CountIdle(Entry& entry, int change);
  // Whether any of these tenants has such sessions. Without it, refusing a session would take time
  // for each of the others.
  bool Any(const TenantNames& tenants, uint64_t HeldBySessions::*what) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // These two: null if there is none.
  std::shared_ptr<Entry> Dispensable(const TenantNames& tenants) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the idle ones with state.
  std::shared_ptr<Entry> LeastRecentlyUsed(const TenantNames& tenants) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MakeRoom(const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsServed(const std::string& tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next of those that are not served behind `after`, which it moves on. False: there are no
  // more sessions.
  bool CloseSome(SessionKey& after);
  void Close(const std::shared_ptr<Entry>& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<SessionLease> Lease(const SessionKey& key, bool exclusive);
  // True if a request may be waiting for this.
  bool EndLease(Entry& entry, bool exclusive);
  // Moves the entry from the busy ones to the idle ones. True if it is the first that will expire.
  bool SetIdle(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves it back.
  void SetNotIdle(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetBusy(Entry& entry, bool exclusive) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  EntryList& IdleListOf(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the entry out of the table and remembers why, in the words for this reason if none are
  // given, which are a constant; the state is the caller's to destroy.
  std::unique_ptr<Session> Remove(const std::shared_ptr<Entry>& entry, Reason reason,
                                  const char* why = nullptr) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remember(const SessionKey& key, const char* why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SessionInfo InfoOf(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t UnixMs(TimePoint time) const;

  const Options options_;
  const std::shared_ptr<TokenLedger> ledger_ = std::make_shared<TokenLedger>();
  Metrics& metrics_;
  const std::chrono::milliseconds clock_offset_;  // Unix time - our clock
  std::function<void()> on_reap_;

  mutable Mutex mutex_;
  std::map<SessionKey, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  // Idle sessions, the least recently used first: with state, and without. And those with a lease.
  // Each entry is in one list and moves between them, so that ending a lease needs no memory.
  EntryList idle_states_ ABSL_GUARDED_BY(mutex_);
  EntryList idle_empty_ ABSL_GUARDED_BY(mutex_);
  EntryList busy_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, HeldBySessions> held_ ABSL_GUARDED_BY(mutex_);  // by tenants with sessions
  std::optional<TenantNames> served_ ABSL_GUARDED_BY(mutex_);           // none: all
  uint64_t notes_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t idle_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t states_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t leases_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Session>> garbage_ ABSL_GUARDED_BY(mutex_);
  IdlePoints idle_points_ ABSL_GUARDED_BY(mutex_);  // of idle_states_ and garbage_
  uint64_t work_ ABSL_GUARDED_BY(mutex_) = 0;
  // Why the last sessions left, for errors.
  std::map<SessionKey, const char*> departed_ ABSL_GUARDED_BY(mutex_);
  std::deque<SessionKey> departed_order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_SESSION_TABLE_H_
