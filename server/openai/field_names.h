// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the fields of GenerateRequest are called in a body of this API: the checks that all
// protocols share (validation.h) name their errors' fields as gRPC has them.
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_OPENAI_FIELD_NAMES_H_
#define RIVULET_SERVER_OPENAI_FIELD_NAMES_H_

#include <string>

#include "absl/status/status.h"

namespace rivulet::openai {

// Those that differ between endpoints, or with what a request has sent.
struct FieldNames {
  std::string prompt;  // or the messages
  std::string logprobs;
  std::string max_tokens;
  std::string structured_output = {};  // the field that asked for it; empty: none
  std::string session = {};            // what names a session; empty: nothing does
};

// An error of a request with its text in the API's words; the field that its text begins with
// becomes its `param`. A status that has one stays as it is.
absl::Status InFieldsOf(const FieldNames& names, const absl::Status& status);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_FIELD_NAMES_H_
