// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Trained numbers by name, as a checkpoint's files hold them or as tests and benchmarks make them
// up. A source knows no device: parameter_source.h turns its tensors into what a mixer computes
// with.
//
// A take that fails (missing tensor, wrong shape, NaN) is recorded by the source and answered with
// zeros of the expected shape, so that one load names every problem instead of the first. Ask the
// source for its problems before using what was made from it. Tensors that were not taken are
// reported as extra.
//
// Threading: one thread.
#ifndef RIVULET_KERNELS_MIXERS_TENSOR_SOURCE_H_
#define RIVULET_KERNELS_MIXERS_TENSOR_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"

namespace rivulet {

// All numbers of a tensor, row-major, without alignment. Valid as long as its source.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
};

// What a tensor is for. Sources that make up numbers choose sensible ones by it. kPacked: of a
// linear map whose packed weights are at hand; its numbers were checked when they were packed, and
// are not read.
enum class TensorUse : uint8_t { kVector, kLinear, kLinearBias, kPacked };

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual bool Has(const std::string& name) const = 0;

  // The shape of a tensor that Has(), for the few formats in which the tensors alone tell sizes.
  virtual std::vector<size_t> Shape(const std::string& name) const = 0;

  virtual TensorView Take(const std::string& name, const std::vector<size_t>& shape,
                          TensorUse use) = 0;

  // The receiver has copied these bytes of a taken tensor. They stay valid; a source that maps
  // files gives up their memory, and reads them again if they are used again.
  virtual void DoneWith(const void* /*data*/, size_t /*bytes*/) {}

  // Leaves out a tensor that may be there and that the model does not use, if it has this shape.
  // Sources that do not look for extra tensors have nothing to do.
  virtual void Ignore(const std::string& /*name*/, const std::vector<size_t>& /*shape*/) {}
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_TENSOR_SOURCE_H_
