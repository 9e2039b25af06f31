// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// JSON that clients send, read within limits.
//
// Threading: pure functions. No exception leaves, but for std::bad_alloc.
#ifndef RIVULET_SERVER_SERVICE_CLIENT_JSON_H_
#define RIVULET_SERVER_SERVICE_CLIENT_JSON_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace rivulet {

// Keeps the order of keys, which a template may print and a schema's texts have.
using ClientJson = nlohmann::ordered_json;

struct ClientJsonLimits {
  // Much of a JSON library recurses.
  static constexpr size_t kDeepest = 64;
  // The library looks through an object for each new key.
  static constexpr size_t kMostKeysOfAnObject = 4096;
  static constexpr size_t kMostKeys = 131072;
  // A value takes at least 16 bytes of memory, often 100: more than its text.
  static constexpr size_t kMostValues = size_t{2} << 20;
};

// INVALID_ARGUMENT for what is not JSON in UTF-8, is over these limits, or has an object with a key
// twice: the first counts for some programs and the last for others, so that a proxy may have
// checked another value than the one that would count here.
// `what` the text is, for errors: "the body".
absl::StatusOr<ClientJson> ParseClientJson(std::string_view text, const std::string& what);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_CLIENT_JSON_H_
