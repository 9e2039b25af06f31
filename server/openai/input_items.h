// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `input` of /v1/responses as GET /v1/responses/ID/input_items lists it: what was sent, with an id
// for each item and contents as parts. Items of earlier responses of a conversation are theirs.
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_OPENAI_INPUT_ITEMS_H_
#define RIVULET_SERVER_OPENAI_INPUT_ITEMS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/openai/json_body.h"

namespace rivulet::openai {

struct InputItems {
  struct Item {
    std::string id;
    std::string json;
  };
  std::vector<Item> items;
  size_t bytes = 0;  // that they take, about
};

// REQUIRES: ReadInput has read it without an error.
InputItems MakeInputItems(const Json& input);

// One page of them as the API lists it. `query`: limit (20, at most 100), order (desc, asc), after
// (an id). INVALID_ARGUMENT for other values.
absl::StatusOr<std::string> ListInputItems(const InputItems& input, std::string_view query);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_INPUT_ITEMS_H_
