// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Several mixers that read the same input, as one (Falcon-H1 has attention beside Mamba-2):
//
//   y = Σ_i output_i · mixer_i(input_i · x)
//
// The sum runs over the mixers in order. Their states lie one behind the other in one slot.
// Threading and bits: mixer.h.
#ifndef RIVULET_KERNELS_MIXERS_SIDE_BY_SIDE_H_
#define RIVULET_KERNELS_MIXERS_SIDE_BY_SIDE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/layer_step.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class SideBySide : public Mixer {
 public:
  struct Branch {
    std::unique_ptr<Mixer> mixer;
    float input = 1;
    float output = 1;
  };

  // REQUIRES: not empty; one of the mixers at most has pages; all were made with the same options.
  explicit SideBySide(std::vector<Branch> branches);

  const StateLayout& state_layout() const override { return layout_; }
  // The least of the mixers'.
  uint64_t max_tokens() const override;
  size_t handed_on_columns() const override;
  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override;
  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override;
  bool runs_on_device() const override;

 private:
  void EnqueueBranch(size_t branch, const DeviceStep& step, Operand x, FloatMatrix y) const;
  absl::Status Run(size_t branch, const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const;

  std::vector<Branch> branches_;
  StateLayout layout_;
  std::vector<PartOffsets> offsets_;  // where each branch's planes begin
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SIDE_BY_SIDE_H_
