// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/safetensors_header.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kMostDimensions = 32;

struct ElementType {
  std::string_view name;
  size_t bytes;
};
constexpr ElementType kElementTypes[] = {
    {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8},     {"I8", 1},
    {"U8", 1},  {"I16", 2}, {"U16", 2},  {"I32", 4},     {"U32", 4},
    {"I64", 8}, {"U64", 8}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

size_t ElementBytes(std::string_view dtype) {
  for (const ElementType& type : kElementTypes) {
    if (type.name == dtype) return type.bytes;
  }
  return 0;
}

// A tensor as the header states it, unchecked.
struct Entry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Takes the header's JSON event by event and accepts exactly the format's structure, so that
// nothing is stored that is not a tensor's entry, however the text is nested. Each event returns
// false to stop; error() then says why.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  std::vector<Entry>& entries() { return entries_; }
  const std::string& error() const { return error_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool number_integer(number_integer_t value) override {
    return Unexpected(absl::StrCat("the number ", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(absl::StrCat("the number ", text.substr(0, 40)));
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape && entries_.back().shape.size() < kMostDimensions) {
      entries_.back().shape.push_back(value);
    } else if (place_ == Place::kOffsets && entries_.back().offsets.size() < 2) {
      entries_.back().offsets.push_back(value);
    } else {
      return Unexpected(absl::StrCat("the number ", value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) return true;  // free text for people
    if (place_ != Place::kDType) return Unexpected("a string");
    entries_.back().dtype = std::move(value);
    return GoTo(Place::kTensor);
  }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) return GoTo(Place::kFile);
    if (place_ == Place::kName) return GoTo(Place::kTensor);
    if (place_ == Place::kMetadataName) return GoTo(Place::kMetadata);
    return Unexpected("an object");
  }

  bool end_object() override {
    if (place_ == Place::kTensor && !Complete(entries_.back())) {
      return Fail(absl::StrCat("tensor ", entries_.back().name,
                               " needs dtype, shape and data_offsets, two numbers"));
    }
    return GoTo(place_ == Place::kFile ? Place::kEnd : Place::kFile);
  }

  bool start_array(size_t) override {
    if (place_ == Place::kShapeKey) return GoTo(Place::kShape);
    if (place_ == Place::kOffsetsKey) return GoTo(Place::kOffsets);
    return Unexpected("an array");
  }

  bool end_array() override { return GoTo(Place::kTensor); }

  bool key(string_t& name) override {
    if (place_ == Place::kMetadata) return true;
    return place_ == Place::kFile ? TensorName(name) : TensorKey(name);
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("the header is not valid JSON at offset ",
                             kLengthBytes + (position > 0 ? position - 1 : 0)));
  }

 private:
  enum class Place {
    kStart,
    kFile,
    kName,
    kMetadataName,
    kMetadata,
    kTensor,
    kDType,
    kShapeKey,
    kShape,
    kOffsetsKey,
    kOffsets,
    kEnd
  };

  bool GoTo(Place place) {
    place_ = place;
    return true;
  }

  static bool Complete(const Entry& entry) {
    return entry.has_dtype && entry.has_shape && entry.has_offsets && entry.offsets.size() == 2;
  }

  bool TensorName(string_t& name) {
    if (!names_.insert(name).second) return Fail(absl::StrCat("the name ", name, " stands twice"));
    if (name == "__metadata__") return GoTo(Place::kMetadataName);
    entries_.emplace_back().name = std::move(name);
    return GoTo(Place::kName);
  }

  bool TensorKey(const string_t& name) {
    Entry& entry = entries_.back();
    if (name == "dtype" && !std::exchange(entry.has_dtype, true)) return GoTo(Place::kDType);
    if (name == "shape" && !std::exchange(entry.has_shape, true)) return GoTo(Place::kShapeKey);
    if (name == "data_offsets" && !std::exchange(entry.has_offsets, true)) {
      return GoTo(Place::kOffsetsKey);
    }
    return Fail(absl::StrCat("tensor ", entry.name, " has an unknown or repeated key ",
                             name.substr(0, 80)));
  }

  bool Unexpected(const std::string& what) {
    const std::string where = entries_.empty()
                                  ? "at the start"
                                  : absl::StrCat("in or after tensor ", entries_.back().name);
    return Fail(
        absl::StrCat("the header has ", what, " ", where,
                     ", expected {name: {dtype, shape: [sizes], data_offsets: [from, to]}}"));
  }

  bool Fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }

  Place place_ = Place::kStart;
  std::vector<Entry> entries_;
  std::unordered_set<std::string> names_;
  std::string error_;
};

uint64_t ReadLength(std::span<const uint8_t> file) {
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | file[i];
  return length;
}

absl::Status Invalid(const std::string& file_name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(file_name, ": ", what));
}

// The length of the JSON, known to be inside the file.
absl::StatusOr<size_t> HeaderLength(std::span<const uint8_t> file, const std::string& file_name) {
  if (file.size() < kLengthBytes) {
    return absl::DataLossError(absl::StrCat(file_name, ": truncated: the file has ", file.size(),
                                            " bytes, expected at least 8 for the header's length"));
  }
  const uint64_t length = ReadLength(file);
  if (length > kLargestSafetensorsHeader) {
    return Invalid(file_name,
                   absl::StrCat("offset 0: the header's length is ", length, ", the limit is ",
                                kLargestSafetensorsHeader, "; is this a safetensors file?"));
  }
  if (length > file.size() - kLengthBytes) {
    return absl::DataLossError(absl::StrCat(file_name, ": truncated: the header ends at offset ",
                                            kLengthBytes + length, ", the file at ", file.size()));
  }
  if (length == 0 || file[kLengthBytes] != '{') {
    return Invalid(file_name, "offset 8: the header does not start with {");
  }
  return length;
}

// Multiplies out the shape. False on overflow.
bool CountBytes(const Entry& entry, size_t element_bytes, StoredTensor& tensor) {
  size_t elements = 1;
  for (const uint64_t size : entry.shape) {
    if (__builtin_mul_overflow(elements, size, &elements)) return false;
    tensor.shape.push_back(size);
  }
  tensor.elements = elements;
  return !__builtin_mul_overflow(elements, element_bytes, &tensor.bytes);
}

// The entry's tensor, its range checked against `data`, the file after the header.
absl::StatusOr<StoredTensor> CheckEntry(Entry& entry, std::span<const uint8_t> data,
                                        const std::string& file_name) {
  const std::string where = absl::StrCat("tensor ", entry.name);
  const size_t element_bytes = ElementBytes(entry.dtype);
  if (element_bytes == 0) {
    return Invalid(file_name,
                   absl::StrCat(where, " has the unknown dtype ", entry.dtype.substr(0, 40),
                                ", expected F32, F16 or BF16"));
  }
  StoredTensor tensor;
  if (!CountBytes(entry, element_bytes, tensor)) {
    return Invalid(file_name,
                   absl::StrCat(where, " has the shape [", absl::StrJoin(entry.shape, ", "),
                                "], more bytes than 2^64"));
  }
  const uint64_t from = entry.offsets[0], to = entry.offsets[1];
  if (to > data.size() && from <= to) {
    return absl::DataLossError(absl::StrCat(file_name, ": truncated: ", where,
                                            " ends at data offset ", to, ", the data at ",
                                            data.size()));
  }
  if (from > to || to - from != tensor.bytes) {
    return Invalid(file_name, absl::StrCat(where, " has data_offsets [", from, ", ", to,
                                           "], expected ", tensor.bytes, " bytes for ", entry.dtype,
                                           " ", ShapeString(tensor.shape)));
  }
  tensor.name = std::move(entry.name);
  tensor.dtype = std::move(entry.dtype);
  tensor.data = data.data() + from;
  return tensor;
}

// Sorted by place, each tensor must start where the one before it ends, and the last end the data.
absl::Status CheckCover(const std::vector<StoredTensor>& tensors, std::span<const uint8_t> data,
                        const std::string& file_name) {
  size_t end = 0;
  std::string before = "the header";
  for (const StoredTensor& tensor : tensors) {
    const size_t start = static_cast<size_t>(tensor.data - data.data());
    if (start != end) {
      return Invalid(file_name,
                     absl::StrCat("tensor ", tensor.name, " starts at data offset ", start, ", ",
                                  start < end ? "inside of " : "leaving a hole after ", before,
                                  ", which ends at ", end));
    }
    end = start + tensor.bytes;
    before = absl::StrCat("tensor ", tensor.name);
  }
  if (end == data.size()) return absl::OkStatus();
  return Invalid(file_name,
                 absl::StrCat(before, " ends at data offset ", end, ", but ", data.size() - end,
                              " more bytes follow that belong to no tensor"));
}

}  // namespace

std::optional<DType> WeightType(std::string_view safetensors_dtype) {
  if (safetensors_dtype == "F32") return DType::kFloat32;
  if (safetensors_dtype == "BF16") return DType::kBFloat16;
  if (safetensors_dtype == "F16") return DType::kFloat16;
  return std::nullopt;
}

std::string ShapeString(const std::vector<size_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<std::vector<StoredTensor>> ParseSafetensors(std::span<const uint8_t> file,
                                                           const std::string& file_name) {
  RIVULET_ASSIGN_OR_RETURN(const size_t length, HeaderLength(file, file_name));
  const auto header = file.subspan(kLengthBytes, length);
  const auto data = file.subspan(kLengthBytes + length);
  HeaderReader reader;
  if (!json::sax_parse(header.begin(), header.end(), &reader)) {
    return Invalid(file_name, reader.error());
  }
  std::vector<StoredTensor> tensors;
  tensors.reserve(reader.entries().size());
  for (Entry& entry : reader.entries()) {
    RIVULET_ASSIGN_OR_RETURN(StoredTensor tensor, CheckEntry(entry, data, file_name));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.data, a.bytes) < std::pair(b.data, b.bytes);
  });
  RIVULET_RETURN_IF_ERROR(CheckCover(tensors, data, file_name));
  return tensors;
}

}  // namespace rivulet
