// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/jinja/capture.h"
#include "model_loader/jinja/filters.h"

namespace rivulet::jinja {
namespace {

ScopePointer NewScope(const ScopePointer& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

const Value* FindName(const Scope& scope, int name) {
  for (const Scope* one = &scope; one != nullptr; one = one->parent.get()) {
    for (const auto& [other, value] : one->names) {
      if (other == name) return &value;
    }
  }
  return nullptr;
}

void SetName(Scope& scope, int name, Value value) {
  for (auto& [other, held] : scope.names) {
    if (other != name) continue;
    held = std::move(value);
    return;
  }
  scope.names.emplace_back(name, std::move(value));
}

}  // namespace

absl::StatusOr<MarkedText> Interpreter::Render(const Mapping& input) {
  const ScopePointer root = NewScope(nullptr);
  for (const auto& [name, number] : syntax_.numbers) {
    if (const Value* const value = FindEntry(input, name)) SetName(*root, number, *value);
    if (name == "loop") loop_name_ = number;
    if (name == "caller") caller_name_ = number;
    if (name == "varargs") varargs_name_ = number;
    if (name == "kwargs") kwargs_name_ = number;
  }
  Capture output(budget());
  RIVULET_RETURN_IF_ERROR(Execute(syntax_.body, NewScope(root), output.text()).status());
  return output.Take();
}

// ---- Statements

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Body& body, const ScopePointer& scope,
                                                       MarkedText& output) {
  for (const auto& statement : body) {
    RIVULET_ASSIGN_OR_RETURN(const Flow flow, ExecuteOne(*statement, scope, output));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteOne(const Statement& statement,
                                                          const ScopePointer& scope,
                                                          MarkedText& output) {
  const Level level(budget());
  absl::Status status = level.Check();
  if (status.ok()) status = budget().Step();
  if (!status.ok()) {
    if (failed_line_ == 0) failed_line_ = statement.line;
    return status;
  }
  switch (statement.kind) {
    case StatementKind::kText:
      status = Append(budget(), statement.text, output);
      break;
    case StatementKind::kPrint:
      status = ExecutePrint(statement, scope, output);
      break;
    case StatementKind::kIf:
      return ExecuteIf(statement, scope, output);
    case StatementKind::kFor:
      return ExecuteFor(statement, scope, output);
    case StatementKind::kSet:
      status = ExecuteSet(statement, scope);
      break;
    case StatementKind::kSetBlock:
      status = ExecuteSetBlock(statement, scope);
      break;
    case StatementKind::kFilterBlock:
      status = ExecuteFilterBlock(statement, scope, output);
      break;
    case StatementKind::kMacro:
      SetName(*scope, statement.name, MakeMacro(statement, scope));
      break;
    case StatementKind::kCallBlock:
      status = ExecuteCallBlock(statement, scope, output);
      break;
    case StatementKind::kWith:
      status = ExecuteWith(statement, scope, output);
      break;
    case StatementKind::kScope:
      status = Execute(statement.bodies[0], NewScope(scope), output).status();
      break;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  if (status.ok()) return Flow::kNext;
  if (failed_line_ == 0) failed_line_ = statement.line;
  return status;
}

absl::Status Interpreter::ExecutePrint(const Statement& statement, const ScopePointer& scope,
                                       MarkedText& output) {
  RIVULET_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expressions[0], scope));
  if (const Text* const text = value.text()) return Append(budget(), *text, output);
  RIVULET_ASSIGN_OR_RETURN(const MarkedText text, ToMarked(value));
  return Append(budget(), text, output);
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteIf(const Statement& statement,
                                                         const ScopePointer& scope,
                                                         MarkedText& output) {
  for (size_t i = 0; i < statement.expressions.size(); ++i) {
    RIVULET_ASSIGN_OR_RETURN(const Value condition, Evaluate(*statement.expressions[i], scope));
    if (IsTrue(condition)) return Execute(statement.bodies[i], scope, output);
  }
  return Execute(statement.bodies.back(), scope, output);
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteFor(const Statement& statement,
                                                          const ScopePointer& scope,
                                                          MarkedText& output) {
  RIVULET_ASSIGN_OR_RETURN(const Value iterable, Evaluate(*statement.expressions[0], scope));
  absl::StatusOr<Flow> flow = RunLoop(statement, iterable, 0, scope, output);
  if (!flow.ok() && failed_line_ == 0) failed_line_ = statement.line;
  return flow;
}

// What passes the loop's filter, which sees the loop's target but not `loop`.
absl::StatusOr<std::vector<Value>> Interpreter::LoopItems(const Statement& statement,
                                                          const Value& iterable,
                                                          const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(iterable));
  const Expression* const filter = statement.expressions[1].get();
  if (filter == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const ScopePointer inner = NewScope(scope);
    RIVULET_RETURN_IF_ERROR(Assign(statement.targets[0], item, *inner));
    RIVULET_ASSIGN_OR_RETURN(const Value passes, Evaluate(*filter, inner));
    if (IsTrue(passes)) kept.push_back(std::move(item));
  }
  return kept;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunLoop(const Statement& statement,
                                                       const Value& iterable, int depth,
                                                       const ScopePointer& scope,
                                                       MarkedText& output) {
  auto loop = std::make_shared<LoopState>();
  RIVULET_ASSIGN_OR_RETURN(loop->items, LoopItems(statement, iterable, scope));
  const size_t bytes = loop->items.capacity() * sizeof(Value);
  RIVULET_RETURN_IF_ERROR(budget().CheckRoom(bytes));
  loop->charge = Charge(budget(), bytes);
  loop->depth = depth;
  loop->recursive = statement.recursive ? &statement : nullptr;
  loop->scope = scope;
  if (loop->items.empty()) return Execute(statement.bodies[1], NewScope(scope), output);
  for (; loop->index < loop->items.size(); ++loop->index) {
    RIVULET_ASSIGN_OR_RETURN(const Flow flow, RunLoopBody(statement, loop, scope, output));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunLoopBody(const Statement& statement,
                                                           const std::shared_ptr<LoopState>& loop,
                                                           const ScopePointer& scope,
                                                           MarkedText& output) {
  const ScopePointer inner = NewScope(scope);
  RIVULET_RETURN_IF_ERROR(Assign(statement.targets[0], loop->items[loop->index], *inner));
  if (loop_name_ >= 0) SetName(*inner, loop_name_, Value(loop));
  return Execute(statement.bodies[0], inner, output);
}

absl::StatusOr<Value> Interpreter::CallLoop(LoopState& loop, GivenArguments arguments) {
  const ScopePointer scope = loop.scope.lock();
  if (loop.recursive == nullptr || scope == nullptr) {
    return TypeError("the loop must have the 'recursive' marker to be called recursively");
  }
  if (arguments.positional.size() != 1) return TypeError("loop() takes one argument");
  Capture output(budget());
  RIVULET_RETURN_IF_ERROR(
      RunLoop(*loop.recursive, arguments.positional[0], loop.depth + 1, scope, output.text())
          .status());
  return NewText(output.Take());
}

absl::Status Interpreter::Assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.attribute.empty()) return AssignAttribute(target, value, scope);
  if (target.parts.empty()) {
    SetName(scope, target.name, value);
    return absl::OkStatus();
  }
  RIVULET_ASSIGN_OR_RETURN(const std::vector<Value> parts, Iterate(value));
  if (parts.size() != target.parts.size()) {
    return TypeError(absl::StrCat("cannot unpack ", parts.size(), " values into ",
                                  target.parts.size(), " names"));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    RIVULET_RETURN_IF_ERROR(Assign(target.parts[i], parts[i], scope));
  }
  return absl::OkStatus();
}

absl::Status Interpreter::AssignAttribute(const Target& target, const Value& value,
                                          const Scope& scope) {
  const Value* const found = FindName(scope, target.name);
  if (found == nullptr || found->name_space() == nullptr) {
    return TypeError("cannot assign attribute on non-namespace object");
  }
  RIVULET_RETURN_IF_ERROR(CheckNamespaceName(target.attribute));
  auto& attributes = found->name_space()->attributes;
  for (auto& [name, held] : attributes) {
    if (name != target.attribute) continue;
    held = value;
    return absl::OkStatus();
  }
  RIVULET_RETURN_IF_ERROR(budget().Step(attributes.size()));
  attributes.emplace_back(target.attribute, value);
  return absl::OkStatus();
}

absl::Status Interpreter::ExecuteSet(const Statement& statement, const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expressions[0], scope));
  return Assign(statement.targets[0], value, *scope);
}

absl::Status Interpreter::ExecuteSetBlock(const Statement& statement, const ScopePointer& scope) {
  Capture output(budget());
  RIVULET_RETURN_IF_ERROR(Execute(statement.bodies[0], NewScope(scope), output.text()).status());
  RIVULET_ASSIGN_OR_RETURN(Value value, NewText(output.Take()));
  if (statement.expressions[0] != nullptr) {
    RIVULET_ASSIGN_OR_RETURN(value, EvaluateFilter(*statement.expressions[0], &value, scope));
  }
  return Assign(statement.targets[0], value, *scope);
}

absl::Status Interpreter::ExecuteFilterBlock(const Statement& statement, const ScopePointer& scope,
                                             MarkedText& output) {
  Capture captured(budget());
  RIVULET_RETURN_IF_ERROR(Execute(statement.bodies[0], NewScope(scope), captured.text()).status());
  RIVULET_ASSIGN_OR_RETURN(Value value, NewText(captured.Take()));
  RIVULET_ASSIGN_OR_RETURN(value, EvaluateFilter(*statement.expressions[0], &value, scope));
  RIVULET_ASSIGN_OR_RETURN(const MarkedText text, ToMarked(value));
  return Append(budget(), text, output);
}

absl::Status Interpreter::ExecuteWith(const Statement& statement, const ScopePointer& scope,
                                      MarkedText& output) {
  const ScopePointer inner = NewScope(scope);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    RIVULET_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expressions[i], scope));
    RIVULET_RETURN_IF_ERROR(Assign(statement.targets[i], value, *inner));
  }
  return Execute(statement.bodies[0], inner, output).status();
}

// ---- Macros

Value Interpreter::MakeMacro(const Statement& statement, const ScopePointer& scope) const {
  auto macro = std::make_shared<Callable>();
  macro->name = statement.text;
  macro->macro = &statement;
  macro->scope = scope;
  return Value(Value::CallablePointer(std::move(macro)));
}

absl::Status Interpreter::ExecuteCallBlock(const Statement& statement, const ScopePointer& scope,
                                           MarkedText& output) {
  const Expression& call = *statement.call;
  RIVULET_ASSIGN_OR_RETURN(const Value callee, Evaluate(*call.parts[0], scope));
  RIVULET_ASSIGN_OR_RETURN(GivenArguments given, EvaluateArguments(call.arguments, scope));
  given.named.emplace_back("caller", MakeMacro(statement, scope));
  RIVULET_ASSIGN_OR_RETURN(const Value result, Call(callee, std::move(given)));
  RIVULET_ASSIGN_OR_RETURN(const MarkedText text, ToMarked(result));
  return Append(budget(), text, output);
}

absl::StatusOr<Value> Interpreter::NamedMapping(GivenArguments& given) {
  std::vector<std::pair<Value, Value>> entries;
  for (auto& [name, value] : given.named) {
    entries.emplace_back(Value::Marked(MarkedText::Of(name, given.plain_names)), std::move(value));
  }
  return NewMapping(std::move(entries));
}

// What is left of the arguments once the parameters have theirs: caller, varargs and kwargs.
absl::Status Interpreter::BindExtras(const Statement& macro, GivenArguments& given, Scope& scope) {
  std::erase_if(given.named, [&](auto& argument) {
    const bool caller = argument.first == "caller" && macro.uses_caller;
    if (caller) SetName(scope, caller_name_, std::move(argument.second));
    return caller;
  });
  const auto is_caller = [&](const auto& held) { return held.first == caller_name_; };
  if (macro.uses_caller && std::none_of(scope.names.begin(), scope.names.end(), is_caller)) {
    SetName(scope, caller_name_, NewUndefined("No caller defined"));
  }
  if (macro.uses_kwargs) {
    RIVULET_ASSIGN_OR_RETURN(Value kwargs, NamedMapping(given));
    SetName(scope, kwargs_name_, std::move(kwargs));
  } else if (!given.named.empty()) {
    return TypeError(absl::StrCat("macro '", macro.text, "' takes no keyword argument '",
                                  given.named[0].first, "'"));
  }
  if (macro.uses_varargs) {
    RIVULET_ASSIGN_OR_RETURN(Value varargs,
                             NewSequence(std::move(given.positional), SequenceKind::kTuple));
    SetName(scope, varargs_name_, std::move(varargs));
  } else if (!given.positional.empty()) {
    return TypeError(absl::StrCat("macro '", macro.text, "' takes not more than ",
                                  macro.parameters.size(), " argument(s)"));
  }
  return absl::OkStatus();
}

absl::Status Interpreter::BindParameters(const Statement& macro, GivenArguments& given,
                                         const ScopePointer& scope) {
  std::vector<bool> bound(macro.parameters.size(), false);
  const size_t by_position = std::min(given.positional.size(), macro.parameters.size());
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const std::string& name = syntax_.names[static_cast<size_t>(macro.parameters[i])];
    if (i < by_position) {
      SetName(*scope, macro.parameters[i], std::move(given.positional[i]));
      bound[i] = true;
      continue;
    }
    for (auto argument = given.named.begin(); argument != given.named.end(); ++argument) {
      if (argument->first != name) continue;
      SetName(*scope, macro.parameters[i], std::move(argument->second));
      given.named.erase(argument);
      bound[i] = true;
      break;
    }
  }
  given.positional.erase(given.positional.begin(),
                         given.positional.begin() + static_cast<int64_t>(by_position));
  RIVULET_RETURN_IF_ERROR(BindExtras(macro, given, *scope));
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    if (bound[i]) continue;
    Value value = NewUndefined(absl::StrCat("parameter '",
                                            syntax_.names[static_cast<size_t>(macro.parameters[i])],
                                            "' was not provided"));
    if (macro.expressions[i] != nullptr) {
      RIVULET_ASSIGN_OR_RETURN(value, Evaluate(*macro.expressions[i], scope));
    }
    SetName(*scope, macro.parameters[i], std::move(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::CallMacro(const Callable& macro, GivenArguments given) {
  const ScopePointer around = macro.scope.lock();
  if (around == nullptr) {
    return TypeError(
        absl::StrCat("macro '", macro.name, "' is called outside of the block that defines it"));
  }
  const ScopePointer scope = NewScope(around);
  RIVULET_RETURN_IF_ERROR(BindParameters(*macro.macro, given, scope));
  Capture output(budget());
  RIVULET_RETURN_IF_ERROR(Execute(macro.macro->bodies[0], scope, output.text()).status());
  return NewText(output.Take());
}

// ---- Expressions

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& expression,
                                            const ScopePointer& scope) {
  const Level level(budget());
  absl::Status status = level.Check();
  if (status.ok()) status = budget().Step();
  absl::StatusOr<Value> value =
      status.ok() ? EvaluateKind(expression, scope) : absl::StatusOr<Value>(status);
  if (!value.ok() && failed_line_ == 0) failed_line_ = expression.line;
  return value;
}

absl::StatusOr<Value> Interpreter::EvaluateKind(const Expression& expression,
                                                const ScopePointer& scope) {
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.value;
    case ExpressionKind::kName:
      return EvaluateName(expression.name, *scope);
    case ExpressionKind::kTuple:
    case ExpressionKind::kList:
      return EvaluateSequence(expression, scope);
    case ExpressionKind::kMapping:
      return EvaluateMapping(expression, scope);
    case ExpressionKind::kConditional:
      return EvaluateConditional(expression, scope);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
    case ExpressionKind::kNot:
      return EvaluateLogic(expression, scope);
    case ExpressionKind::kCompare:
      return EvaluateCompare(expression, scope);
    case ExpressionKind::kCompute:
      return EvaluateCompute(expression, scope);
    case ExpressionKind::kNegate:
    case ExpressionKind::kPlus:
      return EvaluateSign(expression, scope);
    case ExpressionKind::kConcat:
      return EvaluateConcat(expression, scope);
    case ExpressionKind::kAttribute:
    case ExpressionKind::kItem:
      return EvaluateAccess(expression, scope);
    case ExpressionKind::kSlice:
      return EvaluateSlice(expression, scope);
    case ExpressionKind::kCall:
      return EvaluateCall(expression, scope);
    case ExpressionKind::kFilter:
      return EvaluateFilter(expression, nullptr, scope);
    case ExpressionKind::kTest:
      return EvaluateTest(expression, scope);
  }
  return Value();
}

absl::StatusOr<Value> Interpreter::EvaluateName(int name, const Scope& scope) {
  if (const Value* const found = FindName(scope, name)) return *found;
  const std::string& shown = syntax_.names[static_cast<size_t>(name)];
  const Builtin* const function = FindFunction(shown);
  if (function == nullptr) return NewUndefined(absl::StrCat("'", shown, "' is undefined"));
  auto callable = std::make_shared<Callable>();
  callable->name = absl::StrCat("function ", shown);
  callable->builtin = function;
  return Value(Value::CallablePointer(std::move(callable)));
}

absl::StatusOr<Value> Interpreter::EvaluateSequence(const Expression& expression,
                                                    const ScopePointer& scope) {
  std::vector<Value> items;
  items.reserve(expression.parts.size());
  for (const auto& part : expression.parts) {
    RIVULET_ASSIGN_OR_RETURN(Value item, Evaluate(*part, scope));
    items.push_back(std::move(item));
  }
  const bool list = expression.kind == ExpressionKind::kList;
  return NewSequence(std::move(items), list ? SequenceKind::kList : SequenceKind::kTuple);
}

absl::StatusOr<Value> Interpreter::EvaluateMapping(const Expression& expression,
                                                   const ScopePointer& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    RIVULET_ASSIGN_OR_RETURN(Value key, Evaluate(*expression.parts[i], scope));
    RIVULET_ASSIGN_OR_RETURN(Value value, Evaluate(*expression.parts[i + 1], scope));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return NewMapping(std::move(entries));
}

absl::StatusOr<Value> Interpreter::EvaluateConditional(const Expression& expression,
                                                       const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(const Value condition, Evaluate(*expression.parts[0], scope));
  if (IsTrue(condition)) return Evaluate(*expression.parts[1], scope);
  if (expression.parts[2] != nullptr) return Evaluate(*expression.parts[2], scope);
  return NewUndefined("an inline if-expression was false and has no else");
}

absl::StatusOr<Value> Interpreter::EvaluateLogic(const Expression& expression,
                                                 const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(Value left, Evaluate(*expression.parts[0], scope));
  const bool is_true = IsTrue(left);
  if (expression.kind == ExpressionKind::kNot) return Value(!is_true);
  if (is_true == (expression.kind == ExpressionKind::kOr)) return left;
  return Evaluate(*expression.parts[1], scope);
}

absl::StatusOr<bool> Interpreter::CompareOne(std::string_view operation, const Value& left,
                                             const Value& right) {
  if (operation == "==") return Equal(left, right);
  if (operation == "<") return Less(left, right);
  if (operation == ">") return Less(right, left);
  if (operation == "<=") return LessOrEqual(left, right);
  if (operation == ">=") return LessOrEqual(right, left);
  if (operation == "in") return Contains(right, left);
  RIVULET_ASSIGN_OR_RETURN(const bool result,
                           operation == "!=" ? Equal(left, right) : Contains(right, left));
  return !result;
}

absl::StatusOr<Value> Interpreter::EvaluateCompare(const Expression& expression,
                                                   const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(Value left, Evaluate(*expression.parts[0], scope));
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    RIVULET_ASSIGN_OR_RETURN(Value right, Evaluate(*expression.parts[i + 1], scope));
    RIVULET_ASSIGN_OR_RETURN(const bool holds, CompareOne(expression.operators[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

absl::StatusOr<Value> Interpreter::EvaluateCompute(const Expression& expression,
                                                   const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(const Value left, Evaluate(*expression.parts[0], scope));
  RIVULET_ASSIGN_OR_RETURN(const Value right, Evaluate(*expression.parts[1], scope));
  return Compute(expression.text, left, right);
}

absl::StatusOr<Value> Interpreter::EvaluateSign(const Expression& expression,
                                                const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(const Value operand, Evaluate(*expression.parts[0], scope));
  if (operand.undefined() != nullptr) return UndefinedError(operand);
  if (!operand.is_number())
    return TypeError(
        absl::StrCat("bad operand type for a sign: '", ToAbsl(operand.type_name()), "'"));
  const bool negate = expression.kind == ExpressionKind::kNegate;
  if (operand.real() != nullptr) return Value(negate ? -*operand.real() : *operand.real());
  return Compute(negate ? "-" : "+", Value(int64_t{0}), operand);
}

absl::StatusOr<Value> Interpreter::EvaluateConcat(const Expression& expression,
                                                  const ScopePointer& scope) {
  MarkedText text;
  for (const auto& part : expression.parts) {
    RIVULET_ASSIGN_OR_RETURN(const Value value, Evaluate(*part, scope));
    RIVULET_RETURN_IF_ERROR(AppendMarked(value, text));
  }
  return NewText(std::move(text));
}

absl::StatusOr<Value> Interpreter::EvaluateAccess(const Expression& expression,
                                                  const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(const Value object, Evaluate(*expression.parts[0], scope));
  if (expression.kind == ExpressionKind::kAttribute) return GetAttribute(object, expression.text);
  RIVULET_ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.parts[1], scope));
  return GetItem(object, key);
}

absl::StatusOr<Value> Interpreter::EvaluateSlice(const Expression& expression,
                                                 const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(const Value object, Evaluate(*expression.parts[0], scope));
  Value bounds[] = {Value(None()), Value(None()), Value(None())};
  for (size_t i = 0; i < 3; ++i) {
    if (expression.parts[i + 1] == nullptr) continue;
    RIVULET_ASSIGN_OR_RETURN(bounds[i], Evaluate(*expression.parts[i + 1], scope));
  }
  return GetSlice(object, bounds[0], bounds[1], bounds[2]);
}

absl::Status Interpreter::AddArgument(const Argument& argument, Value value,
                                      GivenArguments& given) {
  if (argument.kind == Argument::kPositional) {
    given.positional.push_back(std::move(value));
  } else if (argument.kind == Argument::kNamed) {
    given.named.emplace_back(argument.name, std::move(value));
  } else if (argument.kind == Argument::kSpread) {
    RIVULET_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value));
    given.positional.insert(given.positional.end(), items.begin(), items.end());
  } else if (value.mapping() == nullptr) {
    return TypeError("argument after ** must be a mapping");
  } else {
    RIVULET_RETURN_IF_ERROR(budget().Step(value.mapping()->entries.size()));
    for (const auto& [key, item] : value.mapping()->entries) {
      if (key.text() == nullptr) return TypeError("keywords must be strings");
      given.plain_names = given.plain_names || key.has_plain();
      given.named.emplace_back(key.text()->bytes, item);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GivenArguments> Interpreter::EvaluateArguments(
    const std::vector<Argument>& arguments, const ScopePointer& scope) {
  GivenArguments given;
  for (const Argument& argument : arguments) {
    RIVULET_ASSIGN_OR_RETURN(Value value, Evaluate(*argument.value, scope));
    RIVULET_RETURN_IF_ERROR(AddArgument(argument, std::move(value), given));
  }
  return given;
}

absl::StatusOr<Value> Interpreter::EvaluateCall(const Expression& expression,
                                                const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(const Value callee, Evaluate(*expression.parts[0], scope));
  RIVULET_ASSIGN_OR_RETURN(GivenArguments given, EvaluateArguments(expression.arguments, scope));
  return Call(callee, std::move(given));
}

absl::StatusOr<Value> Interpreter::EvaluateFilter(const Expression& expression,
                                                  const Value* captured,
                                                  const ScopePointer& scope) {
  const Expression* const input = expression.parts[0].get();
  Value subject;
  if (input == nullptr) {
    subject = *captured;
  } else if (captured != nullptr && input->kind == ExpressionKind::kFilter) {
    const Level level(budget());
    RIVULET_RETURN_IF_ERROR(level.Check());
    RIVULET_ASSIGN_OR_RETURN(subject, EvaluateFilter(*input, captured, scope));
  } else {
    RIVULET_ASSIGN_OR_RETURN(subject, Evaluate(*input, scope));
  }
  RIVULET_ASSIGN_OR_RETURN(GivenArguments given, EvaluateArguments(expression.arguments, scope));
  return CallFilter(expression.text, subject, std::move(given));
}

absl::StatusOr<Value> Interpreter::EvaluateTest(const Expression& expression,
                                                const ScopePointer& scope) {
  RIVULET_ASSIGN_OR_RETURN(const Value subject, Evaluate(*expression.parts[0], scope));
  RIVULET_ASSIGN_OR_RETURN(GivenArguments given, EvaluateArguments(expression.arguments, scope));
  RIVULET_ASSIGN_OR_RETURN(const bool result, CallTest(expression.text, subject, std::move(given)));
  return Value(result);
}

}  // namespace rivulet::jinja
