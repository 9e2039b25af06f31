// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A parsed template. Names are numbers, given by the template (Syntax::names). Threading: const.
#ifndef RIVULET_MODEL_LOADER_JINJA_SYNTAX_H_
#define RIVULET_MODEL_LOADER_JINJA_SYNTAX_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model_loader/jinja/value.h"

namespace rivulet::jinja {

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;

enum class ExpressionKind {
  kConstant,     // value
  kName,         // name
  kTuple,        // parts
  kList,         // parts
  kMapping,      // parts: key, value, key, value ...
  kConditional,  // parts: condition, if true, if false (may be null)
  kAnd,          // parts: two
  kOr,
  kNot,        // parts: one
  kCompare,    // parts; operators: between two each, "in" and "not in" among them
  kCompute,    // parts: two; text: the operation
  kNegate,     // parts: one
  kPlus,       // parts: one; a unary +
  kConcat,     // parts: strings joined by ~
  kAttribute,  // parts: object; text: the name behind the dot
  kItem,       // parts: object, key
  kSlice,      // parts: object, begin, end, step (each of the three may be null)
  kCall,       // parts: callee; arguments
  kFilter,     // parts: input (null in {% filter %} and {% set %}); text: its name; arguments
  kTest,       // parts: input; text: its name; arguments
};

struct Argument {
  enum Kind { kPositional, kNamed, kSpread, kSpreadNamed } kind = kPositional;
  std::string name;  // kNamed
  ExpressionPointer value;
};

struct Expression {
  ExpressionKind kind;
  int line = 0;
  int height = 1;  // of the tree
  int name = -1;
  Value value;
  std::string text;
  std::vector<ExpressionPointer> parts;
  std::vector<std::string> operators;
  std::vector<Argument> arguments;
};

// What is assigned to: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  int line = 0;
  int name = -1;
  std::string attribute;      // not empty: of the namespace `name`
  std::vector<Target> parts;  // not empty: a tuple
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind {
  kText,         // text
  kPrint,        // expressions: one
  kIf,           // expressions: conditions; bodies: one for each, and one for else (may be empty)
  kFor,          // targets: one; expressions: what it runs over, filter (may be null);
                 // bodies: loop, else; recursive
  kSet,          // targets: one; expressions: one
  kSetBlock,     // targets: one; expressions: filters, from the first; bodies: one
  kFilterBlock,  // expressions: filters; bodies: one
  kMacro,        // name; parameters, expressions: their defaults (null: none); bodies: one
  kCallBlock,    // as kMacro, for the caller; call
  kWith,         // targets; expressions: their values; bodies: one
  kScope,        // bodies: one, whose names end with it ({% block %}, {% generation %})
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind;
  int line = 0;
  int name = -1;
  std::string text;
  std::vector<Target> targets;
  std::vector<ExpressionPointer> expressions;
  std::vector<Body> bodies;
  std::vector<int> parameters;
  ExpressionPointer call;
  bool recursive = false;
  // Of a macro: which of the names that a call can set are read in its body.
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Syntax {
  Body body;
  std::vector<std::string> names;
  absl::flat_hash_map<std::string, int> numbers;  // of the names

  int NumberOf(std::string_view name) {
    const auto [found, added] =
        numbers.try_emplace(std::string(name), static_cast<int>(names.size()));
    if (added) names.emplace_back(name);
    return found->second;
  }
};

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_SYNTAX_H_
