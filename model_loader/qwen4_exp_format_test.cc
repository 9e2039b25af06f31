// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// qwen4_exp and its text model. That they compute what transformers does: tests/parity.
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

json Qwen() {
  return {{"model_type", "qwen4_exp_text"},
          {"vocab_size", 96},
          {"hidden_size", 64},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"head_dim", 16},
          {"num_experts", 20},
          {"indexer_n_heads", 6},
          {"indexer_kv_heads", 1},
          {"indexer_head_dim", 24},
          {"indexer_budget", 64},
          {"indexer_compress_ratio", 16}};
}

const SoftmaxAttentionConfig& Attention(const ModelSpec& spec) {
  return std::get<SoftmaxAttentionConfig>(spec.layers.at(3).mixer);
}

TEST(Qwen4ExpFormatTest, NamesTheTensorsAndDescribesTheLayers) {
  const ModelSpec spec = SpecOf(Qwen());
  EXPECT_THAT(MixersOf(Qwen()), ElementsAre("gated_deltanet", "gated_deltanet", "gated_deltanet",
                                            "softmax_attention"));
  EXPECT_EQ(spec.streams, 4u);
  EXPECT_TRUE(spec.final_norm.empty());
  EXPECT_FALSE(spec.predictor.has_value());
  const auto& last = std::get<GatedConnectionSpec>(spec.last_connection);
  EXPECT_EQ(last.norm, "model.hyper_connection_mixer.hc_norm.weight");
  EXPECT_FALSE(last.form.expands);
  const auto& own = std::get<GatedConnectionSpec>(spec.layers.at(1).mixer_residual.connection);
  EXPECT_EQ(own.out, "model.layers.1.attn_hyper_connection.block_inject_weight.weight");
  EXPECT_EQ(own.form.rank, 320u);
  EXPECT_TRUE(own.form.expands);
  EXPECT_TRUE(spec.layers.at(1).mixer_norm.empty());
  const SoftmaxAttentionConfig& attention = Attention(spec);
  EXPECT_TRUE(attention.output_gate);
  EXPECT_EQ(attention.rope->rotary_dim, 16u);
  EXPECT_EQ(attention.selection.most, 4u);
  EXPECT_FALSE(attention.selection.gated);
  const auto& experts = std::get<MixtureOfExpertsSpec>(spec.layers.at(3).feed_forward);
  EXPECT_EQ(experts.choice.experts_per_token, 10u);
}

TEST(Qwen4ExpFormatTest, ReadsTheGateAndThePublishedConfig) {
  const auto gate = [](const json& config) {
    return std::get<DeltaRuleConfig>(SpecOf(config).layers.at(0).mixer).gate_f;
  };
  EXPECT_EQ(gate(Qwen()), Activation::kSilu);
  EXPECT_EQ(gate(With(Qwen(), "output_gate_type", "sigmoid")), Activation::kSigmoid);
  const json outer = {{"model_type", "qwen4_exp"}, {"text_config", Qwen()}};
  EXPECT_EQ(SpecOf(outer).architecture, "qwen4_exp");
  const json types = {"full_attention", "linear_attention", "indexed_attention",
                      "linear_attention"};
  EXPECT_THAT(
      MixersOf(With(Qwen(), "layer_types", types)),
      ElementsAre("softmax_attention", "gated_deltanet", "softmax_attention", "gated_deltanet"));
}

json Ngrams(const json& layers) {
  return With(With(Qwen(), "ple_layer_ids", layers), "eos_token_id", {7, 9});
}

TEST(Qwen4ExpFormatTest, NgramsBelongToLayersCountedFromOne) {
  const ModelSpec spec = SpecOf(Ngrams({3, 1, 3}));
  EXPECT_FALSE(spec.layers.at(1).ngrams.has_value());
  const NgramSpec& second = spec.layers.at(2).ngrams.value();
  EXPECT_EQ(second.prefix, "model.layers.2.ple.");
  EXPECT_EQ(second.form.hash.layer, 1u);
  EXPECT_EQ(second.form.row, 4u);
  EXPECT_EQ(second.form.window(), 10u);
  EXPECT_EQ(second.form.end_of_text, 7u);
  EXPECT_EQ(spec.layers.at(0).ngrams->form.hash.layer, 0u);
}

TEST(Qwen4ExpFormatTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(Ngrams({0, 3})), HasSubstr("ple_layer_ids"));
  EXPECT_THAT(ErrorOf(Ngrams({5})), HasSubstr("ple_layer_ids"));
  EXPECT_THAT(ErrorOf(Without(Ngrams({1}), "eos_token_id")), HasSubstr("eos_token_id"));
  EXPECT_THAT(ErrorOf(With(Ngrams({1}), "ple_embed_dim", 30)), HasSubstr("ple_embed_dim is 30"));
  EXPECT_THAT(ErrorOf(With(Ngrams({1}), "ple_conv_kernel_size", 7)),
              HasSubstr("ple_conv_kernel_size is 7"));
  EXPECT_THAT(ErrorOf(With(Qwen(), "indexer_compress_ratio", 32)),
              HasSubstr("indexer_compress_ratio is 32"));
  EXPECT_THAT(ErrorOf(With(Qwen(), "indexer_budget", 60)), HasSubstr("indexer_compress_ratio"));
  EXPECT_THAT(ErrorOf(With(Qwen(), "indexer_head_dim", 14)), HasSubstr("indexer_head_dim is 14"));
  EXPECT_THAT(ErrorOf(With(Qwen(), "indexer_kv_heads", 2)), HasSubstr("indexer_kv_heads is 2"));
  EXPECT_THAT(ErrorOf(Without(Qwen(), "indexer_n_heads")), HasSubstr("indexer_n_heads"));
  EXPECT_THAT(ErrorOf(With(Qwen(), "hc_count", 1)), HasSubstr("hc_count is 1"));
  EXPECT_THAT(ErrorOf(With(Qwen(), "output_gate_type", "gelu")), HasSubstr("output_gate_type"));
}

TEST(Qwen4ExpFormatTest, SurvivesAnyValueAtAnyKey) {
  ExpectSurvivesAnyValue(
      Qwen(), {"layer_types", "hc_count", "hc_lowrank", "output_gate_type", "rope_parameters",
               "text_config", "ple_layer_ids", "norm_topk_prob", "full_attention_interval"});
  ExpectSurvivesAnyValue(Ngrams({1, 3}), {"ngram_size", "heads_per_ngram", "ple_embed_dim",
                                          "ple_conv_kernel_size", "seed"});
}

TEST(Qwen4ExpFormatTest, ADeviceTakesIt) {
  FakeDevice device;
  LoadOptions options;
  options.mixer.device = &device;
  const auto model = LoadModel("tests/parity/fixtures/upstream_hf_qwen4_exp", options);
  EXPECT_TRUE(model.ok()) << model.status();
}

}  // namespace
}  // namespace rivulet
