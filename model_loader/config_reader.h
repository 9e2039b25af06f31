// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Typed reads of the keys of a JSON object, for config.json. The first thing that is wrong is kept
// as an error; every read then still returns a value of its type, so that a parser reads all its
// keys in a row and asks for status() once at the end. Nothing here throws, regardless of what
// the file holds.
//
// A key that is null counts as absent: fla writes null for "the default". A number may be
// {"__float__": "Infinity"}, which transformers 5 writes for what JSON cannot express
// (docs/mixers.md#mamba-2).
//
// Threading: one thread. Borrows the object, which must outlive the reader.
#ifndef RIVULET_MODEL_LOADER_CONFIG_READER_H_
#define RIVULET_MODEL_LOADER_CONFIG_READER_H_

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// The largest size that a config may ask for; the product of three of them fits a size_t.
inline constexpr size_t kLargestSize = size_t{1} << 20;

class ConfigReader {
 public:
  explicit ConfigReader(const nlohmann::json& object) : object_(&object) {}

  // Present and not null. False when the JSON value is not an object.
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // Whether the key is present as null.
  bool IsNull(std::string_view key) const;
  // The value, or null.
  const nlohmann::json* Find(std::string_view key) const;
  // The first of these keys that is present, else the first: for keys that libraries spell
  // differently.
  std::string_view Spelling(std::initializer_list<std::string_view> keys) const;

  // Each returns `otherwise` when the key is absent; without one an absent key is an error. After
  // an error: `otherwise`, or the smallest valid value.
  bool Bool(std::string_view key, std::optional<bool> otherwise = std::nullopt);
  // A whole number in [minimum, maximum]. `otherwise` need not be in the range.
  size_t Size(std::string_view key, std::optional<size_t> otherwise = std::nullopt,
              size_t minimum = 1, size_t maximum = kLargestSize);
  // Never NaN; `otherwise` need not be in the range.
  double Number(std::string_view key, std::optional<double> otherwise = std::nullopt,
                double low = -std::numeric_limits<double>::infinity(),
                double high = std::numeric_limits<double>::infinity());
  float Float(std::string_view key, std::optional<double> otherwise, double low, double high) {
    return static_cast<float>(Number(key, otherwise, low, high));
  }
  // What a norm adds to a mean square: between 0 and 1, both excluded.
  float Eps(std::string_view key, double otherwise);
  std::string String(std::string_view key,
                     std::optional<std::string_view> otherwise = std::nullopt);
  // Numbers as in Number. Empty when absent.
  std::vector<double> Numbers(std::string_view key);
  // Layers by their index, each below `layers`. Empty when absent.
  std::vector<size_t> Layers(std::string_view key, size_t layers);
  // The value that belongs to the name; the error lists the names.
  template <typename T>
  T Choice(std::string_view key, std::string_view otherwise,
           std::initializer_list<std::pair<std::string_view, T>> choices) {
    const std::string name = String(key, otherwise);
    std::string names;
    for (const auto& [choice, value] : choices) {
      if (choice == name) return value;
      names += (names.empty() ? "" : ", ") + std::string(choice);
    }
    Fail(key, "it must be one of: " + names);
    return choices.begin()->second;
  }

  // Records INVALID_ARGUMENT "<key> is <value>: <remedy>", unless there is an earlier error. The
  // value is compact JSON, cut when it is long, or "missing".
  void Fail(std::string_view key, std::string_view remedy);
  // The same for an error that is not about one key. An OK status records nothing.
  void Fail(const absl::Status& status);
  void Fail(const std::string& message) { Fail(absl::InvalidArgumentError(message)); }
  // Fails unless `condition` holds.
  void Require(bool condition, std::string_view key, std::string_view remedy) {
    if (!condition) Fail(key, remedy);
  }
  // Fails unless `part`, the value of `key`, divides `whole`.
  void RequireDivides(size_t part, std::string_view key, std::string_view whole_name, size_t whole);

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  const nlohmann::json& object() const { return *object_; }

 private:
  const nlohmann::json* object_;
  absl::Status status_;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_CONFIG_READER_H_
