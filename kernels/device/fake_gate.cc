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
        float gate = call.gate.row(t)[i] * call.gate_multiplier, x = call.x.row(t)[i];
        if (call.limit != 0) {
          gate = gate > call.limit ? call.limit : gate;
          x = x > call.limit ? call.limit : x < -call.limit ? -call.limit : x;
        }
        const float y = Function(call.f, gate) * x * call.multiplier;
        operand ? StoreOperand(call.y, t, i, y) : void(call.numbers.row(t)[i] = y);
      }
      for (size_t i = call.x.columns; i < call.y.columns; ++i) StoreOperand(call.y, t, i, 0.0f);
    }
  });
}

}  // namespace rivulet
