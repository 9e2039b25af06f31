// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/configurations.h"

#include <algorithm>

namespace rivulet {
namespace {

constexpr size_t kBytesOfState = 256;
constexpr size_t kBytesOfSteps = 256 * sizeof(std::optional<const void*>);
constexpr size_t kBytesOfStack = 128;

}  // namespace

Configurations::Configurations(const Automaton& automaton, size_t most_bytes)
    : automaton_(automaton), most_bytes_(most_bytes) {}

Configurations::StatePointer Configurations::Start() {
  Add({automaton_.start, nullptr});
  const std::shared_ptr<State> state = Close();
  return state->too_ambiguous ? state : Intern(state)->shared_from_this();
}

const Configurations::State* Configurations::Advance(const State& state, uint8_t byte) {
  if (state.generation != generation_) {
    state.next.assign(256, std::nullopt);
    FindBytes(state);
    bytes_ += kBytesOfSteps;
    state.generation = generation_;
  }
  if (!state.takes[byte]) return nullptr;
  std::optional<const State*>& known = state.next[byte];
  if (known.has_value()) return *known;
  for (const Configuration& at : state.configurations) {
    const std::vector<Automaton::Edge>& edges = automaton_.nodes[at.node].edges;
    if (!Spend(1 + edges.size())) break;
    for (const Automaton::Edge& edge : edges) {
      if (edge.bytes[byte]) Add({edge.target, at.stack});
    }
  }
  const std::shared_ptr<State> next = Close();
  if (next->too_ambiguous) {
    unfinished_ = next;
    return next.get();
  }
  known = next->configurations.empty() && !next->may_end ? nullptr : Intern(next);
  return *known;
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

// Of a state with many configurations most bytes lead nowhere, which need not be found for each.
void Configurations::FindBytes(const State& state) {
  for (const Configuration& at : state.configurations) {
    const std::vector<Automaton::Edge>& edges = automaton_.nodes[at.node].edges;
    (void)Spend(1 + edges.size());
    for (const Automaton::Edge& edge : edges) state.takes |= edge.bytes;
  }
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
