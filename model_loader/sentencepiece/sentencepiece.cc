// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/sentencepiece/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

namespace rivulet {

namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kNormalizerSpec = 3;
constexpr uint64_t kDenormalizerSpec = 5;
constexpr uint64_t kPrecompiledCharsmap = 2;

std::optional<uint64_t> TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<std::string_view> Take(std::string_view& bytes, uint64_t size) {
  if (size > bytes.size()) return std::nullopt;
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

// A field's payload: empty for numbers. No value when the wire format is broken (groups are not
// used by these messages).
std::optional<std::string_view> TakePayload(std::string_view& bytes, uint64_t wire_type) {
  if (wire_type == 1) return Take(bytes, 8);
  if (wire_type == 5) return Take(bytes, 4);
  if (wire_type != 0 && wire_type != 2) return std::nullopt;
  const auto value = TakeVarint(bytes);
  if (!value) return std::nullopt;
  return Take(bytes, wire_type == 2 ? *value : 0);
}

// Calls visit(field number, payload) for each field; false if the bytes are not a message or visit
// returned false.
template <typename Visit>
bool ForEachField(std::string_view message, Visit visit) {
  while (!message.empty()) {
    const auto key = TakeVarint(message);
    if (!key) return false;
    const auto payload = TakePayload(message, *key & 7);
    if (!payload || !visit(*key >> 3, *payload)) return false;
  }
  return true;
}

// One unit of the double array (Darts-clone): a node's label and the distance to its children, or a
// leaf's value.
class Unit {
 public:
  Unit(std::string_view trie, size_t index) {
    std::memcpy(&bits_, trie.data() + index * sizeof(bits_), sizeof(bits_));
  }
  bool is_leaf() const { return (bits_ >> 31) != 0; }
  bool has_leaf() const { return (bits_ >> 8 & 1) != 0; }
  uint32_t value() const { return bits_ & 0x7FFFFFFFu; }
  uint32_t offset() const { return (bits_ >> 10) << ((bits_ & (1u << 9)) >> 6); }

 private:
  uint32_t bits_;
};

// The table: size of the trie, trie, zero-terminated replacement strings that the trie's values
// point into. A walk stays inside when from every node each of the 256 possible children does, and
// every value points at a string.
bool CharsmapIsSound(std::string_view charsmap) {
  if (charsmap.empty()) return true;
  uint32_t trie_size = 0;
  if (charsmap.size() < sizeof(trie_size)) return false;
  std::memcpy(&trie_size, charsmap.data(), sizeof(trie_size));
  charsmap.remove_prefix(sizeof(trie_size));
  const auto trie = Take(charsmap, trie_size);
  if (!trie || trie->empty() || trie->size() % sizeof(uint32_t) != 0) return false;
  if (charsmap.empty() || charsmap.back() != '\0') return false;
  const size_t units = trie->size() / sizeof(uint32_t);
  for (size_t i = 0; i < units; ++i) {
    const Unit unit(*trie, i);
    // A leaf's label equals no byte, so no walk goes on from it; the root's label is never asked.
    if (unit.is_leaf() && i != 0) continue;
    const size_t children = i ^ unit.offset();
    if ((children | 0xFF) >= units) return false;
    if (unit.has_leaf() && Unit(*trie, children).value() >= charsmap.size()) return false;
  }
  return true;
}

bool SpecIsSound(std::string_view spec) {
  return ForEachField(spec, [](uint64_t field, std::string_view payload) {
    return field != kPrecompiledCharsmap || CharsmapIsSound(payload);
  });
}

// Whether the normalisation table of a serialized SentencePiece model (ModelProto: normalizer_spec
// and denormalizer_spec, precompiled_charsmap) can be walked without leaving it. The library
// follows the table's offsets unchecked, so that one flipped bit in a model file would end the
// process at some later Encode. Also false for bytes that do not parse. Does not look at
// anything else; the library's own checks do.
bool NormalizersAreSound(std::string_view model) {
  return ForEachField(model, [](uint64_t field, std::string_view payload) {
    const bool is_spec = field == kNormalizerSpec || field == kDenormalizerSpec;
    return !is_spec || SpecIsSound(payload);
  });
}

}  // namespace

SentencePiece::SentencePiece(std::unique_ptr<sentencepiece::SentencePieceProcessor> library)
    : library_(std::move(library)) {}

SentencePiece::~SentencePiece() = default;

std::unique_ptr<SentencePiece> SentencePiece::LoadFile(const std::string& path,
                                                       std::string* error) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes
      << file.rdbuf();  // an error sets a state; iterators would throw, for example on a directory
  if (!file || !bytes) {
    *error = path + ": cannot be read";
    return nullptr;
  }
  auto loaded = LoadBytes(bytes.str(), error);
  if (loaded == nullptr) *error = path + ": " + *error;
  return loaded;
}

std::unique_ptr<SentencePiece> SentencePiece::LoadBytes(std::string_view bytes,
                                                        std::string* error) {
  if (!NormalizersAreSound(bytes)) {
    *error = "not a SentencePiece model: damaged (the normalisation table leads outside of itself)";
    return nullptr;
  }
  auto library = std::make_unique<sentencepiece::SentencePieceProcessor>();
  // An empty model parses, and the library then ends the process on the first call.
  const auto status = library->LoadFromSerializedProto(bytes);
  if (!status.ok() || library->GetPieceSize() == 0) {
    *error = "not a SentencePiece model: " + (status.ok() ? "it has no pieces" : status.ToString());
    return nullptr;
  }
  return std::unique_ptr<SentencePiece>(new SentencePiece(std::move(library)));
}

bool SentencePiece::Encode(std::string_view text, std::vector<int>* ids, std::string* error) const {
  const auto status = library_->Encode(text, ids);
  if (status.ok()) return true;
  ids->clear();
  *error = status.ToString();
  return false;
}

bool SentencePiece::Decode(const std::vector<int>& ids, std::string* text,
                           std::string* error) const {
  text->clear();
  for (const int id : ids) {
    if (Contains(id)) continue;
    *error = "token id " + std::to_string(id) + " is outside of [0, " +
             std::to_string(vocabulary_size()) + ")";
    return false;
  }
  const auto status = library_->Decode(ids, text);
  if (!status.ok()) *error = status.ToString();
  return status.ok();
}

int SentencePiece::vocabulary_size() const { return library_->GetPieceSize(); }

std::string_view SentencePiece::IdToPiece(int id) const {
  if (!Contains(id)) return {};
  return library_->IdToPiece(id);
}

int SentencePiece::PieceToId(std::string_view piece) const { return library_->PieceToId(piece); }

bool SentencePiece::IsByte(int id) const { return Contains(id) && library_->IsByte(id); }

bool SentencePiece::IsControl(int id) const { return Contains(id) && library_->IsControl(id); }

bool SentencePiece::IsUnknown(int id) const { return Contains(id) && library_->IsUnknown(id); }

bool SentencePiece::IsUnused(int id) const { return Contains(id) && library_->IsUnused(id); }

int SentencePiece::begin_id() const { return library_->bos_id(); }
int SentencePiece::end_id() const { return library_->eos_id(); }
int SentencePiece::unknown_id() const { return library_->unk_id(); }
int SentencePiece::padding_id() const { return library_->pad_id(); }

}  // namespace rivulet
