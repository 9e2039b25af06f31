// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How fast requests end while others wait, from which a refused client learns when to come back.
// Not thread-safe.
#ifndef RIVULET_SERVER_SCHEDULER_END_PACE_H_
#define RIVULET_SERVER_SCHEDULER_END_PACE_H_

#include <cmath>
#include <cstdint>
#include <optional>

#include "server/scheduler/plan.h"

namespace rivulet {

// The time that passed over the requests that ended in it, of about the last minute. A mean of the
// times between two ends would be wrong where many requests end together: the one long wait before
// them would count as much as each of them.
class EndPace {
 public:
  // So many requests have ended now. While no request waits, the pace is that of the clients, and
  // the time until the next end does not count.
  void Note(uint64_t ended, TimePoint now, bool others_wait) {
    if (ended == 0) return;
    if (last_end_.has_value()) {
      const double passed = Seconds(now - *last_end_);
      const double kept = std::exp(-passed / kMemorySeconds);
      seconds_ = seconds_ * kept + passed;
      ends_ = ends_ * kept + static_cast<double>(ended);
    }
    last_end_.reset();
    if (others_wait) last_end_ = now;
  }

  // For one request; 0: not known.
  double seconds() const { return ends_ == 0 ? 0 : seconds_ / ends_; }

 private:
  static constexpr double kMemorySeconds = 60;

  std::optional<TimePoint> last_end_;  // after which others waited
  double seconds_ = 0, ends_ = 0;      // older ones count less
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_END_PACE_H_
