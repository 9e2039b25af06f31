// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/configurations.h"

#include <algorithm>
#include <iterator>

namespace rivulet {
namespace {

constexpr size_t kBytesOfState = 256;
constexpr size_t kBytesOfSteps = 256 * sizeof(const void*);
constexpr size_t kBytesOfStack = 128;

}  // namespace

Configurations::Configurations(const Automaton& automaton, size_t most_bytes)
    : automaton_(automaton), most_bytes_(most_bytes) {}

Configurations::StatePointer Configurations::Start() {
  Add({automaton_.start, nullptr});
  const std::shared_ptr<State> state = Close();
  return state->too_ambiguous ? state : Intern(state)->shared_from_this();
}

// Of a state with many configurations most bytes lead nowhere, which need not be found for each.
void Configurations::Open(const State& state) {
  ByteSet takes;
  for (const Configuration& at : state.configurations) {
    const std::vector<Automaton::Edge>& edges = automaton_.nodes[at.node].edges;
    (void)Spend(1 + edges.size());
    for (const Automaton::Edge& edge : edges) takes |= edge.bytes;
  }
  state.next.assign(256, nullptr);
  for (size_t byte = 0; byte < 256; ++byte) {
    if (takes[byte]) state.next[byte] = &unknown_;
  }
  state.stride.reset();
  bytes_ += kBytesOfSteps;
  state.generation = generation_;
}

// Bytes that the same edges take lead to the same state, so it is found for all of them.
const Configurations::State* Configurations::FindNext(const State& state, uint8_t byte) {
  ByteSet alike = ByteSet().set();
  for (const Configuration& at : state.configurations) {
    const std::vector<Automaton::Edge>& edges = automaton_.nodes[at.node].edges;
    if (!Spend(1 + edges.size())) break;
    for (const Automaton::Edge& edge : edges) {
      const bool takes = edge.bytes[byte];
      alike &= takes ? edge.bytes : ~edge.bytes;
      if (takes) Add({edge.target, at.stack});
    }
  }
  const std::shared_ptr<State> found = Close();
  if (found->too_ambiguous) {
    unfinished_ = found;
    return found.get();
  }
  const bool dead = found->configurations.empty() && !found->may_end;
  const State* const next = dead ? nullptr : Intern(found);
  for (size_t other = 0; other < 256; ++other) {
    if (alike[other]) state.next[other] = next;
  }
  return next;
}

Configurations::Stride Configurations::StrideFrom(const State& state) {
  if (state.generation != generation_) Open(state);
  if (!state.stride.has_value()) {
    const Stride found = FindStride(state);
    if (exhausted()) return {};
    state.stride = found;
  }
  return *state.stride;
}

Configurations::Stride Configurations::FindStride(const State& state) {
  Stride best;
  std::vector<Stride> all;
  for (uint32_t byte = 0; byte < kBytesOfAscii; ++byte) {
    const State* const to = Advance(state, static_cast<uint8_t>(byte));
    if (to == nullptr) continue;
    if (to->too_ambiguous) return {};
    auto same = std::find_if(all.begin(), all.end(), [&](const Stride& s) { return s.to == to; });
    if (same == all.end()) same = all.insert(all.end(), {.characters = {}, .to = to});
    same->characters.ascii.set(byte);
    if (same->characters.ascii.count() > best.characters.ascii.count()) best = *same;
  }
  if (best.to == nullptr) return best;
  best.characters.others = std::all_of(
      std::begin(kLongCharacters), std::end(kLongCharacters),
      [&](const LongCharacters& some) { return AllLeadTo(*best.to, state, some.bytes()); });
  return best;
}

// Whether all texts of one byte of each range lead to `to`.
bool Configurations::AllLeadTo(const State& to, const State& from,
                               std::span<const ByteRange> ranges) {
  const State* last = nullptr;  // that was looked at
  for (uint32_t byte = ranges[0].first; byte <= ranges[0].last; ++byte) {
    const State* const next = Advance(from, static_cast<uint8_t>(byte));
    if (next == nullptr || next->too_ambiguous) return false;
    if (next == last) continue;
    last = next;
    const bool leads = ranges.size() == 1 ? next == &to : AllLeadTo(to, *next, ranges.subspan(1));
    if (!leads) return false;
  }
  return true;
}

std::shared_ptr<const CallStack> Configurations::Push(const std::shared_ptr<const CallStack>& below,
                                                      uint32_t next) {
  if (automaton_.nodes[next].only_ends()) return below;
  std::shared_ptr<const CallStack>& stack = stacks_[{below.get(), next}];
  if (stack == nullptr) {
    const uint32_t depth = below == nullptr ? 1 : below->depth + 1;
    stack = std::make_shared<const CallStack>(CallStack{below, next, depth});
    bytes_ += kBytesOfStack;
  }
  return stack;
}

void Configurations::Add(Configuration at) {
  if (!seen_.insert({at.node, at.stack.get()}).second) return;
  pending_.push_back(std::move(at));
  if (pending_.size() > kMostConfigurations) budget_ = 0;
}

// False, with nothing left, if it is more than is left.
bool Configurations::Spend(uint64_t work) {
  budget_ -= std::min(work, budget_);
  return budget_ > 0;
}

// Follows calls and ends of rules from the configurations that were added.
std::shared_ptr<Configurations::State> Configurations::Close() {
  auto state = std::make_shared<State>();
  for (size_t i = 0; i < pending_.size() && !exhausted(); ++i) {
    const Configuration at = pending_[i];
    const Automaton::Node& node = automaton_.nodes[at.node];
    if (!Spend(2 + node.calls.size())) break;
    if (node.ends && at.stack == nullptr) state->may_end = true;
    if (node.ends && at.stack != nullptr) Add({at.stack->next, at.stack->below});
    for (const Automaton::Call& call : node.calls) {
      std::shared_ptr<const CallStack> stack = Push(at.stack, call.next);
      if (stack == nullptr || stack->depth <= kDeepest) Add({call.start, std::move(stack)});
    }
    if (!node.edges.empty()) state->configurations.push_back(at);
  }
  state->too_ambiguous = exhausted();
  pending_.clear();
  seen_.clear();
  return state;
}

const Configurations::State* Configurations::Intern(std::shared_ptr<State> state) {
  std::vector<ConfigurationKey> key;
  for (const Configuration& at : state->configurations) key.emplace_back(at.node, at.stack.get());
  std::sort(key.begin(), key.end());
  // Otherwise the last state of a text and one that cannot go on would be the same.
  if (state->may_end) key.emplace_back(UINT32_MAX, nullptr);
  const size_t bytes =
      kBytesOfState + key.size() * (sizeof(ConfigurationKey) + sizeof(Configuration));
  const auto [entry, is_new] = states_.try_emplace(std::move(key), std::move(state));
  if (is_new) bytes_ += bytes;
  return entry->second.get();
}

void Configurations::ForgetIfLarge() {
  if (bytes_ <= most_bytes_) return;
  ++generation_;
  states_.clear();
  stacks_.clear();
  bytes_ = 0;
}

}  // namespace rivulet
