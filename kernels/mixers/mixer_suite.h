// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The tests that every mixer must pass, written once (README.md, "The suite"). A mixer's test names
// its subjects; the checks are here:
//
//   INSTANTIATE_TEST_SUITE_P(Gla, MixerSuite, testing::ValuesIn(Cases()), SuiteCaseName);
//
// A subject is either a mixer's core recurrence alone (with an fp64 reference straight from the
// definition, quadratic in the number of tokens) or a whole Mixer (LayerSubject below). Both are a
// function from input rows and slots to output rows.
//
// Numbers come from a counter-based generator that tests/parity/make_vectors.py repeats in ten
// lines of NumPy, so that a vectors file holds outputs only. Random checks take and print
// TestSeed().
//
// For tests and benchmarks only: fails through googletest and CHECK.
#ifndef RIVULET_KERNELS_MIXERS_MIXER_SUITE_H_
#define RIVULET_KERNELS_MIXERS_MIXER_SUITE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/mixer_suite_device_subject.h"
#include "kernels/mixers/parameter_source.h"
#include "kernels/mixers/tensor_source.h"
#include "kernels/recurrence/state.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// --- generated numbers -------------------------------------------------------------------------

// Number `index` of the sequence called `name`: a multiple of 2^-24 in [0, 1). Sequence 0 of a name
// is what make_vectors.py generates.
double GeneratedNumber(std::string_view name, uint64_t seed, uint64_t index);

// low + (high - low) · GeneratedNumber, rounded once to fp32.
float GeneratedFloat(std::string_view name, uint64_t seed, uint64_t index, double low, double high);

// --- subjects ----------------------------------------------------------------------------------

// Some columns of a subject's input row: `heads` groups of `width` numbers, each group starting at
// a multiple of `stride` from `column`. Columns that no field covers are zero (padding).
struct InputField {
  std::string name;  // "q", "k", "v", "log_decay", ...
  size_t column = 0;
  size_t heads = 1;
  size_t width = 0;
  size_t stride = 0;  // >= width; the padded width of a head
  double low = -1.0;  // numbers are uniform in [low, high)
  double high = 1.0;
  bool whole = false;  // rounded down
};

class SuiteSubject {
 public:
  virtual ~SuiteSubject() = default;

  virtual std::vector<InputField> fields() const = 0;
  virtual size_t input_columns() const = 0;
  virtual size_t output_columns() const = 0;  // without padding between heads, or zeros there
  virtual const StateLayout& layout() const = 0;

  // outputs [T, output_columns] = the subject over inputs [T, input_columns] (padded stride), for
  // the tokens of `segments`; advances their slots.
  virtual void Run(std::span<const Segment> segments, const LayerState& state,
                   ConstFloatMatrix inputs, FloatMatrix outputs, ThreadPool& pool) = 0;

  // fp64 outputs [T * output_columns], row-major, for one sequence from position 0, straight from
  // the definition. Empty: this subject has no reference (whole layers are checked against
  // vectors).
  virtual std::vector<double> Reference(ConstFloatMatrix inputs) const {
    (void)inputs;
    return {};
  }

  // How many tokens after its own a decay first reaches the outputs: 1 where they are strict reads.
  virtual size_t decay_delay() const { return 0; }

  // Bound of max|output - reference| / max|reference|.
  virtual double tolerance() const { return 1e-5; }

  // The same on a device; the result borrows the subject. Both outlive the device, which finds its
  // copies of their constants by address. Null: it has no form for a device.
  virtual std::unique_ptr<DeviceSubject> OnDevice(Device& device) const {
    (void)device;
    return nullptr;
  }
};

// Fills inputs [T, input_columns] from the subject's fields.
void FillInputs(const SuiteSubject& subject, uint64_t seed, FloatMatrix inputs);

// --- the suite ---------------------------------------------------------------------------------

struct SuiteCase {
  std::string name;  // letters, digits, underscores
  std::function<std::unique_ptr<SuiteSubject>()> make;
};

// Every case with the fold intervals 16 and 32: `make` runs while SuiteFoldInterval() is the one or
// the other.
std::vector<SuiteCase> BothIntervals(std::vector<SuiteCase> cases);

// The fold interval of layouts that subjects make.
size_t SuiteFoldInterval();

// For googletest's messages.
void PrintTo(const SuiteCase& suite_case, std::ostream* out);

std::string SuiteCaseName(const testing::TestParamInfo<SuiteCase>& info);

// The checks are the TEST_Ps in mixer_suite.cc.
class MixerSuite : public testing::TestWithParam<SuiteCase> {
 protected:
  void SetUp() override;

  size_t chunk() const { return subject_->layout().fold_interval(); }

  std::unique_ptr<SuiteSubject> subject_;
  uint64_t seed_ = 0;
};

// --- whole layers ------------------------------------------------------------------------------

struct TensorSpec {
  std::vector<size_t> shape;
  double low = -1.0;
  double high = 1.0;
};

// Parameters by name from the generator, sequence 0. Records what goes wrong as a real source does.
class GeneratedParameters : public TensorSource, public ParameterSource {
 public:
  GeneratedParameters(std::map<std::string, TensorSpec> tensors, DType weight_dtype);

  bool Has(const std::string& name) const override;
  std::vector<size_t> Shape(const std::string& name) const override;
  TensorView Take(const std::string& name, const std::vector<size_t>& shape,
                  TensorUse use) override;

  // Missing tensors, wrong shapes, and tensors that were not taken. Empty on success.
  std::vector<std::string> Problems() const;
  // Of all linear maps taken.
  size_t linear_bytes() const { return packer_.bytes(); }

 private:
  std::map<std::string, TensorSpec> tensors_;
  std::map<std::string, AlignedBuffer<float>> taken_;
  std::vector<std::string> problems_;
  WeightPacker packer_;
};

// A Mixer as a subject: one field "x" of `hidden` columns.
class LayerSubject : public SuiteSubject {
 public:
  LayerSubject(std::unique_ptr<Mixer> mixer, size_t hidden);

  std::vector<InputField> fields() const override;
  size_t input_columns() const override { return hidden_; }
  size_t output_columns() const override { return hidden_; }
  const StateLayout& layout() const override { return mixer_->state_layout(); }
  void Run(std::span<const Segment> segments, const LayerState& state, ConstFloatMatrix inputs,
           FloatMatrix outputs, ThreadPool& pool) override;

 private:
  std::unique_ptr<Mixer> mixer_;
  size_t hidden_;
  Workspace workspace_;
};

// --- vectors -----------------------------------------------------------------------------------

// A vectors file (README.md, "Vectors"): {"core": [...], "layers": [...]}.
nlohmann::json ReadVectors(const std::string& path);

// Every entry of "core": the subject made from its "parameters", fed the generated fields, must
// give "outputs" (within its tolerance) and so must its Reference (within 1e-12).
void CheckCoreVectors(
    const std::string& path,
    const std::function<std::unique_ptr<SuiteSubject>(const nlohmann::json& parameters)>& make);

// Makes the layer that an entry's "config" describes. Reading those keys is model_loader's work, so
// whole layers are tested there (model_loader/mixers/layers_test.cc).
using LayerMaker = std::function<absl::StatusOr<std::unique_ptr<Mixer>>(
    const nlohmann::json& config, const MixerSource& source)>;

// Every entry of "layers": the mixer made from its "config", "hidden" and generated "tensors" takes
// all of them and gives "outputs".
void CheckLayerVectors(const std::string& path, const LayerMaker& make);

// The same layers as subjects for the suite.
std::vector<SuiteCase> LayerCases(const std::string& path, const LayerMaker& make);

// A layer from a JSON object with "config", "hidden" and "tensors", as a vectors file has them.
absl::StatusOr<std::unique_ptr<Mixer>> MakeGeneratedLayer(const nlohmann::json& layer,
                                                          const LayerMaker& make,
                                                          const MixerOptions& options,
                                                          std::vector<std::string>* problems);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MIXER_SUITE_H_
