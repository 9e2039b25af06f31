// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Whole layers, made as a checkpoint's are: the "layers" of every mixer's vectors, parsed from
// their keys, against the stored outputs and through the suite (kernels/mixers/mixer_suite.h).
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/mixer_suite.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

struct Layers {
  std::string type;
  std::string folder;  // below kernels/mixers

  std::string vectors() const { return "kernels/mixers/" + folder + "/vectors/vectors.json"; }
};

const Layers kLayers[] = {
    {"softmax_attention", "softmax_attention"},
    {"linear_attn", "linear_attention"},
    {"gla", "gla"},
    {"delta_net", "delta_net"},
    {"gated_deltanet", "gated_deltanet"},
    {"retnet", "retnet"},
    {"mamba2", "mamba2"},
    {"log_linear_mamba2", "log_linear_mamba2"},
    {"log_linear_gated_deltanet", "log_linear_gated_deltanet"},
    {"hla", "hla"},
    {"hla", "hla/third_order"},
    {"hla", "hla/ahla"},
    {"anna", "anna"},
    {"mamba", "mamba"},
    {"h3", "h3"},
    {"gated_convolution", "gated_convolution"},
    {"rg_lru", "rg_lru"},
    {"kda", "kda"},
    {"latent_attention", "latent_attention"},
    {"rwkv6", "rwkv6"},
    {"rwkv7", "rwkv7"},
};

// tensor_layout is a key of the vectors alone: in a checkpoint the layout follows from model_type.
MixerConfig WithTensors(MixerConfig config, const json& keys) {
  if (keys.value("tensor_layout", "fla") == "qwen3_next") {
    std::get<DeltaRuleConfig>(config).tensors = DeltaRuleTensors::kQwen3Next;
  }
  return config;
}

LayerMaker MakerOf(const std::string& type) {
  return [type](const json& keys,
                const MixerSource& source) -> absl::StatusOr<std::unique_ptr<Mixer>> {
    absl::StatusOr<MixerConfig> config = ParseMixer(type, keys, source.hidden);
    if (!config.ok()) return config.status();
    return MakeMixer(WithTensors(*std::move(config), keys), source);
  };
}

std::vector<SuiteCase> AllCases() {
  std::vector<SuiteCase> cases;
  for (const Layers& layers : kLayers) {
    const std::string prefix = layers.folder.substr(layers.folder.find('/') + 1) + "_";
    for (SuiteCase& one : LayerCases(layers.vectors(), MakerOf(layers.type))) {
      cases.push_back({prefix + one.name, std::move(one.make)});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layers, MixerSuite, testing::ValuesIn(BothIntervals(AllCases())),
                         SuiteCaseName);

TEST(Layers, MatchTheirVectors) {
  for (const Layers& layers : kLayers) {
    SCOPED_TRACE(layers.folder);
    CheckLayerVectors(layers.vectors(), MakerOf(layers.type));
  }
}

// Their running states are small, and each token rounds them.
TEST(Layers, MambaAndH3KeepFloat32States) {
  for (const char* type : {"mamba", "h3"}) {
    const Layers layers{type, type};
    const auto mixer =
        MakeGeneratedLayer(ReadVectors(layers.vectors()).at("layers")[0], MakerOf(type),
                           {.state_dtype = DType::kBFloat16}, nullptr);
    ASSERT_TRUE(mixer.ok()) << mixer.status();
    for (const StatePlane& plane : (*mixer)->state_layout().planes()) {
      EXPECT_EQ(plane.dtype, DType::kFloat32) << plane.name;
    }
  }
}

// Records what a layer asks to leave out.
class IgnoringParameters : public GeneratedParameters {
 public:
  using GeneratedParameters::GeneratedParameters;
  void Ignore(const std::string& name, const std::vector<size_t>& shape) override {
    ignored[name] = shape;
  }
  std::map<std::string, std::vector<size_t>> ignored;
};

std::map<std::string, std::vector<size_t>> IgnoredByAnna(json layer, bool convolutions) {
  std::map<std::string, TensorSpec> tensors;
  for (const auto& [name, tensor] : layer.at("tensors").items()) {
    tensors[name].shape = tensor.at("shape").get<std::vector<size_t>>();
  }
  IgnoringParameters parameters(tensors, DType::kFloat32);
  layer.at("config")["use_short_conv"] = convolutions;
  const size_t hidden = layer.at("hidden").get<size_t>();
  EXPECT_TRUE(MakerOf("anna")(layer.at("config"), {hidden, parameters, {}}).ok());
  EXPECT_THAT(parameters.Problems(), testing::IsEmpty());
  return parameters.ignored;
}

// A hybrid's generator may write the convolutions of its other layers here too.
TEST(Layers, AnnaLeavesOutTheConvolutionsOfAHybrid) {
  const json layer = ReadVectors(Layers{"anna", "anna"}.vectors()).at("layers").at(2);
  using Shape = std::vector<size_t>;
  EXPECT_THAT(IgnoredByAnna(layer, true),  // d = 256, E = 64
              testing::UnorderedElementsAre(testing::Pair("q_conv1d.weight", Shape{256, 1, 4}),
                                            testing::Pair("k_conv1d.weight", Shape{256, 1, 4}),
                                            testing::Pair("v_conv1d.weight", Shape{64, 1, 4})));
  EXPECT_THAT(IgnoredByAnna(layer, false), testing::IsEmpty());
}

}  // namespace
}  // namespace rivulet
