// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/anna/anna_subject.h"

#include <string>
#include <vector>

#include "kernels/mixers/anna/anna_reference.h"

namespace rivulet {

std::unique_ptr<SuiteSubject> MakeAnnaSubject(const AnnaShape& shape) {
  const size_t tables = shape.head.tables, e = shape.head.value_dim;
  const auto buckets = [&](const char* name) {
    const double most = static_cast<double>(shape.head.buckets);
    return InputField{name, 0, shape.heads, tables, tables, 0.0, most, /*whole=*/true};
  };
  auto subject = std::make_unique<CoreSubject>(
      std::vector<InputField>{
          buckets("q_buckets"), buckets("k_buckets"), {"v", 0, shape.heads, e, e, -1.0, 1.0}},
      shape.heads * shape.head.padded_value());
  const auto recurrence = std::make_shared<AnnaRecurrence>(shape, subject->state_layout);
  const auto split = [](const CoreSubject::Inputs& x) {
    return AnnaInput{x["q_buckets"], x["k_buckets"], x["v"]};
  };
  subject->run = [=](const LayerStep& step, const CoreSubject::Inputs& inputs, FloatMatrix out) {
    recurrence->Run(step.segments, step.state, split(inputs), out, *step.pool);
  };
  subject->on_device = [=, subject = subject.get()](StateLayout& layout) {
    const auto on_device = std::make_shared<AnnaRecurrence>(shape, layout);
    return [=](const DeviceStep& step, ConstFloatMatrix rows) {
      const FloatMatrix out = step.workspace->Take(rows.rows, subject->output_columns());
      on_device->Enqueue(step, split(subject->ByField(rows)), out);
      return DeviceOutput{.rows = out};
    };
  };
  subject->reference = [=](const CoreSubject::Inputs& inputs) {
    return AnnaReference(shape, split(inputs));
  };
  return subject;
}

}  // namespace rivulet
