// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/fla_convolution.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/aligned_buffer.h"

namespace rivulet {
namespace {

struct Part {
  const char* name;
  size_t channels;
};

std::vector<Part> PartsOf(const FlaConvolutionShape& shape) {
  if (shape.joint) return {{"conv1d.", shape.q + shape.k + shape.v}};
  return {{"q_conv1d.", shape.q}, {"k_conv1d.", shape.k}, {"v_conv1d.", shape.v}};
}

// `suffix` of the tensors, one after the other: [channels, inner...] each.
AlignedBuffer<float> TakeParts(const FlaConvolutionShape& shape, ParameterSource& parameters,
                               const char* suffix, const std::vector<size_t>& inner) {
  const size_t numbers = inner.empty() ? 1 : inner.back();
  AlignedBuffer<float> result((shape.q + shape.k + shape.v) * numbers);
  float* to = result.data();
  for (const auto& [name, channels] : PartsOf(shape)) {
    std::vector<size_t> part_shape = {channels};
    part_shape.insert(part_shape.end(), inner.begin(), inner.end());
    const AlignedBuffer<float> part = parameters.TakeVector(std::string(name) + suffix, part_shape);
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
