// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/loaded_model.h"

#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ops/gated_mlp/gated_mlp.h"
#include "model_loader/checkpoint_reader.h"
#include "model_loader/testing.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A one-layer linear attention model as small as can be, to be spoilt and loaded.
class LoadModelTest : public testing::Test {
 protected:
  LoadModelTest() {
    options_.threads = 3;
    const auto add = [&](const std::string& name, std::vector<size_t> shape) {
      tensors_.push_back(FloatTensor(name, shape));
    };
    add("model.embeddings.weight", {10, 8});
    add("model.layers.0.attn_norm.weight", {8});
    for (const char* name : {"q", "k", "v", "o"}) {
      add(absl::StrCat("model.layers.0.attn.", name, "_proj.weight"), {8, 8});
    }
    add("model.layers.0.attn.norm.weight", {4});
    add("model.layers.0.mlp_norm.weight", {8});
    add("model.layers.0.mlp.gate_proj.weight", {6, 8});
    add("model.layers.0.mlp.up_proj.weight", {6, 8});
    add("model.layers.0.mlp.down_proj.weight", {8, 6});
    add("model.norm.weight", {8});
    add("lm_head.weight", {10, 8});
  }

  TestTensor& Tensor(const std::string& name) {
    for (TestTensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return tensors_[0];
  }
  void Remove(const std::string& name) {
    std::erase_if(tensors_, [&](const TestTensor& tensor) { return tensor.name == name; });
  }
  void SetNumber(const std::string& name, size_t index, float value) {
    std::memcpy(Tensor(name).bytes.data() + 4 * index, &value, 4);
  }

  absl::StatusOr<std::unique_ptr<LoadedModel>> Load() {
    WriteTestFile(directory_ + "/config.json", config_.dump());
    WriteTestFile(directory_ + "/model.safetensors", MakeSafetensors(tensors_));
    return LoadModel(directory_, options_);
  }
  std::unique_ptr<LoadedModel> Loaded() {
    auto model = Load();
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : std::make_unique<LoadedModel>();
  }
  std::string Error() {
    const auto model = Load();
    EXPECT_FALSE(model.ok());
    return model.status().ToString();
  }

  static const GatedMlp& MlpOf(const LoadedModel& model) {
    return dynamic_cast<const GatedMlp&>(*model.layers.at(0).feed_forward);
  }

  const std::string directory_ = TestDirectory();
  json config_ = {{"model_type", "linear_attn"}, {"vocab_size", 10}, {"hidden_size", 8},
                  {"num_hidden_layers", 1},      {"num_heads", 2},   {"intermediate_size", 6},
                  {"feature_map", "elu"},        {"eos_token_id", 2}};
  std::vector<TestTensor> tensors_;
  LoadOptions options_;
};

TEST_F(LoadModelTest, LoadsEverything) {
  std::vector<std::pair<double, std::string>> steps;
  options_.progress = [&](double share, const std::string& what) {
    steps.push_back({share, what});
  };
  const auto model = Loaded();
  EXPECT_THAT(directory_, testing::EndsWith(model->name));
  EXPECT_EQ(model->parameters, 80u + 8 + 4 * 64 + 4 + 8 + 3 * 48 + 8 + 80);
  EXPECT_EQ(model->weight_dtype, DType::kFloat32);
  ASSERT_EQ(model->layers.size(), 1u);
  EXPECT_EQ(model->layers[0].mixer_type, "linear_attn");
  EXPECT_EQ(model->layers[0].mixer_norm.hidden(), 8u);
  EXPECT_EQ(model->layers[0].feed_forward_norm.hidden(), 8u);
  EXPECT_EQ(MlpOf(*model).gate_up().outputs(), 12u);
  EXPECT_EQ(model->lm_head.outputs(), 10u);
  EXPECT_EQ(model->embeddings.vocab, 10u);
  EXPECT_EQ(model->tokenizer, nullptr);
  EXPECT_EQ(model->chat_template, nullptr);
  ASSERT_GE(steps.size(), 3u);
  EXPECT_EQ(steps.front().first, 0);
  EXPECT_EQ(steps.back(), (std::pair<double, std::string>(1.0, "ready")));
  EXPECT_EQ(steps[1].second, "layer 1 of 1");
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end(),
                             [](const auto& a, const auto& b) { return a.first < b.first; }));
}

TEST_F(LoadModelTest, NamesEveryProblemWithATensor) {
  Remove("model.layers.0.attn.q_proj.weight");
  Tensor("model.layers.0.mlp.down_proj.weight").shape = {6, 8};
  tensors_.push_back(FloatTensor("model.layers.1.attn.q_proj.weight", {8, 8}));
  Tensor("model.norm.weight").dtype = "I32";
  EXPECT_THAT(
      Error(),
      AllOf(HasSubstr("INVALID_ARGUMENT"),
            HasSubstr("model.layers.0.attn.q_proj.weight is missing, expected [8, 8]"),
            HasSubstr("mlp.down_proj.weight has shape [6, 8], expected [8, 6]"),
            HasSubstr("model.norm.weight has dtype I32, expected F32, F16 or BF16"),
            HasSubstr("model.layers.1.attn.q_proj.weight is extra"), HasSubstr("F32 [8, 8]")));
}

TEST_F(LoadModelTest, RefusesNumbersThatAreNone) {
  SetNumber("model.layers.0.attn.v_proj.weight", 13, NAN);
  SetNumber("model.norm.weight", 7, -INFINITY);
  SetNumber("lm_head.weight", 79, NAN);
  EXPECT_THAT(Error(), AllOf(HasSubstr("attn.v_proj.weight is NaN at [1, 5]"),
                             HasSubstr("model.norm.weight is infinite at [7]"),
                             HasSubstr("lm_head.weight is NaN at [9, 7]")));
}

TEST_F(LoadModelTest, FindsNaNInEveryFormat) {
  for (const auto& [dtype, bits] :
       {std::pair("BF16", uint16_t{0x7fc0}), {"F16", uint16_t{0xfe00}}}) {
    TestTensor& tensor = Tensor("model.norm.weight");
    tensor.dtype = dtype;
    tensor.bytes = std::string(16, '\0');
    EXPECT_TRUE(Load().ok());
    std::memcpy(tensor.bytes.data() + 6, &bits, 2);
    EXPECT_THAT(Error(), HasSubstr("model.norm.weight is NaN at [3]"));
  }
}

TEST_F(LoadModelTest, ListsTwentyProblemsAndCountsTheRest) {
  for (int i = 0; i < 30; ++i) tensors_.push_back(FloatTensor(absl::StrCat("extra.", i), {1}));
  EXPECT_THAT(Error(), AllOf(HasSubstr("extra.25 is extra"), Not(HasSubstr("extra.9 is")),
                             HasSubstr("; and 10 more")));
}

TEST_F(LoadModelTest, IgnoresKnownLeftovers) {
  tensors_.push_back(FloatTensor("model.layers.0.attn.rotary.inv_freq", {4}));
  tensors_.push_back(FloatTensor("model.layers.0.attn.D", {2}));
  EXPECT_TRUE(Load().ok());
}

TEST_F(LoadModelTest, IgnoresWhatTheFormatNames) {
  tensors_ = {FloatTensor("mtp.fc.weight", {2, 2}), FloatTensor("mtp_norm.weight", {2})};
  WriteTestFile(directory_ + "/model.safetensors", MakeSafetensors(tensors_));
  const auto files = SafetensorsCheckpoint::Open(directory_);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto problems = [&](const std::vector<std::string>& ignored) {
    return CheckpointReader(**files).Finish(ignored).ToString();
  };
  EXPECT_THAT(problems({}), AllOf(HasSubstr("mtp.fc.weight is extra"), HasSubstr("mtp_norm")));
  EXPECT_THAT(problems({"mtp."}),
              AllOf(Not(HasSubstr("mtp.fc")), HasSubstr("mtp_norm.weight is extra")));
  EXPECT_EQ(problems({"mtp.", "mtp_"}), "OK");
}

TEST_F(LoadModelTest, TiesTheOutputMapToTheEmbeddings) {
  config_["tie_word_embeddings"] = true;
  const auto with_head = Loaded();
  Remove("lm_head.weight");
  const auto tied = Loaded();
  EXPECT_EQ(tied->parameters, 80u + 8 + 4 * 64 + 4 + 8 + 3 * 48 + 8);
  EXPECT_EQ(with_head->parameters, tied->parameters);
  EXPECT_EQ(tied->lm_head.outputs(), 10u);
  tensors_.push_back(FloatTensor("lm_head.weight", {9, 8}));
  EXPECT_THAT(Error(), HasSubstr("lm_head.weight is extra"));
}

// Only where the output map holds the same numbers.
TEST_F(LoadModelTest, HoldsTiedEmbeddingsOnce) {
  EXPECT_FALSE(Loaded()->embeddings.in_panels);
  config_["tie_word_embeddings"] = true;
  SetNumber("model.embeddings.weight", 3 * 8 + 5, 1.001f);
  const auto once = Loaded();
  EXPECT_TRUE(once->embeddings.in_panels);
  EXPECT_EQ(once->embeddings.data, once->lm_head.packed().panels.data());
  EXPECT_EQ(once->embedding_rows, nullptr);
  options_.weight_dtype = DType::kBFloat16;  // rounds the output map, not the embeddings
  const auto rounded = Loaded();
  EXPECT_FALSE(rounded->embeddings.in_panels);
  const std::vector<uint32_t> ids = {3};
  for (const LoadedModel* model : {once.get(), rounded.get()}) {
    float x[8];
    Embed(model->embeddings, ids, {x, 1, 8, 8});
    EXPECT_EQ(x[4], 0.25f);
    EXPECT_EQ(x[5], 1.001f);
  }
}

TEST_F(LoadModelTest, SaysHowToTieWhenTheOutputMapIsMissing) {
  Remove("lm_head.weight");
  EXPECT_THAT(Error(), AllOf(HasSubstr("lm_head.weight is missing, expected [10, 8]"),
                             HasSubstr("tie_word_embeddings")));
}

TEST_F(LoadModelTest, TakesTheOldFusedGate) {
  Remove("model.layers.0.mlp.up_proj.weight");
  EXPECT_THAT(Error(), HasSubstr("up_proj.weight is missing"));
  Tensor("model.layers.0.mlp.gate_proj.weight") =
      FloatTensor("model.layers.0.mlp.gate_proj.weight", {12, 8});
  EXPECT_EQ(MlpOf(*Loaded()).gate_up().outputs(), 12u);
}

TEST_F(LoadModelTest, KeepsOrChangesTheTypeOfWeights) {
  options_.weight_dtype = DType::kBFloat16;
  EXPECT_EQ(Loaded()->weight_dtype, DType::kBFloat16);
  options_.weight_dtype.reset();
  for (TestTensor& tensor : tensors_) {
    tensor.dtype = "BF16";
    tensor.bytes.resize(tensor.bytes.size() / 2);
  }
  EXPECT_EQ(Loaded()->weight_dtype, DType::kBFloat16);
  Tensor("model.layers.0.attn.o_proj.weight").dtype = "F16";
  EXPECT_EQ(Loaded()->weight_dtype, DType::kFloat32);  // no longer bf16 throughout
  options_.weight_dtype = DType::kFloat32;
  EXPECT_EQ(Loaded()->weight_dtype, DType::kFloat32);
}

TEST_F(LoadModelTest, SurvivesSizesThatDoNotFitMemory) {
  config_["intermediate_size"] = 1 << 20;
  EXPECT_THAT(Error(), HasSubstr("gate_proj.weight has shape [6, 8], expected [1048576, 8]"));
  config_["num_hidden_layers"] = 1024;
  EXPECT_THAT(Error(), HasSubstr("expected [1048576, 8]"));
  config_["hidden_size"] = 1 << 20;
  config_["num_heads"] = 1 << 12;
  EXPECT_THAT(Error(), HasSubstr("embeddings.weight has shape [10, 8], expected [10, 1048576]"));
}

TEST_F(LoadModelTest, SaysWhatADirectoryLacks) {
  const auto error = [&](const std::string& path) {
    return LoadModel(path, {}).status().ToString();
  };
  EXPECT_THAT(error(directory_ + "/none"),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("does not exist")));
  EXPECT_THAT(error(""), HasSubstr("NOT_FOUND"));
  EXPECT_THAT(error(directory_), AllOf(HasSubstr("NOT_FOUND"), HasSubstr("config.json")));
  WriteTestFile(directory_ + "/config.json", config_.dump());
  EXPECT_THAT(error(directory_), AllOf(HasSubstr("NOT_FOUND"), HasSubstr("no weights")));
  EXPECT_THAT(error(directory_ + "/config.json"), HasSubstr("is not a directory"));
  WriteTestFile(directory_ + "/config.json", "{\"model_type\": ");
  EXPECT_THAT(error(directory_), AllOf(HasSubstr("config.json"), HasSubstr("line 1")));
}

TEST_F(LoadModelTest, NamesTheLayerWhoseConfigIsWrong) {
  config_["feature_map"] = "sine";
  EXPECT_THAT(Error(),
              AllOf(HasSubstr("model.layers.0.attn."), HasSubstr("feature_map is \"sine\"")));
}

TEST_F(LoadModelTest, ReplacesKeysOfTheConfig) {
  options_.config_override = R"({"feature_map": "relu", "eos_token_id": [3, 4]})";
  const auto model = Loaded();
  EXPECT_EQ(model->spec.eos_ids, (std::vector<uint32_t>{3, 4}));
  const auto& mixer = std::get<LinearAttentionConfig>(model->spec.layers.at(0).mixer);
  EXPECT_EQ(mixer.feature_map.kind, FeatureMapKind::kRelu);
  EXPECT_THAT(model->added_keys, IsEmpty());
  options_.config_override = R"({"feature_mop": "relu", "eos_token_id": 3})";
  EXPECT_THAT(Loaded()->added_keys, ElementsAre("feature_mop"));
  options_.config_override = R"({"vocab_size": 11})";
  EXPECT_THAT(Error(), HasSubstr("expected [11, 8]"));
  for (const char* text : {"7", "{", "norm_groups=1"}) {
    options_.config_override = text;
    EXPECT_THAT(Error(), HasSubstr("config override")) << text;
  }
}

TEST_F(LoadModelTest, ReadsGenerationDefaults) {
  WriteTestFile(directory_ + "/generation_config.json",
                R"({"temperature": 0.7, "top_p": 0.9, "top_k": 40, "max_new_tokens": 99,
                    "repetition_penalty": null, "eos_token_id": [2, 5]})");
  const auto model = Loaded();
  EXPECT_FLOAT_EQ(*model->defaults.temperature, 0.7f);
  EXPECT_FLOAT_EQ(*model->defaults.top_p, 0.9f);
  EXPECT_EQ(*model->defaults.top_k, 40u);
  EXPECT_EQ(*model->defaults.max_tokens, 99u);
  EXPECT_FALSE(model->defaults.min_p.has_value());
  EXPECT_FALSE(model->defaults.repetition_penalty.has_value());
  EXPECT_EQ(model->spec.eos_ids, (std::vector<uint32_t>{2, 5}));
}

TEST_F(LoadModelTest, RefusesWrongGenerationDefaults) {
  const auto error = [&](const std::string& text) {
    WriteTestFile(directory_ + "/generation_config.json", text);
    return Error();
  };
  EXPECT_THAT(error(R"({"temperature": "hot"})"),
              AllOf(HasSubstr("generation_config.json"), HasSubstr("temperature is \"hot\"")));
  EXPECT_THAT(error(R"({"temperature": -1})"), HasSubstr("at least 0"));
  EXPECT_THAT(error(R"({"top_p": 0})"), HasSubstr("greater than 0"));
  EXPECT_THAT(error(R"({"top_p": 1e-320})"), HasSubstr("greater than 0"));
  EXPECT_THAT(error(R"({"min_p": 1})"), HasSubstr("min_p is 1"));
  EXPECT_THAT(error(R"({"top_k": 1.5})"), HasSubstr("top_k is 1.5"));
  EXPECT_THAT(error(R"({"eos_token_id": 10})"), HasSubstr("from 0 to 9"));
  EXPECT_THAT(error("[]"), HasSubstr("not contain a JSON object"));
}

TEST_F(LoadModelTest, FindsAChatTemplate) {
  WriteTestFile(directory_ + "/tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(Loaded()->chat_template, nullptr);
  WriteTestFile(directory_ + "/tokenizer_config.json", R"({"chat_template": "{{ x }}"})");
  EXPECT_NE(Loaded()->chat_template, nullptr);
  WriteTestFile(directory_ + "/tokenizer_config.json", "{}");
  WriteTestFile(directory_ + "/chat_template.jinja", "{{ x }}");
  EXPECT_NE(Loaded()->chat_template, nullptr);
}

TEST_F(LoadModelTest, RefusesATokenizerOfAnotherModel) {
  TrainTestTokenizer(directory_, "--byte_fallback");
  EXPECT_THAT(Error(), AllOf(HasSubstr("the tokenizer of"), HasSubstr("vocab_size is 10")));
  WriteTestFile(directory_ + "/tokenizer.model", "damaged");
  EXPECT_THAT(Error(), HasSubstr("tokenizer.model"));
}

// Flipped and lost bytes of the weights: a model or a status.
TEST_F(LoadModelTest, SurvivesRandomDamage) {
  std::mt19937 random(TestSeed());
  const std::string file = MakeSafetensors(tensors_);
  WriteTestFile(directory_ + "/config.json", config_.dump());
  for (int i = 0; i < 300; ++i) {
    std::string damaged = file;
    for (unsigned flips = random() % 4; flips-- > 0;) {
      damaged[random() % 1400] ^= static_cast<char>(1 << random() % 8);
    }
    if (random() % 8 == 0) damaged.resize(random() % damaged.size());
    WriteTestFile(directory_ + "/model.safetensors", damaged);
    const auto model = LoadModel(directory_, {});
    EXPECT_TRUE(model.ok() || !model.status().message().empty());
  }
}

}  // namespace
}  // namespace rivulet
