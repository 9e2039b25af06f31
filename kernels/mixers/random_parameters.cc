// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/random_parameters.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace rivulet {
namespace {

// Numbers of one thread's share at least.
constexpr size_t kWorthSharing = size_t{1} << 20;

// The finaliser of SplitMix64.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t StreamOf(uint64_t seed, const std::string& name) {
  uint64_t stream = Mix(seed + 0x9e3779b97f4a7c15u);
  for (const char c : name) stream = Mix(stream ^ static_cast<unsigned char>(c));
  return stream;
}

// Numbers [first, end): two of 24 bits from each counter.
void FillRange(uint64_t stream, RandomTensors::Range range, size_t first, size_t end,
               float* numbers) {
  const float step = (range.high - range.low) * 0x1p-24f;
  for (size_t i = first; i < end; ++i) {
    const uint64_t bits = Mix(stream + i / 2 * 0x9e3779b97f4a7c15u);
    const auto number = static_cast<uint32_t>(i % 2 == 0 ? bits >> 40 : bits & 0xffffffu);
    numbers[i] = range.low + step * static_cast<float>(number);
  }
}

void Fill(uint64_t stream, RandomTensors::Range range, AlignedBuffer<float>& numbers) {
  const size_t count = numbers.size();
  const size_t shares = std::clamp<size_t>(count / kWorthSharing, 1,
                                           std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < shares; ++i) {
    threads.emplace_back(FillRange, stream, range, count * i / shares, count * (i + 1) / shares,
                         numbers.data());
  }
  FillRange(stream, range, 0, count / shares, numbers.data());
  for (std::thread& thread : threads) thread.join();
}

RandomTensors::Range RangeOf(const std::vector<size_t>& shape, TensorUse use) {
  if (use == TensorUse::kLinear) {
    const float bound = std::sqrt(3.0f / static_cast<float>(shape.back()));
    return {-bound, bound};
  }
  if (use == TensorUse::kLinearBias) return {-0.1f, 0.1f};
  return shape.size() > 3 ? RandomTensors::Range{-1.0f, 1.0f} : RandomTensors::Range{};
}

}  // namespace

TensorView RandomTensors::Take(const std::string& name, const std::vector<size_t>& shape,
                               TensorUse use) {
  size_t count = 1;
  for (const size_t extent : shape) count *= extent;
  AlignedBuffer<float>& numbers = tensors_[name];
  if (numbers.size() != count) {
    const auto named = ranges_.find(name);
    numbers = AlignedBuffer<float>(count);
    Fill(StreamOf(seed_, name), named != ranges_.end() ? named->second : RangeOf(shape, use),
         numbers);
    taken_ += count;
    if (use != TensorUse::kLinear) vector_bytes_ += count * sizeof(float);
  }
  return {reinterpret_cast<const std::byte*>(numbers.data()), DType::kFloat32};
}

}  // namespace rivulet
