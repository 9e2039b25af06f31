// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// OpenAI's messages and tools → those of the API, which the chat template renders.
#ifndef RIVULET_SERVER_OPENAI_MESSAGES_H_
#define RIVULET_SERVER_OPENAI_MESSAGES_H_

#include <memory>

#include "rivulet/v1/inference.pb.h"
#include "server/openai/json_body.h"
#include "server/openai/tool_calls.h"

namespace rivulet::openai {

// messages, tools, chat_template_kwargs. Errors go to the reader.
void ReadMessageFields(FieldReader& fields, v1::Messages& proto);

// chat_template_kwargs: as other servers call variables of the template.
void ReadVariables(FieldReader& fields, v1::Messages& proto);

// tool_calls for templates, which want what the text of `arguments` says.
Json WithArgumentsParsed(Json calls);

// What is known of the tools that a request has.
std::shared_ptr<const ToolSchemas> SchemasOf(const v1::Messages& proto);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_MESSAGES_H_
