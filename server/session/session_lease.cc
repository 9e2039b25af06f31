// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "kernels/base/check.h"
#include "server/session/session_entry.h"
#include "server/session/session_table.h"

namespace rivulet {

SessionLease& SessionLease::operator=(SessionLease&& other) noexcept {
  std::swap(table_, other.table_);
  std::swap(entry_, other.entry_);
  std::swap(exclusive_, other.exclusive_);
  return *this;
}

SessionKey SessionLease::key() const { return entry_->key(); }

uint64_t SessionLease::tokens() const {
  MutexLock lock(&table_->mutex_);
  return entry_->tokens;
}

std::vector<uint32_t> SessionLease::CopyTokens(uint64_t first) const {
  MutexLock lock(&table_->mutex_);
  if (entry_->state == nullptr || first >= entry_->state->tokens().size()) return {};
  const TokenSequence& tokens = entry_->state->tokens();
  std::vector<uint32_t> copy;
  tokens.CopyTo(first, tokens.size() - first, copy);
  return copy;
}

std::shared_ptr<const SessionNotes> SessionLease::notes() const {
  MutexLock lock(&table_->mutex_);
  return entry_->notes;
}

void SessionLease::SetNotes(std::shared_ptr<const SessionNotes> notes) {
  RIVULET_CHECK(exclusive_, "changes notes that others may read");
  MutexLock lock(&table_->mutex_);
  table_->SetNotes(*entry_, std::move(notes));
}

const Session* SessionLease::state() const { return entry_->state.get(); }

bool SessionLease::alone() const {
  MutexLock lock(&table_->mutex_);
  return entry_->readers == (exclusive_ ? 0u : 1u);
}

bool SessionLease::lost() const {
  MutexLock lock(&table_->mutex_);
  return !entry_->in_table;
}

std::unique_ptr<Session> SessionLease::TakeState() {
  RIVULET_CHECK(exclusive_, "takes a state without the right to change it");
  MutexLock lock(&table_->mutex_);
  RIVULET_CHECK(entry_->readers == 0, "takes a state that others read");
  if (entry_->state != nullptr) --table_->states_;
  std::unique_ptr<Session> state = std::move(entry_->state);
  table_->CountHeld(*entry_);
  return state;
}

void SessionLease::PutState(std::unique_ptr<Session> state) {
  RIVULET_CHECK(exclusive_ && state != nullptr, "gives back a state that it cannot have");
  if (!state->resting()) state->Rest();
  MutexLock lock(&table_->mutex_);
  RIVULET_CHECK(entry_->state == nullptr, "the state was not taken");
  table_->SetState(*entry_, std::move(state));
}

size_t SessionLease::DropKept(KeptStates what, size_t most) {
  RIVULET_CHECK(exclusive_, "changes a session that others may read");
  MutexLock lock(&table_->mutex_);
  return table_->DropKeptOf(*entry_, what, most);
}

void SessionLease::Drop() {
  RIVULET_CHECK(exclusive_, "drops a session that others may use");
  std::unique_ptr<Session> state;  // destroyed without the lock
  {
    MutexLock lock(&table_->mutex_);
    state = table_->Remove(entry_, SessionTable::Reason::kFailed);
  }
  Release();
}

void SessionLease::Release() {
  if (entry_ == nullptr) return;
  if (table_->EndLease(*entry_, exclusive_) && table_->on_reap_) table_->on_reap_();
  entry_ = nullptr;
}

}  // namespace rivulet
