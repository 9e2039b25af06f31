// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/sentencepiece/normalizer_check.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

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

}  // namespace

bool NormalizersAreSound(std::string_view model) {
  return ForEachField(model, [](uint64_t field, std::string_view payload) {
    const bool is_spec = field == kNormalizerSpec || field == kDenormalizerSpec;
    return !is_spec || SpecIsSound(payload);
  });
}

}  // namespace rivulet
