// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/structured_output.h"

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"
#include "server/grammar/grammar_store.h"
#include "server/grammar/tool_call_grammar.h"

namespace rivulet {
namespace {

using Kind = v1::StructuredOutput::KindCase;

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kJsonSchema:
      return "json_schema";
    case Kind::kJsonObject:
      return "json_object";
    case Kind::kRegex:
      return "regex";
    case Kind::kChoices:
      return "choices";
    case Kind::kToolCalls:
      return "tool_calls";
    default:
      return "grammar";
  }
}

// The choices as GrammarKind::kChoices has them.
absl::StatusOr<std::string> Alternatives(const v1::StringList& choices) {
  if (choices.strings().empty()) return absl::InvalidArgumentError("there are none");
  if (static_cast<size_t>(choices.strings_size()) > kMaxChoices) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", choices.strings_size(), ", at most ", kMaxChoices));
  }
  nlohmann::json texts = nlohmann::json::array();
  size_t bytes = 0;
  for (const std::string& choice : choices.strings()) {
    if (choice.empty()) return absl::InvalidArgumentError("one is empty");
    bytes += choice.size();
    texts.push_back(choice);
  }
  if (bytes > kMaxChoiceBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("they have ", bytes, " bytes, at most ", kMaxChoiceBytes));
  }
  return texts.dump();
}

// As the template shows calls to the model. Marks that are special tokens are left out.
ToolCallSyntax SyntaxOf(const ChatTemplate* chat_template) {
  const auto writes = [&](std::string_view text) {
    return chat_template != nullptr && chat_template->Mentions(text);
  };
  if (writes("<tool_call>")) return ToolCallSyntax::kTagged;
  if (writes("[TOOL_CALLS]")) return ToolCallSyntax::kArray;
  return writes("\"parameters\":") ? ToolCallSyntax::kParameters : ToolCallSyntax::kTagged;
}

absl::StatusOr<std::string> ToolCallRulesOf(const v1::ToolCalls& asked, const ServedModel& model) {
  ToolCallRules rules = {.syntax = SyntaxOf(model.chat_template),
                         .optional = asked.optional(),
                         .one = asked.one(),
                         .tools = {asked.tools().begin(), asked.tools().end()}};
  if (rules.optional && rules.syntax != ToolCallSyntax::kTagged) {
    return absl::UnimplementedError(absl::StrCat(
        "the template of ", model.info.name(),
        " does not mark calls with <tool_call>, so that text and calls cannot be told apart as "
        "they are made; ask for a call, or leave strict and parallel_tool_calls out"));
  }
  return ToolCallText(rules);
}

absl::StatusOr<std::shared_ptr<TokenGrammar>> Make(const v1::StructuredOutput& asked, bool thinks,
                                                   const ServedModel& model) {
  GrammarStore& grammars = *model.grammars;
  switch (asked.kind_case()) {
    case Kind::kJsonSchema:
      return grammars.Get(GrammarKind::kJsonSchema, asked.json_schema(), thinks);
    case Kind::kJsonObject:
      if (!asked.json_object())
        return absl::InvalidArgumentError("false says nothing: leave it out");
      return grammars.Get(GrammarKind::kJsonObject, "", thinks);
    case Kind::kRegex:
      return grammars.Get(GrammarKind::kRegex, asked.regex(), thinks);
    case Kind::kChoices: {
      RIVULET_ASSIGN_OR_RETURN(const std::string text, Alternatives(asked.choices()));
      return grammars.Get(GrammarKind::kChoices, text, thinks);
    }
    case Kind::kToolCalls: {
      RIVULET_ASSIGN_OR_RETURN(const std::string text, ToolCallRulesOf(asked.tool_calls(), model));
      return grammars.Get(GrammarKind::kToolCalls, text, thinks);
    }
    default:
      return grammars.Get(GrammarKind::kEbnf, asked.grammar(), thinks);
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<TokenGrammar>> ReadStructuredOutput(const v1::GenerateRequest& proto,
                                                                   const ServedModel& model,
                                                                   bool thinks) {
  if (!proto.has_structured_output()) return nullptr;
  const v1::StructuredOutput& asked = proto.structured_output();
  if (asked.kind_case() == Kind::KIND_NOT_SET) {
    return absl::InvalidArgumentError("structured_output is empty: say what the text must match");
  }
  if (model.grammars == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "structured_output: ", model.info.name(), " has no tokenizer, so its tokens have no text"));
  }
  auto grammar = Make(asked, thinks, model);
  if (grammar.ok()) return grammar;
  return absl::Status(grammar.status().code(),
                      absl::StrCat("structured_output.", NameOf(asked.kind_case()), ": ",
                                   grammar.status().message()));
}

}  // namespace rivulet
