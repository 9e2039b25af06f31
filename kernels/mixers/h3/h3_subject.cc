// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/h3/h3_subject.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "kernels/mixers/h3/h3_reference.h"

namespace rivulet {
namespace {

AlignedBuffer<float> Numbers(std::string_view name, size_t count, double low, double high) {
  AlignedBuffer<float> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = GeneratedFloat(name, 0, i, low, high);
  return numbers;
}

// Of row i of head h on the CPU: its column there.
size_t ColumnOf(const H3Shape& shape, size_t head, size_t row) {
  return row * shape.padded_heads() + head;
}

// A device has the heads of q, k and v side by side without padding, and the rows of o.
void OrderForDevice(const H3Shape& shape, CoreSubject& subject) {
  const size_t hd = shape.head_dim, channels = shape.heads * hd;
  const size_t columns = PaddedColumns(channels);
  subject.device_inputs_from.assign(3 * columns, DeviceSubject::kNoColumn);
  subject.device_outputs_at.assign(shape.columns(), DeviceSubject::kNoColumn);
  for (size_t h = 0; h < shape.heads; ++h) {
    for (size_t i = 0; i < hd; ++i) {
      for (size_t field = 0; field < 3; ++field) {
        subject.device_inputs_from[field * columns + h * hd + i] =
            field * shape.columns() + ColumnOf(shape, h, i);
      }
      subject.device_outputs_at[ColumnOf(shape, h, i)] = i * shape.heads + h;
    }
  }
}

}  // namespace

H3Constants DrawnH3Constants(const H3Shape& shape, double radius) {
  const size_t count = shape.heads * shape.modes, channels = shape.heads * shape.head_dim;
  H3Constants constants{Numbers("taps", channels * shape.window, -1.0, 1.0),
                        AlignedBuffer<float>(count),
                        AlignedBuffer<float>(count),
                        Numbers("weight_real", count, -1.0, 1.0),
                        Numbers("weight_imaginary", count, -1.0, 1.0),
                        Numbers("D", shape.heads, -1.0, 1.0)};
  for (size_t i = 0; i < count; ++i) {
    const double distance = GeneratedFloat("pole_distance", 0, i, 0.5 * radius, radius);
    const double angle = GeneratedFloat("pole_angle", 0, i, 0.0, 3.0);
    constants.pole_real[i] = static_cast<float>(distance * std::cos(angle));
    constants.pole_imaginary[i] = static_cast<float>(distance * std::sin(angle));
  }
  return constants;
}

std::unique_ptr<SuiteSubject> MakeH3Subject(const H3Shape& shape, double radius, bool forgets) {
  const size_t padded = shape.padded_heads();
  const auto field = [&](const char* name) {
    return InputField{name, 0, shape.head_dim, shape.heads, padded, -1.0, 1.0};
  };
  auto subject = std::make_unique<CoreSubject>(
      std::vector<InputField>{field("q"), field("k"), field("v")}, shape.columns());
  if (forgets) subject->state_layout.SetForgets();
  const auto constants = std::make_shared<H3Constants>(DrawnH3Constants(shape, radius));
  const auto recurrence = std::make_shared<H3Recurrence>(shape, *constants, subject->state_layout);
  const auto split = [](const CoreSubject::Inputs& x) { return H3Input{x["q"], x["k"], x["v"]}; };
  subject->run = [=](const LayerStep& step, const CoreSubject::Inputs& inputs, FloatMatrix out) {
    recurrence->Run(step.segments, step.state, split(inputs), out, *step.pool);
  };
  OrderForDevice(shape, *subject);
  subject->on_device = [=](StateLayout& layout) {
    const auto on_device = std::make_shared<H3Recurrence>(shape, *constants, layout);
    return [=](const DeviceStep& step, ConstFloatMatrix rows) {
      const size_t channels = shape.heads * shape.head_dim, columns = rows.columns / 3;
      const Operand o = step.workspace->TakeOperand(rows.rows, channels);
      on_device->Enqueue(step,
                         {rows.Columns(0, channels), rows.Columns(columns, channels),
                          rows.Columns(2 * columns, channels)},
                         o);
      return DeviceOutput{.operand = o};
    };
  };
  subject->reference = [=](const CoreSubject::Inputs& inputs) {
    return H3Reference(shape, *constants, split(inputs));
  };
  return subject;
}

}  // namespace rivulet
