// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/token_trie.h"

#include <algorithm>

namespace rivulet {

TokenTrie::TokenTrie(const std::vector<std::string_view>& bytes) {
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (!bytes[id].empty() && bytes[id].size() <= kLongest) {
      tokens_.push_back(static_cast<uint32_t>(id));
    }
  }
  std::sort(tokens_.begin(), tokens_.end(), [&](uint32_t a, uint32_t b) {
    return bytes[a] != bytes[b] ? bytes[a] < bytes[b] : a < b;
  });
  MakeNodes(bytes);
}

TokenTrie::TokenTrie(const std::vector<std::string_view>& bytes, const TokenTrie& all,
                     std::span<const uint64_t> without) {
  for (const uint32_t id : all.tokens_) {
    if ((without[id / 64] >> (id % 64) & 1) == 0) tokens_.push_back(id);
  }
  MakeNodes(bytes);
}

void TokenTrie::MakeNodes(const std::vector<std::string_view>& bytes) {
  std::vector<uint32_t> open;  // the node of each byte of the last token
  const auto close_to = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  std::string_view last;
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view token = bytes[tokens_[i]];
    const size_t shared =
        std::mismatch(token.begin(), token.end(), last.begin(), last.end()).first - token.begin();
    close_to(shared);
    for (size_t place = shared; place < token.size(); ++place) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.first_token = i,
                        .depth = static_cast<uint16_t>(place + 1),
                        .byte = static_cast<uint8_t>(token[place])});
    }
    deepest_ = std::max(deepest_, static_cast<uint16_t>(token.size()));
    last = token;
  }
  close_to(0);
  nodes_.push_back({.end = static_cast<uint32_t>(nodes_.size()) + 1,
                    .first_token = static_cast<uint32_t>(tokens_.size())});
}

}  // namespace rivulet
