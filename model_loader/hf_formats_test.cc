// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// transformers' decoders: llama_format.cc, qwen3_next_format.cc, granite_format.cc. That they
// compute what transformers does: tests/parity.
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "model_loader/model_spec.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

json Llama() {
  return {{"model_type", "llama"},   {"vocab_size", 96},        {"hidden_size", 64},
          {"num_hidden_layers", 4},  {"intermediate_size", 48}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}};
}

json With(json config, const std::string& key, json value) {
  config[key] = std::move(value);
  return config;
}

json Of(const char* model_type) { return With(Llama(), "model_type", model_type); }

json QwenNext() { return With(With(Of("qwen3_next"), "num_experts", 6), "num_experts_per_tok", 2); }

json Granite() {
  json config = With(With(Of("granitemoehybrid"), "mamba_n_heads", 8), "mamba_d_head", 16);
  config["layer_types"] = {"mamba", "attention", "linear_attention", "full_attention"};
  return config;
}

ModelSpec Spec(const json& config) {
  const auto spec = ParseModelSpec(config);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : ModelSpec();
}

std::string Error(const json& config) {
  const absl::Status status = ParseModelSpec(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

std::vector<std::string> Mixers(const json& config) {
  std::vector<std::string> types;
  for (const LayerSpec& layer : Spec(config).layers) types.push_back(layer.mixer_type);
  return types;
}

SoftmaxAttentionConfig Attention(const LayerSpec& layer) {
  return std::get<SoftmaxAttentionConfig>(layer.mixer);
}

// Of each layer; 0: it sees everything.
std::vector<uint64_t> Windows(const json& config) {
  std::vector<uint64_t> windows;
  for (const LayerSpec& layer : Spec(config).layers) windows.push_back(Attention(layer).window);
  return windows;
}

TEST(LlamaFormatTest, NamesTheTensorsAndDescribesTheMixer) {
  const ModelSpec spec = Spec(Llama());
  EXPECT_EQ(spec.embeddings, "model.embed_tokens.weight");
  EXPECT_EQ(spec.final_norm.weight, "model.norm.weight");
  EXPECT_EQ(spec.lm_head, "lm_head.weight");
  EXPECT_TRUE(Spec(With(Llama(), "tie_word_embeddings", true)).tied());
  ASSERT_EQ(spec.layers.size(), 4u);
  const LayerSpec& layer = spec.layers[1];
  EXPECT_EQ(layer.mixer_type, "softmax_attention");
  EXPECT_EQ(layer.mixer_prefix, "model.layers.1.self_attn.");
  EXPECT_EQ(layer.mixer_norm.weight, "model.layers.1.input_layernorm.weight");
  EXPECT_EQ(layer.feed_forward_norm.weight, "model.layers.1.post_attention_layernorm.weight");
  const SoftmaxAttentionConfig attention = Attention(layer);
  EXPECT_EQ(attention.heads, 4u);
  EXPECT_EQ(attention.kv_heads, 2u);
  EXPECT_EQ(attention.head_dim, 16u);
  EXPECT_FLOAT_EQ(attention.scale, 0.25f);
  EXPECT_FALSE(attention.qkv_bias);
  EXPECT_FALSE(attention.output_gate);
  ASSERT_TRUE(attention.rope.has_value());
  EXPECT_EQ(attention.rope->theta, 10000.0f);
  EXPECT_EQ(attention.rope->rotary_dim, 16u);
  const auto& mlp = std::get<GatedMlpSpec>(layer.feed_forward);
  EXPECT_EQ(mlp.intermediate, 48u);
  EXPECT_EQ(mlp.up, "model.layers.1.mlp.up_proj");
}

TEST(LlamaFormatTest, PassesOnBiasesHeadSizeAndPositions) {
  json config = With(With(Llama(), "attention_bias", true), "mlp_bias", true);
  config["head_dim"] = 24;
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  const LayerSpec layer = Spec(config).layers[0];
  EXPECT_TRUE(Attention(layer).qkv_bias);
  EXPECT_TRUE(Attention(layer).output_bias);
  EXPECT_EQ(Attention(layer).head_dim, 24u);
  EXPECT_EQ(Attention(layer).rope->scaling, RopeScaling::kLinear);
  EXPECT_EQ(Attention(layer).rope->factor, 2.0f);
  EXPECT_TRUE(std::get<GatedMlpSpec>(layer.feed_forward).bias);
}

TEST(LlamaFormatTest, RefusesWhatIsNotServed) {
  EXPECT_THAT(Error(With(Llama(), "hidden_act", "gelu")), HasSubstr("hidden_act is \"gelu\""));
  for (const char* key : {"quantization_config", "attn_logit_softcapping", "attention_sinks",
                          "final_logit_softcapping", "attention_chunk_size", "clip_qkv"}) {
    EXPECT_THAT(Error(With(Llama(), key, {{"x", 1}})),
                AllOf(HasSubstr(absl::StrCat(key, " is {\"x\":1}")), HasSubstr("not served")));
    EXPECT_TRUE(ParseModelSpec(With(Llama(), key, nullptr)).ok()) << key;
    EXPECT_TRUE(ParseModelSpec(With(Llama(), key, false)).ok()) << key;
  }
}

TEST(LlamaFormatTest, RefusesHeadsThatDoNotFit) {
  EXPECT_THAT(Error(With(Llama(), "num_key_value_heads", 3)),
              AllOf(HasSubstr("num_key_value_heads is 3"), HasSubstr("num_attention_heads 4")));
  EXPECT_THAT(Error(With(With(Llama(), "num_attention_heads", 5), "num_key_value_heads", 5)),
              AllOf(HasSubstr("num_attention_heads is 5"), HasSubstr("hidden_size 64")));
}

TEST(LlamaFormatTest, MistralSlidesInEveryLayer) {
  EXPECT_THAT(Windows(With(Of("mistral"), "sliding_window", 7)), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(Windows(With(Of("mistral"), "sliding_window", nullptr)), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Windows(Of("mistral")), ElementsAre(4096, 4096, 4096, 4096));
}

TEST(LlamaFormatTest, QwenSlidesWhereItSaysSo) {
  for (const char* type : {"qwen2", "qwen3"}) {
    json config = With(With(Of(type), "sliding_window", 9), "max_window_layers", 2);
    EXPECT_THAT(Windows(config), ElementsAre(0, 0, 0, 0));
    config["use_sliding_window"] = true;
    EXPECT_THAT(Windows(config), ElementsAre(0, 0, 9, 9));
    config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                             "sliding_attention"};
    EXPECT_THAT(Windows(config), ElementsAre(9, 0, 0, 9));
    config["use_sliding_window"] = false;
    EXPECT_THAT(Error(config), AllOf(HasSubstr("use_sliding_window is false"),
                                     HasSubstr("sliding_attention at entry 0")));
  }
}

TEST(LlamaFormatTest, QwenWithoutAWindowSlidesNowhere) {
  for (const char* type : {"qwen2", "qwen3"}) {
    json config = With(With(Of(type), "sliding_window", nullptr), "max_window_layers", 2);
    config["use_sliding_window"] = true;
    EXPECT_THAT(Windows(config), ElementsAre(0, 0, 0, 0));
    config["layer_types"] = json::array_t(4, "full_attention");
    EXPECT_THAT(Windows(config), ElementsAre(0, 0, 0, 0));
    config["layer_types"][2] = "sliding_attention";
    EXPECT_THAT(Error(config), AllOf(HasSubstr("sliding_window is missing: it must be a number"),
                                     HasSubstr("sliding_attention at entry 2")));
  }
}

TEST(LlamaFormatTest, QwensDifferInBiasesAndNorms) {
  const SoftmaxAttentionConfig qwen2 = Attention(Spec(Of("qwen2")).layers[0]);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_EQ(qwen2.qk_norm, HeadNorm::kNone);
  const SoftmaxAttentionConfig qwen3 = Attention(Spec(Of("qwen3")).layers[0]);
  EXPECT_EQ(qwen3.qk_norm, HeadNorm::kRms);
  EXPECT_EQ(qwen3.head_dim, 128u);
  EXPECT_FALSE(qwen3.qkv_bias);
}

TEST(QwenNextFormatTest, MixesByIntervalOrByName) {
  EXPECT_THAT(Mixers(QwenNext()), ElementsAre("gated_deltanet", "gated_deltanet", "gated_deltanet",
                                              "softmax_attention"));
  json config = With(QwenNext(), "full_attention_interval", 2);
  EXPECT_THAT(Mixers(config), ElementsAre("gated_deltanet", "softmax_attention", "gated_deltanet",
                                          "softmax_attention"));
  config["layer_types"] = {"full_attention", "linear_attention", "linear_attention",
                           "linear_attention"};
  EXPECT_THAT(Mixers(config), ElementsAre("softmax_attention", "gated_deltanet", "gated_deltanet",
                                          "gated_deltanet"));
}

TEST(QwenNextFormatTest, DescribesItsMixers) {
  json config = With(QwenNext(), "linear_num_key_heads", 2);
  config["linear_num_value_heads"] = 6;
  config["linear_value_head_dim"] = 48;
  config["rms_norm_eps"] = 1e-4;
  const ModelSpec spec = Spec(config);
  const auto& delta = std::get<DeltaRuleConfig>(spec.layers[0].mixer);
  EXPECT_EQ(spec.layers[0].mixer_prefix, "model.layers.0.linear_attn.");
  EXPECT_EQ(delta.shape.groups, 2u);
  EXPECT_EQ(delta.shape.heads, 6u);
  EXPECT_EQ(delta.shape.key_dim, 128u);
  EXPECT_EQ(delta.shape.value_dim, 48u);
  EXPECT_TRUE(delta.decays);
  EXPECT_EQ(delta.conv_size, 4u);
  EXPECT_TRUE(delta.use_gate);
  EXPECT_EQ(delta.norm_eps, 1e-4f);
  EXPECT_EQ(delta.tensors, DeltaRuleTensors::kQwen3Next);
  const SoftmaxAttentionConfig attention = Attention(spec.layers[3]);
  EXPECT_EQ(attention.head_dim, 256u);
  EXPECT_EQ(attention.qk_norm, HeadNorm::kRmsOnePlus);
  EXPECT_TRUE(attention.output_gate);
  EXPECT_EQ(attention.rope->rotary_dim, 64u);
  config["rope_parameters"] = {{"partial_rotary_factor", 0.5}, {"rope_theta", 1e6}};
  EXPECT_EQ(Attention(Spec(config).layers[3]).rope->rotary_dim, 128u);
}

// transformers' defaults, which are not the number of heads.
TEST(HfDecoderTest, KnowsTheKeyValueHeadsOfEachFamily) {
  const auto kv_heads = [](json config) {
    config["num_attention_heads"] = 64;
    config["head_dim"] = 16;
    config.erase("num_key_value_heads");
    return Attention(Spec(config).layers[3]).kv_heads;
  };
  EXPECT_EQ(kv_heads(Llama()), 64u);
  EXPECT_EQ(kv_heads(Of("mistral")), 8u);
  EXPECT_EQ(kv_heads(Of("qwen2")), 32u);
  EXPECT_EQ(kv_heads(Of("qwen3")), 32u);
  EXPECT_EQ(kv_heads(Of("lfm2")), 8u);
  EXPECT_EQ(kv_heads(QwenNext()), 2u);
  EXPECT_EQ(kv_heads(Of("qwen3_5_text")), 4u);
  EXPECT_EQ(kv_heads(With(QwenNext(), "model_type", "qwen3_5_moe_text")), 2u);
}

// transformers leaves the key out of account there.
TEST(HfDecoderTest, RotatesAllOfAHeadWhateverPartIsNamed) {
  for (const char* model_type : {"llama", "mistral", "qwen2", "qwen3", "lfm2"}) {
    const json config = With(Of(model_type), "rope_parameters", {{"partial_rotary_factor", 0.5}});
    const SoftmaxAttentionConfig attention = Attention(Spec(config).layers[3]);
    EXPECT_EQ(attention.rope->rotary_dim, attention.head_dim) << model_type;
  }
}

TEST(QwenNextFormatTest, EveryNormOfTheStreamIsOnePlus) {
  const ModelSpec spec = Spec(QwenNext());
  EXPECT_EQ(spec.final_norm.kind, NormSpec::Kind::kRmsOnePlus);
  EXPECT_EQ(spec.layers[0].mixer_norm.kind, NormSpec::Kind::kRmsOnePlus);
  EXPECT_EQ(spec.layers[0].feed_forward_norm.kind, NormSpec::Kind::kRmsOnePlus);
  ASSERT_EQ(spec.ignored.size(), 1u);
  EXPECT_EQ(spec.ignored[0].prefix, "mtp.");
}

TEST(QwenNextFormatTest, HasExpertsWhereItSaysSo) {
  const auto sparse = [](const json& config) {
    std::vector<bool> layers;
    for (const LayerSpec& layer : Spec(config).layers) {
      layers.push_back(std::holds_alternative<MixtureOfExpertsSpec>(layer.feed_forward));
    }
    return layers;
  };
  EXPECT_THAT(sparse(QwenNext()), ElementsAre(true, true, true, true));
  EXPECT_THAT(sparse(With(QwenNext(), "decoder_sparse_step", 2)),
              ElementsAre(false, true, false, true));
  EXPECT_THAT(sparse(With(QwenNext(), "mlp_only_layers", {0, 3})),
              ElementsAre(false, true, true, false));
  EXPECT_THAT(sparse(With(QwenNext(), "num_experts", 0)), ElementsAre(false, false, false, false));
  const auto experts = std::get<MixtureOfExpertsSpec>(Spec(QwenNext()).layers[2].feed_forward);
  EXPECT_EQ(experts.choice.experts, 6u);
  EXPECT_EQ(experts.choice.experts_per_token, 2u);
  EXPECT_EQ(experts.intermediate, 512u);
  EXPECT_TRUE(experts.choice.weights_sum_to_one);
  EXPECT_EQ(experts.expert_list, "model.layers.2.mlp.experts.");
  EXPECT_EQ(std::get<GatedMlpSpec>(experts.shared).gate,
            "model.layers.2.mlp.shared_expert.gate_proj");
  EXPECT_EQ(experts.shared_gate, "model.layers.2.mlp.shared_expert_gate");
}

TEST(QwenNextFormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(Error(With(QwenNext(), "layer_types", {"linear_attention"})),
              AllOf(HasSubstr("layer_types has 1 entries"), HasSubstr("num_hidden_layers is 4")));
  EXPECT_THAT(Error(With(QwenNext(), "layer_types", json::array({"mamba", "", "", ""}))),
              AllOf(HasSubstr("layer_types: entry 0 is \"mamba\""),
                    HasSubstr("linear_attention, full_attention")));
  EXPECT_THAT(Error(With(QwenNext(), "layer_types", json::array({1, 2, 3, 4}))),
              HasSubstr("entry 0 must be a string"));
  EXPECT_THAT(Error(With(QwenNext(), "full_attention_interval", 0)),
              HasSubstr("full_attention_interval is 0"));
  EXPECT_THAT(Error(With(QwenNext(), "linear_num_key_heads", 5)),
              AllOf(HasSubstr("linear_num_value_heads"), HasSubstr("linear_num_key_heads 5")));
  EXPECT_THAT(Error(With(QwenNext(), "num_experts_per_tok", 7)),
              AllOf(HasSubstr("num_experts_per_tok is 7"), HasSubstr("from 1 to 6")));
  EXPECT_THAT(Error(With(QwenNext(), "num_experts_per_tok", nullptr)),
              AllOf(HasSubstr("num_experts_per_tok is missing"), HasSubstr("from 1 to 6")));
  EXPECT_THAT(Error(With(QwenNext(), "num_experts", 5000)), HasSubstr("num_experts is 5000"));
  EXPECT_THAT(Error(With(QwenNext(), "mlp_only_layers", {0, 4})),
              AllOf(HasSubstr("mlp_only_layers is [0,4]"), HasSubstr("from 0 to 3")));
  EXPECT_THAT(Error(With(QwenNext(), "mlp_only_layers", {0.5})), HasSubstr("mlp_only_layers"));
}

TEST(GraniteFormatTest, TakesOldAndNewNamesOfLayers) {
  const std::vector<std::string> mixers = Mixers(Granite());
  EXPECT_THAT(mixers, ElementsAre("mamba2", "softmax_attention", "mamba2", "softmax_attention"));
  json config = Granite();
  config["layers_block_type"] = config["layer_types"];
  config.erase("layer_types");
  EXPECT_EQ(Mixers(config), mixers);
  config.erase("layers_block_type");
  EXPECT_THAT(Mixers(config), ElementsAre("mamba2", "mamba2", "mamba2", "mamba2"));
}

TEST(GraniteFormatTest, DescribesMamba) {
  json config = With(With(Granite(), "mamba_n_groups", 4), "time_step_limit", {0.0, 0.5});
  config["mamba_d_head"] = "auto";
  const ModelSpec spec = Spec(config);
  const auto& mamba = std::get<Mamba2Config>(spec.layers[0].mixer);
  EXPECT_EQ(spec.layers[0].mixer_prefix, "model.layers.0.mamba.");
  EXPECT_EQ(mamba.heads, 8u);
  EXPECT_EQ(mamba.head_dim, 16u);
  EXPECT_EQ(mamba.groups, 4u);
  EXPECT_EQ(mamba.state_size, 256u);
  EXPECT_EQ(mamba.norm_groups, 4u);
  EXPECT_EQ(mamba.norm_eps, 1e-6f);
  EXPECT_EQ(mamba.delta_high, 0.5f);
}

TEST(GraniteFormatTest, RotatesOnlyWhenToldTo) {
  json config = With(Granite(), "rope_parameters", {{"rope_theta", 1e4}});
  config["attention_multiplier"] = 0.25;
  const auto attention = [](const json& given) { return Attention(Spec(given).layers[1]); };
  EXPECT_EQ(attention(config).scale, 0.25f);
  EXPECT_FALSE(attention(config).rope.has_value());
  EXPECT_FALSE(attention(With(config, "position_embedding_type", "nope")).rope.has_value());
  EXPECT_TRUE(attention(With(config, "position_embedding_type", "rope")).rope.has_value());
  EXPECT_THAT(Error(With(config, "position_embedding_type", "alibi")), HasSubstr("\"alibi\""));
}

TEST(GraniteFormatTest, FoldsTheMultipliers) {
  json config = With(With(Granite(), "embedding_multiplier", 12), "logits_scaling", 8);
  ModelSpec spec = Spec(config);
  EXPECT_EQ(spec.embedding_multiplier, 12.0f);
  EXPECT_EQ(spec.logits_multiplier, 0.125f);
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-6f);
  spec = Spec(With(config, "residual_multiplier", 0.25));
  EXPECT_EQ(spec.embedding_multiplier, 48.0f);
  EXPECT_FLOAT_EQ(spec.norm_eps, 16e-6f);
  spec = Spec(Granite());
  EXPECT_EQ(spec.embedding_multiplier, 1.0f);
  EXPECT_EQ(spec.logits_multiplier, 1.0f);
}

TEST(GraniteFormatTest, SharedMlpAloneOrBesideExperts) {
  const ModelSpec with = Spec(With(Granite(), "num_local_experts", 3));
  const auto& experts = std::get<MixtureOfExpertsSpec>(with.layers[0].feed_forward);
  EXPECT_EQ(experts.choice.experts, 3u);
  EXPECT_EQ(experts.intermediate, 48u);
  EXPECT_EQ(std::get<GatedMlpSpec>(experts.shared).intermediate, 1024u);
  EXPECT_EQ(experts.gate_up[0], "model.layers.0.block_sparse_moe.input_linear.weight");
  EXPECT_TRUE(experts.shared_gate.empty());
  const ModelSpec without =
      Spec(With(With(Granite(), "num_local_experts", 0), "num_experts_per_tok", 0));
  const auto& mlp = std::get<GatedMlpSpec>(without.layers[0].feed_forward);
  EXPECT_EQ(mlp.gate, "model.layers.0.shared_mlp.input_linear");
  EXPECT_TRUE(mlp.up.empty());
  EXPECT_EQ(mlp.down, "model.layers.0.shared_mlp.output_linear");
}

TEST(GraniteFormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(Error(With(Granite(), "layer_types", {"mamba", "attention"})),
              HasSubstr("layer_types has 2 entries"));
  EXPECT_THAT(Error(With(Granite(), "layer_types", {"mamba", "attention", "conv", "mamba"})),
              AllOf(HasSubstr("entry 2 is \"conv\""), HasSubstr("mamba, attention")));
  EXPECT_THAT(Error(With(Granite(), "mamba_n_heads", 7)),
              AllOf(HasSubstr("mamba_n_heads is 7"), HasSubstr("128")));
  EXPECT_THAT(Error(With(Granite(), "mamba_d_head", 32)),
              AllOf(HasSubstr("mamba_d_head is 32"), HasSubstr("mamba_n_heads 8")));
  EXPECT_THAT(Error(With(Granite(), "mamba_n_groups", 3)), HasSubstr("mamba_n_groups is 3"));
  EXPECT_THAT(Error(With(Granite(), "num_experts_per_tok", 9)),
              AllOf(HasSubstr("num_experts_per_tok is 9"), HasSubstr("from 1 to 8")));
  EXPECT_THAT(Error(With(Granite(), "num_local_experts", 1)),
              AllOf(HasSubstr("num_experts_per_tok is missing"), HasSubstr("from 1 to 1")));
  EXPECT_THAT(Error(With(Granite(), "normalization_function", "layernorm")),
              HasSubstr("normalization_function is \"layernorm\""));
  for (const char* key :
       {"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"}) {
    for (const json& wrong : {json(0), json(-1.5), json("big")}) {
      EXPECT_THAT(Error(With(Granite(), key, wrong)), HasSubstr(absl::StrCat(key, " is ")));
    }
  }
}

// Any JSON value at any key that the formats read: a spec or a status, never an exception.
TEST(HfFormatsTest, SurviveAnyValueAtAnyKey) {
  const json values = json::parse(
      R"([null, true, 0, -3, 1.5, 1e300, "", "auto", [], [1, "x", null], {}, {"a": {"b": 1}}, [[]]])");
  std::mt19937 random(TestSeed());
  std::vector<std::string> keys = {"hidden_size",
                                   "num_attention_heads",
                                   "num_key_value_heads",
                                   "head_dim",
                                   "layer_types",
                                   "sliding_window",
                                   "use_sliding_window",
                                   "max_window_layers",
                                   "rope_parameters",
                                   "num_experts",
                                   "mlp_only_layers",
                                   "decoder_sparse_step",
                                   "full_attention_interval",
                                   "rms_norm_eps",
                                   "linear_num_key_heads",
                                   "linear_num_value_heads",
                                   "mamba_d_head",
                                   "mamba_n_heads",
                                   "mamba_expand",
                                   "num_local_experts",
                                   "residual_multiplier",
                                   "position_embedding_type",
                                   "partial_rotary_factor",
                                   "quantization_config",
                                   "num_hidden_layers",
                                   "layers_block_type"};
  const json configs[] = {Llama(), Of("mistral"), Of("qwen2"), Of("qwen3"), QwenNext(), Granite()};
  for (int i = 0; i < 5000; ++i) {
    json config = configs[random() % 6];
    for (unsigned changes = 1 + random() % 3; changes-- > 0;) {
      config[keys[random() % keys.size()]] = values[random() % values.size()];
    }
    const absl::Status status = ParseModelSpec(config).status();
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << config;
  }
}

}  // namespace
}  // namespace rivulet
