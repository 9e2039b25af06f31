// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The suite over device memory (README.md, "On a device"): every mixer that runs on a device, on
// the fake one everywhere and on a GPU where there is one.
//
//   INSTANTIATE_TEST_SUITE_P(Gla, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
//                            DeviceCaseName);
//
// A case is a subject with a form for a device (SuiteSubject::OnDevice): a core recurrence with its
// fp64 reference, or a whole layer with random weights, which is compared with the same layer on
// the CPU in fp32.
//
// For tests only: fails through googletest and CHECK.
#ifndef RIVULET_KERNELS_MIXERS_MIXER_SUITE_ON_DEVICE_H_
#define RIVULET_KERNELS_MIXERS_MIXER_SUITE_ON_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/mixer_suite_device_run.h"
#include "kernels/mixers/random_parameters.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

struct DeviceCase {
  std::string name;  // letters, digits, underscores
  // With states (pages of softmax attention) of this type.
  std::function<std::unique_ptr<SuiteSubject>(DType state)> make;
  bool everywhere = false;    // on the fake device too, which is slow: small cases
  bool every_mode = false;    // on a GPU also fp32 products with bf16 states, as if everywhere
  bool narrow_states = true;  // bf16 states too
  bool many = true;           // steps of 600 segments too, on a GPU
  size_t tokens = 70;         // of a session
  // Bounds of the distance from the reference, in parts of the largest number of the token's chunk
  // of 16: where products and states are fp32, and where one of them is bf16.
  double exact = 1e-3;
  double rounded = 2e-2;
};

struct DeviceSuiteParam {
  DeviceCase of;
  bool gpu = false;
  ProductPrecision precision = ProductPrecision::kFloat32;
  DType state = DType::kFloat32;
};

// Every case on a GPU: products of bf16 numbers with both kinds of states, and of fp32 with fp32
// states; with bf16 states if the case says so. Those for everywhere also on the fake device, whose
// products are fp32.
std::vector<DeviceSuiteParam> OnDevices(const std::vector<DeviceCase>& cases);

void PrintTo(const DeviceSuiteParam& param, std::ostream* out);
std::string DeviceCaseName(const testing::TestParamInfo<DeviceSuiteParam>& info);

// A case that CI runs as well.
inline DeviceCase Everywhere(DeviceCase one) {
  one.everywhere = true;
  return one;
}

// A case whose kernels for fp32 products with bf16 states no case for everywhere takes.
inline DeviceCase EveryMode(DeviceCase one) {
  one.every_mode = true;
  return one;
}

// A case whose sums stay fp32.
inline DeviceCase WideStates(DeviceCase one) {
  one.narrow_states = false;
  return one;
}

// A case with a bound of its own where something is bf16. The case says why.
inline DeviceCase Rounded(DeviceCase one, double bound) {
  one.rounded = bound;
  return one;
}

// A core recurrence with these heads: make(HeadShape) is the subject.
template <typename Make>
DeviceCase CoreCase(std::string name, const HeadShape& shape, Make make) {
  return {std::move(name), [=](DType state) -> std::unique_ptr<SuiteSubject> {
            HeadShape own = shape;
            own.state_dtype = state;
            return make(own);
          }};
}

// --- whole layers --------------------------------------------------------------------------------

// A mixer with random weights as a subject: one field "x" of `hidden` columns. On a device it is
// Mixer::Enqueue of a mixer that is made for it from the same weights.
class RandomLayerSubject : public SuiteSubject {
 public:
  using Maker = std::function<absl::StatusOr<std::unique_ptr<Mixer>>(const MixerSource&)>;
  struct Options {
    size_t hidden = 32;
    RandomTensors::Ranges ranges = {};
    DType state = DType::kFloat32;  // on the device; fp32 on the CPU
  };
  RandomLayerSubject(Maker make, Options options);

  std::vector<InputField> fields() const override { return on_cpu_->fields(); }
  size_t input_columns() const override { return options_.hidden; }
  size_t output_columns() const override { return options_.hidden; }
  const StateLayout& layout() const override { return on_cpu_->layout(); }
  void Run(std::span<const Segment> segments, const LayerState& state, ConstFloatMatrix inputs,
           FloatMatrix outputs, ThreadPool& pool) override {
    on_cpu_->Run(segments, state, inputs, outputs, pool);
  }
  std::unique_ptr<DeviceSubject> OnDevice(Device& device) const override;

 private:
  std::unique_ptr<Mixer> Make(const MixerOptions& options) const;

  Maker make_;
  Options options_;
  std::unique_ptr<LayerSubject> on_cpu_;
};

// The layer that a config describes.
template <typename Config>
DeviceCase LayerCase(std::string name, const Config& config, size_t hidden = 32,
                     const RandomTensors::Ranges& ranges = {}) {
  const auto make = [config](const MixerSource& source) { return MakeLayer(config, source); };
  return {std::move(name), [=](DType state) {
            return std::make_unique<RandomLayerSubject>(
                make, RandomLayerSubject::Options{hidden, ranges, state});
          }};
}

// --- the suite -----------------------------------------------------------------------------------

// A device and what was made for it, which lives as long: the device finds constants by address. A
// GPU is opened once for all tests that ask for its kind of products, unless it failed.
struct SuiteDevice {
  explicit SuiteDevice(std::unique_ptr<Device> opened)
      : device(std::move(opened)), memory(std::make_unique<DeviceSuiteMemory>(*device)) {}

  std::vector<std::unique_ptr<SuiteSubject>> subjects;
  std::vector<std::unique_ptr<DeviceSubject>> on_device;
  std::unique_ptr<Device> device;
  std::unique_ptr<DeviceSuiteMemory> memory;
};

class DeviceMixerSuite : public testing::TestWithParam<DeviceSuiteParam> {
 protected:
  using Piece = DeviceSuiteRun::Piece;
  using Form = DeviceSuiteRun::Form;
  using Session = DeviceSuiteSession;

  void SetUp() override;
  void TearDown() override;

  // Names the check in messages.
  void Check(const char* name, const std::function<void()>& check);
  static size_t PutSinglesFirst(std::vector<Piece>& pieces);
  // The checks, in the order of the README.
  void CheckDefinition();
  void CheckCuts();
  void CheckNeighbours();
  void CheckSingles(size_t count);
  void CheckManySingles();
  void CheckForks();
  void CheckRewind();
  void CheckFoldBases();

 private:
  void OpenDevice();
  std::unique_ptr<DeviceSuiteRun> NewRun(size_t sessions);
  void MakeTexts();
  std::vector<double> ReferenceOf(size_t text);
  double Distance(size_t text);
  // Runs a step whose outputs must be those of the texts that were run whole.
  void Step(DeviceSuiteRun& run, const std::vector<Piece>& pieces, const Form& form = {});
  void Finish(DeviceSuiteRun& run, const std::vector<Session*>& sessions);
  std::vector<Piece> RandomStep(std::vector<Session>& sessions, bool single);
  size_t tokens() const { return GetParam().of.tokens; }
  const float* Expected(size_t text, size_t token) const {
    return expected_[text].data() + token * subject_->output_columns();
  }

  uint64_t seed_ = 0;
  std::mt19937_64 random_;
  SuiteDevice* device_ = nullptr;
  SuiteSubject* subject_ = nullptr;
  DeviceSubject* on_device_ = nullptr;
  std::vector<DeviceSuiteRun::Text> texts_;
  std::vector<std::vector<float>> expected_;  // of each text: [tokens, output_columns]
  bool differs_ = false;                      // reported once a check
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MIXER_SUITE_ON_DEVICE_H_
