// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// OpenAI's messages and tools → those of the API, which the chat template renders.
#ifndef RIVULET_SERVER_OPENAI_MESSAGES_H_
#define RIVULET_SERVER_OPENAI_MESSAGES_H_

#include "rivulet/v1/inference.pb.h"
#include "server/openai/json_body.h"

namespace rivulet::openai {

// messages, tools, tool_choice, chat_template_kwargs. Errors go to the reader. True if the reply
// may call a tool.
bool ReadMessageFields(FieldReader& fields, v1::Messages& proto);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_MESSAGES_H_
