// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/model_spec.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/json.h"
#include "model_loader/testing.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

json Fla() {
  return {{"model_type", "gla"}, {"vocab_size", 96}, {"hidden_size", 64}, {"num_hidden_layers", 2}};
}
json Mamba2() {
  return {
      {"model_type", "mamba2"}, {"vocab_size", 96}, {"hidden_size", 64}, {"num_hidden_layers", 2}};
}

json With(json config, const std::string& key, json value) {
  config[key] = std::move(value);
  return config;
}

ModelSpec Spec(const json& config) {
  const auto spec = ParseModelSpec(config);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : ModelSpec();
}

std::string Error(const json& config) {
  const auto spec = ParseModelSpec(config);
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << spec.status();
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr("config.json: "));
  return std::string(spec.status().message());
}

TEST(ModelSpecTest, NamesTheTensorsOfFla) {
  const ModelSpec spec = Spec(Fla());
  EXPECT_EQ(spec.architecture, "gla");
  EXPECT_EQ(spec.vocab, 96u);
  EXPECT_EQ(spec.hidden, 64u);
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-6f);
  EXPECT_EQ(spec.embeddings, "model.embeddings.weight");
  EXPECT_EQ(spec.final_norm.weight, "model.norm.weight");
  EXPECT_EQ(spec.lm_head, "lm_head.weight");
  EXPECT_FALSE(spec.tied());
  ASSERT_EQ(spec.layers.size(), 2u);
  EXPECT_EQ(spec.layers[1].mixer_type, "gla");
  EXPECT_EQ(spec.layers[1].mixer_prefix, "model.layers.1.attn.");
  EXPECT_EQ(spec.layers[1].mixer_norm.weight, "model.layers.1.attn_norm.weight");
  EXPECT_EQ(spec.layers[1].mixer_norm.kind, NormSpec::Kind::kRms);
  EXPECT_EQ(spec.layers[1].feed_forward_norm.weight, "model.layers.1.mlp_norm.weight");
  const auto& mlp = std::get<GatedMlpSpec>(spec.layers[1].feed_forward);
  EXPECT_EQ(mlp.gate, "model.layers.1.mlp.gate_proj");
  EXPECT_EQ(mlp.up, "model.layers.1.mlp.up_proj");
  EXPECT_EQ(mlp.down, "model.layers.1.mlp.down_proj");
  EXPECT_FALSE(mlp.bias);
}

TEST(ModelSpecTest, NamesTheTensorsOfMamba2) {
  const ModelSpec spec = Spec(With(Mamba2(), "tie_word_embeddings", true));
  EXPECT_EQ(spec.embeddings, "backbone.embeddings.weight");
  EXPECT_EQ(spec.embeddings_older_name, "backbone.embedding.weight");
  EXPECT_EQ(spec.final_norm.weight, "backbone.norm_f.weight");
  EXPECT_TRUE(spec.tied());
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-5f);
  ASSERT_EQ(spec.layers.size(), 2u);
  EXPECT_EQ(spec.layers[1].mixer_type, "mamba2");
  EXPECT_EQ(spec.layers[1].mixer_prefix, "backbone.layers.1.mixer.");
  EXPECT_EQ(spec.layers[1].mixer_norm.weight, "backbone.layers.1.norm.weight");
  EXPECT_TRUE(spec.layers[1].feed_forward_norm.empty());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(spec.layers[1].feed_forward));
}

TEST(ModelSpecTest, FollowsFlasRuleForTheMlp) {
  const auto intermediate = [](const json& config) {
    return std::get<GatedMlpSpec>(Spec(config).layers[0].feed_forward).intermediate;
  };
  EXPECT_EQ(intermediate(With(Fla(), "intermediate_size", 100)), 100u);
  EXPECT_EQ(intermediate(With(Fla(), "intermediate_size", nullptr)), 256u);  // ⌊64·4·2/3⌋ = 170
  EXPECT_EQ(intermediate(With(With(Fla(), "hidden_size", 2048), "hidden_ratio", 4)), 5632u);
  EXPECT_EQ(intermediate(With(With(Fla(), "hidden_size", 768), "hidden_ratio", 2)), 1024u);
}

TEST(ModelSpecTest, TakesEverySpellingOfEps) {
  for (const char* key : {"norm_eps", "rms_norm_eps", "layer_norm_epsilon"}) {
    EXPECT_FLOAT_EQ(Spec(With(Fla(), key, 1e-3)).norm_eps, 1e-3f);
  }
  EXPECT_THAT(Error(With(Fla(), "norm_eps", 0)), HasSubstr("norm_eps is 0"));
  EXPECT_THAT(Error(With(Fla(), "norm_eps", "small")), HasSubstr("norm_eps is \"small\""));
}

TEST(ModelSpecTest, TakesOneOrManyEndTokens) {
  EXPECT_TRUE(Spec(Fla()).eos_ids.empty());
  EXPECT_EQ(Spec(Fla()).bos_id, -1);
  EXPECT_THAT(Spec(With(Fla(), "eos_token_id", 2)).eos_ids, ElementsAre(2));
  EXPECT_THAT(Spec(With(Fla(), "eos_token_id", {2, 95})).eos_ids, ElementsAre(2, 95));
  EXPECT_EQ(Spec(With(Fla(), "bos_token_id", 1)).bos_id, 1);
  EXPECT_THAT(Error(With(Fla(), "eos_token_id", 96)), HasSubstr("eos_token_id is 96"));
  EXPECT_THAT(Error(With(Fla(), "eos_token_id", {2, "x"})), HasSubstr("eos_token_id is \"x\""));
  EXPECT_THAT(Error(With(Fla(), "bos_token_id", 1000)), HasSubstr("from 0 to 95"));
}

TEST(ModelSpecTest, MergesLayerConfigOverTheTopLevel) {
  json config = With(With(Fla(), "model_type", "hla"), "num_heads", 4);
  config["layer_types"] = {"hla", "mamba2"};
  config["layer_config"] = {nullptr, {{"num_heads", 8}, {"head_dim", 16}, {"state_size", 16}}};
  const ModelSpec spec = Spec(config);
  EXPECT_EQ(spec.layers[0].mixer_type, "hla");
  EXPECT_EQ(spec.layers[1].mixer_type, "mamba2");
  EXPECT_EQ(spec.layers[1].mixer_prefix, "model.layers.1.attn.");
  EXPECT_EQ(std::get<HlaConfig>(spec.layers[0].mixer).shape.heads, 4u);
  const auto& mamba2 = std::get<Mamba2Config>(spec.layers[1].mixer);
  EXPECT_EQ(mamba2.heads, 8u);
  EXPECT_EQ(mamba2.head_dim, 16u);
  EXPECT_EQ(mamba2.state_size, 16u);
}

// fla's hybrids.
TEST(ModelSpecTest, MakesTheLayersOfAttnSoftmaxAttention) {
  const json attn = {{"layers", {1}}, {"num_heads", 4}, {"num_kv_heads", 2}, {"window_size", 9}};
  const ModelSpec spec = Spec(With(With(Fla(), "num_heads", 8), "attn", attn));
  EXPECT_EQ(spec.layers[0].mixer_type, "gla");
  EXPECT_EQ(std::get<GlaConfig>(spec.layers[0].mixer).heads, 8u);
  EXPECT_EQ(spec.layers[1].mixer_type, "softmax_attention");
  EXPECT_EQ(spec.layers[1].mixer_prefix, "model.layers.1.attn.");
  const auto& attention = std::get<SoftmaxAttentionConfig>(spec.layers[1].mixer);
  EXPECT_EQ(attention.heads, 4u);
  EXPECT_EQ(attention.window, 9u);
  EXPECT_EQ(Spec(With(Fla(), "model_type", "transformer")).layers[1].mixer_type,
            "softmax_attention");
}

TEST(ModelSpecTest, NamesWhatIsWrongInAttn) {
  const auto error = [](const json& attn) { return Error(With(Fla(), "attn", attn)); };
  EXPECT_THAT(error(7), AllOf(HasSubstr("attn is 7"), HasSubstr("it must be an object")));
  EXPECT_THAT(error({{"num_heads", 4}}), HasSubstr("layers is missing"));
  EXPECT_THAT(error({{"layers", {0, 2}}, {"num_heads", 4}}),
              AllOf(HasSubstr("layers is [0,2]"), HasSubstr("from 0 to 1")));
  EXPECT_THAT(error({{"layers", {0.5}}, {"num_heads", 4}}), HasSubstr("layers is [0.5]"));
  EXPECT_THAT(error({{"layers", {0}}, {"num_heads", 5}}),
              AllOf(HasSubstr("num_heads is 5"), HasSubstr("hidden_size 64")));
  json config = With(Fla(), "attn", {{"layers", {0}}, {"num_heads", 4}});
  config["layer_types"] = {"gla", "gla"};
  EXPECT_THAT(Error(config), HasSubstr("layer_types says which mixer"));
}

TEST(ModelSpecTest, RefusesMixturesThatMakeNoSense) {
  EXPECT_THAT(Error(With(Fla(), "layer_types", {"gla"})),
              AllOf(HasSubstr("layer_types has 1 entries"), HasSubstr("num_hidden_layers is 2")));
  EXPECT_THAT(Error(With(Fla(), "layer_types", "gla")), HasSubstr("it must be a list"));
  EXPECT_THAT(Error(With(Fla(), "layer_types", {"gla", 3})), HasSubstr("entry 1 must be a string"));
  EXPECT_THAT(Error(With(Fla(), "layer_types", {"gla", "rwkv"})),
              AllOf(HasSubstr("entry 1"), HasSubstr("rwkv"), HasSubstr("gla"), HasSubstr("hla"),
                    HasSubstr("linear_attn"), HasSubstr("mamba2")));
  EXPECT_THAT(Error(With(Fla(), "layer_config", {json::object()})),
              HasSubstr("layer_config has 1 entries"));
  EXPECT_THAT(Error(With(Fla(), "layer_config", {json::object(), 7})),
              HasSubstr("layer_config: entry 1 must be an object"));
  EXPECT_THAT(Error(With(Fla(), "layer_config", {{{"hidden_size", 32}}, json::object()})),
              HasSubstr("entry 0 sets hidden_size"));
}

TEST(ModelSpecTest, NamesTheLayerWhoseMixerIsWrong) {
  json config = With(Fla(), "layer_config", {json::object(), {{"feature_map", "sine"}}});
  EXPECT_THAT(Error(config), AllOf(HasSubstr("mixer gla at model.layers.1.attn."),
                                   HasSubstr("feature_map is \"sine\"")));
}

TEST(ModelSpecTest, RefusesWhatIsNotServed) {
  EXPECT_THAT(Error(With(Fla(), "model_type", "gpt2")),
              AllOf(HasSubstr("\"gpt2\""), HasSubstr("gla, "), HasSubstr("hla, "),
                    HasSubstr("linear_attn, "), HasSubstr("mamba2")));
  EXPECT_THAT(Error(json::object()), HasSubstr("model_type is missing"));
  EXPECT_THAT(Error(With(Fla(), "attn", {{"layers", {0}}})),
              HasSubstr("num_heads is missing: attn needs its own"));
  EXPECT_THAT(Error(With(Fla(), "attnres_block_size", 4)), HasSubstr("attention residuals"));
  EXPECT_THAT(Error(With(Fla(), "hidden_act", "gelu")), HasSubstr("hidden_act is \"gelu\""));
  EXPECT_TRUE(ParseModelSpec(With(Fla(), "attn", nullptr)).ok());
}

TEST(ModelSpecTest, RefusesWrongTypesAndSizes) {
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers"}) {
    for (const json& wrong : {json(0), json(-1), json(1.5), json("64"), json(true), json(nullptr),
                              json(1e12), json::array(), json::object()}) {
      EXPECT_THAT(Error(With(Fla(), key, wrong)), HasSubstr(absl::StrCat(key, " is ")));
      EXPECT_THAT(Error(With(Mamba2(), key, wrong)), HasSubstr(absl::StrCat(key, " is ")));
    }
  }
  EXPECT_THAT(Error(With(Fla(), "tie_word_embeddings", "no")), HasSubstr("true or false"));
  EXPECT_THAT(Error(With(Fla(), "num_hidden_layers", 1025)), HasSubstr("from 1 to 1024"));
  EXPECT_THAT(Error(With(Fla(), "hidden_ratio", -1)), HasSubstr("hidden_ratio is -1"));
}

// Any JSON value at any key: a spec or a status, never an exception.
TEST(ModelSpecTest, SurvivesAnyValueAtAnyKey) {
  const json values = json::parse(
      R"([null, true, 0, -3, 1.5, 1e300, "", "hla", [], [1, "x", null], {}, {"a": {"b": 1}}, [[[]]]])");
  std::mt19937 random(TestSeed());
  const std::vector<std::string> keys = {
      "model_type", "vocab_size",   "hidden_size",        "num_hidden_layers", "intermediate_size",
      "norm_eps",   "eos_token_id", "layer_types",        "layer_config",      "hidden_ratio",
      "attn",       "hidden_act",   "tie_word_embeddings"};
  for (int i = 0; i < 5000; ++i) {
    json config = random() % 2 == 0 ? Fla() : Mamba2();
    for (unsigned changes = 1 + random() % 3; changes-- > 0;) {
      config[keys[random() % keys.size()]] = values[random() % values.size()];
    }
    const auto spec = ParseModelSpec(config);
    if (!spec.ok()) {
      EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << config;
    }
  }
}

}  // namespace
}  // namespace rivulet
