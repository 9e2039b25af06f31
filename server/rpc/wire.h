// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bytes on the wire ↔ messages. Our services take raw bytes and parse them here, because gRPC
// answers a message that does not parse with INTERNAL and a text that helps nobody, and does it on
// a thread that should not be held up by 64 MiB.
//
// What happens to invalid UTF-8 (protobuf 3.21): a `string` field of a proto3 message makes the
// whole parse fail, and protobuf logs that to stderr. We find the field and say so.
#ifndef RIVULET_SERVER_RPC_WIRE_H_
#define RIVULET_SERVER_RPC_WIRE_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace rivulet {

// Largest message in either direction, before compression.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;

// INVALID_ARGUMENT naming the field whose text is not UTF-8 and the byte, or saying that the bytes
// are no such message.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

// RESOURCE_EXHAUSTED if the message is over kMaxMessageBytes.
absl::Status SerializeMessage(const google::protobuf::Message& message, grpc::ByteBuffer* bytes);

// The path of the first string field that is not UTF-8 in the wire form of a `descriptor` message,
// for example "messages.messages[1].content at byte 7". Empty: there is none.
std::string FindInvalidUtf8(const std::string& wire,
                            const google::protobuf::Descriptor& descriptor);

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_WIRE_H_
