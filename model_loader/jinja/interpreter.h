// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Renders a parsed template. Scopes are those of Jinja: a loop's body, a macro, a block and `with`
// have their own names; `if` has not. Threading: one thread.
#ifndef RIVULET_MODEL_LOADER_JINJA_INTERPRETER_H_
#define RIVULET_MODEL_LOADER_JINJA_INTERPRETER_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/jinja/runtime.h"
#include "model_loader/jinja/syntax.h"

namespace rivulet::jinja {

// Names that a part of a template has set.
struct Scope {
  std::vector<std::pair<int, Value>> names;
  std::shared_ptr<Scope> parent;  // null: the input
};
using ScopePointer = std::shared_ptr<Scope>;

class Interpreter final : public Runtime {
 public:
  // The syntax outlives the interpreter.
  Interpreter(const Syntax& syntax, const Limits& limits, Clock clock)
      : Runtime(limits, clock), syntax_(syntax) {}

  // `input` maps names to values. Called once.
  absl::StatusOr<MarkedText> Render(const Mapping& input);
  // Where the error of a failed Render happened; 0: not known.
  int failed_line() const { return failed_line_; }

 protected:
  absl::StatusOr<Value> CallMacro(const Callable& macro, GivenArguments arguments) override;
  absl::StatusOr<Value> CallLoop(LoopState& loop, GivenArguments arguments) override;

 private:
  enum class Flow { kNext, kBreak, kContinue };

  absl::StatusOr<Value> Evaluate(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateKind(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateName(int name, const Scope& scope);
  absl::StatusOr<Value> EvaluateSequence(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateMapping(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateConditional(const Expression& expression,
                                            const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateLogic(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateCompare(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<bool> CompareOne(std::string_view operation, const Value& left,
                                  const Value& right);
  absl::StatusOr<Value> EvaluateCompute(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateSign(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateConcat(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateAccess(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateSlice(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateCall(const Expression& expression, const ScopePointer& scope);
  absl::StatusOr<Value> EvaluateTest(const Expression& expression, const ScopePointer& scope);
  // `captured`: what a filter without an input is applied to.
  absl::StatusOr<Value> EvaluateFilter(const Expression& expression, const Value* captured,
                                       const ScopePointer& scope);
  absl::StatusOr<GivenArguments> EvaluateArguments(const std::vector<Argument>& arguments,
                                                   const ScopePointer& scope);
  absl::Status AddArgument(const Argument& argument, Value value, GivenArguments& given);

  absl::StatusOr<Flow> Execute(const Body& body, const ScopePointer& scope, MarkedText& output);
  absl::StatusOr<Flow> ExecuteOne(const Statement& statement, const ScopePointer& scope,
                                  MarkedText& output);
  absl::Status ExecutePrint(const Statement& statement, const ScopePointer& scope,
                            MarkedText& output);
  absl::StatusOr<Flow> ExecuteIf(const Statement& statement, const ScopePointer& scope,
                                 MarkedText& output);
  absl::StatusOr<Flow> ExecuteFor(const Statement& statement, const ScopePointer& scope,
                                  MarkedText& output);
  absl::StatusOr<std::vector<Value>> LoopItems(const Statement& statement, const Value& iterable,
                                               const ScopePointer& scope);
  absl::StatusOr<Flow> RunLoop(const Statement& statement, const Value& iterable, int depth,
                               const ScopePointer& scope, MarkedText& output);
  absl::StatusOr<Flow> RunLoopBody(const Statement& statement,
                                   const std::shared_ptr<LoopState>& loop,
                                   const ScopePointer& scope, MarkedText& output);
  absl::Status ExecuteSet(const Statement& statement, const ScopePointer& scope);
  absl::Status ExecuteSetBlock(const Statement& statement, const ScopePointer& scope);
  absl::Status ExecuteFilterBlock(const Statement& statement, const ScopePointer& scope,
                                  MarkedText& output);
  absl::Status ExecuteCallBlock(const Statement& statement, const ScopePointer& scope,
                                MarkedText& output);
  absl::Status ExecuteWith(const Statement& statement, const ScopePointer& scope,
                           MarkedText& output);
  absl::Status Assign(const Target& target, const Value& value, Scope& scope);
  absl::Status AssignAttribute(const Target& target, const Value& value, const Scope& scope);
  Value MakeMacro(const Statement& statement, const ScopePointer& scope) const;
  absl::Status BindParameters(const Statement& macro, GivenArguments& given,
                              const ScopePointer& scope);
  absl::Status BindExtras(const Statement& macro, GivenArguments& given, Scope& scope);
  absl::StatusOr<Value> NamedMapping(GivenArguments& given);

  const Syntax& syntax_;
  int failed_line_ = 0;
  int loop_name_ = -1, caller_name_ = -1, varargs_name_ = -1, kwargs_name_ = -1;
};

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_INTERPRETER_H_
