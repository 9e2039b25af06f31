// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// glm5_next and its text model. That they compute what transformers does: tests/parity.
#include <string>

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

json Glm() {
  return {{"model_type", "glm5_next_text"}, {"vocab_size", 96},        {"hidden_size", 64},
          {"num_hidden_layers", 8},         {"intermediate_size", 48}, {"num_attention_heads", 4},
          {"num_key_value_heads", 4},       {"kv_lora_rank", 24},      {"q_lora_rank", 12}};
}

// With attention alone, so that every layer's indexer counts.
json Attention() { return With(Glm(), "layer_types", json::array_t(8, json("indexed_attention"))); }

const LatentAttentionConfig& Latent(const ModelSpec& spec, size_t layer) {
  return std::get<LatentAttentionConfig>(spec.layers.at(layer).mixer);
}

KdaConfig Kda(const json& config) { return std::get<KdaConfig>(SpecOf(config).layers.at(0).mixer); }

std::string Shared(const json& config) {
  std::string letters;
  const ModelSpec spec = SpecOf(config);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    letters += Latent(spec, i).takes_choice ? 'S' : 'F';
  }
  return letters;
}

TEST(Glm5FormatTest, NamesTheTensorsAndDescribesTheLayers) {
  const ModelSpec spec = SpecOf(Glm());
  EXPECT_EQ(spec.streams, 4u);
  EXPECT_EQ(spec.norm_eps, 1e-5f);
  EXPECT_THAT(MixersOf(Glm()), ElementsAre("kda", "kda", "kda", "latent_attention", "kda", "kda",
                                           "kda", "latent_attention"));
  const LatentAttentionConfig& latent = Latent(spec, 3);
  EXPECT_EQ(latent.key_dim, 256u);
  EXPECT_EQ(latent.query_rank, 12u);
  EXPECT_EQ(latent.norm_eps, 1e-5f);
  EXPECT_EQ(latent.selection.pool, 16u);
  EXPECT_EQ(latent.selection.most, 128u);
  EXPECT_EQ(latent.selection.heads, 32u);
  const auto& connection =
      std::get<SinkhornConnectionSpec>(spec.layers.at(3).feed_forward_residual.connection);
  EXPECT_EQ(connection.map, "model.layers.3.hc_ffn_fn");
  EXPECT_EQ(connection.form.sinkhorn_rounds, 20u);
  const auto& mlp = std::get<GatedMlpSpec>(spec.layers.at(2).feed_forward);
  EXPECT_EQ(mlp.form.limit, 10.0f);
  const auto& experts = std::get<MixtureOfExpertsSpec>(spec.layers.at(3).feed_forward);
  EXPECT_EQ(experts.choice.experts, 288u);
  EXPECT_EQ(experts.choice.scaling, 2.5f);
  EXPECT_EQ(experts.limit, 10.0f);
  EXPECT_EQ(std::get<GatedMlpSpec>(experts.shared).form.limit, 10.0f);
}

TEST(Glm5FormatTest, ReadsThePublishedConfig) {
  json text = Glm();
  text["linear_attn_config"] = {{"head_dim", 16}, {"num_heads", 5}, {"short_conv_kernel_size", 3}};
  const json config = {{"model_type", "glm5_next"}, {"text_config", text}};
  const ModelSpec spec = SpecOf(config);
  EXPECT_EQ(spec.architecture, "glm5_next");
  EXPECT_EQ(Kda(config).shape.heads, 5u);
  EXPECT_EQ(Kda(config).conv_size, 3u);
  EXPECT_EQ(Kda(With(Glm(), "model_type", "glm5_next")).shape.heads, 64u);  // flat
}

TEST(Glm5FormatTest, DecaysAreBoundedUnlessTheConfigSaysOtherwise) {
  EXPECT_EQ(Kda(Glm()).lower_bound, -5.0f);
  EXPECT_EQ(Kda(With(Glm(), "linear_lower_bound", -2.0)).lower_bound, -2.0f);
  const json unbound = With(Glm(), "linear_lower_bound", nullptr);
  EXPECT_EQ(Kda(unbound).lower_bound, std::nullopt);
  EXPECT_EQ(Kda(With(unbound, "linear_attn_config", json::object())).lower_bound, -5.0f);
  EXPECT_EQ(Kda(With(unbound, "linear_attn_config", {{"safe_gate", false}})).lower_bound,
            std::nullopt);
  EXPECT_EQ(Kda(With(Glm(), "linear_attn_config", {{"gate_lower_bound", -3}})).lower_bound, -3.0f);
}

TEST(Glm5FormatTest, LayersShareChoicesByAnyOfTheKeys) {
  EXPECT_EQ(Shared(Attention()), "FFFFFFFF");
  EXPECT_EQ(Shared(With(Attention(), "index_topk_pattern", "FFSFSSSF")), "FFSFSSSF");
  EXPECT_EQ(Shared(With(Attention(), "index_topk_freq", 3)), "FFSSFSSF");
  EXPECT_EQ(Shared(With(With(Attention(), "index_topk_freq", 4), "index_skip_topk_offset", 1)),
            "FSSSFSSS");
  const json types = {"full", "shared", "full", "full", "shared", "full", "full", "full"};
  EXPECT_EQ(Shared(With(Attention(), "indexer_types", types)), "FSFFSFFF");
}

TEST(Glm5FormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(With(Glm(), "qk_rope_head_dim", 64)), HasSubstr("qk_rope_head_dim is 64"));
  EXPECT_THAT(ErrorOf(With(Glm(), "index_kpool", 32)),
              AllOf(HasSubstr("index_kpool is 32"), HasSubstr("16")));
  EXPECT_THAT(ErrorOf(With(Glm(), "index_topk", 100)), HasSubstr("index_kpool"));
  EXPECT_THAT(ErrorOf(With(Glm(), "index_kpool_always_select_tail", false)),
              HasSubstr("index_kpool_always_select_tail is false"));
  EXPECT_THAT(ErrorOf(With(Glm(), "hc_mult", 9)), HasSubstr("hc_mult is 9"));
  EXPECT_THAT(ErrorOf(With(Glm(), "num_key_value_heads", 2)), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(ErrorOf(With(Attention(), "index_topk_pattern", "SFFFFFFF")),
              AllOf(HasSubstr("indexer_types"), HasSubstr("layer 0")));
  EXPECT_THAT(ErrorOf(With(Attention(), "index_topk_pattern", "FS")),
              HasSubstr("index_topk_pattern"));
  EXPECT_THAT(ErrorOf(With(Attention(), "index_topk_pattern", "FFFFFFFX")),
              HasSubstr("index_topk_pattern"));
}

TEST(Glm5FormatTest, SurvivesAnyValueAtAnyKey) {
  ExpectSurvivesAnyValue(Glm(),
                         {"layer_types", "mlp_layer_types", "indexer_types", "index_topk_pattern",
                          "index_topk_freq", "index_skip_topk_offset", "linear_attn_config",
                          "linear_lower_bound", "index_kpool", "index_topk", "hc_mult", "hc_eps",
                          "n_routed_experts", "swiglu_limit", "text_config", "n_shared_experts"});
}

TEST(Glm5FormatTest, VisionAndFurtherPredictionAreLeftOutWithALine) {
  const auto model = LoadModel("tests/parity/fixtures/upstream_hf_glm5_next", {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->left_out,
              ElementsAre(HasSubstr("the vision encoder"), HasSubstr("multi-token prediction")));
}

TEST(Glm5FormatTest, ADeviceTakesIt) {
  FakeDevice device;
  LoadOptions options;
  options.mixer.device = &device;
  const auto model = LoadModel("tests/parity/fixtures/upstream_hf_glm5_next", options);
  EXPECT_TRUE(model.ok()) << model.status();
}

}  // namespace
}  // namespace rivulet
