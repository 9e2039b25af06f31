// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which tools a model may or must call, as structured output.
//
//   tool_choice   none                   the tools are not shown to the model
//                 auto                   any text; with "strict" tools or parallel_tool_calls:
//                                        false, calls in it fit their schemas, or there is one
//                 required, a function   calls alone, whose arguments fit their schemas
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_OPENAI_TOOL_CHOICE_H_
#define RIVULET_SERVER_OPENAI_TOOL_CHOICE_H_

#include "rivulet/v1/inference.pb.h"
#include "server/openai/json_body.h"

namespace rivulet::openai {

// tool_choice and parallel_tool_calls, for the tools that the request's messages have. `tools`: the
// field as it was sent, or null. To be read after the response's format, with which a call cannot
// be demanded. Errors go to the reader. True if the reply may call a tool.
bool ReadToolChoice(FieldReader& fields, const Json* tools, v1::GenerateRequest& proto);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_TOOL_CHOICE_H_
