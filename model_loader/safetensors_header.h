// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The table of tensors at the start of a .safetensors file, checked against the file's size before
// anything else looks at it (format: huggingface/safetensors, README "Format"):
//
//   8 bytes N, little endian | N bytes JSON {"name": {"dtype", "shape", "data_offsets": [from,
//   to]}} | data, which the tensors cover without holes or overlap
//
// For any bytes, parsing ends with a table that can be trusted or with a status that names
// the file, the tensor or offset, what was found and what was expected. It allocates in proportion
// to N at most.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_SAFETENSORS_HEADER_H_
#define RIVULET_MODEL_LOADER_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"

namespace rivulet {

// As the format's own library limits it.
inline constexpr uint64_t kLargestSafetensorsHeader = 100'000'000;

// One tensor. Borrows the file's bytes.
struct StoredTensor {
  std::string name;
  std::string dtype;              // the format's name: "F32", "BF16", "I64", ...
  std::vector<size_t> shape;      // [] is a scalar; a size of 0 is an empty tensor
  const uint8_t* data = nullptr;  // any alignment
  size_t elements = 0;
  size_t bytes = 0;
};

// The type of the weights that we compute with; nullopt for the format's other types.
std::optional<DType> WeightType(std::string_view safetensors_dtype);

// "[64, 1, 4]"
std::string ShapeString(const std::vector<size_t>& shape);

// The tensors of the file in the order of their data. DATA_LOSS when the file ends before what it
// promises, else INVALID_ARGUMENT. `file_name` is for messages.
absl::StatusOr<std::vector<StoredTensor>> ParseSafetensors(std::span<const uint8_t> file,
                                                           const std::string& file_name);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_SAFETENSORS_HEADER_H_
