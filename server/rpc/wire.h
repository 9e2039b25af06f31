// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bytes on the wire ↔ messages. Our services take raw bytes and parse them here: gRPC would parse
// on a thread that 64 MiB should not block, and answers INTERNAL without a reason when it fails.
//
// Invalid UTF-8 (protobuf 3.21): in a `string` field of a proto3 message it makes the whole parse
// fail. We find the field and name it in the error.
#ifndef RIVULET_SERVER_RPC_WIRE_H_
#define RIVULET_SERVER_RPC_WIRE_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "server/service/validation.h"

namespace rivulet {

// Fields of a request, those of its messages included; a packed list is one. Two bytes on the wire
// can become a message of a hundred bytes, so the size alone does not bound the memory.
inline constexpr int kMaxFields = 1 << 20;

// INVALID_ARGUMENT when the bytes are not such a message, when a text is not UTF-8 (the error names
// the field and the byte), or when there are more than kMaxFields.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

// RESOURCE_EXHAUSTED if the message is over kMaxMessageBytes.
absl::Status SerializeMessage(const google::protobuf::Message& message, grpc::ByteBuffer* bytes);

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_WIRE_H_
