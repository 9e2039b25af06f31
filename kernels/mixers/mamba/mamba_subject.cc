// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba/mamba_subject.h"

#include <vector>

#include "kernels/mixers/mamba/mamba_reference.h"

namespace rivulet {

MambaConstants DrawnMambaConstants(const MambaShape& shape, double slowest, double fastest) {
  MambaConstants constants{AlignedBuffer<float>(shape.channels * shape.state_size),
                           AlignedBuffer<float>(shape.channels)};
  for (size_t i = 0; i < constants.a.size(); ++i) {
    constants.a[i] = GeneratedFloat("A", 0, i, -fastest, -slowest);
  }
  for (size_t i = 0; i < constants.d.size(); ++i) {
    constants.d[i] = GeneratedFloat("D", 0, i, 0.5, 1.5);
  }
  return constants;
}

std::unique_ptr<SuiteSubject> MakeMambaSubject(const MambaShape& shape, double slowest,
                                               double fastest, bool forgets) {
  const size_t i = shape.channels, n = shape.state_size;
  auto subject =
      std::make_unique<CoreSubject>(std::vector<InputField>{{"x", 0, 1, i, i, -1.0, 1.0},
                                                            {"dt", 0, 1, i, i, -5.0, 1.0},
                                                            {"z", 0, 1, i, i, -2.0, 2.0},
                                                            {"B", 0, 1, n, n, -1.0, 1.0},
                                                            {"C", 0, 1, n, n, -1.0, 1.0}},
                                    i);
  if (forgets) subject->state_layout.SetForgets();
  const auto constants =
      std::make_shared<MambaConstants>(DrawnMambaConstants(shape, slowest, fastest));
  const auto recurrence =
      std::make_shared<MambaRecurrence>(shape, *constants, subject->state_layout);
  const auto split = [](const CoreSubject::Inputs& x) {
    return MambaInput{x["x"], x["dt"], x["z"], x["B"], x["C"]};
  };
  subject->run = [=](const LayerStep& step, const CoreSubject::Inputs& inputs, FloatMatrix out) {
    recurrence->Run(step.segments, step.state, split(inputs), out, *step.pool);
  };
  subject->on_device = [=, subject = subject.get()](StateLayout& layout) {
    const auto on_device = std::make_shared<MambaRecurrence>(shape, *constants, layout);
    return [=](const DeviceStep& step, ConstFloatMatrix rows) {
      const Operand y = step.workspace->TakeOperand(rows.rows, i);
      on_device->Enqueue(step, split(subject->ByField(rows)), y);
      return DeviceOutput{.operand = y};
    };
  };
  subject->reference = [=](const CoreSubject::Inputs& inputs) {
    return MambaReference(shape, *constants, split(inputs));
  };
  return subject;
}

}  // namespace rivulet
