// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The suite's generated numbers, whole layers made of them, and vectors files.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "kernels/base/check.h"
#include "kernels/base/strings.h"
#include "kernels/base/worst_difference.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/suite_slots.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Json = nlohmann::json;

// FNV-1a.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

// The finaliser of SplitMix64.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

size_t Elements(const std::vector<size_t>& shape) {
  size_t count = 1;
  for (const size_t extent : shape) count *= extent;
  return count;
}

std::map<std::string, TensorSpec> TensorsOf(const Json& layer) {
  std::map<std::string, TensorSpec> tensors;
  for (const auto& [name, tensor] : layer.at("tensors").items()) {
    tensors[name] = {tensor.at("shape").get<std::vector<size_t>>(), tensor.at("low").get<double>(),
                     tensor.at("high").get<double>()};
  }
  return tensors;
}

// One flat array, row-major.
std::vector<double> OutputsOf(const Json& entry) {
  return entry.at("outputs").get<std::vector<double>>();
}

// Runs the first `tokens` generated inputs of a new session in one call.
std::vector<double> RunGenerated(SuiteSubject& subject, size_t tokens,
                                 std::vector<double>* reference) {
  const size_t stride = PaddedColumns(subject.input_columns());
  AlignedBuffer<float> buffer(tokens * stride);
  const FloatMatrix inputs{buffer.data(), tokens, subject.input_columns(), stride};
  FillInputs(subject, 0, inputs);
  if (reference != nullptr) *reference = subject.Reference(inputs);

  const size_t columns = subject.output_columns();
  AlignedBuffer<float> rows(tokens * PaddedColumns(columns));
  const FloatMatrix outputs{rows.data(), tokens, columns, PaddedColumns(columns)};
  SuiteSlots slots(subject.layout(), 1);
  SuiteSession session(slots, 0, 0);
  const Segment segment = session.Plan(0, tokens);
  ThreadPool pool(1);
  subject.Run(std::span(&segment, 1), slots.state(), inputs, outputs, pool);
  std::vector<double> result;
  for (size_t t = 0; t < tokens; ++t) {
    result.insert(result.end(), outputs.row(t), outputs.row(t) + columns);
  }
  return result;
}

double RelativeError(const std::vector<double>& a, const std::vector<double>& b) {
  double error = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error = WorstDifference(error, a[i], b[i]);
    scale = std::max(scale, std::abs(b[i]));
  }
  return error / scale;
}

}  // namespace

double GeneratedNumber(std::string_view name, uint64_t seed, uint64_t index) {
  const uint64_t stream = HashName(name) ^ (seed == 0 ? 0 : Mix(seed));
  return static_cast<double>(Mix(stream + (index + 1) * 0x9e3779b97f4a7c15u) >> 40) * 0x1p-24;
}

float GeneratedFloat(std::string_view name, uint64_t seed, uint64_t index, double low,
                     double high) {
  return static_cast<float>(low + (high - low) * GeneratedNumber(name, seed, index));
}

GeneratedParameters::GeneratedParameters(std::map<std::string, TensorSpec> tensors,
                                         DType weight_dtype)
    : ParameterSource(*this, packer_), tensors_(std::move(tensors)), packer_(weight_dtype) {}

bool GeneratedParameters::Has(const std::string& name) const { return tensors_.contains(name); }

std::vector<size_t> GeneratedParameters::Shape(const std::string& name) const {
  return tensors_.at(name).shape;
}

TensorView GeneratedParameters::Take(const std::string& name, const std::vector<size_t>& shape,
                                     TensorUse /*use*/) {
  const auto [entry, first] = taken_.try_emplace(name, Elements(shape));
  AlignedBuffer<float>& numbers = entry->second;
  const TensorView view{reinterpret_cast<const std::byte*>(numbers.data()), DType::kFloat32};
  if (!first && numbers.size() == Elements(shape)) return view;
  const auto tensor = tensors_.find(name);
  if (tensor == tensors_.end()) {
    problems_.push_back("missing tensor " + name);
  } else if (tensor->second.shape != shape) {
    problems_.push_back("tensor " + name + " has another shape");
  } else {
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = GeneratedFloat(name, 0, i, tensor->second.low, tensor->second.high);
    }
  }
  return view;
}

std::vector<std::string> GeneratedParameters::Problems() const {
  std::vector<std::string> all = problems_;
  for (const auto& [name, tensor] : tensors_) {
    if (!taken_.contains(name)) all.push_back("unused tensor " + name);
  }
  return all;
}

LayerSubject::LayerSubject(std::unique_ptr<Mixer> mixer, size_t hidden)
    : mixer_(std::move(mixer)), hidden_(hidden) {}

std::vector<InputField> LayerSubject::fields() const {
  return {{.name = "x", .column = 0, .heads = 1, .width = hidden_, .stride = hidden_}};
}

void LayerSubject::Run(std::span<const Segment> segments, const LayerState& state,
                       ConstFloatMatrix inputs, FloatMatrix outputs, ThreadPool& pool) {
  workspace_.Reset();
  LayerStep step{segments, state, &workspace_, &pool};
  step.handed_on = workspace_.Take(inputs.rows, mixer_->handed_on_columns());
  const absl::Status status = mixer_->Forward(step, inputs, outputs);
  RIVULET_CHECK(status.ok(), std::string(ToStd(status.message())).c_str());
}

Json ReadVectors(const std::string& path) {
  std::ifstream file(path);
  const char* root = std::getenv("RIVULET_SOURCE_DIR");
  if (!file && root != nullptr) file.open(std::string(root) + "/" + path);
  RIVULET_CHECK(file.good(), ("cannot open " + path + "; run from the repository root").c_str());
  Json json = Json::parse(file, nullptr, false);
  RIVULET_CHECK(!json.is_discarded(), (path + " is not JSON").c_str());
  return json;
}

void CheckCoreVectors(
    const std::string& path,
    const std::function<std::unique_ptr<SuiteSubject>(const Json& parameters)>& make) {
  const Json vectors = ReadVectors(path);
  ASSERT_FALSE(vectors.at("core").empty());
  for (const Json& entry : vectors.at("core")) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    const std::unique_ptr<SuiteSubject> subject = make(entry.at("parameters"));
    const std::vector<double> expected = OutputsOf(entry);
    std::vector<double> reference;
    const std::vector<double> outputs =
        RunGenerated(*subject, entry.at("tokens").get<size_t>(), &reference);
    ASSERT_EQ(outputs.size(), expected.size());
    EXPECT_LE(RelativeError(outputs, expected), subject->tolerance());
    ASSERT_EQ(reference.size(), expected.size()) << "a core subject has a reference";
    EXPECT_LE(RelativeError(reference, expected), 1e-12);
  }
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeGeneratedLayer(const Json& layer, const LayerMaker& make,
                                                          const MixerOptions& options,
                                                          std::vector<std::string>* problems) {
  GeneratedParameters parameters(TensorsOf(layer), DType::kFloat32);
  absl::StatusOr<std::unique_ptr<Mixer>> mixer =
      make(layer.at("config"), {layer.at("hidden").get<size_t>(), parameters, options});
  if (problems != nullptr) *problems = parameters.Problems();
  return mixer;
}

void CheckLayerVectors(const std::string& path, const LayerMaker& make) {
  const Json vectors = ReadVectors(path);
  ASSERT_FALSE(vectors.at("layers").empty());
  for (const Json& entry : vectors.at("layers")) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    std::vector<std::string> problems;
    auto mixer = MakeGeneratedLayer(entry, make, {}, &problems);
    ASSERT_TRUE(mixer.ok()) << mixer.status();
    for (const std::string& problem : problems) ADD_FAILURE() << problem;
    LayerSubject subject(*std::move(mixer), entry.at("hidden").get<size_t>());
    const std::vector<double> expected = OutputsOf(entry);
    const std::vector<double> outputs =
        RunGenerated(subject, entry.at("tokens").get<size_t>(), nullptr);
    ASSERT_EQ(outputs.size(), expected.size());
    EXPECT_LE(RelativeError(outputs, expected), entry.value("tolerance", 1e-5));
  }
}

std::vector<SuiteCase> LayerCases(const std::string& path, const LayerMaker& make) {
  const Json vectors = ReadVectors(path);
  RIVULET_CHECK(!vectors.at("layers").empty(), (path + " has no layers").c_str());
  std::vector<SuiteCase> cases;
  for (const Json& entry : vectors.at("layers")) {
    cases.push_back({entry.at("name").get<std::string>(), [entry, make] {
                       auto mixer = MakeGeneratedLayer(
                           entry, make, {.fold_interval = SuiteFoldInterval()}, nullptr);
                       RIVULET_CHECK(mixer.ok(), "a layer of the vectors file cannot be made");
                       return std::make_unique<LayerSubject>(*std::move(mixer),
                                                             entry.at("hidden").get<size_t>());
                     }});
  }
  return cases;
}

}  // namespace rivulet
