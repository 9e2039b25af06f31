// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/core_subject.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

std::vector<InputField> FieldsOf(const RecurrenceDeclaration& d, const DrawnInputs& drawn) {
  const HeadShape& s = d.shape;
  const bool shared_values = d.sharing == Sharing::kKeysAndValues;
  const bool padded_values = d.skip.empty();
  const size_t dp = s.padded_key(), ep = padded_values ? s.padded_value() : s.value_dim;
  std::vector<InputField> fields;
  const auto add = [&](const DrawnInput& input, size_t heads, size_t width, size_t stride) {
    fields.push_back({input.name, 0, heads, width, stride, input.low, input.high});
  };
  add(drawn.q, shared_values ? s.heads : s.groups, s.key_dim, dp);
  add(drawn.k, s.groups, s.key_dim, dp);
  add(drawn.v, shared_values ? s.groups : s.heads, s.value_dim, ep);
  if (d.delta) add(drawn.beta, 1, s.heads, s.heads);
  if (d.decay.kind == Decay::kChannel) {
    add(drawn.decay, shared_values ? s.groups : s.heads, s.key_dim, dp);
  }
  if (d.decay.kind == Decay::kScalar && d.decay.constant.empty()) {
    add(drawn.decay, 1, s.heads, s.heads);
  }
  if (d.levels != 0) add(drawn.levels, s.heads, d.levels, d.levels);
  if (d.low_rank) {
    add(drawn.a, s.groups, s.key_dim, dp);
    add(drawn.b, s.groups, s.key_dim, dp);
  }
  return fields;
}

size_t Columns(const InputField& field) { return PaddedColumns(field.heads * field.stride); }

std::vector<InputField> SideBySide(std::vector<InputField> fields) {
  size_t column = 0;
  for (InputField& field : fields) {
    field.column = column;
    column += Columns(field);
  }
  return fields;
}

class DeviceCoreSubject : public DeviceSubject {
 public:
  DeviceCoreSubject(Device& device,
                    const std::function<CoreSubject::DeviceRun(StateLayout& layout)>& make)
      : layout_(MixerOptions{.device = &device}.NewLayout()), run_(make(layout_)) {}

  const StateLayout& layout() const override { return layout_; }
  DeviceOutput Enqueue(const DeviceStep& step, ConstFloatMatrix inputs) override {
    return run_(step, inputs);
  }

 private:
  StateLayout layout_;
  CoreSubject::DeviceRun run_;
};

}  // namespace

ConstFloatMatrix CoreSubject::Inputs::operator[](std::string_view name) const {
  for (const InputField& field : fields_) {
    if (field.name == name) return rows_.Columns(field.column, field.heads * field.stride);
  }
  RIVULET_CHECK(false, "no such field");
  return {};
}

CoreSubject::CoreSubject(std::vector<InputField> fields, size_t output_columns)
    : fields_(SideBySide(std::move(fields))), output_columns_(output_columns) {}

size_t CoreSubject::input_columns() const {
  return fields_.back().column + Columns(fields_.back());
}

void CoreSubject::Run(std::span<const Segment> segments, const LayerState& state,
                      ConstFloatMatrix inputs, FloatMatrix outputs, ThreadPool& pool) {
  workspace_.Reset();
  run({segments, state, &workspace_, &pool}, ByField(inputs), outputs);
}

std::unique_ptr<DeviceSubject> CoreSubject::OnDevice(Device& device) const {
  if (!on_device) return nullptr;
  auto subject = std::make_unique<DeviceCoreSubject>(device, on_device);
  subject->inputs_from = device_inputs_from;
  subject->outputs_at = device_outputs_at;
  return subject;
}

DeclaredSubject::DeclaredSubject(const RecurrenceDeclaration& declaration, const DrawnInputs& drawn,
                                 ReferenceOf reference_of)
    : CoreSubject(FieldsOf(declaration, drawn),
                  declaration.shape.heads * declaration.shape.padded_value()),
      drawn_(drawn),
      strict_(std::all_of(declaration.reads.begin(), declaration.reads.end(),
                          [](const DeclaredRead& read) { return read.strict; })) {
  const auto recurrence = std::make_shared<const SumRecurrence>(declaration, state_layout);
  error_bound = declaration.shape.state_dtype == DType::kFloat32 ? 1e-5 : 2e-2;
  run = [this, recurrence](const LayerStep& step, const Inputs& inputs, FloatMatrix out) {
    recurrence->Run(step, Split(inputs), out);
  };
  if (SumRecurrence::RunsOnDevice(declaration)) {
    on_device = [this, declaration](StateLayout& layout) {
      return DeviceRunOf(declaration, layout);
    };
  }
  reference = [this, reference_of = std::move(reference_of)](const Inputs& inputs) {
    return reference_of(Split(inputs));
  };
}

CoreSubject::DeviceRun DeclaredSubject::DeviceRunOf(const RecurrenceDeclaration& declaration,
                                                    StateLayout& layout) const {
  const auto recurrence = std::make_shared<const SumRecurrence>(declaration, layout);
  return [this, recurrence](const DeviceStep& step, ConstFloatMatrix rows) {
    const FloatMatrix out = step.workspace->Take(rows.rows, output_columns());
    recurrence->Enqueue(step, Split(ByField(rows)), out);
    return DeviceOutput{.rows = out};
  };
}

TokenInputs DeclaredSubject::Split(const Inputs& inputs) const {
  TokenInputs split;
  for (const InputField& field : fields_) {
    const ConstFloatMatrix columns = inputs[field.name];
    if (field.name == drawn_.q.name) split.q = columns;
    if (field.name == drawn_.k.name) split.k = columns;
    if (field.name == drawn_.v.name) split.v = columns;
    if (field.name == drawn_.decay.name) split.decay = columns;
    if (field.name == drawn_.beta.name) split.beta = columns;
    if (field.name == drawn_.levels.name) split.levels = columns;
    if (field.name == drawn_.a.name) split.a = columns;
    if (field.name == drawn_.b.name) split.b = columns;
  }
  return split;
}

}  // namespace rivulet
