// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/token_class.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rivulet {
namespace {

// More sets than schemas have; a client that sends one after the other has each made anew.
constexpr size_t kMostSets = 256;

// Where a text is that has characters of a set alone.
struct Within {
  const LongCharacters* open = nullptr;  // the character that is not complete; null: none is
  uint8_t place = 0;                     // of its next byte
  uint8_t characters = 0;
};

// False: the text is not of the set.
bool Take(const CharacterSet& set, uint8_t byte, Within& at) {
  if (at.open == nullptr) {
    if (++at.characters > TokenClass::kMostCharacters) return false;
    if (byte < kBytesOfAscii) return set.ascii[byte];
    const auto* const found =
        std::find_if(std::begin(kLongCharacters), std::end(kLongCharacters),
                     [&](const LongCharacters& some) { return some.ranges[0].Contains(byte); });
    at.open = found;
    at.place = 1;
    return set.others && found != std::end(kLongCharacters);
  }
  if (!at.open->ranges[at.place].Contains(byte)) return false;
  if (++at.place == at.open->length) at.open = nullptr;
  return true;
}

}  // namespace

std::shared_ptr<const TokenClass> TokenClasses::Of(const CharacterSet& set) {
  if (set.ascii.count() < kFewestCharacters) return nullptr;
  MutexLock lock(&mutex_);
  const auto found = known_.find(set);
  if (found != known_.end()) return found->second;
  std::shared_ptr<const TokenClass> made = Make(set);
  const size_t nodes = made == nullptr ? 0 : made->rest.nodes().size();
  if (known_.size() == kMostSets || nodes_ + nodes > 2 * all_.nodes().size()) {
    known_.clear();
    nodes_ = 0;
  }
  nodes_ += nodes;
  known_[set] = made;
  return made;
}

std::shared_ptr<const TokenClass> TokenClasses::Make(const CharacterSet& set) const {
  std::vector<uint64_t> tokens((bytes_.size() + 63) / 64);
  std::vector<Within> path(all_.deepest() + 1);
  const std::vector<TokenTrie::Node>& nodes = all_.nodes();
  size_t count = 0;
  for (size_t i = 0; i + 1 < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    Within at = path[node.depth - 1];
    if (!Take(set, node.byte, at)) {
      i = node.end;
      continue;
    }
    path[node.depth] = at;
    ++i;
    for (uint32_t t = node.first_token; t < nodes[i].first_token; ++t, ++count) {
      tokens[all_.tokens()[t] / 64] |= uint64_t{1} << (all_.tokens()[t] % 64);
    }
  }
  if (count < bytes_.size() / kLeastShare) return nullptr;
  TokenTrie rest(bytes_, all_, tokens);
  return std::make_shared<const TokenClass>(TokenClass{std::move(tokens), std::move(rest)});
}

}  // namespace rivulet
