// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Byte-pair encoding: a piece begins as characters, and of all neighbours that are a merge the one
// with the lowest rank (of equal ones the leftmost) is joined, until none is.
#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/config_reader.h"
#include "model_loader/hf_tokenizer/merge_table.h"
#include "model_loader/hf_tokenizer/pair_merger.h"
#include "model_loader/hf_tokenizer/subword_model.h"
#include "model_loader/hf_tokenizer/utf8_text.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr size_t kUncutPiece = 24;  // cutting a shorter one does not pay
// What an encoder remembers of a text.
constexpr size_t kCachedPiece = 32;
constexpr size_t kCachedPieces = 16384;
// A longer piece is encoded in windows of so many bytes; what begins in the last ones is encoded
// again with the next window.
constexpr size_t kWindow = 96;
constexpr size_t kOverlap = 12;
// How often all of it may be encoded before that is given up.
constexpr size_t kMostWork = 4;

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

uint64_t PairKey(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

class Bpe : public SubwordModel {
 public:
  static absl::StatusOr<std::unique_ptr<const SubwordModel>> Parse(const nlohmann::json& json);

  std::unique_ptr<Encoder> NewEncoder() const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  friend class BpeEncoder;
  enum Known : uint8_t { kNotYet, kYes, kNo };

  absl::Status ReadOptions(const nlohmann::json& json);
  absl::Status ReadMerges(const nlohmann::json& json);
  absl::Status AddMerge(std::string_view left, std::string_view right, uint32_t rank);
  void IndexCharacters();
  void PutCharacter(std::string_view character, uint32_t id);
  void IndexNeighbours();
  void AddNeighbours(std::string_view token);
  std::vector<bool> TokensOfUnknown();
  bool MayJoin(uint32_t left, bool left_known, uint32_t right, bool right_known) const;
  bool has_affixes() const { return !prefix_.empty() || !suffix_.empty(); }

  uint32_t CharacterId(uint32_t code) const {
    if (code < kDirectCodes) return direct_[code];
    const auto entry = characters_.find(code);
    return entry == characters_.end() ? kNoToken : entry->second;
  }

  static constexpr uint32_t kDirectCodes = 0x200;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::vector<uint32_t> direct_;                        // tokens of one character
  absl::flat_hash_map<uint32_t, uint32_t> characters_;  // the others
  std::string prefix_, suffix_;                         // of what continues or ends a word
  // Which characters stand beside each other in a token that merges make: no merge joins others.
  // Those below kDirectCodes have a bit.
  std::vector<bool> direct_neighbours_;
  absl::flat_hash_set<uint64_t> neighbours_;
  std::vector<uint32_t> byte_tokens_;  // empty: no byte fallback
  uint32_t unknown_ = kNoToken;
  bool fuse_unknown_ = false;
  bool unknown_joins_ = false;  // a merge may join what is beside or stands for the unknown
  bool ignore_merges_ = false;
  // Whether a token's own text is encoded as that token; found out when it is first asked.
  mutable std::vector<std::atomic<uint8_t>> is_itself_;
};

class BpeEncoder : public SubwordModel::Encoder {
 public:
  explicit BpeEncoder(const Bpe& model) : model_(model), merger_(model.merges_) {}

  // A long piece is cut where no merge can join its parts, so that they are short (a text that no
  // pre-tokenizer has cut: at its words).
  absl::Status Append(std::string_view piece, std::vector<uint32_t>* ids) override {
    if (model_.ignore_merges_) {
      if (const auto whole = model_.vocabulary_.Find(piece)) {
        ids->push_back(*whole);
        return absl::OkStatus();
      }
    }
    if (AppendCharacter(piece, ids)) return absl::OkStatus();
    if (piece.size() <= kUncutPiece || model_.direct_neighbours_.empty()) {
      AppendPart(piece, false, ids);
    } else {
      AppendParts(piece, ids);
    }
    return absl::OkStatus();
  }

 private:
  // A piece of one known character needs neither merges nor the cache.
  bool AppendCharacter(std::string_view piece, std::vector<uint32_t>* ids) {
    if (piece.empty() || piece.size() != Utf8Length(piece[0]) || model_.has_affixes()) return false;
    size_t place = 0;
    const uint32_t id = model_.CharacterId(NextCodePoint(piece, &place));
    if (id != kNoToken) ids->push_back(id);
    return id != kNoToken;
  }

  void AppendParts(std::string_view piece, std::vector<uint32_t>* ids) {
    size_t begin = 0, place = 0;
    uint32_t last = 0;
    bool last_known = false, all_known = true;  // the character before; those from `begin`
    while (place < piece.size()) {
      const size_t border = place;
      const uint32_t code = NextCodePoint(piece, &place);
      const bool known = model_.CharacterId(code) != kNoToken;
      if (border > 0 && !model_.MayJoin(last, last_known, code, known)) {
        AppendPart(piece.substr(begin, border - begin), all_known, ids);
        begin = border;
        all_known = true;
      }
      last = code;
      last_known = known;
      all_known = all_known && known;
    }
    AppendPart(piece.substr(begin), all_known, ids);
  }

  // Where all characters are known, the text of the ids is the part.
  void AppendPart(std::string_view part, bool all_known, std::vector<uint32_t>* ids) {
    const std::optional<uint32_t> whole = model_.vocabulary_.Find(part);
    if (whole.has_value() && IsItself(*whole, part)) {
      ids->push_back(*whole);
      return;
    }
    if (part.size() <= kCachedPiece) return AppendCached(part, ids);
    if (!all_known || !AppendWindows(part, ids)) {
      MergePiece(part);
      ids->insert(ids->end(), symbols_.begin(), symbols_.end());
    }
  }

  struct Slide {
    std::string_view part;
    size_t work;  // bytes that may still be encoded
    size_t begin = 0, end = 0, size = kWindow;
    uint32_t expected = kNoToken;  // what the last window showed behind the chain
  };

  // Ids are those of a text if each two neighbours are the ids of their own text: the first merge
  // that crossed a border between two ids would find in their text what it finds in the whole, and
  // cross there too. So windows need a few bytes in common, and the memory stays small. False if
  // they do not come to agree.
  bool AppendWindows(std::string_view part, std::vector<uint32_t>* ids) {
    Slide slide = {part, kWindow + kMostWork * part.size()};
    chain_.clear();
    while (slide.begin < part.size()) {
      if (!EncodeWindow(&slide)) return false;
      if (Fits(slide)) {
        KeepWindow(&slide);
      } else {
        TakeBack(&slide);
      }
    }
    ids->insert(ids->end(), chain_.begin(), chain_.end());
    return true;
  }

  bool EncodeWindow(Slide* slide) {
    const std::string_view part = slide->part;
    slide->end = std::min(slide->begin + slide->size, part.size());
    while (slide->end < part.size() && IsContinuation(part[slide->end])) ++slide->end;
    const size_t bytes = slide->end - slide->begin;
    if (bytes > slide->work) return false;
    slide->work -= bytes;
    MergePiece(part.substr(slide->begin, bytes));
    window_.swap(symbols_);
    return true;
  }

  bool Fits(const Slide& slide) {
    return chain_.empty() || window_[0] == slide.expected ||
           AreNeighbours(chain_.back(), window_[0]);
  }

  bool AreNeighbours(uint32_t left, uint32_t right) {
    pair_ = model_.vocabulary_.Token(left);
    pair_ += model_.vocabulary_.Token(right);
    MergePiece(pair_);
    return symbols_.size() == 2 && symbols_[0] == left && symbols_[1] == right;
  }

  void KeepWindow(Slide* slide) {
    const size_t overlap = slide->end == slide->part.size() ? 0 : kOverlap;
    size_t count = 0;
    for (; count < window_.size(); ++count) {
      const size_t end = slide->begin + TokenSize(window_[count]);
      if (end + overlap > slide->end) break;
      slide->begin = end;
    }
    chain_.insert(chain_.end(), window_.begin(), window_.begin() + static_cast<ptrdiff_t>(count));
    slide->expected = count < window_.size() ? window_[count] : kNoToken;
    slide->size = count == 0 ? 2 * slide->size : std::max(kWindow, slide->size / 2);
  }

  // For a window of twice the size that begins earlier.
  void TakeBack(Slide* slide) {
    const size_t before = slide->begin;
    while (!chain_.empty() && before - slide->begin < slide->size) {
      slide->begin -= TokenSize(chain_.back());
      chain_.pop_back();
    }
    slide->size += before - slide->begin;
    slide->expected = kNoToken;
  }

  size_t TokenSize(uint32_t id) const { return model_.vocabulary_.Token(id).size(); }

  // Words come again.
  void AppendCached(std::string_view part, std::vector<uint32_t>* ids) {
    const auto known = cache_.find(ToAbsl(part));
    if (known != cache_.end()) {
      const auto begin = cached_ids_.begin() + known->second.begin;
      ids->insert(ids->end(), begin, begin + known->second.count);
      return;
    }
    MergePiece(part);
    ids->insert(ids->end(), symbols_.begin(), symbols_.end());
    if (cache_.size() >= kCachedPieces) return;
    cache_[std::string(part)] = {static_cast<uint32_t>(cached_ids_.size()),
                                 static_cast<uint32_t>(symbols_.size())};
    cached_ids_.insert(cached_ids_.end(), symbols_.begin(), symbols_.end());
  }

  struct Cached {
    uint32_t begin, count;  // in cached_ids_
  };
  bool IsItself(uint32_t id, std::string_view piece) {
    std::atomic<uint8_t>& known = model_.is_itself_[id];
    const uint8_t answer = known.load(std::memory_order_relaxed);
    if (answer != Bpe::kNotYet) return answer == Bpe::kYes;
    MergePiece(piece);
    const bool yes = symbols_.size() == 1 && symbols_[0] == id;
    known.store(yes ? Bpe::kYes : Bpe::kNo, std::memory_order_relaxed);
    return yes;
  }

  void MergePiece(std::string_view piece) {
    symbols_.clear();
    StartSymbols(piece);
    merger_.Merge(&symbols_);
  }

  // What is unknown is added late, after what follows it was found, as in the original: with a byte
  // fallback that lacks bytes, this is seen in the order.
  void StartSymbols(std::string_view piece) {
    uint32_t unknown = kNoToken;
    for (size_t i = 0; i < piece.size();) {
      const size_t begin = i;
      const uint32_t code = NextCodePoint(piece, &i);
      const uint32_t id = SymbolOf(piece, begin, i, code);
      if (id != kNoToken) {
        AddUnknown(&unknown);
        symbols_.push_back(id);
        continue;
      }
      if (AddBytes(AffixedCharacter(piece, begin, i))) continue;
      if (model_.unknown_ == kNoToken) continue;
      if (!model_.fuse_unknown_) AddUnknown(&unknown);
      unknown = model_.unknown_;
    }
    AddUnknown(&unknown);
  }

  void AddUnknown(uint32_t* unknown) {
    if (*unknown != kNoToken) symbols_.push_back(std::exchange(*unknown, kNoToken));
  }

  uint32_t SymbolOf(std::string_view piece, size_t begin, size_t end, uint32_t code) {
    if (!model_.has_affixes()) return model_.CharacterId(code);
    return model_.vocabulary_.Find(AffixedCharacter(piece, begin, end)).value_or(kNoToken);
  }

  std::string_view AffixedCharacter(std::string_view piece, size_t begin, size_t end) {
    affixed_.clear();
    if (begin > 0) affixed_ += model_.prefix_;
    affixed_ += piece.substr(begin, end - begin);
    if (end == piece.size()) affixed_ += model_.suffix_;
    return affixed_;
  }

  bool AddBytes(std::string_view character) {
    if (model_.byte_tokens_.empty()) return false;
    const size_t before = symbols_.size();
    for (const char byte : character) {
      symbols_.push_back(model_.byte_tokens_[static_cast<uint8_t>(byte)]);
      if (symbols_.back() != kNoToken) continue;
      symbols_.resize(before);
      return false;
    }
    return true;
  }

  const Bpe& model_;
  PairMerger merger_;
  std::vector<uint32_t> symbols_;  // of what MergePiece was given
  absl::flat_hash_map<std::string, Cached> cache_;
  std::vector<uint32_t> cached_ids_;
  std::vector<uint32_t> window_, chain_;  // ids of AppendWindows
  std::string pair_;
  std::string affixed_;
};

std::unique_ptr<SubwordModel::Encoder> Bpe::NewEncoder() const {
  return std::make_unique<BpeEncoder>(*this);
}

absl::Status Bpe::ReadOptions(const nlohmann::json& json) {
  ConfigReader reader(json);
  prefix_ = reader.String("continuing_subword_prefix", "");
  suffix_ = reader.String("end_of_word_suffix", "");
  fuse_unknown_ = reader.Bool("fuse_unk", false);
  ignore_merges_ = reader.Bool("ignore_merges", false);
  if (reader.Bool("byte_fallback", false)) byte_tokens_ = ByteTokens(vocabulary_);
  const double dropout = reader.Number("dropout", 0);
  const std::string unknown = reader.String("unk_token", "");
  RIVULET_RETURN_IF_ERROR(reader.status());
  if (dropout != 0) {
    return absl::UnimplementedError("BPE with dropout is for training; remove it from the file");
  }
  if (!reader.Has("unk_token")) return absl::OkStatus();
  const std::optional<uint32_t> id = vocabulary_.Find(unknown);
  if (!id.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unk_token \"", unknown, "\" is not in the vocabulary"));
  }
  unknown_ = *id;
  return absl::OkStatus();
}

absl::Status Bpe::AddMerge(std::string_view left, std::string_view right, uint32_t rank) {
  const std::optional<uint32_t> left_id = vocabulary_.Find(left);
  const std::optional<uint32_t> right_id = vocabulary_.Find(right);
  std::string joined(left);
  joined += right.substr(std::min(prefix_.size(), right.size()));
  const std::optional<uint32_t> id = vocabulary_.Find(joined);
  if (!left_id.has_value() || !right_id.has_value() || !id.has_value()) {
    const std::string_view missing = !left_id.has_value()    ? left
                                     : !right_id.has_value() ? right
                                                             : joined;
    return absl::InvalidArgumentError(absl::StrCat("merge ", rank, " (\"", ToAbsl(left),
                                                   "\" with \"", ToAbsl(right), "\"): the token \"",
                                                   ToAbsl(missing), "\" is not in the vocabulary"));
  }
  merges_.Add(*left_id, *right_id, *id);
  return absl::OkStatus();
}

// ["a b", ...] or, in newer files, [["a", "b"], ...].
absl::Status Bpe::ReadMerges(const nlohmann::json& json) {
  const auto merges = json.find("merges");
  if (merges == json.end() || !merges->is_array()) {
    return absl::InvalidArgumentError("the model has no list \"merges\"");
  }
  merges_.Reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const nlohmann::json& merge = (*merges)[i];
    const auto rank = static_cast<uint32_t>(i);
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      RIVULET_RETURN_IF_ERROR(AddMerge(merge[0].get_ref<const std::string&>(),
                                       merge[1].get_ref<const std::string&>(), rank));
      continue;
    }
    const std::string_view text =
        merge.is_string() ? std::string_view(merge.get_ref<const std::string&>()) : "";
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat("merge ", i, " is not two tokens"));
    }
    RIVULET_RETURN_IF_ERROR(AddMerge(text.substr(0, space), text.substr(space + 1), rank));
  }
  return absl::OkStatus();
}

void Bpe::PutCharacter(std::string_view character, uint32_t id) {
  size_t end = 0;
  const uint32_t code = NextCodePoint(character, &end);
  if (end != character.size()) return;
  if (code < kDirectCodes) {
    direct_[code] = id;
  } else {
    characters_[code] = id;
  }
}

void Bpe::IndexCharacters() {
  direct_.assign(kDirectCodes, kNoToken);
  for (uint32_t id = 0; id < vocabulary_.end_id(); ++id) {
    const std::string_view token = vocabulary_.Token(id);
    if (!token.empty() && token.size() == Utf8Length(token[0])) PutCharacter(token, id);
  }
  is_itself_ = std::vector<std::atomic<uint8_t>>(vocabulary_.end_id());
}

// Affixes depend on where a part stands, so with them nothing is cut.
void Bpe::IndexNeighbours() {
  if (has_affixes()) return;
  direct_neighbours_.resize(size_t{kDirectCodes} * kDirectCodes);
  const std::vector<bool> unknown = TokensOfUnknown();
  merges_.ForEach([&](uint32_t left, uint32_t right, uint32_t joined) {
    AddNeighbours(vocabulary_.Token(joined));
    if (unknown[left] || unknown[right]) unknown_joins_ = true;
  });
}

// Those that unknown characters become. Where some become nothing, what is beside them meets.
std::vector<bool> Bpe::TokensOfUnknown() {
  std::vector<bool> tokens(vocabulary_.end_id());
  unknown_joins_ = unknown_ == kNoToken && byte_tokens_.empty();
  if (unknown_ != kNoToken) tokens[unknown_] = true;
  for (const uint32_t id : byte_tokens_) {
    if (id != kNoToken) tokens[id] = true;
    if (id == kNoToken && unknown_ == kNoToken) unknown_joins_ = true;
  }
  return tokens;
}

void Bpe::AddNeighbours(std::string_view token) {
  uint32_t last = 0;
  for (size_t i = 0; i < token.size();) {
    const size_t place = i;
    const uint32_t code = NextCodePoint(token, &i);
    if (place > 0 && (last | code) < kDirectCodes) {
      direct_neighbours_[last * kDirectCodes + code] = true;
    } else if (place > 0) {
      neighbours_.insert(PairKey(last, code));
    }
    last = code;
  }
}

bool Bpe::MayJoin(uint32_t left, bool left_known, uint32_t right, bool right_known) const {
  if (!left_known || !right_known) return unknown_joins_ || left_known == right_known;
  if ((left | right) < kDirectCodes) return direct_neighbours_[left * kDirectCodes + right];
  return neighbours_.contains(PairKey(left, right));
}

absl::StatusOr<std::unique_ptr<const SubwordModel>> Bpe::Parse(const nlohmann::json& json) {
  auto model = std::make_unique<Bpe>();
  RIVULET_RETURN_IF_ERROR(ReadVocabulary(json, &model->vocabulary_));
  RIVULET_RETURN_IF_ERROR(model->ReadOptions(json));
  RIVULET_RETURN_IF_ERROR(model->ReadMerges(json));
  model->IndexCharacters();
  model->IndexNeighbours();
  return model;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseBpe(const nlohmann::json& json) {
  return Bpe::Parse(json);
}

}  // namespace rivulet
