// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/gate_operations.h"

namespace rivulet {

using namespace fake;

void FakeDevice::Gate(const GateCall& call) {
  Do([=] {
    for (size_t t = 0; t < call.y.rows; ++t) {
      for (size_t i = 0; i < call.y.columns; ++i) {
        float y = 0.0f;
        if (i < call.x.columns) {
          y = Function(call.f, call.gate.row(t)[i] * call.gate_multiplier) * call.x.row(t)[i] *
              call.multiplier;
        }
        StoreOperand(call.y, t, i, y);
      }
    }
  });
}

}  // namespace rivulet
