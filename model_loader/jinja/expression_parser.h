// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Tokens → expressions, with Jinja's grammar: its order of precedence (lowest first) is if-else,
// or, and, not, comparisons, + -, ~, * / // %, **, unary signs, then . [] () | is.
//
// Threading: one thread.
#ifndef RIVULET_MODEL_LOADER_JINJA_EXPRESSION_PARSER_H_
#define RIVULET_MODEL_LOADER_JINJA_EXPRESSION_PARSER_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/jinja/lexer.h"
#include "model_loader/jinja/syntax.h"

namespace rivulet::jinja {

// Trees deeper than this are refused: much of the engine recurses over them.
inline constexpr int kDeepestSyntax = 150;

// The names that a call of a macro sets, if its body reads them.
struct CallNames {
  bool caller = false, varargs = false, kwargs = false;
};

class ExpressionParser {
 public:
  // Both outlive the parser.
  ExpressionParser(const std::vector<Token>& tokens, Syntax& syntax)
      : tokens_(tokens), syntax_(syntax) {}

  // ---- Tokens.

  const Token& current() const { return tokens_[place_]; }
  const Token& next() const { return tokens_[std::min(place_ + 1, tokens_.size() - 1)]; }
  void Advance() {
    if (place_ + 1 < tokens_.size()) ++place_;
  }
  bool IsName(std::string_view name) const { return current().Is(TokenKind::kName, name); }
  bool IsOperator(std::string_view name) const { return current().Is(TokenKind::kOperator, name); }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view name);
  absl::Status ExpectName(std::string_view name);
  absl::Status ExpectOperator(std::string_view name);
  absl::Status Expect(TokenKind kind, std::string_view shown);
  absl::StatusOr<std::string> ExpectAnyName();
  absl::Status Unexpected() const;

  // ---- Expressions.

  absl::StatusOr<ExpressionPointer> ParseExpression(bool with_conditional = true);
  // One expression, or a tuple of several without parentheses. A name in `ends` ends it.
  absl::StatusOr<ExpressionPointer> ParseTuple(bool with_conditional = true,
                                               std::string_view end_name = "",
                                               bool in_parentheses = false);
  // `| name(...) | name ...`, applied to `input`, which may be null for the first.
  absl::StatusOr<ExpressionPointer> ParseFilters(ExpressionPointer input);
  // The filter at this token, without a `|`.
  absl::StatusOr<ExpressionPointer> ParseFilter(ExpressionPointer input);
  absl::StatusOr<Target> ParseTarget(bool with_tuple, bool with_attribute);

  CallNames& call_names() { return call_names_; }

 private:
  using Result = absl::StatusOr<ExpressionPointer>;

  ExpressionPointer New(ExpressionKind kind) const;
  absl::StatusOr<ExpressionPointer> Finish(ExpressionPointer expression) const;
  Result Combine(ExpressionKind kind, ExpressionPointer left, ExpressionPointer right,
                 std::string_view text = "") const;

  Result ParseConditional();
  Result ParseOr();
  Result ParseAnd();
  Result ParseNot();
  Result ParseCompare();
  Result ParseSum();
  Result ParseConcat();
  Result ParseProduct();
  Result ParsePower();
  Result ParseUnary(bool with_filter);
  Result ParseUnaryOperand();
  Result ParsePrimary();
  Result ParseName();
  Result ParseLiteral();
  Result ParseInteger();
  Result ParseList();
  Result ParseMapping();
  Result ParsePostfix(ExpressionPointer expression);
  Result ParseFilterExpression(ExpressionPointer expression);
  Result ParseDot(ExpressionPointer object);
  Result ParseBracket(ExpressionPointer object);
  Result ParseSlice(ExpressionPointer object, ExpressionPointer begin);
  Result ParseSlicePart();
  Result ParseCall(ExpressionPointer callee);
  Result ParseTest(ExpressionPointer input);
  bool StartsTestArgument() const;
  absl::StatusOr<std::vector<Argument>> ParseArguments();
  absl::StatusOr<Argument> ParseArgument();
  absl::StatusOr<std::string> ParseDottedName();
  bool ReadCompareOperator(std::string& name);
  absl::StatusOr<Target> ParseOneTarget(bool with_attribute);

  const std::vector<Token>& tokens_;
  Syntax& syntax_;
  size_t place_ = 0;
  int depth_ = 0;
  CallNames call_names_;
};

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_EXPRESSION_PARSER_H_
