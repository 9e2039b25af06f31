// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the text must match, as vLLM has it among its sampling parameters: an object with one of
// json, json_object, regex, choice and grammar.
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_KSERVE_STRUCTURED_OUTPUTS_H_
#define RIVULET_SERVER_KSERVE_STRUCTURED_OUTPUTS_H_

#include "absl/status/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/service/client_json.h"

namespace rivulet::kserve {

// INVALID_ARGUMENT says what is not such an object, without the parameter's name. `value` may also
// be the object's text, since parameters of requests are texts.
absl::Status ReadStructuredOutputs(const ClientJson& value, v1::StructuredOutput& output);

}  // namespace rivulet::kserve

#endif  // RIVULET_SERVER_KSERVE_STRUCTURED_OUTPUTS_H_
