// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where a mixer gets its trained numbers from. Implemented by model_loader over safetensors, by
// tests over arrays, and by the benchmarks over random numbers.
//
// A take that fails (missing tensor, wrong shape, NaN) is recorded by the source and answered with
// zeros of the expected shape, so that one load names every problem instead of the first. Whoever
// built the mixer must ask the source for its problems before using it. Tensors that nobody took
// are reported as extra.
//
// Threading: one thread. Everything handed out is owned by the receiver.
#ifndef RIVULET_KERNELS_MIXERS_PARAMETER_SOURCE_H_
#define RIVULET_KERNELS_MIXERS_PARAMETER_SOURCE_H_

#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

// One matrix of a concatenated linear map: tensor `name`, [outputs, inputs], as stored by PyTorch;
// or one of `stacked` matrices that lie in a tensor [stacked, outputs, inputs].
struct LinearPart {
  std::string name;
  size_t outputs = 0;
  std::string bias;    // tensor [outputs]; empty for none
  size_t stacked = 0;  // 0: the tensor is the matrix
  size_t index = 0;    // of this matrix in the stack
};

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // Names are relative to the layer's mixer ("q_proj.weight").
  virtual bool Has(std::string_view name) const = 0;

  // The shape of a tensor that Has(), for the few formats whose sizes only the tensors tell.
  virtual std::vector<size_t> Shape(std::string_view name) const = 0;

  // All elements as fp32, row-major, exactly as stored, whatever the file's dtype.
  // [product of shape] floats.
  virtual AlignedBuffer<float> TakeVector(std::string_view name,
                                          const std::vector<size_t>& shape) = 0;

  // Several maps of one input as one packed map, outputs concatenated in the order given. Kept in
  // the dtype that --dtype asks for.
  virtual Linear TakeLinear(const std::vector<LinearPart>& parts, size_t inputs) = 0;

  // Leaves out a tensor that may be there and that this mixer does not use, if it has this shape.
  // Sources that do not look for extra tensors have nothing to do.
  virtual void Ignore(std::string_view /*name*/, const std::vector<size_t>& /*shape*/) {}
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_PARAMETER_SOURCE_H_
