// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A device's engine without memory of the host, on a fake device: each allocation of a launch fails
// once, in a run of its own. The step's rows fail, so do those that follow them in a step that was
// launched meanwhile, and later steps are as if nothing had been.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device/fake_device.h"
#include "server/engine/device_engine_fixture.h"
#include "server/engine/engine.h"

namespace rivulet {
namespace {

constexpr int64_t kNever = int64_t{1} << 60;
thread_local int64_t until_failure = kNever;  // allocations of this thread

}  // namespace
}  // namespace rivulet

// Not inline: the compiler would take malloc and delete for a mismatch.
__attribute__((noinline)) void* operator new(size_t size) {
  void* const memory = rivulet::until_failure-- == 0 ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rivulet {
namespace {

class NoMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made =
        EngineOn(std::make_unique<FakeDevice>(), "tests/parity/fixtures/mamba2_hf", {.depth = 2});
    ASSERT_TRUE(made.ok()) << made.status();
    made_ = *std::move(made);
    for (uint32_t& slot : bases_) slot = *engine().states().bases().Acquire();
    for (uint32_t& slot : tails_) slot = *engine().states().tails().Acquire();
  }
  Engine& engine() { return *made_.engine; }

  // The token at `position` of each session from `first` on.
  StepPlan PlanOf(size_t first, uint64_t position, uint32_t token) {
    StepPlan plan;
    for (size_t r = first; r < kRows; ++r) {
      StepRow& row = plan.rows.emplace_back();
      row.segment = {r - first, 1, position, bases_[r], bases_[r], tails_[r], nullptr};
      plan.tokens.push_back(token);
      row.samples = 1;
      row.spec.params = &params_;
      row.spec.index = r;
      row.spec.position = position + 1;
    }
    return plan;
  }

  // Two steps of all sessions, then one of the last and its next, where allocation number
  // `failing` of the launch fails. Returns whether there was one.
  bool Run(int64_t failing, std::vector<StepResult>& results);

  static constexpr size_t kRows = 5;
  DeviceAndEngine made_;
  SamplingParams params_;
  uint32_t bases_[kRows], tails_[kRows];
};

bool NoMemoryTest::Run(int64_t failing, std::vector<StepResult>& results) {
  for (uint64_t position = 0; position < 2; ++position) {
    engine().Step(PlanOf(0, position, 3));
  }
  const StepPlan plan = PlanOf(kRows - 1, 0, 5), next = PlanOf(kRows - 1, 1, kLastSampled);
  until_failure = failing;
  const StepTicket first = engine().Launch(plan);
  const bool failed = std::exchange(until_failure, kNever) < 0;
  const StepTicket second = engine().Launch(next);
  results.clear();
  results.push_back(engine().Await(first));
  results.push_back(engine().Await(second));
  return failed;
}

TEST_F(NoMemoryTest, FailsTheStepAndThoseThatFollow) {
  params_.temperature = 0;
  std::vector<StepResult> wanted, results;
  ASSERT_FALSE(Run(kNever, wanted));
  int64_t failing = 0;
  for (; Run(failing, results); ++failing) {
    ASSERT_EQ(results[0].rows.size(), 1u);
    ASSERT_EQ(results[1].rows.size(), 1u);
    EXPECT_TRUE(absl::IsResourceExhausted(results[0].rows[0].status)) << failing;
    EXPECT_FALSE(results[1].rows[0].status.ok()) << failing;
    ASSERT_TRUE(engine().failure().ok()) << engine().failure();
    ASSERT_FALSE(Run(kNever, results));
    for (size_t step = 0; step < 2; ++step) {
      ASSERT_TRUE(results[step].rows[0].status.ok()) << results[step].rows[0].status;
      EXPECT_EQ(results[step].rows[0].samples[0].token, wanted[step].rows[0].samples[0].token);
    }
  }
  EXPECT_GT(failing, 10);
}

}  // namespace
}  // namespace rivulet
