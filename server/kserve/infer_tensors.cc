// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/kserve/infer_tensors.h"

#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/text/detokenizer.h"

namespace rivulet::kserve {
namespace {

using Tensor = wire::ModelInferRequest::InferInputTensor;

constexpr size_t kLengthBytes = 4;

absl::Status Bad(const std::string& name, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("input '", name.substr(0, 100), "': ", why));
}

// Of a shape; -1 if it has a negative dimension or too many elements for any message.
int64_t CountElements(const Tensor& tensor) {
  int64_t count = 1;
  for (const int64_t dimension : tensor.shape()) {
    if (dimension < 0 || dimension > std::numeric_limits<int32_t>::max()) return -1;
    count *= dimension;
    if (count > std::numeric_limits<int32_t>::max()) return -1;
  }
  return count;
}

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return value;
}

void AppendLittleEndian(uint32_t value, std::string& out) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

absl::Status CheckToken(const std::string& name, int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<uint32_t>::max()) return absl::OkStatus();
  return Bad(name, absl::StrCat(value, " is not a token id"));
}

absl::StatusOr<std::vector<uint32_t>> RawTokens(const Tensor& tensor, std::string_view bytes,
                                                size_t count) {
  const size_t width = tensor.datatype() == "INT64" ? 8 : 4;
  if (bytes.size() != width * count) {
    return Bad(tensor.name(), absl::StrCat("its shape says ", count, " elements of ", width,
                                           " bytes, and ", bytes.size(), " bytes came"));
  }
  std::vector<uint32_t> ids;
  ids.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = LittleEndian(bytes.substr(width * i, width));
    const int64_t value =
        tensor.datatype() == "INT32" ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
    RIVULET_RETURN_IF_ERROR(CheckToken(tensor.name(), value));
    ids.push_back(static_cast<uint32_t>(value));
  }
  return ids;
}

template <typename Values>
absl::StatusOr<std::vector<uint32_t>> ListedTokens(const Tensor& tensor, const Values& values,
                                                   size_t count) {
  if (static_cast<size_t>(values.size()) != count) {
    return Bad(tensor.name(),
               absl::StrCat("its shape says ", count, " elements, and ", values.size(), " came"));
  }
  std::vector<uint32_t> ids;
  ids.reserve(count);
  for (const auto value : values) {
    RIVULET_RETURN_IF_ERROR(CheckToken(tensor.name(), static_cast<int64_t>(value)));
    ids.push_back(static_cast<uint32_t>(value));
  }
  return ids;
}

}  // namespace

absl::StatusOr<InputTensors> InputTensors::Open(const wire::ModelInferRequest& request) {
  std::set<std::string> names;
  for (const Tensor& tensor : request.inputs()) {
    if (!names.insert(tensor.name()).second) return Bad(tensor.name(), "it is there twice");
    for (const auto& [key, value] : tensor.parameters()) {
      return Bad(tensor.name(),
                 absl::StrCat("the parameter '", key.substr(0, 100),
                              "' is not served; send the tensor's contents with the request"));
    }
  }
  const int raw = request.raw_input_contents_size();
  if (raw > 0 && raw != request.inputs_size()) {
    return absl::InvalidArgumentError(absl::StrCat("raw_input_contents has ", raw, " entries for ",
                                                   request.inputs_size(),
                                                   " inputs: send one for each, or none"));
  }
  return InputTensors(request);
}

int InputTensors::Find(const std::string& name) const {
  for (int i = 0; i < request_.inputs_size(); ++i) {
    if (request_.inputs(i).name() == name) return i;
  }
  return -1;
}

absl::StatusOr<int> InputTensors::One(const std::string& name, const char* datatype) {
  read_.insert(name);
  const int index = Find(name);
  if (index < 0) return Bad(name, "it is missing");
  const Tensor& tensor = request_.inputs(index);
  if (tensor.datatype() != datatype) {
    return Bad(name,
               absl::StrCat("its type is ", tensor.datatype().substr(0, 20), ", not ", datatype));
  }
  if (CountElements(tensor) == 1) return index;
  return Bad(name, "its shape must have one element, as [1] has");
}

absl::StatusOr<std::string> InputTensors::Text(const std::string& name) {
  RIVULET_ASSIGN_OR_RETURN(const int index, One(name, "BYTES"));
  std::string text;
  if (raw()) {
    const std::string& bytes = request_.raw_input_contents(index);
    const bool whole = bytes.size() >= kLengthBytes &&
                       LittleEndian(std::string_view(bytes).substr(0, kLengthBytes)) ==
                           bytes.size() - kLengthBytes;
    if (!whole) return Bad(name, "its raw contents are not four bytes of length and then a text");
    text = bytes.substr(kLengthBytes);
  } else {
    const auto& contents = request_.inputs(index).contents().bytes_contents();
    if (contents.size() != 1) return Bad(name, "it must have one element in bytes_contents");
    text = contents[0];
  }
  if (ToUtf8(text) == text) return text;
  return Bad(name, "it is not UTF-8");
}

absl::StatusOr<bool> InputTensors::Bool(const std::string& name, bool missing) {
  if (!Has(name)) return missing;
  RIVULET_ASSIGN_OR_RETURN(const int index, One(name, "BOOL"));
  if (raw()) {
    const std::string& bytes = request_.raw_input_contents(index);
    if (bytes.size() != 1) return Bad(name, "it must have one byte");
    return bytes[0] != 0;
  }
  const auto& contents = request_.inputs(index).contents().bool_contents();
  if (contents.size() != 1) return Bad(name, "it must have one element in bool_contents");
  return contents[0];
}

absl::StatusOr<std::vector<uint32_t>> InputTensors::TokenIds(const std::string& name) {
  read_.insert(name);
  const int index = Find(name);
  const Tensor& tensor = request_.inputs(index);
  const int64_t count = CountElements(tensor);
  const std::string& type = tensor.datatype();
  if (type != "INT32" && type != "INT64" && type != "UINT32") {
    return Bad(name, absl::StrCat("its type is ", type.substr(0, 20), ", not INT32"));
  }
  if (count < 0) return Bad(name, "its shape is not one of a tensor that can be sent");
  const auto elements = static_cast<size_t>(count);
  if (raw()) return RawTokens(tensor, request_.raw_input_contents(index), elements);
  const wire::InferTensorContents& contents = tensor.contents();
  if (type == "INT32") return ListedTokens(tensor, contents.int_contents(), elements);
  if (type == "INT64") return ListedTokens(tensor, contents.int64_contents(), elements);
  return ListedTokens(tensor, contents.uint_contents(), elements);
}

absl::Status InputTensors::Finish() const {
  for (const Tensor& tensor : request_.inputs()) {
    if (read_.count(tensor.name()) > 0) continue;
    return Bad(tensor.name(), "it is not served; ModelMetadata lists those that are");
  }
  return absl::OkStatus();
}

void AddTexts(const char* name, const std::vector<std::string>& texts,
              wire::ModelInferResponse& response) {
  auto& tensor = *response.add_outputs();
  tensor.set_name(name);
  tensor.set_datatype("BYTES");
  tensor.add_shape(static_cast<int64_t>(texts.size()));
  std::string& bytes = *response.add_raw_output_contents();
  for (const std::string& text : texts) {
    AppendLittleEndian(static_cast<uint32_t>(text.size()), bytes);
    bytes += text;
  }
}

void AddNumbers(const char* name, const char* datatype, const std::vector<uint32_t>& numbers,
                wire::ModelInferResponse& response) {
  auto& tensor = *response.add_outputs();
  tensor.set_name(name);
  tensor.set_datatype(datatype);
  tensor.add_shape(static_cast<int64_t>(numbers.size()));
  std::string& bytes = *response.add_raw_output_contents();
  for (const uint32_t number : numbers) AppendLittleEndian(number, bytes);
}

}  // namespace rivulet::kserve
