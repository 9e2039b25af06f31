// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Fields that several of OpenAI's endpoints have. Errors go to the reader.
//
// Threading: pure functions.
#ifndef RIVULET_SERVER_OPENAI_REQUEST_FIELDS_H_
#define RIVULET_SERVER_OPENAI_REQUEST_FIELDS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/http/http_message.h"
#include "server/openai/json_body.h"

namespace rivulet::openai {

// model: NOT_FOUND for another one than is served, and the reader's status.
absl::Status CheckModel(FieldReader& fields, const std::string& model_name);

// temperature, top_p, top_k, min_p, the penalties, seed, logit_bias.
void ReadSampling(FieldReader& fields, v1::SamplingParams& sampling);

// stop, stop_token_ids, ignore_eos, include_stop_str_in_output, min_tokens.
void ReadStop(FieldReader& fields, v1::StopParams& stop);

// A header that says what a field might. Nothing if it is not there; twice, it is an error:
// programs disagree about which of the two counts.
std::optional<std::string> ReadHeader(FieldReader& fields, const HttpRequest& http,
                                      const std::string& name);

// Of something that the request is to find, such as a session. The empty text, as of a variable
// that a program has not set, is an error: without the thing, the reply would be silently wrong.
void CheckNotEmpty(FieldReader& fields, const char* name, const std::string& text);

// A field that may be absent and must not be empty; "" if it is absent.
std::string ReadName(FieldReader& fields, const char* name);

struct StreamFields {
  bool stream = false;
  bool include_usage = false;
};
// stream, stream_options.
StreamFields ReadStream(FieldReader& fields);

void CheckServiceTier(FieldReader& fields);

// Fields that change nothing that this server does: user, metadata and the like.
void IgnoreWhatChangesNothing(FieldReader& fields);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_REQUEST_FIELDS_H_
