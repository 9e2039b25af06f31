// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/prefix_trie.h"

#include <algorithm>

namespace rivulet {
namespace {

constexpr uint32_t kManyChildren = 8;

}  // namespace

// Strings [begin, end) share their first `depth` bytes, which lead to `node`.
struct PrefixTrie::Part {
  uint32_t node;
  size_t begin, end, depth;
};

PrefixTrie::PrefixTrie(std::vector<std::pair<std::string_view, uint32_t>> strings)
    : strings_(std::move(strings)), nodes_(1), labels_(1) {
  std::stable_sort(strings_.begin(), strings_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Part> queue = {{kRoot, 0, strings_.size(), 0}};
  for (size_t i = 0; i < queue.size(); ++i) AddChildren(Part(queue[i]), &queue);
  strings_ = {};
}

void PrefixTrie::AddChildren(const Part& part, std::vector<Part>* queue) {
  size_t begin = part.begin;
  for (; begin < part.end && strings_[begin].first.size() == part.depth; ++begin) {
    nodes_[part.node].value = strings_[begin].second;
  }
  nodes_[part.node].children = static_cast<uint32_t>(nodes_.size());
  while (begin < part.end) {
    const char label = strings_[begin].first[part.depth];
    size_t end = begin;
    while (end < part.end && strings_[end].first[part.depth] == label) ++end;
    queue->push_back({static_cast<uint32_t>(nodes_.size()), begin, end, part.depth + 1});
    nodes_.emplace_back();
    labels_.push_back(label);
    begin = end;
  }
  nodes_[part.node].children_end = static_cast<uint32_t>(nodes_.size());
  AddTable(part.node);
}

void PrefixTrie::AddTable(uint32_t node) {
  Node& from = nodes_[node];
  if (from.children_end - from.children < kManyChildren) return;
  from.table = static_cast<uint32_t>(tables_.size());
  tables_.resize(tables_.size() + 256, kNone);
  for (uint32_t child = from.children; child < from.children_end; ++child) {
    tables_[from.table + static_cast<uint8_t>(labels_[child])] = child;
  }
}

}  // namespace rivulet
