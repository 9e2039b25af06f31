// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A grammar over the tokens of one vocabulary: which tokens may follow a text so that it can still
// become one that the grammar matches. It compares bytes, so a token may end anywhere: in a word,
// in a character, at the end of one rule and in the middle of the next.
//
// It deliberately knows nothing of logits, sessions or stop rules. How likely a token is does not
// matter here.
//
// Threading: any number of threads at once, also with matchers of the same grammar; one matcher
// belongs to one thread, but its const methods may run in several.
#ifndef RIVULET_SERVER_GRAMMAR_TOKEN_GRAMMAR_H_
#define RIVULET_SERVER_GRAMMAR_TOKEN_GRAMMAR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "model_loader/tokenizer.h"
#include "server/grammar/automaton.h"
#include "server/grammar/configurations.h"
#include "server/grammar/token_class.h"
#include "server/grammar/token_trie.h"

namespace rivulet {

// The bytes of a tokenizer's tokens, which all its grammars share.
class TokenBytesTable {
 public:
  // `tokenizer` outlives it.
  explicit TokenBytesTable(const Tokenizer& tokenizer);

  size_t size() const { return bytes_.size(); }
  // What the token adds to a text; `first`: as its first token. Empty for ids past the end.
  std::string_view bytes(uint32_t token, bool first) const;
  const TokenTrie& trie(bool first) const { return first && first_ ? *first_ : any_; }
  // The tokens of a set, as they are anywhere but at the beginning of a text, where they may
  // differ. Null: not worth it.
  std::shared_ptr<const TokenClass> Class(const CharacterSet& set, bool first) const {
    return first && first_ ? nullptr : classes_.Of(set);
  }

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::string_view> bytes_;
  TokenTrie any_;
  std::unique_ptr<const TokenTrie> first_;  // null: like any other
  mutable TokenClasses classes_;
};

// What may come next.
struct AllowedTokens {
  Configurations::StatePointer state;  // holds the bits
  bool first = false;                  // they are for the first token of a text
  // Bit i % 64 of word i / 64 for token i. Ids past the end may not come.
  std::span<const uint64_t> bits() const { return state->tokens[first ? 1 : 0]; }
  bool Contains(uint32_t token) const {
    return token / 64 < bits().size() && (bits()[token / 64] >> (token % 64) & 1) != 0;
  }
  bool none() const;  // no token may come
  // The text matches as it is: a token that ends it may come too.
  bool may_end() const { return state->may_end; }
};

class TokenGrammar {
 public:
  // INVALID_ARGUMENT as Automaton::Make, or if it is too ambiguous at its beginning.
  static absl::StatusOr<std::shared_ptr<TokenGrammar>> Make(
      const Grammar& grammar, std::shared_ptr<const TokenBytesTable> table);

  // Its size: Automaton::parts.
  size_t parts() const { return automaton_.parts; }

 private:
  friend class GrammarMatcher;
  TokenGrammar(Automaton automaton, std::shared_ptr<const TokenBytesTable> table);

  Configurations::StatePointer Start();
  // Null: the token may not come.
  Configurations::StatePointer Advance(Configurations::StatePointer state, uint32_t token,
                                       bool first);
  bool FindTokens(const Configurations::State& state, bool first);
  std::shared_ptr<const TokenClass> ClassAt(const Configurations::State& state, bool first)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Walk(const Configurations::State& state, const TokenTrie& trie, uint64_t most_work,
            std::span<uint64_t> bits) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Automaton automaton_;
  const std::shared_ptr<const TokenBytesTable> table_;
  Mutex mutex_;
  Configurations configurations_ ABSL_GUARDED_BY(mutex_);
  uint64_t walks_ ABSL_GUARDED_BY(mutex_) = 0;
};

// How far one text is.
class GrammarMatcher {
 public:
  // `starts_text`: there is no text before it (Detokenizer::StartsText), so that its first token
  // may add fewer bytes.
  GrammarMatcher(std::shared_ptr<TokenGrammar> grammar, bool starts_text);

  // INVALID_ARGUMENT: the token may not come; nothing changes.
  absl::Status Accept(uint32_t token);
  // The text matches, and nothing that may follow it would.
  bool is_complete() const { return state_->may_end && state_->is_last(); }

  // After `recent` more tokens than have been accepted. INVALID_ARGUMENT: they do not match.
  // FAILED_PRECONDITION: no token of the vocabulary can follow, and the text does not match as it
  // is.
  absl::StatusOr<AllowedTokens> Allowed(std::span<const uint32_t> recent) const;

 private:
  std::shared_ptr<TokenGrammar> grammar_;
  Configurations::StatePointer state_;
  bool first_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_TOKEN_GRAMMAR_H_
