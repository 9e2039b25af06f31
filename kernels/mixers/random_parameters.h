// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Random weights for a mixer of any shape, for tests and benchmarks that have no checkpoint. Every
// number is a function of (seed, tensor name, place) alone, so tensors are filled by all cores.
#ifndef RIVULET_KERNELS_MIXERS_RANDOM_PARAMETERS_H_
#define RIVULET_KERNELS_MIXERS_RANDOM_PARAMETERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/mixers/parameter_source.h"
#include "kernels/mixers/tensor_source.h"

namespace rivulet {

// Makes whatever tensor it is asked for, so it need not know what a mixer's tensors are called.
// Optional tensors are absent. Vectors are uniform around one, right for norms and harmless for
// decays, gates and convolutions; with more than three dimensions around zero, since the
// projections of hashes would otherwise not tell vectors apart; linear maps keep the variance of
// their input. `ranges` names exceptions.
class RandomTensors : public TensorSource {
 public:
  struct Range {
    float low = 0.5f, high = 1.5f;
  };
  using Ranges = std::map<std::string, Range, std::less<>>;

  explicit RandomTensors(uint64_t seed, Ranges ranges = {})
      : seed_(seed), ranges_(std::move(ranges)) {}

  bool Has(const std::string&) const override { return false; }
  std::vector<size_t> Shape(const std::string&) const override { return {}; }
  TensorView Take(const std::string& name, const std::vector<size_t>& shape,
                  TensorUse use) override;

  // Numbers made so far, and bytes of those that are not of linear maps.
  uint64_t taken() const { return taken_; }
  uint64_t vector_bytes() const { return vector_bytes_; }

 private:
  const uint64_t seed_;
  const Ranges ranges_;
  std::map<std::string, AlignedBuffer<float>> tensors_;
  uint64_t taken_ = 0, vector_bytes_ = 0;
};

// The same as parameters below `prefix`, linear maps packed in `dtype`.
class RandomParameters : public RandomTensors, public ParameterSource {
 public:
  // `device` as in WeightPacker.
  RandomParameters(uint64_t seed, std::string prefix, DType dtype, Ranges ranges = {},
                   Device* device = nullptr)
      : RandomTensors(seed, std::move(ranges)),
        ParameterSource(*this, packer_, std::move(prefix)),
        packer_(dtype, device) {}

  // What all parameters taken so far occupy.
  uint64_t bytes() const { return vector_bytes() + packer_.bytes(); }

 private:
  WeightPacker packer_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RANDOM_PARAMETERS_H_
