// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A mixture of experts on a device: what MixtureOfExperts is on the CPU, with the same choices and
// the same order of a token's sum. The experts' maps lie one behind the other, as one tensor, so
// that a kernel finds an expert's weights by its number.
//
// Threading: engine thread only.
#ifndef RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_DEVICE_EXPERTS_H_
#define RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_DEVICE_EXPERTS_H_

#include <memory>

#include "kernels/base/activation_kind.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/ops/feed_forward/feed_forward.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/mixture_of_experts/mixture_of_experts.h"

namespace rivulet {

struct CombineExpertsCall;
struct ExpertRouting;

// As MixtureParts, but for the experts. All maps are packed on the device, `shared` too; where one
// did not fit (WeightPacker::status), the result must not be used.
struct DeviceMixtureParts {
  ExpertChoice choice;
  Linear router;
  AlignedBuffer<float> correction = {};
  // All experts' maps, concatenated: [X · width, inputs], of gated ones [X · 2 · width, inputs];
  // and [X · inputs, width].
  Linear in = {}, out = {};
  bool gated = true;
  Activation f = Activation::kSilu;
  float limit = 0;  // of gated experts: GatedMlpForm::limit
  std::unique_ptr<FeedForward> shared = nullptr;
  Linear latent_down = {}, latent_up = {};
};

class DeviceExperts : public FeedForward {
 public:
  explicit DeviceExperts(DeviceMixtureParts parts);

  void Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override;
  // Temporaries: rows of the experts' widths and outputs for all T · experts_per_token pairs.
  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override;
  bool runs_on_device() const override;

 private:
  bool latent() const { return parts_.latent_down.outputs() > 0; }
  ExpertRouting NewRouting(const DeviceStep& step) const;
  ExpertRouting EnqueueRoute(const DeviceStep& step, ConstFloatMatrix logits) const;
  Operand GatedUp(const DeviceStep& step, ConstFloatMatrix gate, ConstFloatMatrix up) const;
  FloatMatrix EnqueueExperts(const DeviceStep& step, const ExpertRouting& routing,
                             const Operand& x) const;
  void AddLatentExperts(const DeviceStep& step, const Operand& x,
                        const CombineExpertsCall& sum) const;

  DeviceMixtureParts parts_;
  DeviceLinear in_, out_;  // of expert 0
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_DEVICE_EXPERTS_H_
