// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// transformers' hybrids: bamba, falcon_h1, jamba, minimax, nemotron_h, olmo_hybrid, qwen3_5 and
// zamba2 _format.cc. That they compute what transformers does: tests/parity.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

json Of(const char* model_type) {
  return {{"model_type", model_type}, {"vocab_size", 96},        {"hidden_size", 64},
          {"num_hidden_layers", 4},   {"intermediate_size", 48}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"mamba_n_heads", 8}};
}

SoftmaxAttentionConfig AttentionOf(const LayerSpec& layer) {
  return std::get<SoftmaxAttentionConfig>(layer.mixer);
}
Mamba2Config Mamba2Of(const LayerSpec& layer) { return std::get<Mamba2Config>(layer.mixer); }
MixtureOfExpertsSpec ExpertsOf(const LayerSpec& layer) {
  return std::get<MixtureOfExpertsSpec>(layer.feed_forward);
}

// --- Qwen3.5 -----------------------------------------------------------------------------------

json Qwen(const char* model_type) {
  json config = Of(model_type);
  config["num_experts"] = 6;
  config["num_experts_per_tok"] = 2;
  return config;
}

json Published(const char* model_type) {
  return {{"model_type", model_type},
          {"text_config", Qwen("anything")},
          {"vision_config", {{"depth", 1}}},
          {"image_token_id", 7}};
}

TEST(Qwen35FormatTest, ReadsTheTextModelInside) {
  const ModelSpec spec = SpecOf(Published("qwen3_5"));
  EXPECT_EQ(spec.architecture, "qwen3_5");
  EXPECT_THAT(MixersOf(Published("qwen3_5")), ElementsAre("gated_deltanet", "gated_deltanet",
                                                          "gated_deltanet", "softmax_attention"));
  EXPECT_EQ(std::get<DeltaRuleConfig>(spec.layers[0].mixer).tensors, DeltaRuleTensors::kQwen35);
  EXPECT_EQ(AttentionOf(spec.layers[3]).rope->rotary_dim, 64u);
  EXPECT_EQ(spec.embeddings, "model.embed_tokens.weight");
  EXPECT_THAT(spec.other_roots, testing::Contains("model.language_model."));
  EXPECT_EQ(std::get<GatedMlpSpec>(spec.layers[0].feed_forward).intermediate, 48u);
  EXPECT_EQ(spec.layers[1].mixer_norm.kind, NormSpec::Kind::kRmsOnePlus);
}

TEST(Qwen35FormatTest, TheOuterConfigTies) {
  EXPECT_FALSE(SpecOf(Published("qwen3_5")).tied());
  EXPECT_TRUE(SpecOf(With(Published("qwen3_5"), "tie_word_embeddings", true)).tied());
  json inner = Published("qwen3_5");
  inner["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(SpecOf(inner).tied());
  EXPECT_FALSE(SpecOf(With(inner, "tie_word_embeddings", false)).tied());
  EXPECT_TRUE(SpecOf(With(Qwen("qwen3_5_text"), "tie_word_embeddings", true)).tied());
}

TEST(Qwen35FormatTest, TakesEndTokensOfEither) {
  json config = With(Published("qwen3_5"), "eos_token_id", {5, 6});
  EXPECT_THAT(SpecOf(config).eos_ids, ElementsAre(5, 6));
  config["text_config"]["eos_token_id"] = 9;
  EXPECT_THAT(SpecOf(config).eos_ids, ElementsAre(9));
}

TEST(Qwen35FormatTest, ExpertsInEveryLayerSumToOne) {
  for (const json& config : {Published("qwen3_5_moe"), Qwen("qwen3_5_moe_text")}) {
    const ModelSpec spec = SpecOf(config);
    for (const LayerSpec& layer : spec.layers) {
      EXPECT_EQ(ExpertsOf(layer).choice.experts, 6u);
      EXPECT_TRUE(ExpertsOf(layer).choice.weights_sum_to_one);
      EXPECT_FALSE(ExpertsOf(layer).shared_gate.empty());
    }
  }
}

TEST(Qwen35FormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(With(Published("qwen3_5"), "text_config", 3)),
              HasSubstr("text_config is 3: it must be an object"));
  EXPECT_THAT(ErrorOf(With(Published("qwen3_5"), "quantization_config", {{"bits", 8}})),
              HasSubstr("quantization_config"));
  json deep = Published("qwen3_5");
  deep["text_config"]["num_attention_heads"] = "x";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("num_attention_heads is \"x\""));
}

TEST(Qwen35FormatTest, LeavesOutVisionAndFurtherTokensByName) {
  const auto model = LoadModel("tests/parity/fixtures/upstream_hf_qwen3_5", {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->left_out,
              ElementsAre("multi-token prediction (1 tensors mtp.*)",
                          testing::MatchesRegex("the vision encoder \\([0-9]+ tensors "
                                                "model.visual.\\*\\)")));
}

LoadOptions WithPredictor() {
  LoadOptions options;
  options.predictor = true;
  return options;
}

TEST(PredictorTest, IsLoadedOnRequest) {
  const std::string folder = "tests/parity/fixtures/upstream_hf_qwen3_5_predictor";
  const auto without = LoadModel(folder, {});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ((*without)->predictor, nullptr);
  EXPECT_THAT((*without)->left_out, ElementsAre("multi-token prediction (15 tensors mtp.*)"));
  const auto with = LoadModel(folder, WithPredictor());
  ASSERT_TRUE(with.ok()) << with.status();
  ASSERT_NE((*with)->predictor, nullptr);
  EXPECT_EQ((*with)->predictor->layers.size(), 1u);
  EXPECT_TRUE((*with)->left_out.empty());
  EXPECT_GT((*with)->parameters, (*without)->parameters + 2 * 32 * 32);
}

TEST(PredictorTest, NamesWhatIsMissing) {
  const auto error = [](const std::string& fixture) {
    const auto model = LoadModel("tests/parity/fixtures/upstream_hf_" + fixture, WithPredictor());
    return std::string(model.status().message());
  };
  EXPECT_THAT(error("qwen3_5"), HasSubstr("mtp.layers.0.self_attn.q_proj.weight is missing"));
  EXPECT_THAT(error("qwen3_next"), HasSubstr("has no head that predicts"));
  EXPECT_THAT(error("bamba"), HasSubstr("has no head that predicts"));
}

TEST(PredictorTest, IsOneLayerOfAttentionOrBlocks) {
  const ModelSpec qwen = SpecOf(With(Of("qwen3_5_text"), "mtp_num_hidden_layers", 1));
  ASSERT_TRUE(qwen.predictor.has_value());
  EXPECT_EQ(qwen.predictor->layers[0].mixer_prefix, "mtp.layers.0.self_attn.");
  for (const char* key : {"mtp_num_hidden_layers", "num_nextn_predict_layers"}) {
    EXPECT_FALSE(SpecOf(With(Of("qwen3_5_text"), key, 2)).predictor.has_value());
  }
  json own = With(Of("qwen3_5_text"), "mtp_use_dedicated_embeddings", true);
  EXPECT_FALSE(SpecOf(own).predictor.has_value());
}

// --- Bamba -------------------------------------------------------------------------------------

TEST(BambaFormatTest, DescribesItsLayers) {
  json config = With(Of("bamba"), "attn_layer_indices", {1, 3});
  config["mamba_n_groups"] = 4;
  const ModelSpec spec = SpecOf(config);
  EXPECT_THAT(MixersOf(config),
              ElementsAre("mamba2", "softmax_attention", "mamba2", "softmax_attention"));
  EXPECT_EQ(spec.final_norm.weight, "model.final_layernorm.weight");
  EXPECT_EQ(spec.layers[0].feed_forward_norm.weight, "model.layers.0.pre_ff_layernorm.weight");
  EXPECT_EQ(Mamba2Of(spec.layers[0]).norm_groups, 4u);
  EXPECT_EQ(Mamba2Of(spec.layers[0]).norm_eps, 1e-5f);
  EXPECT_EQ(AttentionOf(spec.layers[1]).rope->rotary_dim, 8u);
  config["rope_parameters"] = {{"partial_rotary_factor", 1.0}};
  EXPECT_EQ(AttentionOf(SpecOf(config).layers[1]).rope->rotary_dim, 16u);
}

// transformers replaces partial_rotary_factor outside of rope_parameters.
TEST(BambaFormatTest, RotatesHalfOfAHeadWhateverIsNamedOutside) {
  const auto rotated = [](const json& config) {
    const ModelSpec spec = SpecOf(With(config, "attn_layer_indices", {0}));
    return std::get<SoftmaxAttentionConfig>(spec.layers.at(0).mixer).rope->rotary_dim;
  };
  const size_t half = rotated(Of("bamba"));
  json config = With(Of("bamba"), "partial_rotary_factor", 1.0);
  EXPECT_EQ(rotated(config), half);
  config["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_EQ(rotated(config), half);
  config["rope_parameters"]["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(rotated(config), 2 * half);
}

TEST(BambaFormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(With(Of("bamba"), "attn_layer_indices", {4})),
              HasSubstr("attn_layer_indices is [4]"));
  EXPECT_THAT(ErrorOf(With(Of("bamba"), "mamba_n_heads", 7)),
              HasSubstr("it must divide mamba_expand times hidden_size, 128"));
  EXPECT_THAT(ErrorOf(With(Of("bamba"), "hidden_act", "gelu")), HasSubstr("hidden_act"));
}

// --- Falcon-H1 ---------------------------------------------------------------------------------

TEST(FalconH1FormatTest, PutsMixersSideBySideWithMultipliers) {
  json config = With(Of("falcon_h1"), "mamba_d_ssm", 32);
  config["ssm_in_multiplier"] = 2;
  config["ssm_out_multiplier"] = 3;
  config["attention_in_multiplier"] = 4;
  config["attention_out_multiplier"] = 5;
  config["key_multiplier"] = 0.5;
  config["ssm_multipliers"] = {1, 2, 3, 4, 5};
  config["mlp_multipliers"] = {6, 7};
  config["embedding_multiplier"] = 8;
  config["lm_head_multiplier"] = 9;
  const ModelSpec spec = SpecOf(config);
  EXPECT_EQ(spec.embedding_multiplier, 8.0f);
  EXPECT_EQ(spec.logits_multiplier, 9.0f);
  const LayerSpec& layer = spec.layers[2];
  EXPECT_EQ(layer.mixer_prefix, "model.layers.2.mamba.");
  EXPECT_EQ(layer.mixer_input, 2.0f);
  EXPECT_EQ(layer.mixer_output, 3.0f);
  EXPECT_EQ(Mamba2Of(layer).inner(), 32u);
  EXPECT_EQ(Mamba2Of(layer).multipliers, (std::array<float, 5>{1, 2, 3, 4, 5}));
  EXPECT_FALSE(Mamba2Of(layer).use_norm);
  ASSERT_EQ(layer.beside.size(), 1u);
  EXPECT_EQ(layer.beside[0].mixer_prefix, "model.layers.2.self_attn.");
  EXPECT_EQ(layer.beside[0].input, 4.0f);
  EXPECT_EQ(layer.beside[0].output, 5.0f);
  EXPECT_FLOAT_EQ(std::get<SoftmaxAttentionConfig>(layer.beside[0].mixer).scale, 0.5f / 4);
  const auto& mlp = std::get<GatedMlpSpec>(layer.feed_forward);
  EXPECT_EQ(mlp.form.gate_multiplier, 6.0f);
  EXPECT_EQ(mlp.form.output_multiplier, 7.0f);
}

TEST(FalconH1FormatTest, NullWidthIsThatOfExpand) {
  const json config = With(Of("falcon_h1"), "mamba_d_ssm", nullptr);
  EXPECT_EQ(Mamba2Of(SpecOf(config).layers[0]).inner(), 128u);
  EXPECT_EQ(Mamba2Of(SpecOf(Of("falcon_h1")).layers[0]).inner(), 1024u);
}

TEST(FalconH1FormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(With(Of("falcon_h1"), "ssm_multipliers", {1, 2})),
              HasSubstr("ssm_multipliers is [1,2]: it must be a list of 5"));
  EXPECT_THAT(ErrorOf(With(Of("falcon_h1"), "mlp_multipliers", {1, 1e30})),
              HasSubstr("mlp_multipliers"));
  EXPECT_THAT(ErrorOf(With(Of("falcon_h1"), "mamba_d_ssm", 33)), HasSubstr("mamba_d_ssm, 33"));
}

// --- Nemotron-H --------------------------------------------------------------------------------

json Nemotron() {
  json config =
      Without(With(Of("nemotron_h"), "hybrid_override_pattern", "M-*E"), "num_hidden_layers");
  config["mamba_num_heads"] = 8;
  config["n_routed_experts"] = 8;
  return config;
}

TEST(NemotronHFormatTest, BlocksAreOfOneKindEach) {
  const ModelSpec spec = SpecOf(Nemotron());
  ASSERT_EQ(spec.layers.size(), 4u);
  EXPECT_THAT(MixersOf(Nemotron()), ElementsAre("mamba2", "", "softmax_attention", ""));
  EXPECT_FALSE(spec.layers[0].has_feed_forward());
  EXPECT_FALSE(spec.layers[1].has_mixer());
  EXPECT_EQ(spec.layers[1].feed_forward_norm.weight, "model.layers.1.norm.weight");
  const auto& mlp = std::get<TwoLayerMlpSpec>(spec.layers[1].feed_forward);
  EXPECT_EQ(mlp.first, "model.layers.1.mixer.up_proj");
  EXPECT_EQ(mlp.f, Activation::kReluSquared);
  EXPECT_FALSE(mlp.bias);
  EXPECT_FALSE(AttentionOf(spec.layers[2]).rope.has_value());
  EXPECT_EQ(AttentionOf(spec.layers[2]).head_dim, 128u);
  EXPECT_EQ(Mamba2Of(spec.layers[0]).delta_low, 0.001f);
  EXPECT_EQ(spec.norm_eps, 1e-5f);
  EXPECT_FALSE(SpecOf(With(Nemotron(), "tie_word_embeddings", true)).tied());
}

TEST(NemotronHFormatTest, ListsComeBeforeThePattern) {
  const json config =
      With(Nemotron(), "layers_block_type", {"mamba", "linear_attention", "attention", "mlp"});
  EXPECT_THAT(MixersOf(config), ElementsAre("mamba2", "mamba2", "softmax_attention", ""));
}

TEST(NemotronHFormatTest, DescribesTheExperts) {
  json config = With(Nemotron(), "n_group", 4);
  config["topk_group"] = 2;
  config["num_experts_per_tok"] = 3;
  config["routed_scaling_factor"] = 2.5;
  config["moe_latent_size"] = 16;
  const MixtureOfExpertsSpec experts = ExpertsOf(SpecOf(config).layers[3]);
  EXPECT_EQ(experts.choice.scores, ExpertScores::kSigmoid);
  EXPECT_EQ(experts.choice.groups, 4u);
  EXPECT_EQ(experts.choice.groups_per_token, 2u);
  EXPECT_EQ(experts.choice.scaling, 2.5f);
  EXPECT_EQ(experts.latent, 16u);
  EXPECT_FALSE(experts.gated);
  EXPECT_EQ(experts.correction, "model.layers.3.mixer.gate.e_score_correction_bias");
  EXPECT_EQ(std::get<TwoLayerMlpSpec>(experts.shared).first,
            "model.layers.3.mixer.shared_experts.up_proj");
}

TEST(NemotronHFormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(With(Nemotron(), "hybrid_override_pattern", "MX")),
              HasSubstr("its letters must be M (Mamba-2)"));
  EXPECT_THAT(ErrorOf(With(Nemotron(), "hybrid_override_pattern", "")),
              HasSubstr("it must name 1 to 1024 blocks"));
  EXPECT_THAT(ErrorOf(With(Nemotron(), "layers_block_type", {"mamba", "conv"})),
              HasSubstr("entry 1 is \"conv\""));
  EXPECT_THAT(ErrorOf(With(Nemotron(), "n_group", 3)), HasSubstr("n_group"));
  EXPECT_THAT(ErrorOf(With(Nemotron(), "n_group", 8)), HasSubstr("two experts or more"));
  json few = With(With(Nemotron(), "n_group", 4), "num_experts_per_tok", 3);
  EXPECT_THAT(ErrorOf(few), AllOf(HasSubstr("topk_group"), HasSubstr("num_experts_per_tok 3")));
  EXPECT_THAT(ErrorOf(With(Nemotron(), "mlp_hidden_act", "quick_gelu")),
              AllOf(HasSubstr("quick_gelu"), HasSubstr("relu2")));
  EXPECT_THAT(ErrorOf(With(Nemotron(), "mamba_hidden_act", "gelu")), HasSubstr("mamba_hidden_act"));
}

// --- OLMo Hybrid -------------------------------------------------------------------------------

TEST(OlmoHybridFormatTest, NormsWhatComesInOrWhatGoesOut) {
  const ModelSpec spec = SpecOf(Of("olmo_hybrid"));
  EXPECT_THAT(MixersOf(Of("olmo_hybrid")), ElementsAre("gated_deltanet", "gated_deltanet",
                                                       "gated_deltanet", "softmax_attention"));
  EXPECT_EQ(spec.layers[0].mixer_norm.other_weight, "model.layers.0.attention_layer_norm.weight");
  EXPECT_TRUE(spec.layers[0].mixer_residual.plain());
  EXPECT_TRUE(spec.layers[3].mixer_norm.empty());
  EXPECT_EQ(spec.layers[3].mixer_residual.output_norm.weight,
            "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(spec.layers[3].feed_forward_residual.output_norm.weight,
            "model.layers.3.post_feedforward_layernorm.weight");
  const auto& delta = std::get<DeltaRuleConfig>(spec.layers[0].mixer);
  EXPECT_EQ(delta.shape.key_dim, 12u);
  EXPECT_EQ(delta.shape.value_dim, 24u);
  EXPECT_TRUE(delta.negative_eigenvalues);
  EXPECT_EQ(AttentionOf(spec.layers[3]).qk_norm, HeadNorm::kRmsAll);
}

TEST(OlmoHybridFormatTest, ANullThetaMeansNoPositions) {
  const auto rotates = [](const json& config) {
    return AttentionOf(SpecOf(config).layers[3]).rope.has_value();
  };
  const json config = Of("olmo_hybrid");
  EXPECT_TRUE(rotates(config));
  EXPECT_TRUE(rotates(With(config, "rope_parameters", nullptr)));
  EXPECT_FALSE(rotates(With(config, "rope_theta", nullptr)));
  EXPECT_FALSE(rotates(With(config, "rope_parameters", {{"rope_theta", nullptr}})));
  EXPECT_TRUE(rotates(With(config, "rope_parameters", {{"rope_theta", 5e5}})));
}

// --- Jamba -------------------------------------------------------------------------------------

TEST(JambaFormatTest, LayersTakeTurns) {
  json config = With(With(Of("jamba"), "attn_layer_period", 2), "attn_layer_offset", 1);
  config["num_experts"] = 4;
  const ModelSpec spec = SpecOf(config);
  EXPECT_THAT(MixersOf(config),
              ElementsAre("mamba", "softmax_attention", "mamba", "softmax_attention"));
  EXPECT_TRUE(std::holds_alternative<GatedMlpSpec>(spec.layers[0].feed_forward));
  EXPECT_FALSE(ExpertsOf(spec.layers[1]).choice.weights_sum_to_one);
  EXPECT_FALSE(AttentionOf(spec.layers[1]).rope.has_value());
  const auto& mamba = std::get<MambaConfig>(spec.layers[0].mixer);
  EXPECT_TRUE(mamba.scan_norms_are_trained);
  EXPECT_EQ(mamba.rank, 4u);
  for (const LayerSpec& layer : SpecOf(With(config, "num_experts", 1)).layers) {
    EXPECT_TRUE(std::holds_alternative<GatedMlpSpec>(layer.feed_forward));
  }
  EXPECT_THAT(ErrorOf(With(config, "attn_layer_offset", 2)),
              HasSubstr("attn_layer_offset is 2: it must be below attn_layer_period 2"));
  EXPECT_THAT(ErrorOf(With(config, "mamba_dt_rank", "two")), HasSubstr("mamba_dt_rank"));
}

// --- MiniMax -----------------------------------------------------------------------------------

TEST(MiniMaxFormatTest, DescribesItsLayers) {
  json config = With(Of("minimax"), "linear_attn_alpha_factor", 3);
  config["mlp_beta_factor"] = 0.5;
  config["sliding_window"] = 100;
  const ModelSpec spec = SpecOf(config);
  EXPECT_THAT(MixersOf(config), ElementsAre("softmax_attention", "lightning_attention",
                                            "softmax_attention", "lightning_attention"));
  EXPECT_EQ(AttentionOf(spec.layers[0]).rope->theta, 1e6f);
  EXPECT_EQ(AttentionOf(spec.layers[0]).window, 100u);
  EXPECT_TRUE(spec.layers[0].mixer_residual.keeps_normed);
  EXPECT_EQ(spec.layers[0].mixer_residual.keep, 1.0f);
  EXPECT_EQ(spec.layers[1].mixer_residual.keep, 3.0f);
  EXPECT_EQ(spec.layers[1].feed_forward_residual.add, 0.5f);
  EXPECT_EQ(ExpertsOf(spec.layers[0]).expert_names.up, "w3");
  const auto& lightning = std::get<LightningAttentionConfig>(spec.layers[3].mixer);
  ASSERT_EQ(lightning.log_decay.size(), 4u);
  // The last layer: 2^-2 (1 - 3 / (3 + 1e-5) + 1e-5), and so on.
  EXPECT_NEAR(lightning.log_decay[0], -0.25 * (1 - 3 / (3 + 1e-5) + 1e-5), 1e-12);
  EXPECT_NEAR(lightning.log_decay[1] / lightning.log_decay[0], 0.25, 1e-12);
}

// --- Zamba2 ------------------------------------------------------------------------------------

json Zamba2() {
  json config = Of("zamba2");
  config["layers_block_type"] = {"mamba", "hybrid", "hybrid", "hybrid"};
  config["num_mem_blocks"] = 2;
  return config;
}

SharedTransformerConfig HybridOf(const LayerSpec& layer) {
  return std::get<SharedTransformerConfig>(layer.mixer);
}

TEST(Zamba2FormatTest, BlocksTakeTurns) {
  const ModelSpec spec = SpecOf(Zamba2());
  EXPECT_TRUE(spec.tied());
  EXPECT_EQ(spec.layers[0].mixer_type, "mamba2");
  EXPECT_FALSE(spec.layers[0].has_feed_forward());
  EXPECT_TRUE(spec.layers[1].reads_embeddings);
  EXPECT_EQ(HybridOf(spec.layers[1]).shared, "model.layers.1.shared_transformer.");
  EXPECT_EQ(HybridOf(spec.layers[2]).shared, "model.layers.2.shared_transformer.");
  EXPECT_EQ(HybridOf(spec.layers[3]).shared, "model.layers.1.shared_transformer.");
  EXPECT_EQ(HybridOf(spec.layers[3]).adapter, 2u);
  EXPECT_EQ(spec.layers[3].mixer_prefix, "model.layers.3.");
  const ModelSpec untied = SpecOf(With(Zamba2(), "tie_word_embeddings", false));
  EXPECT_EQ(HybridOf(untied.layers[3]).shared, "model.layers.3.shared_transformer.");
  const SharedTransformerConfig hybrid = HybridOf(spec.layers[1]);
  EXPECT_EQ(hybrid.attention.inputs, 128u);
  EXPECT_EQ(hybrid.attention.head_dim, 32u);
  EXPECT_FLOAT_EQ(hybrid.attention.scale, 0.25f);
  EXPECT_EQ(hybrid.attention.adapter_rank, 0u);
  EXPECT_EQ(hybrid.f, Activation::kGelu);
  EXPECT_FALSE(hybrid.attention.rope.has_value());
  EXPECT_EQ(hybrid.mamba.delta_low, 0.001f);
}

TEST(Zamba2FormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(Without(Zamba2(), "layers_block_type")),
              HasSubstr("without layers_block_type it must be 54"));
  EXPECT_THAT(ErrorOf(With(Zamba2(), "use_shared_attention_adapter", true)),
              HasSubstr("it must be num_attention_heads"));
  EXPECT_THAT(ErrorOf(With(Zamba2(), "n_mamba_heads", 3)), HasSubstr("n_mamba_heads"));
}

// --- all ---------------------------------------------------------------------------------------

TEST(HybridFormatsTest, SurviveAnyValue) {
  const std::vector<std::string> more = {
      "text_config",         "layer_types",    "layers_block_type", "hybrid_override_pattern",
      "rope_parameters",     "head_dim",       "mamba_d_head",      "ssm_multipliers",
      "time_step_limit",     "eos_token_id",   "num_experts",       "n_group",
      "topk_group",          "mamba_dt_rank",  "mamba_d_ssm",       "attn_layer_indices",
      "num_experts_per_tok", "num_mem_blocks", "adapter_rank"};
  for (const json& config :
       {Published("qwen3_5_moe"), Qwen("qwen3_5_text"), Of("bamba"), Of("falcon_h1"), Nemotron(),
        Of("olmo_hybrid"), Of("jamba"), Of("minimax"), Zamba2()}) {
    SCOPED_TRACE(config["model_type"]);
    ExpectSurvivesAnyValue(config, more);
  }
}

TEST(HybridFormatsTest, WhatADeviceHasIsLoadedForIt) {
  for (const char* name : {"bamba", "falcon_h1", "jamba", "minimax", "nemotron_h", "olmo_hybrid",
                           "qwen3_5", "qwen3_5_moe", "zamba2"}) {
    FakeDevice device;
    LoadOptions options;
    options.mixer.device = &device;
    const auto model = LoadModel(absl::StrCat("tests/parity/fixtures/upstream_hf_", name), options);
    EXPECT_TRUE(model.ok()) << name << ": " << model.status();
  }
}

}  // namespace
}  // namespace rivulet
