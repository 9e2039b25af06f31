// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages of any protocol from a fuzzer's bytes: as the wire has them, or field by field, so that
// most inputs say something. For fuzzers only.
#ifndef RIVULET_SERVER_RPC_MESSAGE_FUZZ_H_
#define RIVULET_SERVER_RPC_MESSAGE_FUZZ_H_

#include <fuzzer/FuzzedDataProvider.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "rivulet/v1/inference.pb.h"

namespace rivulet {

class MessageFuzz {
 public:
  // `words`: texts that the protocol knows.
  MessageFuzz(const uint8_t* data, size_t size, std::span<const char* const> words)
      : data_(data, size), words_(words) {
    google::protobuf::SetLogHandler(nullptr);  // it tells of each text that is not UTF-8
  }

  // False: the bytes are no such message.
  bool Read(google::protobuf::Message& message) {
    if (data_.ConsumeBool()) return message.ParseFromString(data_.ConsumeRemainingBytesAsString());
    Fill(message, kDeepest);
    return true;
  }

 private:
  using Field = google::protobuf::FieldDescriptor;
  static constexpr int kDeepest = 4;

  void Fill(google::protobuf::Message& message, int depth) {
    const auto& descriptor = *message.GetDescriptor();
    const int fields = descriptor.field_count();
    for (int i = data_.ConsumeIntegralInRange(0, 12); i > 0 && fields > 0; --i) {
      if (data_.remaining_bytes() == 0) return;
      const Field& field = *descriptor.field(data_.ConsumeIntegralInRange(0, fields - 1));
      if (field.cpp_type() != Field::CPPTYPE_MESSAGE) {
        Set(message, field);
      } else if (depth > 0) {
        const auto& reflection = *message.GetReflection();
        Fill(field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                 : *reflection.MutableMessage(&message, &field),
             depth - 1);
      }
    }
  }

  void Set(google::protobuf::Message& message, const Field& field) {
    const auto& to = *message.GetReflection();
    const auto put = [&](auto set, auto add, auto value) {
      field.is_repeated() ? (to.*add)(&message, &field, value) : (to.*set)(&message, &field, value);
    };
    using Reflection = google::protobuf::Reflection;
    switch (field.cpp_type()) {
      case Field::CPPTYPE_INT32:
        return put(&Reflection::SetInt32, &Reflection::AddInt32, Whole<int32_t>());
      case Field::CPPTYPE_INT64:
        return put(&Reflection::SetInt64, &Reflection::AddInt64, Whole<int64_t>());
      case Field::CPPTYPE_UINT32:
        return put(&Reflection::SetUInt32, &Reflection::AddUInt32, Whole<uint32_t>());
      case Field::CPPTYPE_UINT64:
        return put(&Reflection::SetUInt64, &Reflection::AddUInt64, Whole<uint64_t>());
      case Field::CPPTYPE_FLOAT:
        return put(&Reflection::SetFloat, &Reflection::AddFloat, Number<float>());
      case Field::CPPTYPE_DOUBLE:
        return put(&Reflection::SetDouble, &Reflection::AddDouble, Number<double>());
      case Field::CPPTYPE_BOOL:
        return put(&Reflection::SetBool, &Reflection::AddBool, data_.ConsumeBool());
      case Field::CPPTYPE_ENUM:
        return put(&Reflection::SetEnumValue, &Reflection::AddEnumValue, Whole<int>());
      case Field::CPPTYPE_STRING:
        return field.is_repeated() ? to.AddString(&message, &field, TextOf(field))
                                   : to.SetString(&message, &field, TextOf(field));
      case Field::CPPTYPE_MESSAGE:
        return;
    }
  }

  // Often small, as most limits are.
  template <typename T>
  T Whole() {
    return data_.ConsumeBool() ? static_cast<T>(data_.ConsumeIntegral<uint8_t>() % 5)
                               : data_.ConsumeIntegral<T>();
  }
  template <typename T>
  T Number() {
    return data_.ConsumeBool() ? static_cast<T>(data_.ConsumeIntegral<int8_t>()) / 16
                               : data_.ConsumeFloatingPoint<T>();
  }
  // Texts that are not UTF-8 never reach the server, but bytes do.
  std::string TextOf(const Field& field) {
    const auto word = data_.ConsumeIntegral<uint8_t>();
    if (word < words_.size()) return words_[word];
    std::string text = data_.ConsumeRandomLengthString(32);
    if (field.type() == Field::TYPE_BYTES) return text;
    for (char& c : text) c = static_cast<char>(c & 0x7F);
    return text;
  }

  FuzzedDataProvider data_;
  const std::span<const char* const> words_;
};

// What a door makes of a message is a request that a client of our own API could have sent, and a
// refusal blames the client.
inline void CheckRead(const absl::Status& status, const v1::GenerateRequest& proto) {
  using absl::StatusCode;
  if (status.ok()) {
    if (!v1::GenerateRequest().ParseFromString(proto.SerializeAsString())) std::abort();
    return;
  }
  const bool clients = status.code() == StatusCode::kInvalidArgument ||
                       status.code() == StatusCode::kUnimplemented ||
                       status.code() == StatusCode::kNotFound;
  if (!clients || status.message().empty()) std::abort();
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_MESSAGE_FUZZ_H_
