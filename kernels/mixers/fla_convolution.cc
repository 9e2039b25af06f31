// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/fla_convolution.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/aligned_buffer.h"

namespace rivulet {
namespace {

// `suffix` of the three tensors, one after the other: `width` numbers a channel.
AlignedBuffer<float> TakeParts(const FlaConvolutionShape& shape, ParameterSource& parameters,
                               const char* suffix, const std::vector<size_t>& width) {
  const size_t numbers = width.empty() ? 1 : width.back();
  AlignedBuffer<float> result((shape.q + shape.k + shape.v) * numbers);
  float* to = result.data();
  for (const auto& [name, channels] :
       {std::pair("q", shape.q), std::pair("k", shape.k), std::pair("v", shape.v)}) {
    std::vector<size_t> part_shape = {channels};
    part_shape.insert(part_shape.end(), width.begin(), width.end());
    const AlignedBuffer<float> part =
        parameters.TakeVector(std::string(name) + "_conv1d." + suffix, part_shape);
    to = std::copy_n(part.data(), part.size(), to);
  }
  return result;
}

}  // namespace

FlaConvolution::FlaConvolution(const FlaConvolutionShape& shape, ParameterSource& parameters,
                               StateLayout& layout) {
  AlignedBuffer<float> weight = TakeParts(shape, parameters, "weight", {1, shape.window});
  AlignedBuffer<float> bias;
  if (shape.bias) bias = TakeParts(shape, parameters, "bias", {});
  convolution_ = ShortConvolution(std::move(weight), std::move(bias), shape.q + shape.k + shape.v,
                                  shape.window, shape.silu, "conv", layout);
}

ConstFloatMatrix FlaConvolution::Apply(const MixerStep& step, ConstFloatMatrix qkv) const {
  if (convolution_.channels() == 0) return qkv;
  const FloatMatrix convolved = step.workspace->Take(qkv.rows, qkv.columns);
  convolution_.Apply(step.segments, step.state, qkv, convolved, *step.pool);
  return convolved;
}

}  // namespace rivulet
