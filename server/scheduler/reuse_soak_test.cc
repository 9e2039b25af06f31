// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The prefix cache, drafts, forks, rewinds and several completions together, over every kind of
// state: each answer is that of a plain run, and nothing is left behind.
//
// RIVULET_REUSE_SOAK=20000 makes that many calls of each model; without it, there are few.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "nlohmann/json.hpp"
#include "server/engine/random_model.h"
#include "server/engine/test_models.h"
#include "server/log/log.h"
#include "server/scheduler/oracle_drafter.h"
#include "server/scheduler/reuse_schedule_fixture.h"
#include "server/scheduler/stack_fixture.h"

namespace rivulet {
namespace {

constexpr uint32_t kVocab = 101;  // of the test models
constexpr uint64_t kMuch = uint64_t{1} << 30;

struct SoakParam {
  TestModel model;
  bool much_memory;
};

class ReuseSoakTest : public testing::TestWithParam<SoakParam> {
 protected:
  void SetUp() override { SetLogLevel("error"); }
  void TearDown() override { SetLogLevel("info"); }
};

TEST_P(ReuseSoakTest, EveryAnswerIsThatOfAPlainRun) {
  const char* const wanted = std::getenv("RIVULET_REUSE_SOAK");
  const uint64_t calls = wanted == nullptr ? 120 : std::strtoull(wanted, nullptr, 10);
  std::mt19937_64 random(TestSeed());
  const LoadOptions options = random() % 2 == 0 ? WithHead() : LoadOptions();
  const auto model = *MakeRandomModel(nlohmann::json::parse(GetParam().model.config), 1, options);
  OracleSource oracle(model, kVocab, random());
  Stack plain(model, 1, 1, random());
  const uint64_t session = kMuch / plain.states().capacity().tail_slots;
  const uint64_t memory = GetParam().much_memory ? kMuch : 12 * session;
  Stack stack(model, 2, 1 + random() % 2, random(), 4, memory, oracle.Options(), memory,
              AnyBorders(random));
  oracle.Bind(stack.engine());
  ReuseSchedule schedule(stack, plain, kVocab, random());
  while (schedule.calls() < calls) {
    schedule.Round();
    ASSERT_FALSE(HasFatalFailure()) << "after " << schedule.calls() << " calls";
  }
  std::printf("%s\n", schedule.Report().c_str());
  // With little memory, sessions may need all of it.
  if (GetParam().much_memory) {
    EXPECT_GT(stack.metrics().prefix_hits.value(), calls / 10);
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

}  // namespace
}  // namespace rivulet
