// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls of tools as a grammar, in a syntax that a family of models knows. The text of a request's
// tools is what grammars are found again by (grammar_store.h).
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_GRAMMAR_TOOL_CALL_GRAMMAR_H_
#define RIVULET_SERVER_GRAMMAR_TOOL_CALL_GRAMMAR_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/grammar/expression.h"

namespace rivulet {

enum class ToolCallSyntax : uint8_t {
  kTagged,     // <tool_call>{"name": "f", "arguments": {...}}</tool_call>, with line ends between
  kArray,      // [{"name": "f", "arguments": {...}}]
  kParameters  // {"name": "f", "parameters": {...}}; others behind a ;
};

inline constexpr size_t kMaxTools = 128;

struct ToolCallRules {
  ToolCallSyntax syntax = ToolCallSyntax::kTagged;
  bool optional = false;           // text may come first or instead; REQUIRES: kTagged
  bool one = false;                // at most one call
  std::vector<std::string> tools;  // JSON objects: {"type": "function", "function": {...}}
};

// For ParseToolCalls.
std::string ToolCallText(const ToolCallRules& rules);

// INVALID_ARGUMENT: tools that are none, too many, or without a name; and as ParseJsonSchema for
// the parameters of one. With `optional`, parameters count for functions with "strict": true alone.
absl::StatusOr<Grammar> ParseToolCalls(std::string_view text);

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_TOOL_CALL_GRAMMAR_H_
