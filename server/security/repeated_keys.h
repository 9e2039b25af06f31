// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Finds a key that an object of a JSON text has twice. A parser keeps one of the values, and
// programs disagree about which, so that a proxy may have checked another than the one that counts
// here, or an operator may have meant it.
//
// Threading: one thread.
#ifndef RIVULET_SERVER_SECURITY_REPEATED_KEYS_H_
#define RIVULET_SERVER_SECURITY_REPEATED_KEYS_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "nlohmann/json.hpp"

namespace rivulet {

class RepeatedKeys {
 public:
  // For each event of the parser (nlohmann::basic_json::parse). True: it is a key that its object
  // has already.
  template <typename Json>
  bool See(nlohmann::json::parse_event_t event, const Json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event != Event::key) return false;
    return !open_.back().insert(parsed.template get<std::string>()).second;
  }

 private:
  std::vector<absl::flat_hash_set<std::string>> open_;  // the keys of each open object
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_REPEATED_KEYS_H_
