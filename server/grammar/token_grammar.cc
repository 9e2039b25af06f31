// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/token_grammar.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace rivulet {
namespace {

constexpr size_t kMostBytes = size_t{32} << 20;  // of one grammar's states
// To find the tokens of one state: some 10 ms on the thread that samples.
constexpr uint64_t kMostWork = uint64_t{1} << 19;
constexpr uint64_t kWorkOfState = 16;
constexpr size_t kManyEdges = 64;

// Those that need no escape.
CharacterSet CharactersOfJsonStrings() {
  CharacterSet set{.ascii = {}, .others = true};
  for (uint32_t byte = ' '; byte < kBytesOfAscii; ++byte) set.ascii.set(byte);
  set.ascii.reset('"').reset('\\');
  return set;
}

std::vector<std::string_view> BytesOf(const Tokenizer& tokenizer) {
  std::vector<std::string_view> bytes(tokenizer.vocab_size());
  for (uint32_t id = 0; id < bytes.size(); ++id) bytes[id] = tokenizer.TokenBytes(id);
  return bytes;
}

}  // namespace

bool AllowedTokens::none() const {
  return std::all_of(bits().begin(), bits().end(), [](uint64_t word) { return word == 0; });
}

TokenBytesTable::TokenBytesTable(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), bytes_(BytesOf(tokenizer)), any_(bytes_), classes_(bytes_, any_) {
  std::vector<std::string_view> first(bytes_.size());
  for (uint32_t id = 0; id < first.size(); ++id) first[id] = tokenizer.FirstTokenBytes(id);
  if (first != bytes_) first_ = std::make_unique<const TokenTrie>(first);
  classes_.Of(CharactersOfJsonStrings());  // nearly every schema needs them: not in a step
}

std::string_view TokenBytesTable::bytes(uint32_t token, bool first) const {
  if (token >= bytes_.size()) return {};
  return first ? tokenizer_.FirstTokenBytes(token) : bytes_[token];
}

TokenGrammar::TokenGrammar(Automaton automaton, std::shared_ptr<const TokenBytesTable> table)
    : automaton_(std::move(automaton)),
      table_(std::move(table)),
      configurations_(automaton_, kMostBytes) {}

absl::StatusOr<std::shared_ptr<TokenGrammar>> TokenGrammar::Make(
    const Grammar& grammar, std::shared_ptr<const TokenBytesTable> table) {
  RIVULET_ASSIGN_OR_RETURN(Automaton automaton, Automaton::Make(grammar));
  std::shared_ptr<TokenGrammar> made(new TokenGrammar(std::move(automaton), std::move(table)));
  const Configurations::StatePointer start = made->Start();
  if (start->narrowed || !made->FindTokens(*start, false)) {
    return absl::InvalidArgumentError(
        "the grammar is too ambiguous: a text may begin in too many places of it at once");
  }
  return made;
}

Configurations::StatePointer TokenGrammar::Start() {
  MutexLock lock(&mutex_);
  return configurations_.Start();
}

Configurations::StatePointer TokenGrammar::Advance(Configurations::StatePointer state,
                                                   uint32_t token, bool first) {
  const std::string_view bytes = table_->bytes(token, first);
  if (bytes.empty()) return nullptr;
  MutexLock lock(&mutex_);
  configurations_.ForgetIfLarge();
  const Configurations::State* at = state.get();
  for (size_t i = 0; i < bytes.size() && at != nullptr; ++i) {
    at = configurations_.Advance(*at, static_cast<uint8_t>(bytes[i]));
  }
  return at == nullptr ? nullptr : at->shared_from_this();
}

// False: some that could come are left out, since they took too much to find.
bool TokenGrammar::FindTokens(const Configurations::State& state, bool first) {
  MutexLock lock(&mutex_);
  std::vector<uint64_t>& tokens = state.tokens[first ? 1 : 0];
  if (!tokens.empty()) return true;
  configurations_.ForgetIfLarge();
  const Configurations::State& from = configurations_.Known(state);
  std::vector<uint64_t> bits;
  const std::shared_ptr<const TokenClass> all_may_come = ClassAt(from, first);
  if (all_may_come != nullptr) bits = all_may_come->tokens;
  bits.resize((table_->size() + 63) / 64);
  const TokenTrie& trie = all_may_come != nullptr ? all_may_come->rest : table_->trie(first);
  const bool all = Walk(from, trie, kMostWork, bits);
  const auto is_empty = [](uint64_t word) { return word == 0; };
  if (!all && std::all_of(bits.begin(), bits.end(), is_empty)) Walk(from, trie, UINT64_MAX, bits);
  configurations_.AddBytes(bits.size() * sizeof(bits[0]));
  tokens = std::move(bits);
  return all;
}

// Tokens that may all come, as long as they are: one character of theirs after the other leads on.
std::shared_ptr<const TokenClass> TokenGrammar::ClassAt(const Configurations::State& state,
                                                        bool first) {
  const CharacterSet characters = configurations_.StrideFrom(state).characters;
  std::shared_ptr<const TokenClass> tokens = table_->Class(characters, first);
  const Configurations::State* at = &state;
  for (size_t i = 0; tokens != nullptr && i < TokenClass::kMostCharacters; ++i) {
    const Configurations::Stride stride = configurations_.StrideFrom(*at);
    if (stride.to == nullptr || !stride.characters.Contains(characters)) return nullptr;
    if (stride.to == at) break;
    at = stride.to;
  }
  return tokens;
}

// A walk over a tree of tokens, which leaves out what cannot follow, and after too much work all
// tokens but those of one byte. False: it did. What counts as work is the same whether states are
// known from before or not: the states that this walk comes to, and steps from large ones.
bool TokenGrammar::Walk(const Configurations::State& state, const TokenTrie& trie,
                        uint64_t most_work, std::span<uint64_t> bits) {
  std::vector<const Configurations::State*> path(trie.deepest() + 1, &state);
  const std::vector<TokenTrie::Node>& nodes = trie.nodes();
  const uint64_t walk = ++walks_;
  uint64_t work = 0;
  for (size_t i = 0; i + 1 < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const Configurations::State& from = *path[node.depth - 1];
    const bool skips = work > most_work && node.depth > 1;
    const Configurations::State* const to =
        skips ? nullptr : configurations_.Advance(from, node.byte);
    work += from.edges < kManyEdges ? 0 : from.edges / 8;
    if (to != nullptr && to->walk != walk) work += kWorkOfState + to->configurations.size();
    if (to != nullptr) to->walk = walk;
    path[node.depth] = to;
    for (uint32_t t = node.first_token; to != nullptr && t < nodes[i + 1].first_token; ++t) {
      bits[trie.tokens()[t] / 64] |= uint64_t{1} << (trie.tokens()[t] % 64);
    }
    i = to == nullptr ? node.end : i + 1;
  }
  return work <= most_work;
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<TokenGrammar> grammar, bool starts_text)
    : grammar_(std::move(grammar)), state_(grammar_->Start()), first_(starts_text) {}

absl::Status GrammarMatcher::Accept(uint32_t token) {
  Configurations::StatePointer next = grammar_->Advance(state_, token, first_);
  if (next == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the grammar does not take token ", token));
  }
  state_ = std::move(next);
  first_ = false;
  return absl::OkStatus();
}

absl::StatusOr<AllowedTokens> GrammarMatcher::Allowed(std::span<const uint32_t> recent) const {
  GrammarMatcher after = *this;
  for (const uint32_t token : recent) RIVULET_RETURN_IF_ERROR(after.Accept(token));
  (void)grammar_->FindTokens(*after.state_, after.first_);
  const AllowedTokens allowed{after.state_, after.first_};
  if (allowed.none() && !allowed.may_end()) {
    return absl::FailedPreconditionError(
        "no token of the vocabulary can follow, and the text so far does not match the grammar");
  }
  return allowed;
}

}  // namespace rivulet
