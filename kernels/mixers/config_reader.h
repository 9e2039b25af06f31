// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Typed keys of a config.json, with errors that name the key, its value, what is allowed and what
// to do. Remembers the first error, so that a mixer reads all of its keys and asks once.
//
// A key that is missing or null takes its fallback. Where a format spells a key in several ways,
// the first spelling present counts; the first name of the list is the one in messages about
// absence.
//
// Threading: one thread. Borrows the config for its own life.
#ifndef RIVULET_KERNELS_MIXERS_CONFIG_READER_H_
#define RIVULET_KERNELS_MIXERS_CONFIG_READER_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

class ConfigReader {
 public:
  using Keys = std::initializer_list<std::string_view>;

  explicit ConfigReader(const nlohmann::json& config) : config_(config) {}

  // Present and not null.
  bool Has(Keys keys) const { return Find(keys) != nullptr; }

  // An integer in [1, kMaximum]. Fallback 0: the key is required.
  size_t Size(Keys keys, size_t fallback);
  // A finite number in [low, high].
  double Number(Keys keys, double fallback, double low, double high);
  bool Bool(Keys keys, bool fallback);
  std::string Text(Keys keys, std::string_view fallback);

  // Records INVALID_ARGUMENT with `message` unless an error is there already.
  void Fail(std::string_view message);
  const absl::Status& status() const { return status_; }

  // The first of the keys that is present and not null, its spelling in `found`; nullptr when there
  // is none. For values with a format of their own.
  const nlohmann::json* Find(Keys keys, std::string_view* found = nullptr) const;

  // Larger sizes are a mistake or an attack: no layer is this wide.
  static constexpr size_t kMaximum = size_t{1} << 20;

 private:
  void Expected(std::string_view key, const nlohmann::json& value, std::string_view expected);

  const nlohmann::json& config_;
  absl::Status status_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_CONFIG_READER_H_
