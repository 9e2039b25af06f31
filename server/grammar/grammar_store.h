// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The grammars that requests ask for, over one model's vocabulary. One that was made before is
// found again, with the states and tokens that its texts have needed.
//
// Threading: any thread. Making a grammar takes up to some 100 ms, so call Get on a worker.
#ifndef RIVULET_SERVER_GRAMMAR_GRAMMAR_STORE_H_
#define RIVULET_SERVER_GRAMMAR_GRAMMAR_STORE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "model_loader/tokenizer.h"
#include "server/grammar/token_grammar.h"

namespace rivulet {

enum class GrammarKind : uint8_t {
  kJsonSchema,
  kJsonObject,  // the text is not read
  kRegex,
  kEbnf,
  kChoices,    // the text is a JSON array of texts
  kToolCalls,  // ToolCallText
};

class GrammarStore {
 public:
  // The last ones that were asked for stay, as long as their automata (Automaton::parts) are
  // not larger together: some 100 bytes a part. Beside these each keeps up to 32 MiB of states.
  static constexpr size_t kMostGrammars = 32;
  static constexpr size_t kMostParts = Automaton::kMostParts;

  // `tokenizer` outlives it and its grammars.
  explicit GrammarStore(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // `after_thinking`: the model thinks first, up to </think>, in any words. INVALID_ARGUMENT or
  // UNIMPLEMENTED say what is wrong with the text.
  absl::StatusOr<std::shared_ptr<TokenGrammar>> Get(GrammarKind kind, const std::string& text,
                                                    bool after_thinking = false);

 private:
  using Key = std::tuple<GrammarKind, std::string, bool>;
  struct Entry {
    std::shared_ptr<TokenGrammar> grammar;
    std::list<Key>::iterator use;
  };

  std::shared_ptr<TokenGrammar> Find(const Key& key) ABSL_LOCKS_EXCLUDED(mutex_);
  // What is kept under the key now.
  std::shared_ptr<TokenGrammar> Keep(const Key& key, std::shared_ptr<TokenGrammar> made)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<const TokenBytesTable> Table() ABSL_LOCKS_EXCLUDED(mutex_);

  const Tokenizer& tokenizer_;
  Mutex mutex_;
  std::shared_ptr<const TokenBytesTable> table_ ABSL_GUARDED_BY(mutex_);  // from the first Get on
  absl::flat_hash_map<Key, Entry> grammars_ ABSL_GUARDED_BY(mutex_);
  std::list<Key> uses_ ABSL_GUARDED_BY(mutex_);  // the last use first
  size_t parts_ ABSL_GUARDED_BY(mutex_) = 0;     // of all of them
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_GRAMMAR_STORE_H_
