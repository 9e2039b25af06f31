// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/grammar_store.h"

#include <malloc.h>

#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "nlohmann/json.hpp"
#include "server/grammar/ebnf_parser.h"
#include "server/grammar/json_schema.h"
#include "server/grammar/regex_parser.h"
#include "server/grammar/tool_call_grammar.h"

namespace rivulet {
namespace {

constexpr size_t kManyParts = 1 << 16;

absl::StatusOr<Grammar> ParseChoices(const std::string& text) {
  const auto choices = nlohmann::json::parse(text, nullptr, false);
  std::vector<std::string> texts;
  for (const auto& choice : choices) {
    if (choice.is_string()) texts.push_back(choice.get<std::string>());
  }
  Grammar grammar;
  grammar.rules.push_back({"root", Literals(std::move(texts))});
  return grammar;
}

absl::StatusOr<Grammar> Parse(GrammarKind kind, const std::string& text) {
  switch (kind) {
    case GrammarKind::kJsonSchema:
      return ParseJsonSchema(text);
    case GrammarKind::kJsonObject:
      return AnyJsonObject();
    case GrammarKind::kEbnf:
      return ParseEbnf(text);
    case GrammarKind::kChoices:
      return ParseChoices(text);
    case GrammarKind::kToolCalls:
      return ParseToolCalls(text);
    case GrammarKind::kRegex:
      break;
  }
  RIVULET_ASSIGN_OR_RETURN(Expression expression, ParseRegex(text));
  Grammar grammar;
  grammar.rules.push_back({"root", std::move(expression)});
  return grammar;
}

}  // namespace

absl::StatusOr<std::shared_ptr<TokenGrammar>> GrammarStore::Get(GrammarKind kind,
                                                                const std::string& text,
                                                                bool after_thinking) {
  const Key key(kind, text, after_thinking);
  if (std::shared_ptr<TokenGrammar> known = Find(key); known != nullptr) return known;
  RIVULET_ASSIGN_OR_RETURN(Grammar grammar, Parse(kind, text));
  if (after_thinking) grammar = BehindMark("</think>", std::move(grammar));
  auto made = TokenGrammar::Make(grammar, Table());
  grammar = {};
  // The allocator would keep what a large one took to make.
  if (!made.ok() || (*made)->parts() > kManyParts) malloc_trim(0);
  if (!made.ok()) return made.status();
  return Keep(key, *std::move(made));
}

std::shared_ptr<TokenGrammar> GrammarStore::Keep(const Key& key,
                                                 std::shared_ptr<TokenGrammar> made) {
  MutexLock lock(&mutex_);
  const auto [entry, is_new] = grammars_.try_emplace(key);
  if (!is_new) return entry->second.grammar;  // another thread was faster
  uses_.push_front(key);
  entry->second = {made, uses_.begin()};
  parts_ += made->parts();
  while (grammars_.size() > 1 && (grammars_.size() > kMostGrammars || parts_ > kMostParts)) {
    const auto last = grammars_.find(uses_.back());
    parts_ -= last->second.grammar->parts();
    grammars_.erase(last);
    uses_.pop_back();
  }
  return made;
}

std::shared_ptr<TokenGrammar> GrammarStore::Find(const Key& key) {
  MutexLock lock(&mutex_);
  const auto entry = grammars_.find(key);
  if (entry == grammars_.end()) return nullptr;
  uses_.splice(uses_.begin(), uses_, entry->second.use);
  return entry->second.grammar;
}

std::shared_ptr<const TokenBytesTable> GrammarStore::Table() {
  MutexLock lock(&mutex_);
  if (table_ == nullptr) table_ = std::make_shared<const TokenBytesTable>(tokenizer_);
  return table_;
}

}  // namespace rivulet
