// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/wire.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/text/detokenizer.h"

namespace rivulet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

std::string ToString(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!bytes.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

// The first byte that is not UTF-8, or npos: where the repaired text differs.
size_t InvalidByte(const std::string& text) {
  std::string repaired;
  Utf8Stream stream;
  stream.Append(text, repaired);
  stream.Finish(repaired);
  if (repaired == text) return std::string::npos;
  const auto [ours, theirs] =
      std::mismatch(text.begin(), text.end(), repaired.begin(), repaired.end());
  return static_cast<size_t>(ours - text.begin());
}

std::string InvalidField(const UnknownFieldSet& fields, const Descriptor& descriptor);

std::string InvalidValue(const UnknownField& value, const FieldDescriptor& field,
                         const std::string& name) {
  if (value.type() != UnknownField::TYPE_LENGTH_DELIMITED) return "";
  const std::string& bytes = value.length_delimited();
  if (field.type() == FieldDescriptor::TYPE_STRING) {
    const size_t byte = InvalidByte(bytes);
    return byte == std::string::npos ? "" : absl::StrCat(name, " at byte ", byte);
  }
  if (field.type() != FieldDescriptor::TYPE_MESSAGE) return "";
  const std::string inner = FindInvalidUtf8(bytes, *field.message_type());
  return inner.empty() ? "" : absl::StrCat(name, ".", inner);
}

std::string InvalidField(const UnknownFieldSet& fields, const Descriptor& descriptor) {
  std::map<int, int> seen;  // of each repeated field
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& value = fields.field(i);
    const FieldDescriptor* const field = descriptor.FindFieldByNumber(value.number());
    if (field == nullptr) continue;
    std::string name = field->name();
    if (field->is_repeated()) absl::StrAppend(&name, "[", seen[value.number()]++, "]");
    std::string found = InvalidValue(value, *field, name);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

std::string FindInvalidUtf8(const std::string& wire, const Descriptor& descriptor) {
  UnknownFieldSet fields;
  if (!fields.ParseFromString(wire)) return "";
  return InvalidField(fields, descriptor);
}

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  grpc::ByteBuffer shared = bytes;  // the reader wants a mutable one; the slices are shared
  grpc::ProtoBufferReader reader(&shared);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  const Descriptor& descriptor = *message->GetDescriptor();
  const std::string invalid = FindInvalidUtf8(ToString(bytes), descriptor);
  if (!invalid.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        invalid, " is not UTF-8; text must be, and other bytes can be sent as token_ids"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the request's bytes are no ", descriptor.full_name()));
}

absl::Status SerializeMessage(const google::protobuf::Message& message, grpc::ByteBuffer* bytes) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the response would have ", size, " bytes; ",
                                                     kMaxMessageBytes,
                                                     " are allowed: ask for less at a time"));
  }
  std::string text;
  message.SerializeToString(&text);
  const grpc::Slice slice(text);
  *bytes = grpc::ByteBuffer(&slice, 1);
  return absl::OkStatus();
}

}  // namespace rivulet
