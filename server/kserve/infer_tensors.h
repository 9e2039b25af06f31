// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Tensors of KServe's protocol ↔ values. A tensor's elements are in its `contents`, or, for all
// tensors of a request, in `raw_input_contents`: little-endian numbers, one byte for a boolean, and
// for each element of BYTES its length in four bytes and then itself.
#ifndef RIVULET_SERVER_KSERVE_INFER_TENSORS_H_
#define RIVULET_SERVER_KSERVE_INFER_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kserve/grpc_service.pb.h"

namespace rivulet::kserve {

namespace wire = ::inference;

// Reads inputs by name. Each is read at most once. INVALID_ARGUMENT names the tensor. The request
// outlives the reader.
class InputTensors {
 public:
  // Two tensors of one name, shared memory, or raw contents of another number.
  static absl::StatusOr<InputTensors> Open(const wire::ModelInferRequest& request);

  bool Has(const std::string& name) const { return Find(name) >= 0; }
  // One element of BYTES, which is UTF-8.
  absl::StatusOr<std::string> Text(const std::string& name);
  // One BOOL; `missing` if there is no such tensor.
  absl::StatusOr<bool> Bool(const std::string& name, bool missing);
  // INT32, INT64 or UINT32, in any shape.
  absl::StatusOr<std::vector<uint32_t>> TokenIds(const std::string& name);
  // An error for the first tensor that was not read.
  absl::Status Finish() const;

 private:
  explicit InputTensors(const wire::ModelInferRequest& request) : request_(request) {}

  int Find(const std::string& name) const;  // -1: none
  // Marks it as read and checks that its shape has one element.
  absl::StatusOr<int> One(const std::string& name, const char* datatype);
  bool raw() const { return request_.raw_input_contents_size() > 0; }

  const wire::ModelInferRequest& request_;
  std::set<std::string> read_;
};

// Adds an output tensor with its raw contents.
void AddTexts(const char* name, const std::vector<std::string>& texts,
              wire::ModelInferResponse& response);
void AddNumbers(const char* name, const char* datatype, const std::vector<uint32_t>& numbers,
                wire::ModelInferResponse& response);

}  // namespace rivulet::kserve

#endif  // RIVULET_SERVER_KSERVE_INFER_TENSORS_H_
