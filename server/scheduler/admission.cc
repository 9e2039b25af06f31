// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Scheduler's admission: which waiting requests get slots, and what is dropped for them.
#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "server/scheduler/scheduler.h"

namespace rivulet {
namespace {

// A turn changes its session only when those that lease it to read have copied it.
bool WaitsForReaders(const std::unique_ptr<Request>& request) {
  const SessionLease& lease = request->session;
  return lease.held() && lease.exclusive() && !lease.alone();
}

}  // namespace

void Scheduler::Admit(TimePoint now) {
  lacks_slots_ = false;
  while (!waiting_.empty()) {
    KeepLeftStates();
    const size_t before = waiting_.size();
    AdmitWaiting(now);
    // A request that was admitted may have ended at once and made room.
    if (waiting_.size() < before) continue;
    const auto first = std::find_if_not(waiting_.begin(), waiting_.end(), &WaitsForReaders);
    if (first == waiting_.end()) return;
    if (AnythingRuns() || CanMakeRoom(NewNeed(**first))) return;
    // The holder of any other lease will submit its request or release the lease, and both wake the
    // engine thread.
    if (sessions_.leases() > WaitingLeases()) return;
    Refuse(**first, now);
  }
}

size_t Scheduler::WaitingLeases() const {
  return static_cast<size_t>(std::count_if(waiting_.begin(), waiting_.end(),
                                           [](const auto& r) { return r->session.held(); }));
}

bool Scheduler::AnythingRuns() const {
  return std::any_of(active_.begin(), active_.end(),
                     [](const auto& active) { return !active->ended(); });
}

Scheduler::RowsByTenant Scheduler::RunningByTenant() const {
  RowsByTenant running;
  for (const auto& active : active_) {
    if (active->ended()) continue;
    running[active->request().tenant.get()] += active->request().completions;
  }
  return running;
}

// Where several tenants wait, the one that has the least of the machine for its weight comes first.
// Those of one tenant stay in order.
void Scheduler::TakeTurnsByTenant(RowsByTenant claims) {
  const Tenant* const first = waiting_.front()->tenant.get();
  const bool several = std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& request) {
    return request->tenant.get() != first;
  });
  if (!several) return;
  for (auto& request : waiting_) {
    const Tenant* const tenant = request->tenant.get();
    const uint32_t weight = tenant == nullptr ? 1 : tenant->weight();
    request->place = static_cast<double>(claims[tenant]) / weight;
    claims[tenant] += request->completions;
  }
  waiting_.sort([](const auto& a, const auto& b) { return a->place < b->place; });
}

// One tenant's long streams do not keep another waiting for their end.
bool Scheduler::LeavesRoomForOthers(const Request& request, const RowsByTenant& running) const {
  if (request.tenant == nullptr || request.tenant->name().empty()) return true;
  const uint64_t slots = engine_.capacity().tail_slots, kept = slots / kTenantPart;
  uint64_t all = request.completions, own = request.completions;
  for (const auto& [tenant, rows] : running) {
    all += rows;
    if (tenant == request.tenant.get()) own += rows;
  }
  return own <= std::max<uint64_t>(kept, request.completions) || all + kept <= slots;
}

void Scheduler::AdmitWaiting(TimePoint now) {
  bool held_back = false;
  std::set<const Tenant*> waiting_for_own;  // tenants whose share what runs for them has used
  RowsByTenant running;
  if (named_tenants_) running = RunningByTenant();
  TakeTurnsByTenant(running);
  for (auto& request : waiting_) {
    if (WaitsForReaders(request)) continue;
    // A request that has its slots already may pass those that wait for some.
    if (held_back && !MayPass(*request)) continue;
    if (WaitsForPrefix(*request)) continue;
    const Tenant* const tenant = request->tenant.get();
    const bool waits = waiting_for_own.contains(tenant) && !MayPass(*request);
    if (waits || !LeavesRoomForOthers(*request, running)) continue;  // others may pass it
    const uint32_t rows = request->completions;
    share_is_used_ = false;
    if (TryAdmit(request, now)) {
      running[tenant] += rows;
    } else if (share_is_used_) {
      waiting_for_own.insert(tenant);
    } else {
      held_back = true;
    }
  }
  lacks_slots_ = held_back || !waiting_for_own.empty();
  std::erase(waiting_, nullptr);
}

bool Scheduler::MayPass(const Request& request) const {
  const SessionLease& lease = request.session;
  return lease.held() && lease.state() != nullptr && NewNeed(request).nothing();
}

// Another request that runs is going to compute what this one begins with, at least as soon as this
// one could. When that has ended, or was kept and is gone again, it goes on without.
bool Scheduler::WaitsForPrefix(Request& request) {
  if (request.awaited != nullptr) {
    const PrefillProgress& progress = *request.awaited;
    if (progress.kept < request.awaited_border && !progress.over) return true;
    request.has_awaited = progress.kept >= request.awaited_border;
    request.awaited = nullptr;
  }
  if (!request.has_awaited && prefixes_.MayReuse(request)) AwaitPrefix(request);
  return request.awaited != nullptr;
}

void Scheduler::AwaitPrefix(Request& request) {
  const PrefixCache::Match match = prefixes_.Find(request);
  const uint64_t held = match.point == nullptr ? 0 : match.point->position;
  uint64_t best = held;
  ActiveRequest* leader = nullptr;
  if (match.known <= held) return;  // prompts that run are known
  for (const auto& active : active_) {
    const uint64_t shared = std::min<uint64_t>(active->SharedPrompt(request), match.known);
    const uint64_t border = shared - shared % engine_.capacity().fold_interval;
    if (border <= best || !active->CanKeepAt(border, held)) continue;
    best = border;
    leader = active.get();
  }
  if (leader == nullptr) return;
  request.awaited = leader->KeepAt(best);
  request.awaited_border = best;
  metrics_.prefix_waits.Add();
}

// Of requests that run, in this plan or commit. A state that leaves them too few slots goes again.
void Scheduler::KeepLeftStates() {
  if (context_.left.empty()) return;
  prefixes_.Keep(std::exchange(context_.left, {}));
  while (!Held({}).Within(engine_.capacity())) {
    const bool dropped = DropByShare([this](const TenantNames* tenants) {
      return DropKept(KeptStates::kBorder, tenants) || prefixes_.Drop(tenants);
    });
    if (!dropped) return;
  }
}

// What borders may take: what no request may need.
StateNeed Scheduler::BorderRoom() const {
  const StateCapacity& capacity = engine_.capacity();
  const bool automatic = context_.options.keep_borders == kAutomaticBorders;
  const auto share = [automatic](uint64_t slots) { return automatic ? slots - slots / 4 : slots; };
  StateNeed all;
  all.bases = share(capacity.base_slots);
  all.AddPages(capacity.pages.size(),
               [&](size_t kind) { return share(capacity.pages[kind].slots); });
  return all.Beyond(Held({}));
}

// None while a request lacks slots.
void Scheduler::FindBorderRoom(const std::vector<PlannedRow>& chosen) {
  context_.border_room = {};
  size_t wanted = 0;
  for (const PlannedRow& planned : chosen) {
    const RowInFlight& row = rows_[planned.row];
    wanted += row.request->NewBorders(row.row, planned.tokens);
  }
  if (wanted == 0 || lacks_slots_) return;
  context_.border_room = BorderRoom();
  if (context_.border_room.bases >= wanted) return;
  DropBordersFor(chosen, wanted - context_.border_room.bases);
  context_.border_room = BorderRoom();
}

// Those of idle sessions go, and then older ones of the rows that would keep more.
void Scheduler::DropBordersFor(const std::vector<PlannedRow>& chosen, size_t count) {
  size_t dropped = 0;
  const auto drop = [&](const TenantNames* tenants) {
    // What tenants hold is added up again after a part of them.
    const size_t left = count - dropped, part = named_tenants_ ? (left + 7) / 8 : left;
    const size_t some = sessions_.DropKept(KeptStates::kBorder, tenants, part);
    dropped += some;
    return some > 0;
  };
  while (dropped < count && DropByShare(drop)) continue;
  for (const PlannedRow& planned : chosen) {
    const RowInFlight& row = rows_[planned.row];
    const size_t own = row.request->NewBorders(row.row, planned.tokens);
    const size_t most = std::min(own, count - std::min(count, dropped));
    if (most > 0) dropped += row.request->DropBorders(row.row, most);
  }
  metrics_.borders_dropped.Add(dropped);
}

// A turn of a session that holds state has its slot already, and some of its pages. A fork shares
// the session's pages.
StateNeed Scheduler::NewNeed(const Request& request) const {
  StateNeed need = NewState(request);
  need.tokens = NewTokens(request);
  return need;
}

StateNeed Scheduler::NewState(const Request& request) const {
  const SessionLease& lease = request.session;
  const Session* const state = lease.held() ? lease.state() : nullptr;
  if (state == nullptr) return NewContext(request);
  if (request.begins_anew) return AnewInPlaceOf(*state, request);
  const uint64_t tokens = LongestContext(request, state->tokens().size());
  StateNeed need;
  if (lease.exclusive()) {
    need.AddMissing(*state, tokens);
    need.AddForks(engine_.capacity(), request.completions, tokens);
  } else {
    need.tails = need.bases = 1;
    need.AddPages(state->page_kinds(),
                  [&](size_t kind) { return state->MissingPagesInFork(kind, tokens); });
  }
  return need;
}

// Without what the state that it starts from holds: others share that.
StateNeed Scheduler::NewContext(const Request& request) const {
  const StateCapacity& capacity = engine_.capacity();
  const PrefixCache::Match match = prefixes_.Find(request);
  if (match.point == nullptr) return WholeNeed(capacity, request, 0);
  StateNeed need;
  need.tails = need.bases = request.completions;
  const uint64_t tokens = LongestContext(request, 0);
  need.AddPages(capacity.pages.size(), [&](size_t kind) {
    return match.point->pages[kind].MissingInFork(match.point->position, tokens, kLongestSegment);
  });
  if (request.completions > 1) need.AddWhole(capacity, request.completions, tokens);
  return need;
}

// It takes what only the old state holds, which is destroyed first.
StateNeed Scheduler::AnewInPlaceOf(const Session& state, const Request& request) const {
  StateNeed need = NewContext(request);
  const auto take = [](uint64_t& wanted, uint64_t held) { wanted -= std::min(wanted, held); };
  take(need.tails, 1 - state.missing_tails());
  take(need.bases, 1 - state.missing_bases());
  for (size_t kind = 0; kind < need.pages.size(); ++kind) {
    take(need.pages[kind], state.OwnPages(kind));
  }
  return need;
}

StateNeed Scheduler::Held(StateNeed need) const {
  StatePool& states = engine_.states();
  need.tails += states.tails().used();
  need.bases += states.bases().used();
  need.AddPages(engine_.capacity().pages.size(),
                [&](size_t kind) { return states.pages(kind).used(); });
  need.tokens += sessions_.tokens();
  for (const auto& active : active_) active->AddReserved(need);
  return need;
}

bool Scheduler::HasRoom(StateNeed need, const StateNeed& droppable) const {
  need = Held(std::move(need));
  return need.Within(engine_.capacity(), droppable) &&
         need.tokens <= context_.options.max_session_tokens + droppable.tokens;
}

// With what the prefix cache and kept positions hold beside idle sessions, which is the most that
// it can be.
bool Scheduler::CanMakeRoom(const StateNeed& need) const {
  const IdleSlots idle = sessions_.idle_slots();
  StateNeed droppable;
  droppable.tails = idle.tails;
  droppable.bases = idle.bases;
  droppable.tokens = sessions_.idle_tokens();
  droppable.pages = idle.pages;
  std::set<const StatePoint*> kept;  // completions of a request share some
  const auto add = [&](const Session& session) {
    session.ForEachPoint([&](const auto& point) { kept.insert(point.get()); });
  };
  for (const auto& active : active_) {
    for (const Session* session : active->sessions()) add(*session);
  }
  for (const auto& request : waiting_) {
    if (request == nullptr || !request->session.held()) continue;  // null: admitted in this pass
    if (const Session* state = request->session.state(); state != nullptr) add(*state);
  }
  for (const StatePoint* point : kept) droppable.AddPoint(*point);
  prefixes_.cache().ForEachPoint([&](const StatePoint& point) { droppable.AddPoint(point); });
  return HasRoom(need, droppable);
}

bool Scheduler::MakeRoom(const Request& request) {
  // There usually is room; then what is held is added up only once.
  size_t borders = 1;
  const auto drop = [&](const TenantNames* tenants) {
    return DropKept(KeptStates::kBorder, tenants, borders);
  };
  for (; !HasRoom(NewNeed(request)); borders *= 2) {
    if (WorkedEnough()) return false;
    if (!DropByShare(drop, &request)) return MakeRoomByMore(request);
  }
  return true;
}

// A tenant for which something runs waits for the end of that, before it takes from those that hold
// less. One for which nothing runs takes from all: nothing else would ever make room for it.
bool Scheduler::DropByShare(const std::function<bool(const TenantNames*)>& drop,
                            const Request* request, bool for_tokens) {
  if (!named_tenants_) return drop(nullptr);
  share_is_used_ = false;
  const TenantAmounts held = HeldByTenants(request, for_tokens);
  std::optional<std::string> tenant;
  if (request != nullptr) tenant = NameOfTenant(*request);
  Losers order(held, tenant);
  while (const TenantNames* const losers = order.Next()) {
    if (drop(losers)) return true;
  }
  share_is_used_ = request != nullptr && RunsForTenantOf(*request);
  return !share_is_used_ && drop(nullptr);
}

// What runs counts with what it may come to need, where one asks.
TenantAmounts Scheduler::HeldByTenants(const Request* request, bool for_tokens) const {
  TenantAmounts held;
  sessions_.AddHeld(for_tokens ? &HeldBySessions::tokens : &HeldBySessions::bytes, held);
  if (for_tokens) {
    if (request != nullptr) held[NameOfTenant(*request)] += NewTokens(*request);
    return held;
  }
  prefixes_.cache().AddBytes(held);
  if (request == nullptr) return held;
  for (const auto& active : active_) held[NameOfTenant(active->request())] += active->StateBytes();
  held[NameOfTenant(*request)] += NewNeed(*request).bytes(engine_.capacity());
  return held;
}

bool Scheduler::RunsForTenantOf(const Request& request) const {
  return std::any_of(active_.begin(), active_.end(), [&](const auto& active) {
    return !active->ended() && active->request().tenant == request.tenant;
  });
}

bool Scheduler::WorkedEnough() const {
  return sessions_.work() - work_before_ > kMostWork && AnythingRuns();
}

bool Scheduler::MakeRoomByMore(const Request& request) {
  // Nothing is dropped for a request that would not fit even then.
  share_is_used_ = false;
  if (!CanMakeRoom(NewNeed(request))) return false;
  while (!HasRoom(NewNeed(request))) {
    if (WorkedEnough()) return false;
    const bool had_prefixes = prefixes_.cache().states() > 0;
    if (!DropOne(request)) return false;
    // States of the cache share slots, so that CanMakeRoom has counted some of them twice.
    const bool no_prefixes = prefixes_.cache().states() == 0;
    if (had_prefixes && no_prefixes && !CanMakeRoom(NewNeed(request))) return false;
  }
  return true;
}

// A state of the prefix cache, a kept position or a session, in this order. The first two have no
// tails.
bool Scheduler::DropOne(const Request& request) {
  StateNeed any_tails;
  any_tails.tails = UINT32_MAX;
  const bool tails_alone = HasRoom(NewNeed(request), any_tails);
  const auto drop = [&](const TenantNames* tenants) {
    const bool dropped = !tails_alone && (prefixes_.DropFor(request, tenants) ||
                                          DropKept(KeptStates::kOldestPosition, tenants));
    return dropped || sessions_.EvictLeastRecentlyUsed(tenants);
  };
  const bool for_tokens = Held(NewNeed(request)).tokens > context_.options.max_session_tokens;
  return DropByShare(drop, &request, for_tokens);
}

// A state that others share already, or that is empty, is kept for nothing.
bool Scheduler::MakeRoomToKeep(const Request& request) {
  const SessionLease& lease = request.session;
  if (!lease.held() || !lease.exclusive() || context_.options.keep_positions == 0) return false;
  if (lease.state() == nullptr || request.begins_anew) return true;
  StateNeed need = NewNeed(request);
  need.bases = request.completions;
  const auto drop = [&](const TenantNames* tenants) {
    return DropKept(KeptStates::kBorder, tenants) || prefixes_.DropFor(request, tenants) ||
           DropKept(KeptStates::kOldestPosition, tenants);
  };
  while (!HasRoom(need)) {
    if (!DropByShare(drop, &request)) return false;
  }
  return true;
}

bool Scheduler::DropKept(KeptStates what, const TenantNames* tenants, size_t most) {
  const auto of_these = [tenants](const Request& request) {
    return IsAmong(tenants, NameOfTenant(request));
  };
  size_t dropped = sessions_.DropKept(what, tenants, most);
  for (const auto& active : active_) {
    if (dropped >= most) break;
    if (of_these(active->request())) dropped += active->DropKept(what, most - dropped);
  }
  for (const auto& request : waiting_) {
    if (request == nullptr || !request->session.held()) continue;  // null: admitted in this pass
    if (dropped >= most) break;
    SessionLease& lease = request->session;
    if (lease.exclusive() && of_these(*request)) dropped += lease.DropKept(what, most - dropped);
  }
  (what == KeptStates::kBorder ? metrics_.borders_dropped : metrics_.kept_positions_dropped)
      .Add(dropped);
  return dropped > 0;
}

bool Scheduler::TryAdmit(std::unique_ptr<Request>& request, TimePoint now) {
  if (!MakeRoom(*request)) return false;
  active_.reserve(active_.size() + 1);  // first, so that no request is lost without memory
  const bool keep = MakeRoomToKeep(*request);
  const PrefixCache::Match match = prefixes_.Find(*request);
  PrefixUse prefix = prefixes_.UseOf(*request, match);
  auto session = OpenSession(*request, match, keep);
  share_is_used_ = false;
  if (!session.ok()) return false;
  prefixes_.Note(*request, prefix);
  active_.push_back(std::make_unique<ActiveRequest>(
      context_, std::move(request), *std::move(session), std::move(prefix), ++turn_, now));
  active_.back()->Start(now);
  return true;
}

std::unique_ptr<Session> Scheduler::NewSession(const Request& request,
                                               const PrefixCache::Match& match) const {
  if (match.point == nullptr) return Session::CreateAtRest(engine_.states(), sessions_.ledger());
  const std::span<const uint32_t> prompt(request.prompt);
  return Session::CreateFrom(engine_.states(), sessions_.ledger(), match.point,
                             prompt.first(match.point->position));
}

absl::StatusOr<std::unique_ptr<Session>> Scheduler::OpenSession(Request& request,
                                                                const PrefixCache::Match& match,
                                                                bool keep) {
  SessionLease& lease = request.session;
  if (lease.held() && lease.exclusive()) return OpenTurn(request, match, keep);
  if (lease.held() && lease.state() != nullptr) {
    auto fork = lease.state()->Fork();
    if (fork.ok()) lease.Release();
    return fork;
  }
  std::unique_ptr<Session> session = NewSession(request, match);
  RIVULET_RETURN_IF_ERROR(session->Wake());
  if (lease.held()) lease.Release();
  return session;
}

absl::StatusOr<std::unique_ptr<Session>> Scheduler::OpenTurn(Request& request,
                                                             const PrefixCache::Match& match,
                                                             bool keep) {
  SessionLease& lease = request.session;
  std::unique_ptr<Session> session = lease.TakeState();
  // One that begins anew makes room first.
  const bool is_new = session == nullptr || request.begins_anew;
  if (is_new) session = NewSession(request, match);
  if (keep && is_new) session->KeepStart();
  if (keep && !is_new) session->Keep(context_.options.keep_positions, lease.notes());
  const absl::Status awake = session->Wake();
  if (awake.ok()) return session;
  lease.PutState(std::move(session));
  return awake;
}

}  // namespace rivulet
