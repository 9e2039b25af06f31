// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/session_table.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/log/log.h"
#include "server/session/session_entry.h"

namespace rivulet {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// How many departed sessions are remembered, at about 100 bytes each.
constexpr size_t kMaxDeparted = 4096;

constexpr size_t kPartOfSharers = 64;
// Looked at while others wait for the table.
constexpr size_t kClosedAtOnce = 256;
// Changed by one DropKept: some milliseconds.
constexpr size_t kMostChanges = 8192;
// SessionTable::work of each.
constexpr uint64_t kWorkOfChange = 16, kWorkOfRemoval = 128;

// Why a session is gone, by SessionEnd, and where max_sessions existed.
constexpr const char* kWhy[kSessionEnds] = {
    "it was deleted", "it was idle for longer than --session-ttl",
    ("room was needed for others (it was the least recently used; --state-memory sets how many "
     "fit, and --max-session-tokens how many tokens they may hold)"),
    "its state was lost in a failed step", "its tenant left the server's --tokens file"};
constexpr const char* kTooManySessions =
    "room was needed for others (as many sessions existed as the server keeps; deleting those that "
    "are not needed, or a shorter --session-ttl, leaves room)";

bool IsIdCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
         c == ':';
}

absl::Status CheckId(const std::string& id) {
  if (id.size() > SessionTable::kMaxIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("session id of ", id.size(), " bytes: at most ", SessionTable::kMaxIdBytes));
  }
  if (std::all_of(id.begin(), id.end(), &IsIdCharacter)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "session id: only letters, digits and - _ . : are allowed; put other text into the name");
}

absl::Status CheckName(const std::string& name) {
  if (name.size() <= SessionTable::kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("session name of ", name.size(),
                                                 " bytes: at most ", SessionTable::kMaxNameBytes));
}

absl::Status Busy(const std::string& id) {
  return absl::AbortedError(
      absl::StrCat("session \"", id,
                   "\" is busy: one turn at a time; try again when the running one has ended"));
}

}  // namespace

std::string MakeRandomId() {
  std::random_device device;
  char text[17];
  std::snprintf(text, sizeof(text), "%08x%08x", device(), device());
  return text;
}

SessionTable::SessionTable(Options options, Metrics& metrics)
    : options_(std::move(options)),
      metrics_(metrics),
      clock_offset_(
          duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()) -
          duration_cast<milliseconds>(options_.now().time_since_epoch())) {}

SessionTable::~SessionTable() = default;

int64_t SessionTable::UnixMs(TimePoint time) const {
  return (duration_cast<milliseconds>(time.time_since_epoch()) + clock_offset_).count();
}

void SessionTable::Describe(Entry& entry, const Session& state) {
  entry.tokens = state.tokens().size();
  entry.holds_state = true;
  entry.state_bytes = state.state_bytes();
  entry.pages = 0;
  for (size_t kind = 0; kind < state.page_kinds(); ++kind) entry.pages += state.pages(kind);
  entry.kept_bytes = state.kept_bytes();
  entry.kept_borders = state.borders();
  entry.kept_positions.clear();
  for (const Session::KeptPosition& kept : state.kept()) {
    entry.kept_positions.push_back(kept.tokens);
  }
}

void SessionTable::SetState(Entry& entry, std::unique_ptr<Session> state) {
  Describe(entry, *state);
  if (entry.state == nullptr) ++states_;
  entry.state = std::move(state);
  CountHeld(entry);
}

void SessionTable::CountHeld(Entry& entry) {
  if (!entry.in_table || entry.held_by_tenant == nullptr) return;
  const uint64_t state_bytes = entry.state == nullptr ? 0 : entry.state_bytes;
  const HeldBySessions now{
      .bytes = state_bytes + entry.kept_bytes, .tokens = entry.room(), .sessions = 1};
  for (auto what : {&HeldBySessions::bytes, &HeldBySessions::tokens, &HeldBySessions::sessions}) {
    entry.held_by_tenant->*what += now.*what - entry.held.*what;
  }
  entry.held = now;
}

void SessionTable::SetNotes(Entry& entry, std::shared_ptr<const SessionNotes> notes) {
  entry.notes.swap(notes);
  CountNotes(entry);
}

void SessionTable::CountNotes(Entry& entry) {
  const size_t bytes = (entry.notes == nullptr ? 0 : entry.notes->bytes()) +
                       (entry.attachment == nullptr ? 0 : entry.attachment->bytes());
  if (entry.in_table) {
    notes_tokens_ += TokensOfNotes(bytes) - TokensOfNotes(entry.notes_bytes);
    metrics_.session_notes_bytes.Add(static_cast<int64_t>(bytes) -
                                     static_cast<int64_t>(entry.notes_bytes));
  }
  entry.notes_bytes = bytes;
  CountHeld(entry);
}

absl::StatusOr<std::shared_ptr<SessionTable::Entry>> SessionTable::NewEntry(
    const SessionKey& key, const std::string& name) {
  RIVULET_RETURN_IF_ERROR(CheckId(key.id));
  RIVULET_RETURN_IF_ERROR(CheckName(name));
  auto entry = std::make_shared<Entry>();
  entry->tenant = key.tenant;
  entry->id = key.id.empty() ? options_.make_id() : key.id;
  entry->name = name;
  entry->created_unix_ms = UnixMs(options_.now());
  return entry;
}

absl::StatusOr<SessionInfo> SessionTable::Create(const SessionKey& key, const std::string& name) {
  RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, NewEntry(key, name));
  bool first_to_expire = false;
  absl::StatusOr<SessionInfo> info;
  {
    MutexLock lock(&mutex_);
    info = Insert(entry, first_to_expire);
  }
  if (first_to_expire && on_reap_) on_reap_();
  return info;
}

// The fork shares what the source holds, so that nothing is released here if something fails.
absl::StatusOr<SessionInfo> SessionTable::Fork(const SessionKey& key, const std::string& new_id,
                                               const std::string& name,
                                               std::optional<uint64_t> position) {
  RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> fork, NewEntry({key.tenant, new_id}, name));
  bool first_to_expire = false;
  absl::StatusOr<SessionInfo> info;
  {
    MutexLock lock(&mutex_);
    RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> source, Find(key));
    if (source->in_turn) return Busy(key.id);
    RIVULET_ASSIGN_OR_RETURN(Past past, PastOf(*source, position, /*with_borders=*/false));
    fork->forked_from = key.id;
    fork->forked_at = past.state == nullptr ? 0 : past.state->tokens().size();
    info = InsertFork(fork, std::move(past), first_to_expire);
  }
  if (first_to_expire && on_reap_) on_reap_();
  return info;
}

absl::StatusOr<SessionInfo> SessionTable::Adopt(std::unique_ptr<Session> state,
                                                std::shared_ptr<const SessionNotes> notes,
                                                const SessionKey& source, uint64_t forked_at) {
  RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> fork, NewEntry({source.tenant, ""}, ""));
  if (!state->resting()) state->Rest();
  fork->forked_from = source.id;
  fork->forked_at = forked_at;
  bool first_to_expire = false;
  absl::StatusOr<SessionInfo> info;
  {
    MutexLock lock(&mutex_);
    info = InsertFork(fork, {std::move(state), std::move(notes)}, first_to_expire);
  }
  if (first_to_expire && on_reap_) on_reap_();
  return info;
}

// The entry says of its state what it is before it is in the table, so that nothing is half done
// without memory.
absl::StatusOr<SessionInfo> SessionTable::InsertFork(const std::shared_ptr<Entry>& fork, Past past,
                                                     bool& first_to_expire) {
  if (past.state != nullptr) Describe(*fork, *past.state);
  RIVULET_RETURN_IF_ERROR(Insert(fork, first_to_expire).status());
  SetNotIdle(*fork);
  fork->state = std::move(past.state);
  SetNotes(*fork, std::move(past.notes));
  first_to_expire |= SetIdle(*fork);
  metrics_.session_forks.Add();
  return InfoOf(*fork);
}

absl::StatusOr<SessionInfo> SessionTable::Rewind(const SessionKey& key, uint64_t position) {
  absl::StatusOr<SessionInfo> info;
  {
    MutexLock lock(&mutex_);
    RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(key));
    if (entry->leased()) return Busy(key.id);
    RIVULET_ASSIGN_OR_RETURN(Past past, PastOf(*entry, position, /*with_borders=*/true));
    if (past.state == nullptr) return InfoOf(*entry);
    garbage_.reserve(garbage_.size() + 1);  // first: this thread must not destroy the state
    SetNotIdle(*entry);
    SetNotes(*entry, std::move(past.notes));
    Discard(std::move(entry->state));
    --states_;
    SetState(*entry, std::move(past.state));
    SetIdle(*entry);
    ++entry->changes;
    metrics_.session_rewinds.Add();
    info = InfoOf(*entry);
  }
  if (on_reap_) on_reap_();
  return info;
}

// A session that never had a turn has one position, 0, and no state.
absl::StatusOr<SessionTable::Past> SessionTable::PastOf(const Entry& entry,
                                                        std::optional<uint64_t> position,
                                                        bool with_borders) const {
  const uint64_t now = entry.tokens;
  if (entry.state == nullptr) {
    if (position.value_or(0) == 0) return Past{};
    return absl::OutOfRangeError("the session holds no tokens yet");
  }
  Past past;
  RIVULET_ASSIGN_OR_RETURN(past.state, entry.state->ForkAt(position.value_or(now), with_borders));
  if (position.value_or(now) == now) {
    past.notes = entry.notes;
  } else if (const auto& kept = past.state->kept();
             !kept.empty() && kept.back().tokens == *position) {
    past.notes = std::static_pointer_cast<const SessionNotes>(kept.back().notes);
  }
  return past;
}

absl::StatusOr<SessionInfo> SessionTable::Insert(const std::shared_ptr<Entry>& entry,
                                                 bool& first_to_expire) {
  if (entries_.count(entry->key()) > 0) {
    return absl::AlreadyExistsError(absl::StrCat("session \"", entry->id, "\" exists already"));
  }
  if (!IsServed(entry->tenant)) {
    return absl::PermissionDeniedError(
        "the tenant has left the server's --tokens file: it can have no sessions");
  }
  const bool full = entries_.size() >= options_.max_sessions;
  if (full && !MakeRoom(entry->tenant)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(entries_.size(),
                     " sessions exist, as many as the server keeps: delete some, or start the "
                     "server with a shorter --session-ttl"));
  }
  EntryList place = {entry};
  HeldBySessions& held = held_[entry->tenant];
  entries_.emplace(entry->key(), entry);
  if (entry->holds_state) ++states_;
  entry->held_by_tenant = &held;
  CountHeld(*entry);
  entry->place = place.begin();
  busy_.splice(busy_.end(), place);
  first_to_expire = SetIdle(*entry) || !garbage_.empty();
  metrics_.sessions.Add(1);
  return InfoOf(*entry);
}

// A session that was never used has nothing to lose; one that has an attachment was not made to
// stay.
std::shared_ptr<SessionTable::Entry> SessionTable::Dispensable(const TenantNames& tenants) const {
  if (Any(tenants, &HeldBySessions::idle_empty)) {
    for (const auto& entry : idle_empty_) {
      if (tenants.contains(entry->tenant)) return entry;
    }
  }
  if (!Any(tenants, &HeldBySessions::idle_attached)) return nullptr;
  for (const auto& entry : idle_states_) {
    if (entry->attachment != nullptr && tenants.contains(entry->tenant)) return entry;
  }
  return nullptr;
}

bool SessionTable::Any(const TenantNames& tenants, uint64_t HeldBySessions::*what) const {
  for (const std::string& tenant : tenants) {
    const auto held = held_.find(tenant);
    if (held != held_.end() && held->second.*what > 0) return true;
  }
  return false;
}

std::shared_ptr<SessionTable::Entry> SessionTable::LeastRecentlyUsed(
    const TenantNames& tenants) const {
  if (!Any(tenants, &HeldBySessions::idle_states)) return nullptr;
  for (const auto& entry : idle_states_) {
    if (tenants.contains(entry->tenant)) return entry;
  }
  return nullptr;
}

// The session that needs the room counts.
bool SessionTable::MakeRoom(const std::string& tenant) {
  TenantAmounts sessions;
  for (const auto& [holder, held] : held_) sessions[holder] = held.sessions;
  ++sessions[tenant];
  std::shared_ptr<Entry> victim;
  Losers order(sessions, tenant);
  for (const TenantNames* losers; victim == nullptr && (losers = order.Next()) != nullptr;) {
    victim = Dispensable(*losers);
    if (victim == nullptr && !losers->contains(tenant)) victim = LeastRecentlyUsed(*losers);
  }
  if (victim == nullptr) return false;
  garbage_.reserve(garbage_.size() + 1);  // first: this thread must not destroy the state
  std::unique_ptr<Session> state = Remove(victim, Reason::kEvicted, kTooManySessions);
  if (state != nullptr) Discard(std::move(state));
  return true;
}

absl::StatusOr<SessionInfo> SessionTable::Get(const SessionKey& key) const {
  MutexLock lock(&mutex_);
  RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(key));
  return InfoOf(*entry);
}

absl::StatusOr<SessionInfo> SessionTable::Rename(const SessionKey& key, const std::string& name) {
  RIVULET_RETURN_IF_ERROR(CheckName(name));
  MutexLock lock(&mutex_);
  RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(key));
  entry->name = name;
  return InfoOf(*entry);
}

absl::Status SessionTable::Attach(const SessionKey& key,
                                  std::shared_ptr<const SessionNotes> attachment) {
  MutexLock lock(&mutex_);
  RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(key));
  const uint64_t before = entry->room();
  if (!entry->leased()) CountIdle(*entry, -1);
  entry->attachment.swap(attachment);
  CountNotes(*entry);
  if (entry->leased()) return absl::OkStatus();
  CountIdle(*entry, 1);
  idle_tokens_ += entry->room() - before;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const SessionNotes>> SessionTable::Attachment(
    const SessionKey& key) const {
  MutexLock lock(&mutex_);
  RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(key));
  return entry->attachment;
}

std::vector<SessionInfo> SessionTable::List(const SessionKey& after, size_t limit) const {
  std::vector<SessionInfo> sessions;
  MutexLock lock(&mutex_);
  for (auto next = entries_.upper_bound(after); next != entries_.end() && sessions.size() < limit;
       ++next) {
    if (next->first.tenant != after.tenant) break;
    sessions.push_back(InfoOf(*next->second));
  }
  return sessions;
}

absl::Status SessionTable::Delete(const SessionKey& key) {
  {
    MutexLock lock(&mutex_);
    RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(key));
    if (entry->leased()) return Busy(key.id);
    garbage_.reserve(garbage_.size() + 1);  // first: this thread must not destroy the state
    std::unique_ptr<Session> state = Remove(entry, Reason::kDeleted);
    if (state == nullptr) return absl::OkStatus();
    Discard(std::move(state));
  }
  if (on_reap_) on_reap_();
  return absl::OkStatus();
}

bool SessionTable::IsServed(const std::string& tenant) const {
  return !served_.has_value() || served_->contains(tenant);
}

void SessionTable::ServeTenants(TenantNames tenants) {
  {
    MutexLock lock(&mutex_);
    served_ = std::move(tenants);
  }
  SessionKey after("", "");
  while (CloseSome(after)) continue;
  if (on_reap_) on_reap_();
}

bool SessionTable::CloseSome(SessionKey& after) {
  MutexLock lock(&mutex_);
  auto next = entries_.upper_bound(after);
  for (size_t i = 0; i < kClosedAtOnce && next != entries_.end(); ++i) {
    const std::shared_ptr<Entry> entry = (next++)->second;
    after = entry->key();
    if (!IsServed(entry->tenant) && !entry->leased()) Close(entry);
  }
  return next != entries_.end();
}

void SessionTable::Close(const std::shared_ptr<Entry>& entry) {
  garbage_.reserve(garbage_.size() + 1);  // first: this thread must not destroy the state
  std::unique_ptr<Session> state = Remove(entry, Reason::kTenantLeft);
  if (state != nullptr) Discard(std::move(state));
}

absl::StatusOr<SessionLease> SessionTable::Lease(const SessionKey& key, bool exclusive) {
  MutexLock lock(&mutex_);
  RIVULET_ASSIGN_OR_RETURN(std::shared_ptr<Entry> entry, Find(key));
  if (entry->in_turn) return Busy(key.id);
  SetBusy(*entry, exclusive);
  return SessionLease(this, std::move(entry), exclusive);
}

void SessionTable::SetBusy(Entry& entry, bool exclusive) {
  if (!entry.leased()) SetNotIdle(entry);
  entry.last_used = options_.now();
  ++leases_;
  if (exclusive) {
    ++entry.changes;
    entry.in_turn = true;
  } else {
    ++entry.readers;
  }
}

bool SessionTable::EndLease(Entry& entry, bool exclusive) {
  MutexLock lock(&mutex_);
  // Its turn took the state and has not given it back: memory ran out in between.
  const bool lost = exclusive && entry.in_table && entry.holds_state && entry.state == nullptr;
  if (lost) Remove(std::shared_ptr<Entry>(*entry.place), Reason::kFailed);
  --leases_;
  if (!entry.in_table) return false;  // dropped
  if (exclusive) {
    entry.in_turn = false;
  } else {
    --entry.readers;
  }
  if (entry.leased()) return entry.readers == 0;
  SetIdle(entry);
  if (!IsServed(entry.tenant)) Close(std::shared_ptr<Entry>(*entry.place));
  return true;
}

bool SessionTable::SetIdle(Entry& entry) {
  const bool first = idle_states_.empty() && idle_empty_.empty();
  entry.last_used = options_.now();
  EntryList& idle = IdleListOf(entry);
  idle.splice(idle.end(), busy_, entry.place);
  CountIdle(entry, 1);
  idle_tokens_ += entry.room();
  if (entry.state != nullptr) idle_points_.Add(*entry.state);
  return first && options_.time_to_live.count() > 0;
}

void SessionTable::SetNotIdle(Entry& entry) {
  busy_.splice(busy_.end(), IdleListOf(entry), entry.place);
  CountIdle(entry, -1);
  idle_tokens_ -= entry.room();
  if (entry.state != nullptr) idle_points_.Remove(*entry.state);
}

void SessionTable::CountIdle(Entry& entry, int change) {
  HeldBySessions& held = *entry.held_by_tenant;
  const auto by = static_cast<uint64_t>(change);  // unsigned numbers wrap, so -1 takes one away
  if (!entry.holds_state) {
    held.idle_empty += by;
    return;
  }
  held.idle_states += by;
  if (entry.attachment != nullptr) held.idle_attached += by;
}

void SessionTable::Discard(std::unique_ptr<Session> state) {
  idle_points_.Add(*state);
  garbage_.push_back(std::move(state));
}

void SessionTable::TakeGarbage(std::vector<std::unique_ptr<Session>>& garbage) {
  for (const auto& state : garbage_) idle_points_.Remove(*state);
  garbage.swap(garbage_);
}

SessionTable::EntryList& SessionTable::IdleListOf(const Entry& entry) {
  return entry.holds_state ? idle_states_ : idle_empty_;
}

absl::StatusOr<std::shared_ptr<SessionTable::Entry>> SessionTable::Find(
    const SessionKey& key) const {
  RIVULET_RETURN_IF_ERROR(CheckId(key.id));  // the errors below repeat it
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("no session \"", key.id, "\": ", WhyMissing(key),
                                          "; create one and send the whole context"));
}

const char* SessionTable::WhyMissing(const SessionKey& key) const {
  const auto departed = departed_.find(key);
  return departed == departed_.end() ? "it was never created, or it left long ago"
                                     : departed->second;
}

const char* SessionTable::WhyGone(const SessionKey& key) const {
  MutexLock lock(&mutex_);
  return WhyMissing(key);
}

std::unique_ptr<Session> SessionTable::Remove(const std::shared_ptr<Entry>& entry, Reason reason,
                                              const char* why) {
  // What needs memory comes first: without any, nothing has changed.
  const SessionKey key = entry->key();
  LogInfo("session_ended", {{"tenant", entry->tenant},
                            {"session_id", entry->id},
                            {"reason", kSessionEndNames[static_cast<size_t>(reason)]},
                            {"tokens", entry->tokens}});
  Remember(key, why != nullptr ? why : kWhy[static_cast<size_t>(reason)]);
  if (!entry->leased()) SetNotIdle(*entry);
  busy_.erase(entry->place);
  notes_tokens_ -= TokensOfNotes(entry->notes_bytes);
  metrics_.session_notes_bytes.Add(-static_cast<int64_t>(entry->notes_bytes));
  if (entry->state != nullptr) --states_;
  for (auto what : {&HeldBySessions::bytes, &HeldBySessions::tokens, &HeldBySessions::sessions}) {
    entry->held_by_tenant->*what -= entry->held.*what;
  }
  if (entry->held_by_tenant->sessions == 0) held_.erase(entry->tenant);
  entry->in_table = false;
  metrics_.sessions.Add(-1);
  metrics_.CountSessionEnd(reason);
  entries_.erase(key);
  return std::move(entry->state);
}

void SessionTable::Remember(const SessionKey& key, const char* why) {
  if (departed_.insert_or_assign(key, why).second) departed_order_.push_back(key);
  if (departed_order_.size() <= kMaxDeparted) return;
  departed_.erase(departed_order_.front());
  departed_order_.pop_front();
}

void SessionTable::AddHeld(uint64_t HeldBySessions::*what, TenantAmounts& amounts) const {
  MutexLock lock(&mutex_);
  for (const auto& [tenant, held] : held_) amounts[tenant] += held.*what;
}

SessionInfo SessionTable::InfoOf(const Entry& entry) const {
  SessionInfo info = entry;
  info.busy = entry.leased();
  info.last_used_unix_ms = UnixMs(entry.last_used);
  return info;
}

// Thousands of forks may share what they keep: each is looked at once, not once for each position.
size_t SessionTable::DropKept(KeptStates what, const TenantNames* tenants, size_t most) {
  size_t dropped = 0, alone = 0;
  MutexLock lock(&mutex_);
  for (const std::shared_ptr<Entry>& entry : idle_states_) {
    ++work_;
    if (!IsAmong(tenants, entry->tenant)) continue;
    while (entry->state->keeps(what)) {
      const bool frees = entry->state->keeps_alone(what);
      const size_t some = DropKeptOf(*entry, what, most - alone);
      dropped += some;
      if (frees) alone += some;
      if (alone >= most || dropped >= kMostChanges) return dropped;
    }
  }
  return dropped;
}

size_t SessionTable::DropKeptOf(Entry& entry, KeptStates what, size_t most) {
  if (entry.state == nullptr || !entry.state->keeps(what)) return 0;
  const bool idle = !entry.leased();
  if (idle) idle_points_.Remove(*entry.state);
  const size_t dropped = entry.state->DropKept(what, most);
  if (idle) idle_points_.Add(*entry.state);
  work_ += kWorkOfChange * dropped;
  Describe(entry, *entry.state);
  CountHeld(entry);
  return dropped;
}

void SessionTable::Reap() {
  std::vector<std::unique_ptr<Session>> garbage;  // destroyed without the lock
  const TimePoint oldest = options_.now() - options_.time_to_live;
  MutexLock lock(&mutex_);
  TakeGarbage(garbage);
  if (options_.time_to_live.count() == 0) return;
  for (EntryList* idle : {&idle_states_, &idle_empty_}) {
    while (!idle->empty() && idle->front()->last_used <= oldest) {
      garbage.push_back(Remove(std::shared_ptr<Entry>(idle->front()), Reason::kExpired));
    }
  }
}

void SessionTable::LoseStates() {
  std::vector<std::unique_ptr<Session>> states;  // destroyed without the lock
  MutexLock lock(&mutex_);
  TakeGarbage(states);
  std::vector<std::shared_ptr<Entry>> lost(idle_states_.begin(), idle_states_.end());
  for (const std::shared_ptr<Entry>& entry : busy_) {
    if (entry->holds_state) lost.push_back(entry);
  }
  for (const std::shared_ptr<Entry>& entry : lost) {
    states.push_back(Remove(entry, Reason::kFailed));
  }
}

SessionTable::TimePoint SessionTable::NextExpiry() const {
  if (options_.time_to_live.count() == 0) return TimePoint::max();
  MutexLock lock(&mutex_);
  TimePoint next = TimePoint::max();
  for (const EntryList* idle : {&idle_states_, &idle_empty_}) {
    if (!idle->empty()) {
      next = std::min(next, idle->front()->last_used + options_.time_to_live);
    }
  }
  return next;
}

bool SessionTable::EvictLeastRecentlyUsed(const TenantNames* tenants) {
  std::vector<std::unique_ptr<Session>> states;  // destroyed without the lock
  MutexLock lock(&mutex_);
  if (!garbage_.empty()) {
    states.push_back(std::move(garbage_.back()));
    garbage_.pop_back();
    idle_points_.Remove(*states.back());
    return true;
  }
  // Where all share their slots, each look at all of them drops a part, or it would take too long.
  const size_t most = 1 + idle_states_.size() / kPartOfSharers;
  std::vector<std::shared_ptr<Entry>> victims;
  for (const auto& entry : idle_states_) {
    ++work_;
    if (!IsAmong(tenants, entry->tenant)) continue;
    const bool alone = entry->state->holds_slots_alone();
    if (alone) victims.clear();
    if (victims.size() < most) victims.push_back(entry);
    if (alone) break;
  }
  states.reserve(victims.size());
  for (const auto& victim : victims) states.push_back(Remove(victim, Reason::kEvicted));
  work_ += kWorkOfRemoval * victims.size();
  return !victims.empty();
}

}  // namespace rivulet
