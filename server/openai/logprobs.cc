// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/logprobs.h"

#include <cmath>
#include <utility>

namespace rivulet::openai {
namespace {

constexpr double kImpossible = -9999.0;
constexpr size_t kBytesEach = 96;  // of JSON, for each token and each alternative

Json OneLogprob(const v1::TokenLogprob& token, const Tokenizer* tokenizer) {
  Json bytes = Json::array();
  if (tokenizer != nullptr && token.token_id() < tokenizer->vocab_size()) {
    for (const char c : tokenizer->TokenBytes(token.token_id())) {
      bytes.push_back(static_cast<unsigned char>(c));
    }
  }
  return {{"token", token.text()}, {"logprob", LogprobNumber(token)}, {"bytes", std::move(bytes)}};
}

}  // namespace

double LogprobNumber(const v1::TokenLogprob& token) {
  return std::isfinite(token.logprob()) ? static_cast<double>(token.logprob()) : kImpossible;
}

Json TokenLogprobJson(const v1::TokenLogprob& token, uint32_t top, const Tokenizer* tokenizer) {
  Json entry = OneLogprob(token, tokenizer);
  Json best = Json::array();
  for (int i = 0; i < token.top_size() && best.size() < top; ++i) {
    best.push_back(OneLogprob(token.top(i), tokenizer));
  }
  entry["top_logprobs"] = std::move(best);
  return entry;
}

size_t LogprobBytes(const v1::GenerateResponse& message, uint32_t top) {
  const auto tokens = static_cast<size_t>(message.logprobs_size() + message.prompt_logprobs_size());
  return tokens * (1 + top) * kBytesEach;
}

}  // namespace rivulet::openai
