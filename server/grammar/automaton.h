// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A grammar as a nondeterministic automaton with a stack. Each rule has nodes of its own; an edge
// takes a byte, a call enters another rule and goes on at its return node once that rule ends.
// There are no empty edges, and no rule ends before it has taken a byte: where a rule may match
// the empty text, what may follow the call may also come in its place.
//
// Every node can reach the end of its rule, in calls that are not too deep: what cannot is left out
// when it is made.
//
// Threading: immutable once made.
#ifndef RIVULET_SERVER_GRAMMAR_AUTOMATON_H_
#define RIVULET_SERVER_GRAMMAR_AUTOMATON_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/grammar/expression.h"

namespace rivulet {

struct Automaton {
  struct Edge {
    ByteSet bytes;
    uint32_t target = 0;
  };
  struct Call {
    uint32_t start = 0;  // node of the rule that is called
    uint32_t next = 0;   // where it goes on
  };
  struct Node {
    std::vector<Edge> edges;
    std::vector<Call> calls;
    bool ends = false;  // the rule may end here
    // The calls within calls that it takes at least to reach the rule's end.
    uint32_t needs = 0;
    // Nothing can follow in the rule, so that a call of another rule that goes on here needs no
    // stack.
    bool only_ends() const { return ends && edges.empty() && calls.empty(); }
  };

  // Calls within calls. Texts that need deeper ones do not match.
  static constexpr uint32_t kDeepest = 512;
  // Nodes and edges together. A grammar that needs more is refused.
  static constexpr size_t kMostParts = size_t{1} << 20;

  // INVALID_ARGUMENT: no text matches it, a rule calls itself before it has taken a byte, or it is
  // too large.
  static absl::StatusOr<Automaton> Make(const Grammar& grammar);

  std::vector<Node> nodes;
  uint32_t start = 0;
  size_t parts = 0;  // nodes, edges and calls
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_AUTOMATON_H_
