// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/configurations.h"

#include <algorithm>
#include <iterator>

namespace rivulet {
namespace {

constexpr size_t kBytesOfState = 256;
constexpr size_t kBytesOfSteps = 256 * sizeof(const void*);
constexpr size_t kBytesOfStack = 128;

uint32_t DepthOf(const CallStack* stack) { return stack == nullptr ? 0 : stack->depth; }

// The same in each process.
uint64_t HashOf(const CallStack* below, uint32_t next) {
  uint64_t x = (below == nullptr ? 0 : below->hash) + 0x9E3779B97F4A7C15 * (uint64_t{next} + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

Configurations::Configurations(const Automaton& automaton, size_t most_bytes)
    : automaton_(automaton), most_bytes_(most_bytes) {}

Configurations::StatePointer Configurations::Start() {
  Add({automaton_.start, nullptr});
  return Intern(Close())->shared_from_this();
}

const Configurations::State& Configurations::Known(const State& state) {
  return *Intern(state.shared_from_this());
}

// Of a state with many configurations most bytes lead nowhere, which need not be found for each.
void Configurations::Open(const State& state) {
  ByteSet takes;
  for (const Configuration& at : state.configurations) {
    const std::vector<Automaton::Edge>& edges = automaton_.nodes[at.node].edges;
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
  for (auto at = state.configurations.rbegin(); at != state.configurations.rend(); ++at) {
    for (const Automaton::Edge& edge : automaton_.nodes[at->node].edges) {
      const bool takes = edge.bytes[byte];
      alike &= takes ? edge.bytes : ~edge.bytes;
      if (takes) Add({edge.target, at->stack});
    }
  }
  const std::shared_ptr<State> found = Close();
  const bool dead = found->configurations.empty() && !found->may_end;
  const State* const next = dead ? nullptr : Intern(found);
  for (size_t other = 0; other < 256; ++other) {
    if (alike[other]) state.next[other] = next;
  }
  return next;
}

Configurations::Stride Configurations::StrideFrom(const State& state) {
  if (state.generation != generation_) Open(state);
  if (!state.stride.has_value()) state.stride = FindStride(state);
  return *state.stride;
}

Configurations::Stride Configurations::FindStride(const State& state) {
  Stride best;
  std::vector<Stride> all;
  for (uint32_t byte = 0; byte < kBytesOfAscii; ++byte) {
    const State* const to = Advance(state, static_cast<uint8_t>(byte));
    if (to == nullptr) continue;
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
    if (next == nullptr) return false;
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
    stack = std::make_shared<const CallStack>(
        CallStack{below, next, DepthOf(below.get()) + 1, HashOf(below.get(), next)});
    bytes_ += kBytesOfStack;
  }
  return stack;
}

Configurations::ConfigurationKey Configurations::KeyOf(const Configuration& at) {
  return {at.node, at.stack == nullptr ? 0 : at.stack->hash};
}

std::vector<Configurations::ConfigurationKey> Configurations::KeyOf(const State& state) {
  std::vector<ConfigurationKey> key;
  for (const Configuration& at : state.configurations) key.push_back(KeyOf(at));
  // Otherwise the last state of a text and one that cannot go on would be the same.
  if (state.may_end) key.emplace_back(UINT32_MAX, 0);
  return key;
}

// Leaves out what could only be completed by calls that are too deep.
void Configurations::Add(Configuration at) {
  ++work_;
  if (DepthOf(at.stack.get()) + automaton_.nodes[at.node].needs > Automaton::kDeepest) return;
  if (seen_.insert(KeyOf(at)).second) pending_.push_back(std::move(at));
}

// What a text that is here may be in without another byte.
void Configurations::Follow(const Configuration& at, State& state) {
  const Automaton::Node& node = automaton_.nodes[at.node];
  work_ += 1 + node.calls.size();
  if (!node.edges.empty()) state.configurations.push_back(at);
  state.edges += node.edges.size();
  if (node.ends && at.stack == nullptr) state.may_end = true;
  if (node.ends && at.stack != nullptr) Add({at.stack->next, at.stack->below});
  for (auto call = node.calls.rbegin(); call != node.calls.rend(); ++call) {
    const uint32_t needs = automaton_.nodes[call->next].needs;
    if (DepthOf(at.stack.get()) + needs > Automaton::kDeepest) continue;
    Add({call->start, Push(at.stack, call->next)});
  }
}

// Follows calls and ends of rules from the configurations that were added, each of them as far as
// it goes before the next. If they are too many, the first ones are enough.
std::shared_ptr<Configurations::State> Configurations::Close() {
  auto state = std::make_shared<State>();
  while (!pending_.empty()) {
    const bool many = work_ > kMostWork || state->edges >= kMostEdges ||
                      state->configurations.size() >= kMostConfigurations;
    const bool some = state->may_end || !state->configurations.empty();
    state->narrowed = many && some;
    if (state->narrowed) break;
    const Configuration at = std::move(pending_.back());
    pending_.pop_back();
    Follow(at, *state);
  }
  std::sort(state->configurations.begin(), state->configurations.end(),
            [](const auto& a, const auto& b) { return KeyOf(a) < KeyOf(b); });
  pending_.clear();
  seen_.clear();
  work_ = 0;
  return state;
}

const Configurations::State* Configurations::Intern(StatePointer state) {
  std::vector<ConfigurationKey> key = KeyOf(*state);
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
