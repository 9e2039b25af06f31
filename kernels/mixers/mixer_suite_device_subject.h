// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A subject of the mixer suite on a device: its layout there, and the operations of a step. What
// runs it is in mixer_suite_device_run.h. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_MIXER_SUITE_DEVICE_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_MIXER_SUITE_DEVICE_SUBJECT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_step.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// What a step leaves in the step's memory: a row for each token, or the input of a product.
struct DeviceOutput {
  FloatMatrix rows = {};
  Operand operand = {};  // where rows has no data
};

class DeviceSubject {
 public:
  virtual ~DeviceSubject() = default;

  virtual const StateLayout& layout() const = 0;

  // Enqueues what the subject does for inputs [T, input_columns], in the device's memory.
  virtual DeviceOutput Enqueue(const DeviceStep& step, ConstFloatMatrix inputs) = 0;

  // Where a device has its columns in another order than the CPU: of each input column there, the
  // subject's; of each output column of the subject, the device's. kNoColumn: zeros. Empty: the
  // same order.
  static constexpr size_t kNoColumn = SIZE_MAX;
  std::vector<size_t> inputs_from, outputs_at;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MIXER_SUITE_DEVICE_SUBJECT_H_
