// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/rg_lru/rg_lru_subject.h"

#include <vector>

#include "kernels/mixers/rg_lru/rg_lru_recurrence.h"
#include "kernels/mixers/rg_lru/rg_lru_reference.h"

namespace rivulet {

AlignedBuffer<float> DrawnRgLruRates(const RgLruSubjectShape& shape) {
  AlignedBuffer<float> rate(shape.width);
  for (size_t i = 0; i < rate.size(); ++i) {
    rate[i] = GeneratedFloat("rate", 0, i, -shape.fastest, -shape.slowest);
  }
  return rate;
}

std::unique_ptr<SuiteSubject> MakeRgLruSubject(const RgLruSubjectShape& shape) {
  const size_t width = shape.width;
  const auto field = [=](const char* name, double bound) {
    return InputField{name, 0, 1, width, width, -bound, bound};
  };
  auto subject = std::make_unique<CoreSubject>(
      std::vector<InputField>{field("x", 1.0), field("i", 3.0), field("r", 3.0)}, width);
  const auto recurrence =
      std::make_shared<RgLruRecurrence>(DrawnRgLruRates(shape), subject->state_layout);
  const auto split = [](const CoreSubject::Inputs& x) {
    return RgLruInput{x["x"], x["i"], x["r"]};
  };
  subject->run = [=](const LayerStep& step, const CoreSubject::Inputs& inputs, FloatMatrix out) {
    recurrence->Run(step.segments, step.state, split(inputs), out, *step.pool);
  };
  subject->on_device = [subject = subject.get(), shape, split](StateLayout& layout) {
    const auto on_device = std::make_shared<RgLruRecurrence>(DrawnRgLruRates(shape), layout);
    return [=](const DeviceStep& step, ConstFloatMatrix rows) {
      const FloatMatrix h = step.workspace->Take(rows.rows, shape.width);
      on_device->Enqueue(step, split(subject->ByField(rows)), h);
      return DeviceOutput{.rows = h};
    };
  };
  subject->reference = [=](const CoreSubject::Inputs& inputs) {
    return RgLruReference(DrawnRgLruRates(shape), split(inputs));
  };
  return subject;
}

}  // namespace rivulet
