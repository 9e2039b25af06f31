// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A mixture of experts on a device: what MixtureOfExperts is on the CPU, with the same choices and
// the same order of a token's sum. The experts' maps lie one behind the other, as one tensor, so
// that a kernel finds an expert's weights by its number.
//
// Threading: engine thread only.
#ifndef RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_DEVICE_EXPERTS_H_
#define RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_DEVICE_EXPERTS_H_

#include <optional>

#include "kernels/ops/feed_forward/feed_forward.h"
#include "kernels/ops/gated_mlp/gated_mlp.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/mixture_of_experts/mixture_of_experts.h"

namespace rivulet {

struct ExpertRouting;

class DeviceExperts : public FeedForward {
 public:
  // router: as MixtureOfExperts takes it. gate_up [X · 2 · width, hidden] and down
  // [X · hidden, width]: all experts' maps, concatenated. All are packed on the device; where one
  // did not fit (WeightPacker::status), the result must not be used.
  DeviceExperts(const ExpertChoice& choice, Linear router, const Linear& gate_up,
                const Linear& down, std::optional<GatedMlp> shared);

  void Apply(ConstFloatMatrix x, FloatMatrix y, Workspace& workspace,
             ThreadPool& pool) const override;
  // Temporaries: rows of the experts' widths and outputs for all T · experts_per_token pairs.
  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override;
  bool runs_on_device() const override;

 private:
  ExpertRouting NewRouting(const DeviceStep& step) const;

  ExpertChoice choice_;
  Linear router_;
  DeviceLinear gate_up_, down_;  // of expert 0
  std::optional<GatedMlp> shared_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_DEVICE_EXPERTS_H_
