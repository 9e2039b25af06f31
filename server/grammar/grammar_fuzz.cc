// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target of what clients may send as structured output: the first byte says what the rest
// is. What is a grammar is walked through with tokens that the input chooses: some token may always
// come, JSON that may end must be JSON, and small expressions match what the reference says. Built
// with -DRIVULET_FUZZ=ON by clang:
//   build/<preset>/test/grammar_fuzz -max_len=4096 -timeout=20 -max_total_time=60 CORPUS
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "nlohmann/json.hpp"
#include "server/grammar/grammar_reference.h"
#include "server/grammar/grammar_store.h"
#include "server/grammar/list_tokenizer_fixture.h"
#include "server/grammar/regex_parser.h"

namespace rivulet {
namespace {

constexpr GrammarKind kKinds[] = {GrammarKind::kJsonSchema, GrammarKind::kJsonObject,
                                  GrammarKind::kRegex, GrammarKind::kEbnf};
constexpr int kSteps = 40;
// The reference takes long.
constexpr size_t kMostOfReference = 40, kMostTextOfReference = 12;

std::vector<std::string> Vocabulary() {
  std::vector<std::string> tokens = {"\"}", "\":", "], \"", "true", "é", "ab", ""};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  return tokens;
}

// Of an expression that the reference can follow.
std::optional<Grammar> SmallExpression(GrammarKind kind, const std::string& text) {
  const bool is_small = text.size() <= kMostOfReference && text.find('{') == std::string::npos;
  if (kind != GrammarKind::kRegex || !is_small) return std::nullopt;
  auto expression = ParseRegex(text);
  if (!expression.ok()) return std::nullopt;
  return Grammar{{{"root", *std::move(expression)}}, 0};
}

void Walk(std::shared_ptr<TokenGrammar> grammar, const Tokenizer& tokenizer, bool is_json,
          const std::optional<Grammar>& expression, const std::string& input) {
  GrammarMatcher matcher(std::move(grammar), false);
  std::string text;
  for (int step = 0; step < kSteps && !matcher.is_complete(); ++step) {
    const auto allowed = matcher.Allowed({});
    RIVULET_CHECK(allowed.ok(), "no token may come, though each byte is one");
    if (expression.has_value() && text.size() <= kMostTextOfReference) {
      const bool matches = GrammarReference(*expression, text).Matches();
      RIVULET_CHECK(allowed->may_end() == matches, "the reference says otherwise");
    }
    if (is_json && allowed->may_end()) {
      RIVULET_CHECK(nlohmann::json::accept(text), "a text that matches a schema is not JSON");
    }
    // The next token that may come, from one that the input names.
    auto token = static_cast<uint32_t>(static_cast<uint8_t>(input[step % input.size()]) * 7 + step);
    for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
      token = (token + 1) % static_cast<uint32_t>(tokenizer.vocab_size());
      if (allowed->Contains(token)) break;
    }
    const bool taken = matcher.Accept(token).ok();
    RIVULET_CHECK(taken == allowed->Contains(token), "a token that may come is not taken");
    if (!taken) return;
    text += tokenizer.TokenBytes(token);
  }
}

}  // namespace
}  // namespace rivulet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  const rivulet::GrammarKind kind = rivulet::kKinds[data[0] % std::size(rivulet::kKinds)];
  static const auto& tokenizer = *new rivulet::ListTokenizer(rivulet::Vocabulary());
  static auto& grammars = *new rivulet::GrammarStore(tokenizer);
  const bool thinks = data[0] >= 128;
  auto grammar = grammars.Get(kind, text, thinks);
  const bool is_json = !thinks && kind <= rivulet::GrammarKind::kJsonObject;
  const auto expression = thinks ? std::nullopt : rivulet::SmallExpression(kind, text);
  if (grammar.ok()) {
    rivulet::Walk(*std::move(grammar), tokenizer, is_json, expression, text);
  }
  return 0;
}
