// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_MODEL_LOADER_JINJA_PARSER_H_
#define RIVULET_MODEL_LOADER_JINJA_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "model_loader/jinja/syntax.h"

namespace rivulet::jinja {

// INVALID_ARGUMENT for a template that is not valid, too large or nested too deep; the message
// names the line. Unknown filters and tests are found when they are used, as in branches of Jinja's
// own.
absl::StatusOr<Syntax> Parse(std::string_view source);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_PARSER_H_
