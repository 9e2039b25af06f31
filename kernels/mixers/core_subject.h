// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A recurrence without its layer, as a subject of the mixer suite: its input fields, a function
// that runs it and one that gives its fp64 reference. For tests and benchmarks only.
#ifndef RIVULET_KERNELS_MIXERS_CORE_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_CORE_SUBJECT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/mixers/mixer_suite.h"
#include "kernels/recurrence/declaration.h"
#include "kernels/recurrence/layer_step.h"

namespace rivulet {

class CoreSubject : public SuiteSubject {
 public:
  // The rows of a step, by field.
  class Inputs {
   public:
    Inputs(const std::vector<InputField>& fields, ConstFloatMatrix rows)
        : fields_(fields), rows_(rows) {}
    // [T, heads · stride]. REQUIRES: there is such a field.
    ConstFloatMatrix operator[](std::string_view name) const;

   private:
    const std::vector<InputField>& fields_;
    ConstFloatMatrix rows_;
  };

  // The fields are stored one after the other: their columns are set here.
  CoreSubject(std::vector<InputField> fields, size_t output_columns);

  // To be set before use. `run` advances the slots of state planes that it added to `state_layout`;
  // `reference` gives [T · output_columns] for one session from position 0.
  StateLayout state_layout{SuiteFoldInterval()};
  std::function<void(const LayerStep&, const Inputs&, FloatMatrix out)> run;
  std::function<std::vector<double>(const Inputs&)> reference;
  double error_bound = 1e-5;

  // The same on a device: adds its planes to a layout there, and gives what enqueues a step. Not
  // set: it has no form for a device.
  using DeviceRun = std::function<DeviceOutput(const DeviceStep&, ConstFloatMatrix rows)>;
  std::function<DeviceRun(StateLayout& layout)> on_device;
  std::vector<size_t> device_inputs_from, device_outputs_at;  // as DeviceSubject has them

  std::vector<InputField> fields() const override { return fields_; }
  size_t input_columns() const override;
  size_t output_columns() const override { return output_columns_; }
  const StateLayout& layout() const override { return state_layout; }
  double tolerance() const override { return error_bound; }
  void Run(std::span<const Segment> segments, const LayerState& state, ConstFloatMatrix inputs,
           FloatMatrix outputs, ThreadPool& pool) override;
  std::vector<double> Reference(ConstFloatMatrix inputs) const override {
    return reference(ByField(inputs));
  }
  std::unique_ptr<DeviceSubject> OnDevice(Device& device) const override;
  Inputs ByField(ConstFloatMatrix rows) const { return {fields_, rows}; }

 protected:
  const std::vector<InputField> fields_;

 private:
  const size_t output_columns_;
  Workspace workspace_;
};

// What an input of a declared recurrence is called in the generator, and its range.
struct DrawnInput {
  std::string name;
  double low = -1.0, high = 1.0;
};
struct DrawnInputs {
  DrawnInput q{"q"}, k{"k"}, v{"v"}, decay{"log_decay", -1.0, 0.0}, beta{"beta", 0.0, 1.0},
      levels{"lambda", 0.0, 1.5}, a{"a"}, b{"b"};
};

// A declaration as a subject. Inputs that it does not read have no field.
class DeclaredSubject : public CoreSubject {
 public:
  using ReferenceOf = std::function<std::vector<double>(const TokenInputs&)>;
  DeclaredSubject(const RecurrenceDeclaration& declaration, const DrawnInputs& drawn,
                  ReferenceOf reference_of);

  TokenInputs Split(const Inputs& inputs) const;
  size_t decay_delay() const override { return strict_ ? 1 : 0; }

 private:
  DeviceRun DeviceRunOf(const RecurrenceDeclaration& declaration, StateLayout& layout) const;

  DrawnInputs drawn_;
  bool strict_;  // all reads
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_CORE_SUBJECT_H_
