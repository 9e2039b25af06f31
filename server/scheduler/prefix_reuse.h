// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How requests use the prefix cache: which state a new context starts from, at which borders its
// own states are kept, and which requests wait for another one to compute what both begin with.
//
// A state is large, so few borders are kept (docs/architecture.md#prefix-cache says why these):
//   - the last one before a prompt's last token, where the same prompt, or a longer one, starts;
//   - the last one of a turn;
//   - where a prompt leaves what contexts before it began with, beyond the last state on the way;
//   - 1024, 2048, 4096, ... tokens into a prompt.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_SCHEDULER_PREFIX_REUSE_H_
#define RIVULET_SERVER_SCHEDULER_PREFIX_REUSE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/state_pool.h"
#include "server/metrics/metrics.h"
#include "server/scheduler/request.h"
#include "server/session/prefix_cache.h"
#include "server/session/session.h"

namespace rivulet {

// The first border of the series in a long prompt; each is twice as far as the one before it.
inline constexpr uint64_t kFirstOfSeries = 1024;

// What a request makes of the cache, as it is admitted.
struct PrefixUse {
  bool keeps = false;      // states of its prompt are kept
  bool keeps_end = false;  // and the one at the end of its turn
  bool begins = false;     // its prompt begins a context
  uint64_t reused = 0;     // tokens of its prompt that its session holds before it starts
  uint64_t known = 0;      // of its prompt, whole chunks, that contexts before it began with
  PrefixMiss miss = PrefixMiss::kOff;
  std::set<uint64_t> cuts;  // positions where a piece of its prompt ends, since they are kept
  uint64_t end_border = 0;  // the last one before its prompt's last token
  std::shared_ptr<PrefillProgress> progress = std::make_shared<PrefillProgress>();
};

// A state on its way into the cache.
struct LeftState {
  std::string salt;
  std::vector<uint32_t> tokens;
  std::shared_ptr<StatePoint> point;
};

class PrefixReuse {
 public:
  // Both outlive it.
  PrefixReuse(const StateCapacity& capacity, PrefixCache::Limits limits, Metrics& metrics)
      : capacity_(capacity), cache_(capacity, limits, metrics), metrics_(metrics) {}

  // The state that a request would start from, and what is known of its prompt. Nothing for one
  // that goes on in its session, or that has to compute its whole prompt.
  PrefixCache::Match Find(const Request& request) const;
  // What a request makes of what was found when it is admitted, before its session is opened.
  PrefixUse UseOf(const Request& request, const PrefixCache::Match& match) const;
  // It was admitted: counts that, and remembers its prompt.
  void Note(const Request& request, const PrefixUse& use);

  // Into the cache. Their slots may have to be dropped again.
  void Keep(std::vector<LeftState> states);
  // As PrefixCache::Drop; the state that `request` would start from goes last.
  bool DropFor(const Request& request, const TenantNames* tenants);
  bool Drop(const TenantNames* tenants) { return cache_.Drop(nullptr, tenants); }
  void Forget(std::string_view tenant) { cache_.Forget(tenant); }
  void Clear() { cache_.Clear(); }
  const PrefixCache& cache() const { return cache_; }

  // Whether a request starts a context, in a session or not.
  static bool BeginsContext(const Request& request);
  // Whether one that does may start from a kept state.
  bool MayReuse(const Request& request) const;
  // The last border that a prompt of so many tokens can start from: one token has to be left.
  uint64_t LastBorder(uint64_t tokens) const;

 private:
  PrefixMiss MissOf(const Request& request, const PrefixCache::Match& match) const;
  std::set<uint64_t> Cuts(const Request& request, const PrefixUse& use,
                          const Session* continued) const;

  const StateCapacity& capacity_;
  PrefixCache cache_;
  Metrics& metrics_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_PREFIX_REUSE_H_
