// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The prefix cache, drafts, forks, rewinds and several completions together, over every kind of
// state: each answer is that of a plain run, and nothing is left behind. Over the test models and
// two checkpoints.
//
// RIVULET_REUSE_SOAK=20000 makes that many calls of each model; without it, there are few.
// RIVULET_MODELS=models runs over the checkpoints in that folder instead of these two.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "model_loader/loaded_model.h"
#include "nlohmann/json.hpp"
#include "server/engine/checkpoint_folders.h"
#include "server/engine/random_model.h"
#include "server/engine/test_models.h"
#include "server/log/log.h"
#include "server/scheduler/oracle_drafter.h"
#include "server/scheduler/reuse_schedule_fixture.h"
#include "server/scheduler/stack_fixture.h"

namespace rivulet {
namespace {

constexpr uint32_t kMostIds = 101;  // in prompts: all of the test models
constexpr uint64_t kMuch = uint64_t{1} << 30;
constexpr uint64_t kFewCalls = 120;

struct SoakParam {
  TestModel model;
  bool much_memory;
  std::string checkpoint = {};  // instead of the model: its folder
};

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadSoaked(const SoakParam& param,
                                                              LoadOptions options) {
  if (param.checkpoint.empty()) {
    return MakeRandomModel(nlohmann::json::parse(param.model.config), 1, options);
  }
  options.predictor = options.predictor && param.checkpoint.ends_with("_predictor");
  return LoadModel(param.checkpoint, options);
}

class ReuseSoakTest : public testing::TestWithParam<SoakParam> {
 protected:
  void SetUp() override { SetLogLevel("error"); }
  void TearDown() override { SetLogLevel("info"); }
};

TEST_P(ReuseSoakTest, EveryAnswerIsThatOfAPlainRun) {
  const char* const wanted = std::getenv("RIVULET_REUSE_SOAK");
  const uint64_t calls = wanted == nullptr ? kFewCalls : std::strtoull(wanted, nullptr, 10);
  std::mt19937_64 random(TestSeed());
  const LoadOptions options = random() % 2 == 0 ? WithHead() : LoadOptions();
  const auto loaded = LoadSoaked(GetParam(), options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::shared_ptr<const LoadedModel> model = *loaded;
  Stack plain(model, 1, 1, random());
  const uint32_t vocab = std::min(plain.engine().vocab_size(), kMostIds);
  OracleSource oracle(model, vocab, random());
  const uint64_t session = kMuch / plain.states().capacity().tail_slots;
  const uint64_t memory = GetParam().much_memory ? kMuch : 12 * session;
  Stack stack(model, 2, 1 + random() % 2, random(), 4, memory, oracle.Options(), memory,
              AnyBorders(random));
  oracle.Bind(stack.engine());
  ReuseSchedule schedule(stack, plain, vocab, random());
  while (schedule.calls() < calls) {
    schedule.Round();
    ASSERT_FALSE(HasFatalFailure()) << "after " << schedule.calls() << " calls";
  }
  std::printf("%s\n", schedule.Report().c_str());
  // With little memory, sessions may need all of it. Long runs fill much memory too.
  if (GetParam().much_memory) {
    EXPECT_GT(stack.metrics().prefix_hits.value(), std::min(calls, kFewCalls) / 10);
  }
  schedule.CheckNothingIsLeft();
}

std::vector<SoakParam> AllParams() {
  std::vector<SoakParam> params;
  for (const TestModel& model : AllTestModels()) {
    for (const bool much : {true, false}) params.push_back({model, much});
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Models, ReuseSoakTest, testing::ValuesIn(AllParams()),
                         [](const auto& info) {
                           return info.param.model.name +
                                  (info.param.much_memory ? "" : "LittleMemory");
                         });

std::vector<SoakParam> CheckpointParams() {
  std::vector<std::string> folders = {"tests/parity/fixtures/softmax_window_hybrid",
                                      "tests/parity/fixtures/upstream_hf_qwen3_5_predictor"};
  if (std::getenv("RIVULET_MODELS") != nullptr) folders = CheckpointFolders("");
  std::vector<SoakParam> params;
  for (const std::string& folder : folders) {
    for (const bool much : {true, false}) params.push_back({{}, much, folder});
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ReuseSoakTest, testing::ValuesIn(CheckpointParams()),
                         [](const auto& info) {
                           std::string name =
                               std::filesystem::path(info.param.checkpoint).filename();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (info.param.much_memory ? "" : "LittleMemory");
                         });

}  // namespace
}  // namespace rivulet
