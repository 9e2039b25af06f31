// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A stage of layers (layer_stages.h): what a layer that shares its maps with others has of its own,
// maps of low rank of the same input that are added to the shared ones' outputs (Zamba2):
//
//   y_i += up_i(down_i(x))
//
// Threading: constant after construction; a step belongs to one thread.
#ifndef RIVULET_KERNELS_MIXERS_LOW_RANK_UPDATE_H_
#define RIVULET_KERNELS_MIXERS_LOW_RANK_UPDATE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_step.h"
#include "kernels/mixers/parameter_source.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/recurrence/layer_step.h"

namespace rivulet {

class LowRankUpdate {
 public:
  struct Part {
    std::string tensor;  // <tensor>.0.weight [rank, inputs], <tensor>.1.weight [outputs, rank]
    size_t outputs = 0;
  };

  LowRankUpdate() = default;  // adds nothing
  LowRankUpdate(const std::vector<Part>& parts, size_t rank, size_t inputs,
                ParameterSource& parameters);

  // x [T, inputs]; y_i [T, outputs of part i], as many as there are parts.
  void Apply(const LayerStep& step, ConstFloatMatrix x, std::span<const FloatMatrix> y) const;
  void Enqueue(const DeviceStep& step, const Operand& x, std::span<const FloatMatrix> y) const;

 private:
  Linear down_;  // of all parts, [parts · rank, inputs]
  std::vector<Linear> up_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOW_RANK_UPDATE_H_
