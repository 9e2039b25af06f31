// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/gate_operations.h"

namespace rivulet {

using namespace fake;

void FakeDevice::Gate(const GateCall& call) {
  Do([=] {
    const bool operand = call.y.data != nullptr;
    for (size_t t = 0; t < call.x.rows; ++t) {
      for (size_t i = 0; i < call.x.columns; ++i) {
        const float y = Function(call.f, call.gate.row(t)[i] * call.gate_multiplier) *
                        call.x.row(t)[i] * call.multiplier;
        operand ? StoreOperand(call.y, t, i, y) : void(call.numbers.row(t)[i] = y);
      }
      for (size_t i = call.x.columns; i < call.y.columns; ++i) StoreOperand(call.y, t, i, 0.0f);
    }
  });
}

}  // namespace rivulet
