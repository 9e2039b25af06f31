// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// fla's rwkv6 and rwkv7. That the models compute what they should: tests/parity.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/fake_device.h"
#include "model_loader/format_fixture.h"
#include "model_loader/loaded_model.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// As the published models write it.
json World() {
  return json::parse(R"({"model_type": "rwkv7", "architectures": ["RWKV7ForCausalLM"],
      "vocab_size": 96, "hidden_size": 128, "num_hidden_layers": 3, "intermediate_size": 512,
      "hidden_ratio": 4.0, "head_dim": 64, "num_heads": 2, "value_dim": [128, 128, 128],
      "decay_low_rank_dim": 32, "a_low_rank_dim": 32, "v_low_rank_dim": 16,
      "gate_low_rank_dim": 64, "hidden_act": "sqrelu", "norm_first": true, "norm_bias": true,
      "norm_eps": 1e-05, "fuse_norm": false, "attn": null, "attn_mode": "chunk",
      "tie_word_embeddings": false, "use_cache": true, "bos_token_id": 1, "eos_token_id": 2,
      "initializer_range": 0.006, "max_position_embeddings": 2048})");
}

Rwkv7Config MixerOf(const json& config, size_t layer) {
  return std::get<Rwkv7Config>(SpecOf(config).layers.at(layer).mixer);
}

ChannelMixingSpec MixingOf(const json& config) {
  return std::get<ChannelMixingSpec>(SpecOf(config).layers.at(1).feed_forward);
}

TEST(Rwkv7FormatTest, NamesTheTensors) {
  const ModelSpec spec = SpecOf(World());
  EXPECT_EQ(spec.embeddings, "model.embeddings.weight");
  EXPECT_EQ(spec.embedding_norm.weight, "model.layers.0.pre_norm.weight");
  EXPECT_EQ(spec.embedding_norm.bias, "model.layers.0.pre_norm.bias");
  EXPECT_EQ(spec.final_norm.kind, NormSpec::Kind::kLayer);
  EXPECT_EQ(spec.final_norm.bias, "model.norm.bias");
  EXPECT_EQ(spec.lm_head, "lm_head.weight");
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-5f);
  const LayerSpec& layer = spec.layers.at(1);
  EXPECT_EQ(layer.mixer_prefix, "model.layers.1.attn.");
  EXPECT_EQ(layer.mixer_norm.weight, "model.layers.1.attn_norm.weight");
  EXPECT_EQ(layer.feed_forward_norm.bias, "model.layers.1.ffn_norm.bias");
  const ChannelMixingSpec mixing = MixingOf(World());
  EXPECT_EQ(mixing.mix, "model.layers.1.ffn.x_k");
  EXPECT_EQ(mixing.key, "model.layers.1.ffn.key");
  EXPECT_EQ(mixing.value, "model.layers.1.ffn.value");
  EXPECT_EQ(mixing.intermediate, 512u);
  EXPECT_EQ(mixing.f, Activation::kReluSquared);
}

TEST(Rwkv6FormatTest, ChannelMixingHasAGate) {
  const ModelSpec spec = SpecOf(json::parse(R"({"model_type": "rwkv6", "vocab_size": 96,
      "hidden_size": 128, "num_hidden_layers": 2, "hidden_ratio": null, "norm_bias": false,
      "attn": {"layers": [0], "num_heads": 2}})"));
  EXPECT_EQ(spec.embedding_norm.weight, "model.layers.0.pre_norm.weight");
  EXPECT_EQ(spec.embedding_norm.bias, "");
  EXPECT_TRUE(std::holds_alternative<SoftmaxAttentionConfig>(spec.layers.at(0).mixer));
  EXPECT_TRUE(std::holds_alternative<Rwkv6Config>(spec.layers.at(1).mixer));
  const auto mixing = std::get<ChannelMixingSpec>(spec.layers.at(1).feed_forward);
  EXPECT_EQ(mixing.mix, "model.layers.1.ffn.key.mu");
  EXPECT_EQ(mixing.key, "model.layers.1.ffn.key.linear");
  EXPECT_EQ(mixing.value, "model.layers.1.ffn.value");
  EXPECT_EQ(mixing.gate_mix, "model.layers.1.ffn.receptance.mu");
  EXPECT_EQ(mixing.receptance, "model.layers.1.ffn.receptance.linear");
  EXPECT_EQ(mixing.intermediate, 448u);  // 3.5 · 128
  EXPECT_EQ(mixing.f, Activation::kReluSquared);
}

TEST(Rwkv7FormatTest, TheFirstLayerIsTheOneWhoseValuesOthersMixIn) {
  EXPECT_TRUE(MixerOf(World(), 0).first);
  EXPECT_FALSE(MixerOf(World(), 1).first);
  EXPECT_FALSE(MixerOf(World(), 2).first);
  // In a mixture the first of its kind.
  json mixture = World();
  mixture["model_type"] = "gla";
  mixture["hidden_act"] = "swish";
  mixture["layer_types"] = {"gla", "rwkv7", "rwkv7"};
  EXPECT_TRUE(MixerOf(mixture, 1).first);
  EXPECT_FALSE(MixerOf(mixture, 2).first);
}

TEST(Rwkv7FormatTest, HonoursTheOptions) {
  json config = World();
  config["norm_bias"] = false;
  config["norm_first"] = false;
  config["tie_word_embeddings"] = true;
  config["hidden_act"] = "gelu";
  config["value_dim"] = 256;
  config.erase("intermediate_size");
  config["hidden_ratio"] = 3.1;  // 396.8
  const ModelSpec spec = SpecOf(config);
  EXPECT_TRUE(spec.embedding_norm.empty());
  EXPECT_EQ(spec.final_norm.bias, "");
  EXPECT_EQ(spec.layers[0].mixer_norm.bias, "");
  EXPECT_TRUE(spec.tied());
  EXPECT_EQ(MixingOf(config).f, Activation::kGeluTanh);
  EXPECT_EQ(MixingOf(config).intermediate, 416u);
  EXPECT_EQ(MixerOf(config, 2).shape.value_dim, 128u);
  EXPECT_EQ(MixingOf(Without(Without(config, "hidden_ratio"), "hidden_act")).intermediate, 512u);
}

TEST(Rwkv7FormatTest, AttnMakesLaterLayersSoftmaxAttention) {
  json config = World();
  config["attn"] = {{"layers", {1}}, {"num_heads", 2}, {"num_kv_heads", 1}, {"qkv_bias", true}};
  EXPECT_THAT(MixersOf(config), ElementsAre("rwkv7", "softmax_attention", "rwkv7"));
  EXPECT_FALSE(MixerOf(config, 2).first);
  config["attn"]["layers"] = {0};
  EXPECT_THAT(ErrorOf(config), AllOf(HasSubstr("attn"), HasSubstr("layer 0 must be RWKV-7")));
}

TEST(Rwkv7FormatTest, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(ErrorOf(With(World(), "value_dim", {128, 256, 128})),
              AllOf(HasSubstr("value_dim"), HasSubstr("128 in all of them")));
  EXPECT_THAT(ErrorOf(With(World(), "value_dim", {128, 128})),
              AllOf(HasSubstr("value_dim"), HasSubstr("2 entries")));
  EXPECT_THAT(ErrorOf(With(World(), "value_dim", {128, "wide", 128})), HasSubstr("value_dim"));
  EXPECT_THAT(ErrorOf(With(World(), "value_dim", 64)), HasSubstr("multiple of hidden_size"));
  EXPECT_THAT(ErrorOf(With(World(), "hidden_act", "tanh")),
              AllOf(HasSubstr("hidden_act"), HasSubstr("sqrelu, relu")));
  EXPECT_THAT(ErrorOf(With(Without(World(), "intermediate_size"), "hidden_ratio", 0)),
              HasSubstr("hidden_ratio"));
  EXPECT_THAT(ErrorOf(With(World(), "norm_first", "yes")), HasSubstr("norm_first"));
}

TEST(Rwkv7FormatTest, SurvivesAnyValue) {
  ExpectSurvivesAnyValue(World(), {"layer_types", "layer_config"});
}

std::string LoadError(const std::string& fixture, const LoadOptions& options) {
  const auto model = LoadModel("tests/parity/fixtures/" + fixture, options);
  return model.ok() ? "no error" : std::string(model.status().message());
}

TEST(Rwkv7FormatTest, ADeviceHasIt) {
  FakeDevice device;
  LoadOptions options;
  options.mixer.device = &device;
  const auto model = LoadModel("tests/parity/fixtures/rwkv7", options);
  EXPECT_TRUE(model.ok()) << model.status();
}

TEST(Rwkv6FormatTest, ADeviceTakesIt) {
  FakeDevice device;
  LoadOptions options;
  options.mixer.device = &device;
  const auto model = LoadModel("tests/parity/fixtures/rwkv6", options);
  EXPECT_TRUE(model.ok()) << model.status();
}

TEST(Rwkv7FormatTest, AMissingTensorIsNamed) {
  LoadOptions options;
  options.config_override = R"({"num_hidden_layers": 4, "value_dim": 24})";
  EXPECT_THAT(LoadError("rwkv7", options),
              AllOf(HasSubstr("model.layers.3.attn.x_r"), HasSubstr("attn.v_lora.lora.2.bias")));
  options.config_override = R"({"a_low_rank_dim": 5})";
  EXPECT_THAT(LoadError("rwkv7", options), HasSubstr("a_lora.lora.0.weight"));
}

// Both halves of a block have state, one behind the other in a slot.
TEST(Rwkv7FormatTest, TheStateHoldsTheShiftOfBothHalves) {
  const auto model = LoadModel("tests/parity/fixtures/rwkv7", {});
  ASSERT_TRUE(model.ok()) << model.status();
  const LoadedLayer& layer = (*model)->layers.at(1);
  std::vector<std::string> names;
  for (const StatePlane& plane : layer.state_layout.planes()) names.push_back(plane.name);
  EXPECT_THAT(names, ElementsAre("shift.before", "shift.tail", "S", "kb", "vu", "log_decay",
                                 "feed_forward.shift.before", "feed_forward.shift.tail"));
  EXPECT_EQ(layer.feed_forward_state.base, layer.mixer->state_layout().base_bytes());
  EXPECT_EQ(layer.feed_forward_state.tail, layer.mixer->state_layout().tail_bytes());
}

}  // namespace
}  // namespace rivulet
