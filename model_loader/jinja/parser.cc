// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/jinja/expression_parser.h"

namespace rivulet::jinja {
namespace {

using StatementPointer = std::unique_ptr<Statement>;
using Names = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(const std::vector<Token>& tokens, Syntax& syntax)
      : syntax_(syntax), parser_(tokens, syntax) {}

  absl::Status Run() {
    RIVULET_RETURN_IF_ERROR(ParseBody({}, syntax_.body));
    if (parser_.current().kind == TokenKind::kEnd) return absl::OkStatus();
    return parser_.Unexpected();
  }

 private:
  using Result = absl::StatusOr<StatementPointer>;

  StatementPointer New(StatementKind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = parser_.current().line;
    return statement;
  }

  bool AtOneOf(Names names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view name) { return parser_.IsName(name); });
  }

  // Statements up to the block that begins with one of `ends`, whose name is then current; without
  // `ends`, up to the end of the template.
  absl::Status ParseBody(Names ends, Body& body) {
    const absl::Cleanup leave = [this] { --depth_; };
    if (++depth_ > kDeepestSyntax) {
      return SyntaxError(parser_.current().line,
                         absl::StrCat("it is nested deeper than ", kDeepestSyntax, " levels"));
    }
    while (parser_.current().kind != TokenKind::kEnd) {
      if (parser_.current().kind == TokenKind::kBlockBegin) {
        parser_.Advance();
        if (AtOneOf(ends)) return absl::OkStatus();
        RIVULET_ASSIGN_OR_RETURN(StatementPointer statement, ParseStatement());
        body.push_back(std::move(statement));
        RIVULET_RETURN_IF_ERROR(parser_.Expect(TokenKind::kBlockEnd, "%}"));
      } else {
        RIVULET_ASSIGN_OR_RETURN(StatementPointer statement, ParseOutput());
        body.push_back(std::move(statement));
      }
    }
    if (ends.size() == 0) return absl::OkStatus();
    return SyntaxError(
        parser_.current().line,
        absl::StrCat("the template ends where '", ToAbsl(*ends.begin()), "' is expected"));
  }

  // The body of a block, from the end of its first tag to the name that ends it, which is consumed.
  absl::StatusOr<Body> ParseBlock(std::string_view end) {
    Body body;
    RIVULET_RETURN_IF_ERROR(OpenBlock());
    RIVULET_RETURN_IF_ERROR(ParseBody({end}, body));
    parser_.Advance();
    return body;
  }

  absl::Status OpenBlock() {
    parser_.SkipOperator(":");
    return parser_.Expect(TokenKind::kBlockEnd, "%}");
  }

  Result ParseOutput() {
    StatementPointer statement = New(StatementKind::kText);
    if (parser_.current().kind == TokenKind::kData) {
      statement->text = parser_.current().text;
      parser_.Advance();
      return statement;
    }
    RIVULET_RETURN_IF_ERROR(parser_.Expect(TokenKind::kVariableBegin, "{{"));
    statement->kind = StatementKind::kPrint;
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer value, parser_.ParseTuple());
    statement->expressions.push_back(std::move(value));
    RIVULET_RETURN_IF_ERROR(parser_.Expect(TokenKind::kVariableEnd, "}}"));
    return statement;
  }

  Result ParseStatement() {
    struct Keyword {
      std::string_view name;
      Result (Parser::*parse)();
    };
    static constexpr Keyword kKeywords[] = {
        {"for", &Parser::ParseFor},          {"if", &Parser::ParseIf},
        {"set", &Parser::ParseSet},          {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock},   {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},        {"print", &Parser::ParsePrint},
        {"block", &Parser::ParseNamedBlock}, {"generation", &Parser::ParseGeneration},
        {"break", &Parser::ParseBreak},      {"continue", &Parser::ParseContinue}};
    const auto* const keyword =
        std::find_if(std::begin(kKeywords), std::end(kKeywords),
                     [&](const Keyword& one) { return parser_.IsName(one.name); });
    if (keyword != std::end(kKeywords)) return (this->*keyword->parse)();
    for (const std::string_view name :
         {"include", "import", "from", "extends", "autoescape", "do", "trans"}) {
      if (!parser_.IsName(name)) continue;
      return SyntaxError(
          parser_.current().line,
          absl::StrCat("the statement '", ToAbsl(name), "' is not available in chat templates"));
    }
    return SyntaxError(parser_.current().line,
                       absl::StrCat("unknown tag '", parser_.current().text, "'"));
  }

  Result ParseFor() {
    StatementPointer statement = New(StatementKind::kFor);
    parser_.Advance();
    RIVULET_ASSIGN_OR_RETURN(Target target, parser_.ParseTarget(true, false));
    statement->targets.push_back(std::move(target));
    RIVULET_RETURN_IF_ERROR(parser_.ExpectName("in"));
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer iterable, parser_.ParseTuple(false, "recursive"));
    ExpressionPointer filter;
    if (parser_.SkipName("if")) {
      RIVULET_ASSIGN_OR_RETURN(filter, parser_.ParseExpression());
    }
    statement->expressions.push_back(std::move(iterable));
    statement->expressions.push_back(std::move(filter));
    statement->recursive = parser_.SkipName("recursive");
    statement->bodies.resize(2);
    RIVULET_RETURN_IF_ERROR(OpenBlock());
    ++loops_;
    RIVULET_RETURN_IF_ERROR(ParseBody({"endfor", "else"}, statement->bodies[0]));
    --loops_;
    const bool has_else = parser_.IsName("else");
    parser_.Advance();
    if (!has_else) return statement;
    RIVULET_ASSIGN_OR_RETURN(statement->bodies[1], ParseBlock("endfor"));
    return statement;
  }

  Result ParseIf() {
    StatementPointer statement = New(StatementKind::kIf);
    while (true) {
      parser_.Advance();
      RIVULET_ASSIGN_OR_RETURN(ExpressionPointer condition, parser_.ParseTuple(false));
      statement->expressions.push_back(std::move(condition));
      RIVULET_RETURN_IF_ERROR(OpenBlock());
      statement->bodies.emplace_back();
      RIVULET_RETURN_IF_ERROR(ParseBody({"endif", "elif", "else"}, statement->bodies.back()));
      if (!parser_.IsName("elif")) break;
    }
    const bool has_else = parser_.IsName("else");
    parser_.Advance();
    statement->bodies.emplace_back();
    if (!has_else) return statement;
    RIVULET_ASSIGN_OR_RETURN(statement->bodies.back(), ParseBlock("endif"));
    return statement;
  }

  Result ParseSet() {
    StatementPointer statement = New(StatementKind::kSet);
    parser_.Advance();
    RIVULET_ASSIGN_OR_RETURN(Target target, parser_.ParseTarget(true, true));
    statement->targets.push_back(std::move(target));
    if (parser_.SkipOperator("=")) {
      RIVULET_ASSIGN_OR_RETURN(ExpressionPointer value, parser_.ParseTuple());
      statement->expressions.push_back(std::move(value));
      return statement;
    }
    statement->kind = StatementKind::kSetBlock;
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer filters, parser_.ParseFilters(nullptr));
    statement->expressions.push_back(std::move(filters));
    statement->bodies.resize(1);
    RIVULET_ASSIGN_OR_RETURN(statement->bodies[0], ParseBlock("endset"));
    return statement;
  }

  // The parameters of a macro or of a call block: names, the last ones with defaults.
  absl::Status ParseParameters(Statement& statement) {
    RIVULET_RETURN_IF_ERROR(parser_.ExpectOperator("("));
    while (!parser_.IsOperator(")")) {
      if (!statement.parameters.empty()) RIVULET_RETURN_IF_ERROR(parser_.ExpectOperator(","));
      const int line = parser_.current().line;
      RIVULET_ASSIGN_OR_RETURN(const Target target, parser_.ParseTarget(false, false));
      statement.parameters.push_back(target.name);
      const bool follows_default =
          !statement.expressions.empty() && statement.expressions.back() != nullptr;
      ExpressionPointer value;
      if (parser_.SkipOperator("=")) {
        RIVULET_ASSIGN_OR_RETURN(value, parser_.ParseExpression());
      } else if (follows_default) {
        return SyntaxError(line, "non-default argument follows default argument");
      }
      statement.expressions.push_back(std::move(value));
    }
    parser_.Advance();
    return absl::OkStatus();
  }

  // The body of a macro, and which of the names that a call sets it reads. Loops around it are not
  // its own.
  absl::Status ParseMacroBody(std::string_view end, Statement& statement) {
    const CallNames outside = std::exchange(parser_.call_names(), {});
    const int loops = std::exchange(loops_, 0);
    statement.bodies.resize(1);
    RIVULET_ASSIGN_OR_RETURN(statement.bodies[0], ParseBlock(end));
    loops_ = loops;
    CallNames& names = parser_.call_names();
    statement.uses_caller = names.caller;
    statement.uses_varargs = names.varargs;
    statement.uses_kwargs = names.kwargs;
    names = {names.caller || outside.caller, names.varargs || outside.varargs,
             names.kwargs || outside.kwargs};
    return absl::OkStatus();
  }

  Result ParseMacro() {
    StatementPointer statement = New(StatementKind::kMacro);
    parser_.Advance();
    RIVULET_ASSIGN_OR_RETURN(const Target target, parser_.ParseTarget(false, false));
    statement->name = target.name;
    statement->text = syntax_.names[static_cast<size_t>(target.name)];
    RIVULET_RETURN_IF_ERROR(ParseParameters(*statement));
    RIVULET_RETURN_IF_ERROR(ParseMacroBody("endmacro", *statement));
    return statement;
  }

  Result ParseCallBlock() {
    StatementPointer statement = New(StatementKind::kCallBlock);
    parser_.Advance();
    statement->text = "caller";
    if (parser_.IsOperator("(")) RIVULET_RETURN_IF_ERROR(ParseParameters(*statement));
    RIVULET_ASSIGN_OR_RETURN(statement->call, parser_.ParseExpression());
    if (statement->call->kind != ExpressionKind::kCall) {
      return SyntaxError(statement->line, "expected call");
    }
    RIVULET_RETURN_IF_ERROR(ParseMacroBody("endcall", *statement));
    return statement;
  }

  Result ParseFilterBlock() {
    StatementPointer statement = New(StatementKind::kFilterBlock);
    parser_.Advance();
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer filters, parser_.ParseFilter(nullptr));
    RIVULET_ASSIGN_OR_RETURN(filters, parser_.ParseFilters(std::move(filters)));
    statement->expressions.push_back(std::move(filters));
    statement->bodies.resize(1);
    RIVULET_ASSIGN_OR_RETURN(statement->bodies[0], ParseBlock("endfilter"));
    return statement;
  }

  Result ParseWith() {
    StatementPointer statement = New(StatementKind::kWith);
    parser_.Advance();
    while (parser_.current().kind != TokenKind::kBlockEnd) {
      if (!statement->targets.empty()) RIVULET_RETURN_IF_ERROR(parser_.ExpectOperator(","));
      RIVULET_ASSIGN_OR_RETURN(Target target, parser_.ParseTarget(false, false));
      statement->targets.push_back(std::move(target));
      RIVULET_RETURN_IF_ERROR(parser_.ExpectOperator("="));
      RIVULET_ASSIGN_OR_RETURN(ExpressionPointer value, parser_.ParseExpression());
      statement->expressions.push_back(std::move(value));
    }
    statement->bodies.resize(1);
    RIVULET_ASSIGN_OR_RETURN(statement->bodies[0], ParseBlock("endwith"));
    return statement;
  }

  Result ParsePrint() {
    StatementPointer statement = New(StatementKind::kPrint);
    parser_.Advance();
    RIVULET_ASSIGN_OR_RETURN(ExpressionPointer value, parser_.ParseTuple());
    statement->expressions.push_back(std::move(value));
    return statement;
  }

  // A body that is rendered as a call: names that it sets end with it, and it leaves no loop.
  Result ParseScope(std::string_view end) {
    StatementPointer statement = New(StatementKind::kScope);
    const int loops = std::exchange(loops_, 0);
    statement->bodies.resize(1);
    RIVULET_ASSIGN_OR_RETURN(statement->bodies[0], ParseBlock(end));
    loops_ = loops;
    return statement;
  }

  Result ParseNamedBlock() {
    parser_.Advance();
    RIVULET_ASSIGN_OR_RETURN(const std::string name, parser_.ExpectAnyName());
    while (parser_.SkipName("scoped") || parser_.SkipName("required")) continue;
    RIVULET_ASSIGN_OR_RETURN(StatementPointer statement, ParseScope("endblock"));
    if (parser_.IsName(name)) parser_.Advance();
    return statement;
  }

  Result ParseGeneration() {
    parser_.Advance();
    return ParseScope("endgeneration");
  }

  Result ParseLeave(StatementKind kind, std::string_view name) {
    StatementPointer statement = New(kind);
    if (loops_ == 0)
      return SyntaxError(statement->line, absl::StrCat("'", ToAbsl(name), "' outside of a loop"));
    parser_.Advance();
    return statement;
  }
  Result ParseBreak() { return ParseLeave(StatementKind::kBreak, "break"); }
  Result ParseContinue() { return ParseLeave(StatementKind::kContinue, "continue"); }

  Syntax& syntax_;
  ExpressionParser parser_;
  int depth_ = 0;
  int loops_ = 0;  // around this statement
};

}  // namespace

absl::StatusOr<Syntax> Parse(std::string_view source) {
  RIVULET_ASSIGN_OR_RETURN(const std::vector<Token> tokens, Tokenize(source));
  Syntax syntax;
  RIVULET_RETURN_IF_ERROR(Parser(tokens, syntax).Run());
  return syntax;
}

}  // namespace rivulet::jinja
