// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/automaton.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace rivulet {
namespace {

constexpr uint32_t kNoNode = UINT32_MAX;
constexpr size_t kMostWork = 4 * Automaton::kMostParts;

absl::Status TooLarge() {
  return absl::InvalidArgumentError(
      absl::StrCat("it needs an automaton of more than ", Automaton::kMostParts,
                   " nodes and edges: use smaller limits of repeats and lengths"));
}

// The tree as an automaton with empty edges (Thompson's construction). Nodes of a sequence have
// rising numbers.
class WithEmptyEdges {
 public:
  struct Node {
    std::vector<uint32_t> empty;
    std::vector<Automaton::Edge> edges;
    std::vector<Automaton::Call> calls;  // `start` is the number of the rule
  };
  struct Ends {
    uint32_t start = 0, end = 0;
  };

  absl::Status Add(const Grammar& grammar) {
    for (const Grammar::Rule& rule : grammar.rules) {
      const uint32_t start = NewNode();
      rules_.push_back({start, Build(rule.expression, start)});
      if (full()) return TooLarge();
    }
    SkipCalls(RulesThatMayBeEmpty());
    start_ = NewNode();
    Join(start_, rules_[grammar.root].start);
    return absl::OkStatus();
  }

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Ends>& rules() const { return rules_; }
  // Of texts. No call leads here.
  uint32_t start() const { return start_; }

 private:
  // By what can be reached from the starts of rules without a byte: each node is part of one rule.
  std::vector<bool> RulesThatMayBeEmpty() const {
    std::vector<bool> reached(nodes_.size()), may_be_empty(rules_.size());
    std::vector<std::vector<uint32_t>> behind(rules_.size());  // calls that were reached
    std::vector<std::vector<size_t>> ending(nodes_.size());
    std::vector<uint32_t> pending;
    const auto reach = [&](uint32_t node) {
      if (!reached[node]) pending.push_back(node);
      reached[node] = true;
    };
    for (size_t i = 0; i < rules_.size(); ++i) ending[rules_[i].end].push_back(i);
    for (const Ends& rule : rules_) reach(rule.start);
    while (!pending.empty()) {
      const uint32_t node = pending.back();
      pending.pop_back();
      for (const uint32_t next : nodes_[node].empty) reach(next);
      for (const Automaton::Call& call : nodes_[node].calls) {
        behind[call.start].push_back(call.next);
        if (may_be_empty[call.start]) reach(call.next);
      }
      for (const size_t rule : ending[node]) {
        may_be_empty[rule] = true;
        for (const uint32_t next : behind[rule]) reach(next);
      }
    }
    return may_be_empty;
  }

  // What such a rule may also be is left out where it is called, so that each call takes a byte.
  void SkipCalls(const std::vector<bool>& may_be_empty) {
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      for (const Automaton::Call& call : nodes_[i].calls) {
        if (may_be_empty[call.start]) Join(i, call.next);
      }
    }
  }

  uint32_t NewNode() {
    nodes_.emplace_back();
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  void Join(uint32_t from, uint32_t to) {
    ++work_;
    nodes_[from].empty.push_back(to);
  }

  // Returns where the expression ends. Once it took too much the rest is left out.
  uint32_t Build(const Expression& expression, uint32_t from) {
    ++work_;
    if (full()) return from;
    switch (expression.kind) {
      case Expression::Kind::kBytes: {
        const uint32_t to = NewNode();
        nodes_[from].edges.push_back({expression.bytes, to});
        return to;
      }
      case Expression::Kind::kSequence:
        for (const Expression& part : expression.parts) from = Build(part, from);
        return from;
      case Expression::Kind::kChoice:
        return BuildChoice(expression.parts, from);
      case Expression::Kind::kRepeat:
        return BuildRepeat(expression, from);
      case Expression::Kind::kRule: {
        const uint32_t to = NewNode();
        nodes_[from].calls.push_back({static_cast<uint32_t>(expression.rule), to});
        return to;
      }
    }
    return from;
  }

  uint32_t BuildChoice(const std::vector<Expression>& parts, uint32_t from) {
    std::vector<uint32_t> ends;
    for (const Expression& part : parts) {
      const uint32_t begin = NewNode();
      Join(from, begin);
      ends.push_back(Build(part, begin));
    }
    const uint32_t to = NewNode();
    for (const uint32_t end : ends) Join(end, to);
    return to;
  }

  uint32_t BuildRepeat(const Expression& expression, uint32_t from) {
    const Expression& part = expression.parts[0];
    for (uint32_t i = 0; i < expression.least && !full(); ++i) from = Build(part, from);
    if (expression.most == Expression::kUnbounded) return BuildLoop(part, from);
    std::vector<uint32_t> ends = {from};
    for (uint32_t i = expression.least; i < expression.most && !full(); ++i) {
      ends.push_back(from = Build(part, from));
    }
    const uint32_t to = NewNode();
    for (const uint32_t end : ends) Join(end, to);
    return to;
  }

  uint32_t BuildLoop(const Expression& part, uint32_t from) {
    const uint32_t again = NewNode();
    Join(from, again);
    const uint32_t begin = NewNode();
    Join(again, begin);
    Join(Build(part, begin), again);
    const uint32_t to = NewNode();
    Join(again, to);
    return to;
  }

  // Empty texts make no node, but their repeats take time all the same.
  bool full() const { return work_ > kMostWork; }

  std::vector<Node> nodes_;
  std::vector<Ends> rules_;
  uint32_t start_ = 0;
  size_t work_ = 0;
};

// Takes the empty edges out: a node gets the edges and calls of all nodes that it reaches by them.
class Closer {
 public:
  explicit Closer(const WithEmptyEdges& from)
      : from_(from), number_(from.nodes().size(), kNoNode), seen_(from.nodes().size(), kNoNode) {}

  absl::StatusOr<Automaton> Close() {
    for (const WithEmptyEdges::Ends& rule : from_.rules()) Number(rule.start);
    result_.start = Number(from_.start());
    std::vector<uint32_t> rule_end(from_.nodes().size(), 0);
    for (const WithEmptyEdges::Ends& rule : from_.rules()) rule_end[rule.end] = 1;
    for (size_t i = 0; i < pending_.size(); ++i) {
      result_.nodes.emplace_back();
      CloseNode(pending_[i], static_cast<uint32_t>(i), rule_end);
      if (work_ > kMostWork) return TooLarge();
      parts_ += 1 + result_.nodes[i].edges.size() + result_.nodes[i].calls.size();
      if (parts_ > Automaton::kMostParts) return TooLarge();
    }
    // Nothing leads back to the start of a rule but calls, and those take a byte.
    for (size_t i = 0; i < from_.rules().size(); ++i) result_.nodes[i].ends = false;
    result_.parts = parts_;
    return std::move(result_);
  }

 private:
  uint32_t Number(uint32_t node) {
    if (number_[node] == kNoNode) {
      number_[node] = static_cast<uint32_t>(pending_.size());
      pending_.push_back(node);
    }
    return number_[node];
  }

  void CloseNode(uint32_t node, uint32_t number, const std::vector<uint32_t>& rule_end) {
    reached_.assign(1, node);
    seen_[node] = number;
    for (size_t i = 0; i < reached_.size() && work_ <= kMostWork; ++i) {
      const WithEmptyEdges::Node& from = from_.nodes()[reached_[i]];
      work_ += 1 + from.empty.size();
      Automaton::Node& to = result_.nodes[number];
      to.ends = to.ends || rule_end[reached_[i]] != 0;
      for (const Automaton::Edge& edge : from.edges) {
        to.edges.push_back({edge.bytes, Number(edge.target)});
      }
      for (const Automaton::Call& call : from.calls) {
        to.calls.push_back({Number(from_.rules()[call.start].start), Number(call.next)});
      }
      for (const uint32_t next : from.empty) {
        if (seen_[next] != number) reached_.push_back(next);
        seen_[next] = number;
      }
    }
  }

  const WithEmptyEdges& from_;
  std::vector<uint32_t> number_, seen_, pending_, reached_;
  Automaton result_;
  size_t parts_ = 0;
  size_t work_ = 0;
};

constexpr uint32_t kNever = UINT32_MAX;

// How many calls within calls it takes at least to reach the end of a rule from each of its nodes.
// kNever: it cannot be reached.
class Finishing {
 public:
  explicit Finishing(const Automaton& automaton)
      : nodes_(automaton.nodes), depths_(nodes_.size(), kNever), users_(nodes_.size()) {
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      for (const Automaton::Edge& edge : nodes_[i].edges) users_[edge.target].push_back({i});
      for (const Automaton::Call& call : nodes_[i].calls) {
        users_[call.start].push_back({i, &call});
        users_[call.next].push_back({i, &call});
      }
    }
  }

  // The nodes of each depth after those of the one before.
  std::vector<uint32_t> Find() {
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].ends) Add(i, 0);
    }
    for (uint32_t depth = 0; depth < pending_.size(); ++depth) {
      while (!pending_[depth].empty()) {
        const uint32_t node = pending_[depth].back();
        pending_[depth].pop_back();
        if (depths_[node] != kNever) continue;
        depths_[node] = depth;
        for (const User& user : users_[node]) Add(user.node, DepthOf(user, depth));
      }
    }
    return std::move(depths_);
  }

 private:
  struct User {
    uint32_t node = 0;
    const Automaton::Call* call = nullptr;  // null: an edge
  };

  uint32_t DepthOf(const User& user, uint32_t of_edge) const {
    if (user.call == nullptr) return of_edge;
    const uint32_t start = depths_[user.call->start], next = depths_[user.call->next];
    if (start == kNever || next == kNever) return kNever;
    return std::max(start + (nodes_[user.call->next].only_ends() ? 0 : 1), next);
  }

  void Add(uint32_t node, uint32_t depth) {
    if (depth == kNever || depths_[node] != kNever) return;
    if (pending_.size() <= depth) pending_.resize(depth + 1);
    pending_[depth].push_back(node);
  }

  const std::vector<Automaton::Node>& nodes_;
  std::vector<uint32_t> depths_;
  std::vector<std::vector<User>> users_;
  std::vector<std::vector<uint32_t>> pending_;  // by depth
};

void DropDeadEnds(Automaton& automaton, const std::vector<uint32_t>& depths) {
  const auto is_dead = [&](uint32_t node) { return depths[node] > Automaton::kDeepest; };
  for (size_t i = 0; i < automaton.nodes.size(); ++i) {
    Automaton::Node& node = automaton.nodes[i];
    node.needs = depths[i];
    std::erase_if(node.edges, [&](const auto& edge) { return is_dead(edge.target); });
    std::erase_if(node.calls,
                  [&](const auto& call) { return is_dead(call.start) || is_dead(call.next); });
  }
}

// The rules, by their start nodes, that a rule may call before it has taken a byte.
std::vector<uint32_t> CalledFirst(const Automaton& automaton, uint32_t start) {
  std::vector<uint32_t> called;
  for (const Automaton::Call& call : automaton.nodes[start].calls) called.push_back(call.start);
  return called;
}

// A rule that can call itself before it has taken a byte, or the number of rules.
size_t FindLeftRecursion(const Automaton& automaton, size_t rules) {
  enum State : uint8_t { kNew, kOpen, kDone };
  std::vector<State> states(rules, kNew);
  struct Visit {
    uint32_t rule;
    std::vector<uint32_t> called;
  };
  std::vector<Visit> path;
  for (uint32_t first = 0; first < rules; ++first) {
    if (states[first] == kNew) path.push_back({first, CalledFirst(automaton, first)});
    while (!path.empty()) {
      Visit& visit = path.back();
      states[visit.rule] = kOpen;
      if (visit.called.empty()) {
        states[visit.rule] = kDone;
        path.pop_back();
        continue;
      }
      const uint32_t next = visit.called.back();
      visit.called.pop_back();
      if (states[next] == kOpen) return next;
      if (states[next] == kNew) path.push_back({next, CalledFirst(automaton, next)});
    }
  }
  return rules;
}

}  // namespace

absl::StatusOr<Automaton> Automaton::Make(const Grammar& grammar) {
  WithEmptyEdges with_empty_edges;
  RIVULET_RETURN_IF_ERROR(with_empty_edges.Add(grammar));
  RIVULET_ASSIGN_OR_RETURN(Automaton automaton, Closer(with_empty_edges).Close());
  const std::vector<uint32_t> depths = Finishing(automaton).Find();
  if (depths[automaton.start] == kNever) return absl::InvalidArgumentError("no text matches it");
  if (depths[automaton.start] > kDeepest) {
    return absl::InvalidArgumentError(
        absl::StrCat("every text needs rules within rules that are more than ", kDeepest, " deep"));
  }
  DropDeadEnds(automaton, depths);
  // The first nodes are the rules' starts, in order.
  const size_t recursive = FindLeftRecursion(automaton, grammar.rules.size());
  if (recursive < grammar.rules.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rule ", grammar.rules[recursive].name,
                     " calls itself before it has taken a character (left recursion): write a "
                     "repeat or put the call last"));
  }
  return automaton;
}

}  // namespace rivulet
