// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A JSON schema (2020-12 and draft 7) as a grammar. Every text that the grammar matches is JSON
// that the schema accepts. It does not match all of them: properties come in the order of the
// schema, those that the schema does not name come only where additionalProperties asks for them,
// and json_rules.h says how JSON is written.
//
// Keywords are served, are annotations and change nothing, or are refused by name
// (README.md has the list).
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_GRAMMAR_JSON_SCHEMA_H_
#define RIVULET_SERVER_GRAMMAR_JSON_SCHEMA_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "server/grammar/expression.h"

namespace rivulet {

// INVALID_ARGUMENT: no JSON, no schema, or more than 128 KiB. UNIMPLEMENTED names a keyword that is
// not served, with its place.
absl::StatusOr<Grammar> ParseJsonSchema(std::string_view schema);

// Any JSON object.
Grammar AnyJsonObject();

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_JSON_SCHEMA_H_
