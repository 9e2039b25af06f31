// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What sessions that are idle hold together, kept up as they come and go: thousands of forks may
// share their states, and looking through all of them for each request takes a tenth of a second.
//
// Threading: the caller's lock guards it, and the lists that it makes of the points. It takes no
// memory. A session that was added does not change, and lives, until it is removed.
#ifndef RIVULET_SERVER_SESSION_IDLE_POINTS_H_
#define RIVULET_SERVER_SESSION_IDLE_POINTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/session/session.h"

namespace rivulet {

// What idle sessions hold alone.
struct IdleSlots {
  uint64_t bases = 0;
  uint64_t tails = 0;
  std::vector<uint64_t> pages;  // of each kind; those that two points share count twice
};

class IdlePoints {
 public:
  void Add(const Session& session) {
    page_kinds_ = session.page_kinds();
    tails_ += 1 - session.missing_tails();
    session.ForEachPoint([this](const auto& point) { Add(*point); });
  }
  void Remove(const Session& session) {
    tails_ -= 1 - session.missing_tails();
    session.ForEachPoint([this](const auto& point) { Remove(*point); });
  }

  // Takes time for each point once, of which there are no more than bases.
  IdleSlots slots() const {
    IdleSlots slots;
    slots.tails = tails_;
    slots.pages.resize(page_kinds_);
    for (const StatePoint* point = first_; point != nullptr; point = point->idle.next) {
      const bool alone = point->weak_from_this().use_count() == point->idle.holders;
      if (!alone || point->base.shared()) continue;
      ++slots.bases;
      for (size_t kind = 0; kind < point->pages.size(); ++kind) {
        slots.pages[kind] += point->pages[kind].pages();
      }
    }
    return slots;
  }

 private:
  void Add(const StatePoint& point) {
    if (point.idle.holders++ > 0) return;
    point.idle.before = nullptr;
    point.idle.next = first_;
    if (first_ != nullptr) first_->idle.before = &point;
    first_ = &point;
  }
  void Remove(const StatePoint& point) {
    if (--point.idle.holders > 0) return;
    const StatePoint* const before = point.idle.before;
    const StatePoint* const next = point.idle.next;
    (before == nullptr ? first_ : before->idle.next) = next;
    if (next != nullptr) next->idle.before = before;
  }

  const StatePoint* first_ = nullptr;
  uint64_t tails_ = 0;
  size_t page_kinds_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_IDLE_POINTS_H_
