// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The tokens of a vocabulary that are made of characters of one set, the last of which may lack
// bytes at its end, and the others. Inside of a
// JSON string nearly every token may come, and which these are does not depend on what surrounds
// it: they are found here once for all grammars, so that a new state looks at the few others alone.
//
// Threading: TokenClass is immutable; TokenClasses, any thread.
#ifndef RIVULET_SERVER_GRAMMAR_TOKEN_CLASS_H_
#define RIVULET_SERVER_GRAMMAR_TOKEN_CLASS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "kernels/base/mutex.h"
#include "server/grammar/character_set.h"
#include "server/grammar/token_trie.h"

namespace rivulet {

struct TokenClass {
  // Characters of its tokens at most; longer ones are among the rest.
  static constexpr size_t kMostCharacters = 16;

  std::vector<uint64_t> tokens;  // bit i % 64 of word i / 64 for token i
  TokenTrie rest;                // all others
};

class TokenClasses {
 public:
  // Sets of fewer ASCII characters, and those of less than one token in kLeastShare, are not worth
  // it: a walk over the tree soon leaves out what such a set lacks.
  static constexpr size_t kFewestCharacters = 26;
  static constexpr size_t kLeastShare = 16;

  // Both outlive it.
  TokenClasses(const std::vector<std::string_view>& bytes, const TokenTrie& all)
      : bytes_(bytes), all_(all) {}

  // Null: not worth it. Takes some milliseconds for a set that is new.
  std::shared_ptr<const TokenClass> Of(const CharacterSet& set);

 private:
  std::shared_ptr<const TokenClass> Make(const CharacterSet& set) const;

  const std::vector<std::string_view>& bytes_;
  const TokenTrie& all_;
  Mutex mutex_;
  absl::flat_hash_map<CharacterSet, std::shared_ptr<const TokenClass>> known_
      ABSL_GUARDED_BY(mutex_);
  size_t nodes_ ABSL_GUARDED_BY(mutex_) = 0;  // of their trees
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_TOKEN_CLASS_H_
