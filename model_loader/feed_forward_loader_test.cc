// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/checkpoint_reader.h"
#include "model_loader/loaded_model.h"
#include "model_loader/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr size_t kHidden = 8, kWidth = 6, kExperts = 3, kTokens = 5;

class FeedForwardLoaderTest : public testing::Test {
 protected:
  // Numbers that differ between tensors and places.
  std::vector<float> Numbers(const std::string& name, size_t count) {
    std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(name)));
    std::vector<float> numbers(count);
    for (float& number : numbers) number = static_cast<float>(random() % 201) / 100 - 1;
    return numbers;
  }
  void Add(const std::string& name, const std::vector<size_t>& shape) {
    AddNumbers(name, shape, Numbers(name, Elements(shape)));
  }
  void AddNumbers(const std::string& name, const std::vector<size_t>& shape,
                  const std::vector<float>& numbers) {
    std::string bytes(numbers.size() * 4, '\0');
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    tensors_.push_back({name, "F32", shape, bytes});
  }

  void AddRouter() {
    Add("router.weight", {kExperts, kHidden});
    Add("shared_gate.weight", {1, kHidden});
    Add("shared.gate.weight", {4, kHidden});
    Add("shared.up.weight", {4, kHidden});
    Add("shared.down.weight", {kHidden, 4});
  }
  void AddExpertsOneByOne() {
    for (size_t e = 0; e < kExperts; ++e) {
      Add(absl::StrCat("expert.", e, ".gate_proj.weight"), {kWidth, kHidden});
      Add(absl::StrCat("expert.", e, ".up_proj.weight"), {kWidth, kHidden});
      Add(absl::StrCat("expert.", e, ".down_proj.weight"), {kHidden, kWidth});
    }
  }
  // The same numbers.
  void AddExpertsInOne() {
    std::vector<float> gate_up, down;
    const auto append = [&](std::vector<float>& to, const std::string& name) {
      const std::vector<float> numbers = Numbers(name, kWidth * kHidden);
      to.insert(to.end(), numbers.begin(), numbers.end());
    };
    for (size_t e = 0; e < kExperts; ++e) {
      append(gate_up, absl::StrCat("expert.", e, ".gate_proj.weight"));
      append(gate_up, absl::StrCat("expert.", e, ".up_proj.weight"));
      append(down, absl::StrCat("expert.", e, ".down_proj.weight"));
    }
    AddNumbers("newer.gate_up", {kExperts, 2 * kWidth, kHidden}, gate_up);
    AddNumbers("newer.down", {kExperts, kHidden, kWidth}, down);
  }
  static MixtureOfExpertsSpec Experts() {
    MixtureOfExpertsSpec spec;
    spec.choice.experts = kExperts;
    spec.choice.experts_per_token = 2;
    spec.intermediate = kWidth;
    spec.router = {"older_router", "router"};
    spec.gate_up = {"older.gate_up", "newer.gate_up"};
    spec.down = {"older.down", "newer.down"};
    spec.expert_list = "expert.";
    spec.shared = GatedMlpSpec{4, "shared.gate", "shared.up", "shared.down"};
    spec.shared_gate = "shared_gate";
    return spec;
  }

  // What the block computes for some x; the reader's problems where it has any.
  absl::StatusOr<std::vector<float>> Run(const FeedForwardSpec& spec) {
    const std::string directory = TestDirectory();
    WriteTestFile(directory + "/model.safetensors", MakeSafetensors(tensors_));
    const auto files = SafetensorsCheckpoint::Open(directory);
    EXPECT_TRUE(files.ok()) << files.status();
    CheckpointReader reader(**files);
    WeightPacker packer(std::nullopt);
    ParameterSource parameters(reader, packer);
    const auto block = TakeFeedForward(spec, kHidden, {}, parameters);
    if (const absl::Status status = reader.Finish(); !status.ok()) return status;
    parameters_ = reader.parameters();
    const std::vector<float> x = Numbers("x", kTokens * kHidden);
    std::vector<float> y(x.size());
    ThreadPool pool(1);
    Workspace workspace;
    block->Apply({{}, {}, &workspace, &pool}, {x.data(), kTokens, kHidden, kHidden},
                 {y.data(), kTokens, kHidden, kHidden});
    return y;
  }
  std::string Error(const FeedForwardSpec& spec) {
    const auto result = Run(spec);
    EXPECT_FALSE(result.ok());
    return std::string(result.status().message());
  }

  std::vector<TestTensor> tensors_;
  uint64_t parameters_ = 0;
};

TEST_F(FeedForwardLoaderTest, ExpertsOneByOneAndInOneTensorAreTheSame) {
  AddRouter();
  const std::vector<TestTensor> router = tensors_;
  AddExpertsOneByOne();
  const auto one_by_one = Run(Experts());
  ASSERT_TRUE(one_by_one.ok()) << one_by_one.status();
  const uint64_t parameters = parameters_;
  tensors_ = router;
  AddExpertsInOne();
  const auto in_one = Run(Experts());
  ASSERT_TRUE(in_one.ok()) << in_one.status();
  EXPECT_EQ(*one_by_one, *in_one);
  EXPECT_EQ(parameters, kExperts * 3 * kWidth * kHidden + (kExperts + 1 + 3 * 4) * kHidden);
  EXPECT_EQ(parameters_, parameters);
}

TEST_F(FeedForwardLoaderTest, NamesWhatAMixtureLacks) {
  AddRouter();
  EXPECT_THAT(Error(Experts()), HasSubstr("expert.0.gate_proj.weight is missing, expected [6, 8]"));
  MixtureOfExpertsSpec stacked_only = Experts();
  stacked_only.expert_list.clear();
  EXPECT_THAT(Error(stacked_only), AllOf(HasSubstr("older.gate_up is missing, expected [3, 12, 8]"),
                                         HasSubstr("older.down is missing, expected [3, 8, 6]"),
                                         Not(HasSubstr("expert.0"))));
  AddExpertsInOne();
  MixtureOfExpertsSpec more = Experts();
  more.choice.experts = 4;
  EXPECT_THAT(Error(more),
              AllOf(HasSubstr("router.weight has shape [3, 8], expected [4, 8]"),
                    HasSubstr("newer.gate_up has shape [3, 12, 8], expected [4, 12, 8]")));
}

TEST_F(FeedForwardLoaderTest, NamesANumberThatIsNoneOnce) {
  AddRouter();
  AddExpertsInOne();
  const float nan = std::nanf("");
  std::memcpy(tensors_.back().bytes.data() + 4 * (kWidth * kHidden + 1), &nan, 4);
  const std::string error = Error(Experts());
  EXPECT_THAT(error, HasSubstr("newer.down is NaN at [1, 0, 1]"));
  EXPECT_EQ(error.find("newer.down", error.find("newer.down") + 1), std::string::npos) << error;
}

TEST_F(FeedForwardLoaderTest, GateAndUpMayBeOneMapAndMayHaveBiases) {
  const std::vector<float> gate = Numbers("gate", kWidth * kHidden);
  const std::vector<float> up = Numbers("up", kWidth * kHidden);
  std::vector<float> both = gate;
  both.insert(both.end(), up.begin(), up.end());
  AddNumbers("mlp.both.weight", {2 * kWidth, kHidden}, both);
  Add("mlp.down.weight", {kHidden, kWidth});
  const auto fused = Run(GatedMlpSpec{kWidth, "mlp.both", "", "mlp.down"});
  ASSERT_TRUE(fused.ok()) << fused.status();
  tensors_.erase(tensors_.begin());
  AddNumbers("mlp.gate.weight", {kWidth, kHidden}, gate);
  AddNumbers("mlp.up.weight", {kWidth, kHidden}, up);
  const GatedMlpSpec split{kWidth, "mlp.gate", "mlp.up", "mlp.down", true};
  EXPECT_THAT(Error(split), HasSubstr("mlp.up.bias is missing, expected [6]"));
  AddNumbers("mlp.gate.bias", {kWidth}, std::vector<float>(kWidth));
  AddNumbers("mlp.up.bias", {kWidth}, std::vector<float>(kWidth));
  AddNumbers("mlp.down.bias", {kHidden}, std::vector<float>(kHidden, 1));
  const auto biased = Run(split);
  ASSERT_TRUE(biased.ok()) << biased.status();
  for (size_t i = 0; i < fused->size(); ++i) EXPECT_EQ((*biased)[i], (*fused)[i] + 1);
}

TEST_F(FeedForwardLoaderTest, TwoLayersHaveBiases) {
  const TwoLayerMlpSpec spec{kWidth, "mlp.fc1", "mlp.fc2"};
  Add("mlp.fc1.weight", {kWidth, kHidden});
  Add("mlp.fc2.weight", {kHidden, kWidth});
  EXPECT_THAT(Error(spec), AllOf(HasSubstr("mlp.fc1.bias is missing, expected [6]"),
                                 HasSubstr("mlp.fc2.bias is missing, expected [8]")));
  Add("mlp.fc1.bias", {kWidth});
  Add("mlp.fc2.bias", {kHidden});
  EXPECT_TRUE(Run(spec).ok());
}

}  // namespace
}  // namespace rivulet
