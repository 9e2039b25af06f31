// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Random weights for a mixer of any shape, for tests and benchmarks that have no checkpoint. Every
// number is a function of (seed, prefix, tensor name, place).
#ifndef RIVULET_KERNELS_MIXERS_RANDOM_PARAMETERS_H_
#define RIVULET_KERNELS_MIXERS_RANDOM_PARAMETERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/mixers/parameter_source.h"

namespace rivulet {

// Answers whatever is asked for, so it need not know what a mixer's tensors are called. Optional
// tensors are absent. Vectors are uniform around one, right for norms and harmless for decays,
// gates and convolutions; of more than three dimensions around zero, since the projections of
// hashes would else tell no vectors apart; linear maps keep their input's variance. `ranges` names
// exceptions.
class RandomParameters : public ParameterSource {
 public:
  struct Range {
    float low = 0.5f, high = 1.5f;
  };
  using Ranges = std::map<std::string, Range, std::less<>>;

  RandomParameters(uint64_t seed, std::string prefix, DType dtype, Ranges ranges = {});

  bool Has(std::string_view) const override { return false; }
  std::vector<size_t> Shape(std::string_view) const override { return {}; }
  AlignedBuffer<float> TakeVector(std::string_view name, const std::vector<size_t>& shape) override;
  Linear TakeLinear(const std::vector<LinearPart>& parts, size_t inputs) override;

  // Numbers handed out so far; and the bytes that they take, linear maps in their dtype.
  uint64_t taken() const { return taken_; }
  uint64_t bytes() const { return bytes_; }

 private:
  AlignedBuffer<float> Fill(std::string_view name, size_t count, Range range);

  uint64_t seed_;
  std::string prefix_;
  DType dtype_;
  Ranges ranges_;
  uint64_t taken_ = 0, bytes_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RANDOM_PARAMETERS_H_
