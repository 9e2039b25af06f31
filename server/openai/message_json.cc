// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/message_json.h"

#include <google/protobuf/util/json_util.h>

#include "kernels/base/check.h"

namespace rivulet::openai {

std::string MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions style;
  style.preserve_proto_field_names = true;
  style.always_print_primitive_fields = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, style);
  RIVULET_CHECK(status.ok(), "a message of our own has no JSON");
  return json;
}

}  // namespace rivulet::openai
