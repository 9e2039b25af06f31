// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/expression_parser.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"

namespace rivulet::jinja {
namespace {

std::string Shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::kVariableBegin:
      return "{{";
    case TokenKind::kVariableEnd:
      return "}}";
    case TokenKind::kBlockBegin:
      return "{%";
    case TokenKind::kBlockEnd:
      return "%}";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return token.text.substr(0, 60);
  }
}

absl::Status TooDeep(int line) {
  return SyntaxError(line, absl::StrCat("it is nested deeper than ", kDeepestSyntax, " levels"));
}

}  // namespace

bool ExpressionParser::SkipName(std::string_view name) {
  const bool found = IsName(name);
  if (found) Advance();
  return found;
}

bool ExpressionParser::SkipOperator(std::string_view name) {
  const bool found = IsOperator(name);
  if (found) Advance();
  return found;
}

absl::Status ExpressionParser::Unexpected() const {
  return SyntaxError(current().line, absl::StrCat("unexpected '", Shown(current()), "'"));
}

absl::Status ExpressionParser::ExpectName(std::string_view name) {
  if (SkipName(name)) return absl::OkStatus();
  return SyntaxError(current().line,
                     absl::StrCat("expected '", ToAbsl(name), "', got '", Shown(current()), "'"));
}

absl::Status ExpressionParser::ExpectOperator(std::string_view name) {
  if (SkipOperator(name)) return absl::OkStatus();
  return SyntaxError(current().line,
                     absl::StrCat("expected '", ToAbsl(name), "', got '", Shown(current()), "'"));
}

absl::Status ExpressionParser::Expect(TokenKind kind, std::string_view shown) {
  if (current().kind == kind) {
    Advance();
    return absl::OkStatus();
  }
  return SyntaxError(current().line,
                     absl::StrCat("expected '", ToAbsl(shown), "', got '", Shown(current()), "'"));
}

absl::StatusOr<std::string> ExpressionParser::ExpectAnyName() {
  if (current().kind != TokenKind::kName) return Unexpected();
  std::string name = current().text;
  Advance();
  return name;
}

ExpressionPointer ExpressionParser::New(ExpressionKind kind) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = current().line;
  return expression;
}

// Sets the height of the tree, and refuses one that is too high.
absl::StatusOr<ExpressionPointer> ExpressionParser::Finish(ExpressionPointer expression) const {
  int height = 0;
  for (const auto& part : expression->parts) {
    if (part != nullptr) height = std::max(height, part->height);
  }
  for (const auto& argument : expression->arguments) {
    height = std::max(height, argument.value->height);
  }
  expression->height = height + 1;
  if (expression->height > kDeepestSyntax) return TooDeep(expression->line);
  return expression;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::Combine(ExpressionKind kind,
                                                            ExpressionPointer left,
                                                            ExpressionPointer right,
                                                            std::string_view text) const {
  ExpressionPointer result = New(kind);
  result->line = left->line;
  result->text = text;
  result->parts.push_back(std::move(left));
  result->parts.push_back(std::move(right));
  return Finish(std::move(result));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseExpression(bool with_conditional) {
  const absl::Cleanup leave = [this] { --depth_; };
  if (++depth_ > kDeepestSyntax) return TooDeep(current().line);
  return with_conditional ? ParseConditional() : ParseOr();
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseConditional() {
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer value, ParseOr());
  while (SkipName("if")) {
    ExpressionPointer result = New(ExpressionKind::kConditional);
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer condition, ParseOr());
    ExpressionPointer otherwise;
    if (SkipName("else")) {
      RIVULET_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    result->parts.push_back(std::move(condition));
    result->parts.push_back(std::move(value));
    result->parts.push_back(std::move(otherwise));
    RIVULET_ASSIGN_OR_RETURN(value, Finish(std::move(result)));
  }
  return value;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseOr() {
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer left, ParseAnd());
  while (SkipName("or")) {
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer right, ParseAnd());
    RIVULET_ASSIGN_OR_RETURN(left, Combine(ExpressionKind::kOr, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseAnd() {
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer left, ParseNot());
  while (SkipName("and")) {
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer right, ParseNot());
    RIVULET_ASSIGN_OR_RETURN(left,
                             Combine(ExpressionKind::kAnd, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const absl::Cleanup leave = [this] { --depth_; };
  if (++depth_ > kDeepestSyntax) return TooDeep(current().line);
  ExpressionPointer result = New(ExpressionKind::kNot);
  Advance();
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseNot());
  result->parts.push_back(std::move(operand));
  return Finish(std::move(result));
}

// Moves behind a comparison, if one is next.
bool ExpressionParser::ReadCompareOperator(std::string& name) {
  for (const std::string_view one : {"==", "!=", "<", "<=", ">", ">="}) {
    if (!IsOperator(one)) continue;
    name = one;
    Advance();
    return true;
  }
  if (SkipName("in")) {
    name = "in";
    return true;
  }
  if (!IsName("not") || !next().Is(TokenKind::kName, "in")) return false;
  Advance();
  Advance();
  name = "not in";
  return true;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseCompare() {
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer first, ParseSum());
  std::string name;
  if (!ReadCompareOperator(name)) return first;
  ExpressionPointer result = New(ExpressionKind::kCompare);
  result->parts.push_back(std::move(first));
  do {
    result->operators.push_back(name);
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseSum());
    result->parts.push_back(std::move(operand));
  } while (ReadCompareOperator(name));
  return Finish(std::move(result));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseSum() {
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer left, ParseConcat());
  while (IsOperator("+") || IsOperator("-")) {
    const std::string operation = current().text;
    Advance();
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer right, ParseConcat());
    RIVULET_ASSIGN_OR_RETURN(
        left, Combine(ExpressionKind::kCompute, std::move(left), std::move(right), operation));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseConcat() {
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer first, ParseProduct());
  if (!IsOperator("~")) return first;
  ExpressionPointer result = New(ExpressionKind::kConcat);
  result->parts.push_back(std::move(first));
  while (SkipOperator("~")) {
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer part, ParseProduct());
    result->parts.push_back(std::move(part));
  }
  return Finish(std::move(result));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseProduct() {
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer left, ParsePower());
  while (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%")) {
    const std::string operation = current().text;
    Advance();
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer right, ParsePower());
    RIVULET_ASSIGN_OR_RETURN(
        left, Combine(ExpressionKind::kCompute, std::move(left), std::move(right), operation));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParsePower() {
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer left, ParseUnary(true));
  while (SkipOperator("**")) {
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer right, ParseUnary(true));
    RIVULET_ASSIGN_OR_RETURN(
        left, Combine(ExpressionKind::kCompute, std::move(left), std::move(right), "**"));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseUnaryOperand() {
  if (!IsOperator("-") && !IsOperator("+")) return ParsePrimary();
  const absl::Cleanup leave = [this] { --depth_; };
  if (++depth_ > kDeepestSyntax) return TooDeep(current().line);
  ExpressionPointer result = New(IsOperator("-") ? ExpressionKind::kNegate : ExpressionKind::kPlus);
  Advance();
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseUnary(false));
  result->parts.push_back(std::move(operand));
  return Finish(std::move(result));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseUnary(bool with_filter) {
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseUnaryOperand());
  RIVULET_ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
  if (!with_filter) return operand;
  return ParseFilterExpression(std::move(operand));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParsePrimary() {
  if (current().kind == TokenKind::kName) return ParseName();
  if (current().kind != TokenKind::kOperator) return ParseLiteral();
  if (SkipOperator("(")) {
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer inner, ParseTuple(true, "", true));
    RIVULET_RETURN_IF_ERROR(ExpectOperator(")"));
    return inner;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseMapping();
  return Unexpected();
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseName() {
  ExpressionPointer result = New(ExpressionKind::kConstant);
  const std::string& name = current().text;
  if (name == "true" || name == "True") {
    result->value = Value(true);
  } else if (name == "false" || name == "False") {
    result->value = Value(false);
  } else if (name == "none" || name == "None") {
    result->value = Value(None());
  } else {
    result->kind = ExpressionKind::kName;
    result->name = syntax_.NumberOf(name);
    call_names_.caller |= name == "caller";
    call_names_.varargs |= name == "varargs";
    call_names_.kwargs |= name == "kwargs";
  }
  Advance();
  return result;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseLiteral() {
  if (current().kind == TokenKind::kInteger) return ParseInteger();
  ExpressionPointer result = New(ExpressionKind::kConstant);
  if (current().kind == TokenKind::kFloat) {
    result->value = Value(std::strtod(current().text.c_str(), nullptr));
    Advance();
    return result;
  }
  if (current().kind != TokenKind::kString) return Unexpected();
  std::string text;
  for (; current().kind == TokenKind::kString; Advance()) text += current().text;
  result->value = Value::String(std::move(text));
  return result;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseInteger() {
  ExpressionPointer result = New(ExpressionKind::kConstant);
  const std::string& digits = current().text;
  const char mark = digits.size() > 1 ? digits[1] : '\0';
  const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
  errno = 0;
  result->value =
      Value(int64_t{std::strtoll(digits.c_str() + (base == 10 ? 0 : 2), nullptr, base)});
  if (errno != 0) return SyntaxError(current().line, "an integer does not fit into 64 bits");
  Advance();
  return result;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseList() {
  ExpressionPointer result = New(ExpressionKind::kList);
  Advance();
  while (!IsOperator("]")) {
    if (!result->parts.empty()) RIVULET_RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator("]")) break;
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer item, ParseExpression());
    result->parts.push_back(std::move(item));
  }
  Advance();
  return Finish(std::move(result));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseMapping() {
  ExpressionPointer result = New(ExpressionKind::kMapping);
  Advance();
  while (!IsOperator("}")) {
    if (!result->parts.empty()) RIVULET_RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator("}")) break;
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer key, ParseExpression());
    RIVULET_RETURN_IF_ERROR(ExpectOperator(":"));
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer value, ParseExpression());
    result->parts.push_back(std::move(key));
    result->parts.push_back(std::move(value));
  }
  Advance();
  return Finish(std::move(result));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseTuple(bool with_conditional,
                                                               std::string_view end_name,
                                                               bool in_parentheses) {
  ExpressionPointer result = New(ExpressionKind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!result->parts.empty()) RIVULET_RETURN_IF_ERROR(ExpectOperator(","));
    const bool ends = current().kind == TokenKind::kVariableEnd ||
                      current().kind == TokenKind::kBlockEnd || IsOperator(")") ||
                      (!end_name.empty() && IsName(end_name));
    if (ends) break;
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer part, ParseExpression(with_conditional));
    result->parts.push_back(std::move(part));
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return Finish(std::move(result));
  if (!result->parts.empty()) return std::move(result->parts.front());
  if (in_parentheses) return result;
  return SyntaxError(current().line,
                     absl::StrCat("expected an expression, got '", Shown(current()), "'"));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParsePostfix(ExpressionPointer expression) {
  while (true) {
    if (IsOperator(".")) {
      RIVULET_ASSIGN_OR_RETURN(expression, ParseDot(std::move(expression)));
    } else if (IsOperator("[")) {
      RIVULET_ASSIGN_OR_RETURN(expression, ParseBracket(std::move(expression)));
    } else if (IsOperator("(")) {
      RIVULET_ASSIGN_OR_RETURN(expression, ParseCall(std::move(expression)));
    } else {
      return expression;
    }
  }
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseFilterExpression(
    ExpressionPointer expression) {
  while (true) {
    if (IsOperator("|")) {
      RIVULET_ASSIGN_OR_RETURN(expression, ParseFilters(std::move(expression)));
    } else if (IsName("is")) {
      RIVULET_ASSIGN_OR_RETURN(expression, ParseTest(std::move(expression)));
    } else if (IsOperator("(")) {
      RIVULET_ASSIGN_OR_RETURN(expression, ParseCall(std::move(expression)));
    } else {
      return expression;
    }
  }
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseDot(ExpressionPointer object) {
  ExpressionPointer result = New(ExpressionKind::kAttribute);
  Advance();
  result->parts.push_back(std::move(object));
  if (current().kind == TokenKind::kInteger) {
    result->kind = ExpressionKind::kItem;
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer index, ParseInteger());
    result->parts.push_back(std::move(index));
    return Finish(std::move(result));
  }
  RIVULET_ASSIGN_OR_RETURN(result->text, ExpectAnyName());
  return Finish(std::move(result));
}

// A part of a slice, null where it is left out.
absl::StatusOr<ExpressionPointer> ExpressionParser::ParseSlicePart() {
  if (IsOperator(":") || IsOperator("]") || IsOperator(",")) return ExpressionPointer();
  return ParseExpression();
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseSlice(ExpressionPointer object,
                                                               ExpressionPointer begin) {
  ExpressionPointer result = New(ExpressionKind::kSlice);
  Advance();
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer end, ParseSlicePart());
  ExpressionPointer step;
  if (SkipOperator(":")) {
    RIVULET_ASSIGN_OR_RETURN(step, ParseSlicePart());
  }
  RIVULET_RETURN_IF_ERROR(ExpectOperator("]"));
  result->parts.push_back(std::move(object));
  result->parts.push_back(std::move(begin));
  result->parts.push_back(std::move(end));
  result->parts.push_back(std::move(step));
  return Finish(std::move(result));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseBracket(ExpressionPointer object) {
  ExpressionPointer result = New(ExpressionKind::kItem);
  Advance();
  if (IsOperator(":")) return ParseSlice(std::move(object), nullptr);
  RIVULET_ASSIGN_OR_RETURN(ExpressionPointer key, ParseExpression());
  if (IsOperator(":")) return ParseSlice(std::move(object), std::move(key));
  RIVULET_RETURN_IF_ERROR(ExpectOperator("]"));
  result->parts.push_back(std::move(object));
  result->parts.push_back(std::move(key));
  return Finish(std::move(result));
}

absl::StatusOr<Argument> ExpressionParser::ParseArgument() {
  Argument argument;
  if (SkipOperator("*")) {
    argument.kind = Argument::kSpread;
  } else if (SkipOperator("**")) {
    argument.kind = Argument::kSpreadNamed;
  } else if (current().kind == TokenKind::kName && next().Is(TokenKind::kOperator, "=")) {
    argument.kind = Argument::kNamed;
    argument.name = current().text;
    Advance();
    Advance();
  }
  RIVULET_ASSIGN_OR_RETURN(argument.value, ParseExpression());
  return argument;
}

absl::StatusOr<std::vector<Argument>> ExpressionParser::ParseArguments() {
  RIVULET_RETURN_IF_ERROR(ExpectOperator("("));
  std::vector<Argument> arguments;
  while (!IsOperator(")")) {
    if (!arguments.empty()) RIVULET_RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator(")")) break;
    RIVULET_ASSIGN_OR_RETURN(Argument argument, ParseArgument());
    const bool late = argument.kind == Argument::kPositional && !arguments.empty() &&
                      arguments.back().kind != Argument::kPositional;
    if (late) return SyntaxError(current().line, "invalid syntax for function call expression");
    arguments.push_back(std::move(argument));
  }
  Advance();
  return arguments;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseCall(ExpressionPointer callee) {
  ExpressionPointer result = New(ExpressionKind::kCall);
  RIVULET_ASSIGN_OR_RETURN(result->arguments, ParseArguments());
  result->parts.push_back(std::move(callee));
  return Finish(std::move(result));
}

absl::StatusOr<std::string> ExpressionParser::ParseDottedName() {
  RIVULET_ASSIGN_OR_RETURN(std::string name, ExpectAnyName());
  while (SkipOperator(".")) {
    RIVULET_ASSIGN_OR_RETURN(const std::string part, ExpectAnyName());
    name += "." + part;
  }
  return name;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseFilter(ExpressionPointer input) {
  ExpressionPointer result = New(ExpressionKind::kFilter);
  RIVULET_ASSIGN_OR_RETURN(result->text, ParseDottedName());
  if (IsOperator("(")) {
    RIVULET_ASSIGN_OR_RETURN(result->arguments, ParseArguments());
  }
  result->parts.push_back(std::move(input));
  return Finish(std::move(result));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseFilters(ExpressionPointer input) {
  while (SkipOperator("|")) {
    RIVULET_ASSIGN_OR_RETURN(input, ParseFilter(std::move(input)));
  }
  return input;
}

bool ExpressionParser::StartsTestArgument() const {
  switch (current().kind) {
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    case TokenKind::kName:
      return !IsName("else") && !IsName("or") && !IsName("and");
    default:
      return IsOperator("(") || IsOperator("[") || IsOperator("{");
  }
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseTest(ExpressionPointer input) {
  ExpressionPointer result = New(ExpressionKind::kTest);
  Advance();
  const bool negated = SkipName("not");
  RIVULET_ASSIGN_OR_RETURN(result->text, ParseDottedName());
  if (IsOperator("(")) {
    RIVULET_ASSIGN_OR_RETURN(result->arguments, ParseArguments());
  } else if (StartsTestArgument()) {
    if (IsName("is")) return SyntaxError(current().line, "You cannot chain multiple tests with is");
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer operand, ParsePrimary());
    RIVULET_ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
    result->arguments.push_back({Argument::kPositional, "", std::move(operand)});
  }
  result->parts.push_back(std::move(input));
  RIVULET_ASSIGN_OR_RETURN(result, Finish(std::move(result)));
  if (!negated) return result;
  ExpressionPointer inverted = New(ExpressionKind::kNot);
  inverted->parts.push_back(std::move(result));
  return Finish(std::move(inverted));
}

absl::StatusOr<Target> ExpressionParser::ParseOneTarget(bool with_attribute) {
  Target target;
  target.line = current().line;
  if (SkipOperator("(")) {
    const absl::Cleanup leave = [this] { --depth_; };
    if (++depth_ > kDeepestSyntax) return TooDeep(current().line);
    RIVULET_ASSIGN_OR_RETURN(target, ParseTarget(true, with_attribute));
    RIVULET_RETURN_IF_ERROR(ExpectOperator(")"));
    return target;
  }
  RIVULET_ASSIGN_OR_RETURN(const std::string name, ExpectAnyName());
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant)
      return SyntaxError(target.line, absl::StrCat("can't assign to '", name, "'"));
  }
  target.name = syntax_.NumberOf(name);
  if (with_attribute && SkipOperator(".")) {
    RIVULET_ASSIGN_OR_RETURN(target.attribute, ExpectAnyName());
  }
  return target;
}

absl::StatusOr<Target> ExpressionParser::ParseTarget(bool with_tuple, bool with_attribute) {
  RIVULET_ASSIGN_OR_RETURN(Target first, ParseOneTarget(with_attribute));
  if (!with_tuple || !IsOperator(",")) return first;
  Target tuple;
  tuple.line = first.line;
  tuple.parts.push_back(std::move(first));
  while (SkipOperator(",")) {
    const bool ends = current().kind == TokenKind::kBlockEnd || IsOperator(")") || IsName("in") ||
                      IsOperator("=");
    if (ends) break;
    RIVULET_ASSIGN_OR_RETURN(Target part, ParseOneTarget(with_attribute));
    tuple.parts.push_back(std::move(part));
  }
  return tuple;
}

}  // namespace rivulet::jinja
