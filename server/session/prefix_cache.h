// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// States that contexts have left behind, found by the tokens that led to them, so that a new
// context with the same beginning starts there.
//
// A tree of token ids, with one root for each salt. An edge holds the ids of whole chunks, so nodes
// are at chunk borders. A node may hold the state there, a StatePoint. Nodes without one remember
// what contexts began with, which shows where two of them part. Ids are compared themselves, never
// a hash of them. There is one cache for one engine, so one model and one dtype.
//
//   root ── 48 tokens ──► ● ── 4096 ──► ●
//                         └─── 32 ────► ○ ── 16 ──► ●      ● state   ○ tokens alone
//
// What a state is worth is tokens x uses / byte: the tokens that are computed again without it
// (those since the next state before it), how often a context started there, and the slots that it
// holds beside those of that state. The least worth goes first. As in GDSF, that of the last one
// that went is added to every later use, so that what is no longer used goes in the end. Tokens are
// forgotten by their last use. Where several tenants have some, those of the tenant with the most
// go first (tenant_shares.h).
//
// It decides when states go only where its limits say so; the scheduler asks for more (Drop).
//
// Threading: engine thread only, destruction included. The StatePool must outlive it.
#ifndef RIVULET_SERVER_SESSION_PREFIX_CACHE_H_
#define RIVULET_SERVER_SESSION_PREFIX_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/engine/state_pool.h"
#include "server/metrics/metrics.h"
#include "server/session/session.h"
#include "server/session/tenant_shares.h"

namespace rivulet {

class PrefixCache {
 public:
  // A node counts as so many tokens beside its own, and so does a root.
  static constexpr uint64_t kNodeTokens = 64;

  struct Limits {
    uint64_t bytes = 0;                   // of states; 0: nothing is kept or remembered
    uint64_t tokens = uint64_t{1} << 24;  // that it remembers, 4 bytes each
  };

  // Both outlive it.
  PrefixCache(const StateCapacity& capacity, Limits limits, Metrics& metrics);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  bool on() const { return limits_.bytes > 0; }

  struct Match {
    std::shared_ptr<StatePoint> point;  // the last one on the way; null: none
    uint64_t known = 0;                 // tokens, whole chunks, that contexts began with
  };
  // Along `tokens`, as far as they are known.
  Match Find(std::string_view salt, std::span<const uint32_t> tokens) const;

  // A context starts from the state after all of `tokens`, as Find has found it.
  void CountUse(std::string_view salt, std::span<const uint32_t> tokens);
  // A context begins with `tokens`. Only whole chunks are remembered, and nothing of a context
  // longer than a quarter of Limits::tokens.
  void Remember(std::string_view salt, std::span<const uint32_t> tokens);
  // Keeps the state after `tokens`, unless there is one. Others may be dropped for it, or it
  // itself. REQUIRES: tokens.size() == point->position > 0.
  void Keep(std::string_view salt, std::span<const uint32_t> tokens,
            std::shared_ptr<StatePoint> point);
  // Forgets the state that is worth least among those of `tenants` (null: of all), but `spared`
  // only if it is the last of them. False if there is none. Its slots are free if nothing else
  // holds them.
  bool Drop(const StatePoint* spared = nullptr, const TenantNames* tenants = nullptr);
  // Forgets all that is a tenant's.
  void Forget(std::string_view tenant);
  // Forgets everything. Allowed after any method has thrown std::bad_alloc, and necessary then.
  void Clear();

  size_t states() const { return states_; }
  uint64_t bytes() const { return bytes_; }  // slots that entries on one path share count once
  uint64_t tokens() const { return tokens_; }
  // Adds the bytes of each tenant.
  void AddBytes(TenantAmounts& amounts) const;
  // visit(point) for each state.
  template <typename Visit>
  void ForEachPoint(Visit&& visit) const {
    for (const auto& [tenant, part] : parts_) {
      for (const auto& [worth, node] : part.by_worth) visit(*node->point);
    }
  }

 private:
  struct Node;
  // By the first chunk of the edge, which is that of no sibling.
  struct ByFirstChunk {
    using is_transparent = void;
    size_t chunk;
    std::span<const uint32_t> First(std::span<const uint32_t> ids) const {
      return ids.first(chunk);
    }
    std::span<const uint32_t> First(const Node* node) const { return First(node->tokens); }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      const auto first = First(a), second = First(b);
      return std::lexicographical_compare(first.begin(), first.end(), second.begin(), second.end());
    }
  };
  using Children = std::set<Node*, ByFirstChunk>;
  // What is one tenant's.
  struct Part {
    size_t roots = 0;
    // All nodes but roots, the least recently used first: a node comes after every one below it.
    std::list<Node> nodes;
    std::set<std::pair<double, Node*>> by_worth;  // those with a state
    uint64_t tokens = 0;
    uint64_t bytes = 0;
  };
  struct Node {
    explicit Node(size_t chunk) : children(ByFirstChunk{chunk}) {}
    Part* part = nullptr;          // that it is in
    Node* parent = nullptr;        // null: a root
    std::vector<uint32_t> tokens;  // of the edge to it
    uint64_t position = 0;         // tokens from the root
    Children children;
    std::string salt;                 // of a root
    std::list<Node>::iterator place;  // in Part::nodes, but for a root
    uint64_t touched = 0;             // when; a later use has a higher number
    // With a state:
    std::shared_ptr<StatePoint> point;
    uint64_t uses = 0;
    double since = 0;  // worth_gone_ at its last use
    double worth = 0;
    uint64_t bytes = 0;
  };

  std::span<const uint32_t> WholeChunks(std::span<const uint32_t> tokens) const;
  size_t CommonChunks(std::span<const uint32_t> a, std::span<const uint32_t> b) const;
  Node* Root(std::string_view salt);
  Node* NodeAt(std::string_view salt, std::span<const uint32_t> tokens);
  Node* AddChild(Node* parent, std::span<const uint32_t> tokens);
  Node* Split(Node* node, size_t tokens);
  void Touch(Node* node);
  void Erase(Node* leaf);
  void AddTokens(Part& part, uint64_t tokens);
  void TakeTokens(Part& part, uint64_t tokens);
  template <typename Amount, typename Order>
  Part* NextToLose(Amount amount, Order order);
  void LimitBytes();
  void LimitTokens();
  uint64_t BytesBeside(const StatePoint& point, const StatePoint* before) const;
  void SetWorth(Node* node);
  void SetBytes(Node* node, uint64_t bytes);
  void SetWorthBelow(Node* node);
  void DropState(Node* node, PrefixDrop why);
  void ShowGauges();

  const StateCapacity& capacity_;
  const Limits limits_;
  Metrics& metrics_;
  std::map<std::string, Node, std::less<>> roots_;  // by salt
  std::map<std::string, Part, std::less<>> parts_;  // by tenant; each has a root
  size_t states_ = 0;
  uint64_t uses_ = 0;  // Touch has counted
  uint64_t tokens_ = 0;
  uint64_t bytes_ = 0;
  double worth_gone_ = 0;  // of the last state that was dropped
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_PREFIX_CACHE_H_
