// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Strings with a value each, to be found as prefixes of a text byte by byte.
//
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_PREFIX_TRIE_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_PREFIX_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace rivulet {

class PrefixTrie {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kRoot = 0;

  // Of equal strings the last one counts.
  explicit PrefixTrie(std::vector<std::pair<std::string_view, uint32_t>> strings);

  // The node behind `node` by this byte, or kNone.
  uint32_t Next(uint32_t node, char byte) const {
    const Node& from = nodes_[node];
    if (from.table != kNone) return tables_[from.table + static_cast<uint8_t>(byte)];
    for (uint32_t child = from.children; child < from.children_end; ++child) {
      if (labels_[child] == byte) return child;
    }
    return kNone;
  }
  // The value of the string that ends here, or kNone.
  uint32_t Value(uint32_t node) const { return nodes_[node].value; }

 private:
  struct Node {
    uint32_t children = 0, children_end = 0;  // they are neighbours
    uint32_t value = kNone;
    uint32_t table = kNone;  // of 256 nodes in tables_, if there are many children
  };
  struct Part;
  void AddChildren(const Part& part, std::vector<Part>* queue);
  void AddTable(uint32_t node);

  std::vector<std::pair<std::string_view, uint32_t>> strings_;  // empty after construction
  std::vector<Node> nodes_;
  std::vector<char> labels_;  // of the byte that leads to each node
  std::vector<uint32_t> tables_;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_PREFIX_TRIE_H_
