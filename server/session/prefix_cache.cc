// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/prefix_cache.h"

#include <algorithm>
#include <iterator>

#include "kernels/base/check.h"

namespace rivulet {

PrefixCache::PrefixCache(const StateCapacity& capacity, Limits limits, Metrics& metrics)
    : capacity_(capacity), limits_(limits), metrics_(metrics) {}

std::span<const uint32_t> PrefixCache::WholeChunks(std::span<const uint32_t> tokens) const {
  return tokens.first(tokens.size() - tokens.size() % capacity_.fold_interval);
}

// Tokens of the whole chunks that both begin with.
size_t PrefixCache::CommonChunks(std::span<const uint32_t> a, std::span<const uint32_t> b) const {
  const auto common = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return WholeChunks(a.first(static_cast<size_t>(common - a.begin()))).size();
}

PrefixCache::Match PrefixCache::Find(std::string_view salt,
                                     std::span<const uint32_t> tokens) const {
  Match match;
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return match;
  const Node* node = &root->second;
  tokens = WholeChunks(tokens);
  while (!tokens.empty()) {
    const auto child = node->children.find(tokens);
    if (child == node->children.end()) break;
    node = *child;
    const size_t common = CommonChunks(node->tokens, tokens);
    match.known += common;
    if (common < node->tokens.size()) break;
    if (node->point != nullptr) match.point = node->point;
    tokens = tokens.subspan(common);
  }
  return match;
}

void PrefixCache::CountUse(std::string_view salt, std::span<const uint32_t> tokens) {
  Node* const node = NodeAt(salt, tokens);
  if (node->point == nullptr) return;
  ++node->uses;
  node->since = worth_gone_;
  SetWorth(node);
  Touch(node);
}

void PrefixCache::Remember(std::string_view salt, std::span<const uint32_t> tokens) {
  tokens = WholeChunks(tokens);
  if (!on() || tokens.empty() || tokens.size() > limits_.tokens / 4) return;
  Touch(NodeAt(salt, tokens));
  LimitTokens();
}

void PrefixCache::Keep(std::string_view salt, std::span<const uint32_t> tokens,
                       std::shared_ptr<StatePoint> point) {
  RIVULET_CHECK(!tokens.empty() && tokens.size() == point->position, "keeps another state");
  if (!on() || tokens.size() > limits_.tokens / 4) return;
  Node* const node = NodeAt(salt, tokens);
  Touch(node);
  if (node->point != nullptr) return;
  node->point = std::move(point);
  node->uses = 1;
  node->since = worth_gone_;
  SetWorth(node);
  SetWorthBelow(node);
  LimitBytes();
  LimitTokens();
}

bool PrefixCache::Drop(const StatePoint* spared, const TenantNames* tenants) {
  Node* least = nullptr;
  Node* last = nullptr;
  for (const auto& [tenant, part] : parts_) {
    if (!IsAmong(tenants, tenant)) continue;
    for (const auto& [worth, node] : part.by_worth) {
      const bool is_spared = node->point.get() == spared;
      if (is_spared) {
        last = node;
      } else if (least == nullptr || worth < least->worth) {
        least = node;
      }
      if (!is_spared) break;
    }
  }
  if (least == nullptr) least = last;
  if (least == nullptr) return false;
  DropState(least, PrefixDrop::kSlots);
  return true;
}

void PrefixCache::Forget(std::string_view tenant) {
  const auto found = parts_.find(tenant);
  if (found == parts_.end()) return;
  Part& part = found->second;
  states_ -= part.by_worth.size();
  bytes_ -= part.bytes;
  tokens_ -= part.tokens;
  std::erase_if(roots_, [&](const auto& root) { return root.second.part == &part; });
  parts_.erase(found);
  ShowGauges();
}

void PrefixCache::Clear() {
  parts_.clear();
  roots_.clear();
  tokens_ = bytes_ = 0;
  states_ = 0;
  ShowGauges();
}

void PrefixCache::AddBytes(TenantAmounts& amounts) const {
  for (const auto& [tenant, part] : parts_) amounts[tenant] += part.bytes;
}

void PrefixCache::AddTokens(Part& part, uint64_t tokens) {
  part.tokens += tokens;
  tokens_ += tokens;
}

void PrefixCache::TakeTokens(Part& part, uint64_t tokens) {
  part.tokens -= tokens;
  tokens_ -= tokens;
}

PrefixCache::Node* PrefixCache::Root(std::string_view salt) {
  const auto found = roots_.find(salt);
  if (found != roots_.end()) return &found->second;
  Part& part = parts_[std::string(TenantOfSalt(salt))];
  Node& root = roots_.try_emplace(std::string(salt), capacity_.fold_interval).first->second;
  root.part = &part;
  root.salt = salt;
  ++part.roots;
  AddTokens(part, kNodeTokens);
  return &root;
}

// The node after `tokens`, which are whole chunks; it and its tokens are added where they lack.
PrefixCache::Node* PrefixCache::NodeAt(std::string_view salt, std::span<const uint32_t> tokens) {
  Node* node = Root(salt);
  while (!tokens.empty()) {
    const auto found = node->children.find(tokens);
    if (found == node->children.end()) return AddChild(node, tokens);
    node = *found;
    const size_t common = CommonChunks(node->tokens, tokens);
    if (common < node->tokens.size()) node = Split(node, common);
    tokens = tokens.subspan(common);
  }
  return node;
}

PrefixCache::Node* PrefixCache::AddChild(Node* parent, std::span<const uint32_t> tokens) {
  std::list<Node>& nodes = parent->part->nodes;
  Node& node = nodes.emplace_back(capacity_.fold_interval);
  node.part = parent->part;
  node.place = std::prev(nodes.end());
  node.parent = parent;
  node.tokens.assign(tokens.begin(), tokens.end());
  node.position = parent->position + tokens.size();
  parent->children.insert(&node);
  AddTokens(*node.part, kNodeTokens + tokens.size());
  return &node;
}

// The new node at the first `tokens` tokens of the edge to `node`.
PrefixCache::Node* PrefixCache::Split(Node* node, size_t tokens) {
  Node* const parent = node->parent;
  parent->children.erase(node);
  const auto middle = node->tokens.begin() + static_cast<ptrdiff_t>(tokens);
  Node* const upper = AddChild(parent, std::span(node->tokens).first(tokens));
  node->tokens = std::vector<uint32_t>(middle, node->tokens.end());
  node->parent = upper;
  upper->children.insert(node);
  TakeTokens(*node->part, tokens);
  std::list<Node>& nodes = node->part->nodes;
  nodes.splice(std::next(node->place), nodes, upper->place);
  upper->touched = node->touched;
  return upper;
}

// The node and those before it are the most recently used ones.
void PrefixCache::Touch(Node* node) {
  std::list<Node>& nodes = node->part->nodes;
  ++uses_;
  for (; node->parent != nullptr; node = node->parent) {
    nodes.splice(nodes.end(), nodes, node->place);
    node->touched = uses_;
  }
}

void PrefixCache::Erase(Node* leaf) {
  if (leaf->point != nullptr) DropState(leaf, PrefixDrop::kTokens);
  Node* const parent = leaf->parent;
  Part& part = *leaf->part;
  parent->children.erase(leaf);
  TakeTokens(part, kNodeTokens + leaf->tokens.size());
  part.nodes.erase(leaf->place);
  if (parent->parent != nullptr || !parent->children.empty()) return;
  TakeTokens(part, kNodeTokens);
  const auto root = roots_.find(parent->salt);
  if (--part.roots == 0) parts_.erase(parts_.find(TenantOfSalt(root->first)));
  roots_.erase(root);
}

// The tenant with the most, and of several the one that is first in order. Those whose amount is 0
// have none to lose. Null if there is none.
template <typename Amount, typename Order>
PrefixCache::Part* PrefixCache::NextToLose(Amount amount, Order order) {
  Part* next = nullptr;
  for (auto& [tenant, part] : parts_) {
    if (amount(part) == 0 || (next != nullptr && amount(part) < amount(*next))) continue;
    const bool more = next == nullptr || amount(part) > amount(*next);
    if (more || order(part) < order(*next)) next = &part;
  }
  return next;
}

void PrefixCache::LimitBytes() {
  while (bytes_ > limits_.bytes) {
    Part* const part = NextToLose([](const Part& part) { return part.bytes; },
                                  [](const Part& part) { return part.by_worth.begin()->first; });
    DropState(part->by_worth.begin()->second, PrefixDrop::kSize);
  }
}

void PrefixCache::LimitTokens() {
  while (tokens_ > limits_.tokens) {
    Part* const part =
        NextToLose([](const Part& part) { return part.nodes.empty() ? 0 : part.tokens; },
                   [](const Part& part) { return part.nodes.front().touched; });
    if (part == nullptr) break;
    Erase(&part->nodes.front());
  }
  ShowGauges();
}

// Of the slots that `before` does not hold.
uint64_t PrefixCache::BytesBeside(const StatePoint& point, const StatePoint* before) const {
  uint64_t bytes = capacity_.base_bytes;
  for (size_t kind = 0; kind < point.pages.size(); ++kind) {
    const PageTable& pages = point.pages[kind];
    const size_t shared = before == nullptr ? 0 : pages.SharedWith(before->pages[kind]);
    bytes += (pages.pages() - shared) * capacity_.pages[kind].page_bytes;
  }
  return bytes;
}

void PrefixCache::SetWorth(Node* node) {
  const Node* before = node->parent;
  while (before != nullptr && before->point == nullptr) before = before->parent;
  Part& part = *node->part;
  states_ -= part.by_worth.erase({node->worth, node});
  SetBytes(node, BytesBeside(*node->point, before == nullptr ? nullptr : before->point.get()));
  const uint64_t saved = node->position - (before == nullptr ? 0 : before->position);
  // Of softmax attention alone, a state may take nothing beside the one before it.
  const auto bytes = static_cast<double>(std::max<uint64_t>(1, node->bytes));
  node->worth = node->since + static_cast<double>(node->uses) * static_cast<double>(saved) / bytes;
  states_ += part.by_worth.insert({node->worth, node}).second ? 1 : 0;
}

void PrefixCache::SetBytes(Node* node, uint64_t bytes) {
  bytes_ += bytes - node->bytes;
  node->part->bytes += bytes - node->bytes;
  node->bytes = bytes;
}

// Of the next states below, which depend on whether this node holds one.
void PrefixCache::SetWorthBelow(Node* node) {
  std::vector<Node*> below(node->children.begin(), node->children.end());
  while (!below.empty()) {
    Node* const next = below.back();
    below.pop_back();
    if (next->point != nullptr) {
      SetWorth(next);
    } else {
      below.insert(below.end(), next->children.begin(), next->children.end());
    }
  }
}

void PrefixCache::DropState(Node* node, PrefixDrop why) {
  states_ -= node->part->by_worth.erase({node->worth, node});
  SetBytes(node, 0);
  // What goes with its tokens need not be the least worth.
  if (why != PrefixDrop::kTokens) worth_gone_ = std::max(worth_gone_, node->worth);
  node->point = nullptr;
  SetWorthBelow(node);
  metrics_.CountPrefixDrop(why);
  ShowGauges();
}

void PrefixCache::ShowGauges() {
  metrics_.prefix_states.Set(static_cast<int64_t>(states()));
  metrics_.prefix_bytes.Set(static_cast<int64_t>(bytes_));
  metrics_.prefix_tokens.Set(static_cast<int64_t>(tokens_));
}

}  // namespace rivulet
