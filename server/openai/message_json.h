// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages of inference.proto as JSON: protobuf's own format, in which 64-bit numbers are strings,
// with the field names of the proto and with fields that have their default value. `rivulet --json`
// prints the same, but leaves those out.
//
// Threading: pure.
#ifndef RIVULET_SERVER_OPENAI_MESSAGE_JSON_H_
#define RIVULET_SERVER_OPENAI_MESSAGE_JSON_H_

#include <google/protobuf/message.h>

#include <string>

namespace rivulet::openai {

std::string MessageJson(const google::protobuf::Message& message);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_MESSAGE_JSON_H_
