// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/wire.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/text/detokenizer.h"

namespace rivulet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

std::string ToString(const grpc::ByteBuffer& bytes) {
  grpc::Slice slice;
  if (!bytes.DumpToSingleSlice(&slice).ok()) return "";
  return std::string(slice.begin(), slice.end());
}

// The first byte that is not UTF-8, or npos: where the repaired text differs.
size_t InvalidByte(const std::string& text) {
  const std::string repaired = ToUtf8(text);
  if (repaired == text) return std::string::npos;
  const auto [ours, theirs] =
      std::mismatch(text.begin(), text.end(), repaired.begin(), repaired.end());
  return static_cast<size_t>(ours - text.begin());
}

std::string FindInvalidUtf8(const std::string& wire, const Descriptor& descriptor);

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

// The path of the first string field that is not UTF-8, for example
// "messages.messages[1].content at byte 7". Empty: there is none.
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

std::string FindInvalidUtf8(const std::string& wire, const Descriptor& descriptor) {
  UnknownFieldSet fields;
  return fields.ParseFromString(wire) ? InvalidField(fields, descriptor) : "";
}

// Counts without storing anything. Bytes that are not a message are left to the parser, which stops
// at the same place.
bool MoreFieldsThan(int& left, const Descriptor& descriptor, CodedInputStream& input) {
  while (const uint32_t tag = input.ReadTag()) {
    if (--left < 0) return true;
    const WireFormatLite::WireType type = WireFormatLite::GetTagWireType(tag);
    const FieldDescriptor* const field = descriptor.FindFieldByNumber(static_cast<int>(tag >> 3));
    if (type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED && field != nullptr &&
        field->type() == FieldDescriptor::TYPE_MESSAGE) {
      const CodedInputStream::Limit outer = input.ReadLengthAndPushLimit();
      if (MoreFieldsThan(left, *field->message_type(), input)) return true;
      if (!input.ConsumedEntireMessage()) return false;
      input.PopLimit(outer);
    } else if (type != WireFormatLite::WIRETYPE_START_GROUP &&  // what it holds is counted too
               type != WireFormatLite::WIRETYPE_END_GROUP &&
               !WireFormatLite::SkipField(&input, tag)) {
      return false;
    }
  }
  return false;
}

absl::Status CheckFieldCount(grpc::ByteBuffer& bytes, const Descriptor& descriptor) {
  int left = kMaxFields;
  if (bytes.Length() <= kMaxFields) return absl::OkStatus();
  grpc::ProtoBufferReader reader(&bytes);
  CodedInputStream input(&reader);
  if (!reader.status().ok() || !MoreFieldsThan(left, descriptor, input)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", descriptor.full_name(), " has more than ",
                                                 kMaxFields,
                                                 " fields, counting those of its messages: send "
                                                 "fewer, and lists of numbers packed"));
}

}  // namespace

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  const Descriptor& descriptor = *message->GetDescriptor();
  grpc::ByteBuffer shared = bytes;  // readers need a mutable one; the slices are shared
  RIVULET_RETURN_IF_ERROR(CheckFieldCount(shared, descriptor));
  grpc::ProtoBufferReader reader(&shared);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  const std::string invalid = FindInvalidUtf8(ToString(bytes), descriptor);
  if (!invalid.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        invalid, " is not UTF-8; text must be, and other bytes can be sent as token_ids"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the request is not a valid ", descriptor.full_name()));
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
