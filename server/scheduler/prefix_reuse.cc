// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/prefix_reuse.h"

#include <algorithm>
#include <span>
#include <utility>

namespace rivulet {

bool PrefixReuse::BeginsContext(const Request& request) {
  const SessionLease& lease = request.session;
  return !lease.held() || lease.state() == nullptr || request.begins_anew;
}

bool PrefixReuse::MayReuse(const Request& request) const {
  return cache_.on() && !request.score_prompt && BeginsContext(request);
}

uint64_t PrefixReuse::LastBorder(uint64_t tokens) const {
  return tokens == 0 ? 0 : (tokens - 1) / capacity_.fold_interval * capacity_.fold_interval;
}

PrefixCache::Match PrefixReuse::Find(const Request& request) const {
  if (!MayReuse(request)) return {};
  const std::span<const uint32_t> prompt(request.prompt);
  return cache_.Find(request.cache_salt, prompt.first(LastBorder(prompt.size())));
}

// A turn that continues its session may be rewritten by its template later if it was sent as
// messages: then its states are what the session can begin anew from.
PrefixUse PrefixReuse::UseOf(const Request& request, const PrefixCache::Match& match) const {
  PrefixUse use;
  use.miss = MissOf(request, match);
  use.reused = match.point == nullptr ? 0 : match.point->position;
  use.known = match.known;
  const Session* const continued = BeginsContext(request) ? nullptr : request.session.state();
  const bool messages = request.notes != nullptr;
  use.begins = continued == nullptr;
  if (!cache_.on() || request.kind != RequestKind::kGenerate) return use;
  if (continued != nullptr && !messages) return use;
  use.keeps = true;
  use.keeps_end = messages || !request.session.held();
  const uint64_t before = continued == nullptr ? 0 : continued->tokens().size();
  use.end_border = LastBorder(before + request.prompt.size());
  use.cuts = Cuts(request, use, continued);
  return use;
}

PrefixMiss PrefixReuse::MissOf(const Request& request, const PrefixCache::Match& match) const {
  if (!cache_.on()) return PrefixMiss::kOff;
  if (!BeginsContext(request)) return PrefixMiss::kContinues;
  if (request.score_prompt) return PrefixMiss::kPromptLogprobs;
  if (match.point != nullptr) return PrefixMiss::kNone;
  if (LastBorder(request.prompt.size()) == 0) return PrefixMiss::kShort;
  return match.known == 0 ? PrefixMiss::kUnknown : PrefixMiss::kNotKept;
}

void PrefixReuse::Note(const Request& request, const PrefixUse& use) {
  const std::span<const uint32_t> prompt(request.prompt);
  if (use.miss == PrefixMiss::kNone) {
    metrics_.prefix_hits.Add();
    metrics_.prefix_tokens_reused.Add(use.reused);
    cache_.CountUse(request.cache_salt, prompt.first(use.reused));
  } else {
    metrics_.CountPrefixMiss(use.miss);
  }
  if (use.keeps && use.begins) cache_.Remember(request.cache_salt, prompt);
}

// A prompt's last step ends behind end_border without a cut, unless it ends at a border itself.
std::set<uint64_t> PrefixReuse::Cuts(const Request& request, const PrefixUse& use,
                                     const Session* continued) const {
  std::set<uint64_t> cuts;
  const uint64_t before = continued == nullptr ? 0 : continued->tokens().size();
  const bool holds_back_last = request.completions > 1 || request.max_tokens == 0;
  const uint64_t next_border = use.end_border + capacity_.fold_interval;
  if (!holds_back_last && before + request.prompt.size() == next_border) {
    cuts.insert(use.end_border);
  }
  if (continued == nullptr) {
    cuts.insert(use.known);
    for (uint64_t cut = kFirstOfSeries; cut < use.end_border; cut *= 2) cuts.insert(cut);
  }
  const uint64_t held = continued == nullptr ? use.reused : continued->position();
  std::erase_if(cuts, [&](uint64_t cut) { return cut <= held; });
  return cuts;
}

void PrefixReuse::Keep(std::vector<LeftState> states) {
  for (LeftState& state : states) {
    cache_.Keep(state.salt, state.tokens, std::move(state.point));
  }
}

bool PrefixReuse::DropFor(const Request& request, const TenantNames* tenants) {
  return cache_.Drop(Find(request).point.get(), tenants);
}

}  // namespace rivulet
