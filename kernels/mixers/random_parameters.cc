// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/random_parameters.h"

#include <cmath>
#include <utility>

namespace rivulet {
namespace {

// xorshift64*: good enough for noise, and fast enough for 100 M weights.
class Noise {
 public:
  Noise(uint64_t seed, std::string_view name) : state_(seed ^ 0x9E3779B97F4A7C15u) {
    for (char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    state_ |= 1;
  }
  // Uniform in [low, high).
  float Next(float low, float high) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    const uint64_t bits = state_ * 0x2545F4914F6CDD1Du;
    return low + (high - low) * static_cast<float>(bits >> 40) * 0x1p-24f;
  }

 private:
  uint64_t state_;
};

}  // namespace

RandomParameters::RandomParameters(uint64_t seed, std::string prefix, DType dtype, Ranges ranges)
    : seed_(seed), prefix_(std::move(prefix)), dtype_(dtype), ranges_(std::move(ranges)) {}

AlignedBuffer<float> RandomParameters::TakeVector(std::string_view name,
                                                  const std::vector<size_t>& shape) {
  size_t count = 1;
  for (size_t extent : shape) count *= extent;
  bytes_ += count * sizeof(float);
  return Fill(name, count, shape.size() > 3 ? Range{-1.0f, 1.0f} : Range{});
}

Linear RandomParameters::TakeLinear(const std::vector<LinearPart>& parts, size_t inputs) {
  const float bound = std::sqrt(3.0f / static_cast<float>(inputs));
  std::vector<AlignedBuffer<float>> weights, biases;
  std::vector<LinearSource> sources;
  for (const LinearPart& part : parts) {
    bytes_ += part.outputs * inputs * DTypeSize(dtype_);
    // Matrices of one stack must differ.
    const std::string index = part.stacked == 0 ? "" : std::to_string(part.index);
    weights.push_back(Fill(part.name + index, part.outputs * inputs, {-bound, bound}));
    biases.push_back(part.bias.empty() ? AlignedBuffer<float>()
                                       : Fill(part.bias, part.outputs, {-bound, bound}));
    sources.push_back({weights.back().data(), DType::kFloat32, part.outputs,
                       part.bias.empty() ? nullptr : biases.back().data()});
  }
  return Linear::Pack(sources, inputs, dtype_);
}

AlignedBuffer<float> RandomParameters::Fill(std::string_view name, size_t count, Range range) {
  const auto named = ranges_.find(name);
  if (named != ranges_.end()) range = named->second;
  Noise noise(seed_, prefix_ + std::string(name));
  AlignedBuffer<float> numbers(count);
  taken_ += count;
  for (size_t i = 0; i < count; ++i) numbers[i] = noise.Next(range.low, range.high);
  return numbers;
}

}  // namespace rivulet
