// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `input` of /v1/responses → messages for the chat template.
//
// Items that an assistant makes in one turn (reasoning, a message, function calls) become one
// message, as they are rendered. Text alone: images, audio and files are refused by name.
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_OPENAI_RESPONSE_ITEMS_H_
#define RIVULET_SERVER_OPENAI_RESPONSE_ITEMS_H_

#include "rivulet/v1/inference.pb.h"
#include "server/openai/json_body.h"

namespace rivulet::openai {

// Errors go to the reader.
void ReadInput(FieldReader& fields, v1::Messages& messages);

// `tools`, of the type function alone, as templates want them: {"type", "function": {...}}.
void ReadFunctionTools(FieldReader& fields, v1::Messages& messages);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_RESPONSE_ITEMS_H_
