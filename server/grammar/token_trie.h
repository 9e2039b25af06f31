// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The bytes of a vocabulary's tokens as a tree, so that what several tokens begin with is looked at
// once. Tokens that add no bytes to a text (BOS, EOS, padding) are not in it.
//
// Threading: immutable.
#ifndef RIVULET_SERVER_GRAMMAR_TOKEN_TRIE_H_
#define RIVULET_SERVER_GRAMMAR_TOKEN_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace rivulet {

class TokenTrie {
 public:
  // In preorder: a node's children follow it. `end` is the node behind its last descendant.
  struct Node {
    uint32_t end = 0;
    uint32_t first_token = 0;  // in tokens(), up to the next node's
    uint16_t depth = 0;        // bytes of its prefix
    uint8_t byte = 0;          // the last of them
  };

  // bytes[id] belongs to token id; longer ones than kLongest are left out.
  static constexpr size_t kLongest = 4096;
  explicit TokenTrie(const std::vector<std::string_view>& bytes);
  // What is left of a tree over the same tokens without those whose bit is set (bit i % 64 of word
  // i / 64 for token i).
  TokenTrie(const std::vector<std::string_view>& bytes, const TokenTrie& all,
            std::span<const uint64_t> without);

  // The last one stands behind all others.
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<uint32_t>& tokens() const { return tokens_; }
  uint16_t deepest() const { return deepest_; }

 private:
  // From tokens_, in the order of their bytes.
  void MakeNodes(const std::vector<std::string_view>& bytes);

  std::vector<Node> nodes_;
  std::vector<uint32_t> tokens_;
  uint16_t deepest_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_TOKEN_TRIE_H_
