// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where a text may be in a grammar: an automaton (automaton.h) that is made deterministic as texts
// need it. A State is a set of configurations, each a node and the stack of return nodes below it.
// States that a text reached before are found again, with the bytes that lead on from them and
// what their users have attached, so that a step costs a look-up.
//
// Every text that has a state can be completed. If a text can be at too many places of the grammar
// at once, only the first ones are followed: the output still matches, but some matching texts
// cannot be produced. Which ones depends only on the text and the grammar.
//
// Memory is bounded: once the states take `most_bytes` all are forgotten, and the texts that still
// hold one go on from it.
//
// Threading: one thread at a time.
#ifndef RIVULET_SERVER_GRAMMAR_CONFIGURATIONS_H_
#define RIVULET_SERVER_GRAMMAR_CONFIGURATIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/grammar/automaton.h"
#include "server/grammar/character_set.h"

namespace rivulet {

// Return nodes, the innermost first. Equal stacks are one object, as long as they are remembered.
struct CallStack {
  std::shared_ptr<const CallStack> below;  // null: the last one
  uint32_t next = 0;                       // node
  uint32_t depth = 1;
  uint64_t hash = 0;  // of the nodes, so that it says which stack it is also once one is forgotten
};

struct Configuration {
  uint32_t node = 0;
  std::shared_ptr<const CallStack> stack;  // null: the root rule
};

class Configurations {
 public:
  // Configurations of one state. Of more, only the first ones are followed.
  static constexpr size_t kMostConfigurations = 4096;
  // Edges of one state, and calls and ends that are looked at for one step, likewise.
  static constexpr size_t kMostEdges = size_t{1} << 15;
  static constexpr size_t kMostWork = size_t{1} << 15;

  struct State;
  // What most characters do: all of `characters` lead to one state.
  struct Stride {
    CharacterSet characters;
    const State* to = nullptr;  // null: there is no such set
  };

  struct State : std::enable_shared_from_this<State> {
    std::vector<Configuration> configurations;  // those with edges, in order
    bool may_end = false;                       // the text so far matches
    size_t edges = 0;                           // of all of them
    bool narrowed = false;                      // there were more than are followed
    // Whether nothing can follow.
    bool is_last() const { return configurations.empty(); }

    // Tokens that may come, as any token and as the first (token_grammar.h). Empty: not computed
    // yet.
    mutable std::array<std::vector<uint64_t>, 2> tokens;
    mutable uint64_t walk = 0;  // the last walk over tokens that came here

   private:
    friend class Configurations;
    // By byte; null: no text goes on with it. They belong to `generation`; those of an earlier one
    // may be gone, and so may `stride`.
    mutable std::vector<const State*> next;
    mutable std::optional<Stride> stride;
    mutable uint64_t generation = 0;
  };
  using StatePointer = std::shared_ptr<const State>;

  // `automaton` outlives it.
  Configurations(const Automaton& automaton, size_t most_bytes);

  StatePointer Start();
  // The state itself, or the equal one that is remembered.
  const State& Known(const State& state);
  // Null: no text that begins so matches. Valid until the next ForgetIfLarge, or as long as its
  // shared_from_this() is held.
  const State* Advance(const State& state, uint8_t byte) {
    if (state.generation != generation_) Open(state);
    const State* const next = state.next[byte];
    return next != &unknown_ ? next : FindNext(state, byte);
  }
  // The largest set of ASCII characters that lead to one state, and whether all others do so too.
  // Valid as long as what Advance returns.
  Stride StrideFrom(const State& state);

  // If the states take too much, forgets all of them.
  void ForgetIfLarge();
  // What users attach counts too.
  void AddBytes(size_t bytes) { bytes_ += bytes; }
  size_t bytes() const { return bytes_; }

 private:
  struct StackKey {
    const CallStack* below;
    uint32_t next;
    bool operator==(const StackKey&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const StackKey& key) {
      return H::combine(std::move(h), key.below, key.next);
    }
  };
  using ConfigurationKey = std::pair<uint32_t, uint64_t>;  // the hash of its stack

  std::shared_ptr<const CallStack> Push(const std::shared_ptr<const CallStack>& below,
                                        uint32_t next);
  static ConfigurationKey KeyOf(const Configuration& at);
  static std::vector<ConfigurationKey> KeyOf(const State& state);
  void Add(Configuration configuration);
  void Follow(const Configuration& at, State& state);
  std::shared_ptr<State> Close();
  void Open(const State& state);
  const State* FindNext(const State& state, uint8_t byte);
  Stride FindStride(const State& state);
  bool AllLeadTo(const State& to, const State& from, std::span<const ByteRange> ranges);
  const State* Intern(StatePointer state);

  const Automaton& automaton_;
  const size_t most_bytes_;
  size_t bytes_ = 0;
  uint64_t generation_ = 1;
  absl::flat_hash_map<StackKey, std::shared_ptr<const CallStack>> stacks_;
  absl::flat_hash_map<std::vector<ConfigurationKey>, StatePointer> states_;
  // Of the state that is being made.
  std::vector<Configuration> pending_;  // the last one is looked at next
  absl::flat_hash_set<ConfigurationKey> seen_;
  size_t work_ = 0;
  const State unknown_;  // stands for a step that has not been looked for
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_CONFIGURATIONS_H_
