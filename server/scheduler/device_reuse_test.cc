// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// reuse_soak_test on a device: the prefix cache, drafts, forks, rewinds and several completions,
// beside a scheduler that reuses nothing on the same engine; and what rewinds compute again. On the
// GPU for every checkpoint that it serves, on a fake device for one of each kind of state.
//
// RIVULET_MODELS: as in server/engine/device_engine_test.cc. RIVULET_REUSE_SOAK: calls for each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "model_loader/loaded_model.h"
#include "server/drafts/lookup_drafter.h"
#include "server/drafts/mtp_drafter.h"
#include "server/engine/checkpoint_folders.h"
#include "server/engine/device_engine.h"
#include "server/log/log.h"
#include "server/scheduler/reuse_schedule_fixture.h"
#include "server/scheduler/stack_fixture.h"

namespace rivulet {
namespace {

bool HasHead(const std::string& model) { return model.ends_with("_predictor"); }

// A third of the completions by look-up, a third by the model's own head where it has one. The
// others get no drafts: only those run ahead.
class LookupAndHead final : public DrafterSource {
 public:
  LookupAndHead(Engine& engine, Metrics& metrics) : lookup_({}, metrics) {
    auto head = MtpSource::Make(engine);
    if (head.ok()) head_ = *std::move(head);
  }

  std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& completion) override {
    const uint64_t kind = made_++ % 3;
    if (kind == 2) return nullptr;
    const bool by_head = head_ != nullptr && kind == 1;
    return by_head ? head_->MakeDrafter(completion) : lookup_.MakeDrafter(completion);
  }
  double Prepare(std::span<const DraftAsk> asks) override {
    std::vector<DraftAsk> of_head;
    std::copy_if(asks.begin(), asks.end(), std::back_inserter(of_head),
                 [](const DraftAsk& ask) { return ask.drafter->source() == DraftSource::kMtp; });
    return head_ == nullptr ? 0 : head_->Prepare(of_head);
  }

 private:
  LookupSource lookup_;
  std::unique_ptr<MtpSource> head_;
  uint64_t made_ = 0;
};

// Of the server's depth.
absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(Device* device, const std::string& model) {
  LoadOptions options;
  options.predictor = HasHead(model);
  options.mixer.device = device;
  auto loaded = LoadModel(model, options);
  if (!loaded.ok()) return loaded.status();
  return MakeDeviceEngine(*std::move(loaded), device,
                          {.threads = 4, .state_memory = uint64_t{256} << 20}, /*depth=*/2);
}

// Of the bases; of the pages, where the layers keep nothing else.
uint64_t QuarterOf(const StateCapacity& sizes) {
  uint64_t bytes = sizes.base_slots / 4 * sizes.base_bytes;
  if (bytes != 0) return bytes;
  for (const PageCapacity& pages : sizes.pages) bytes += pages.slots / 4 * pages.page_bytes;
  return bytes;
}

class DeviceReuseTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { SetLogLevel("error"); }
  void TearDown() override { SetLogLevel("info"); }

  void CheckSchedule(std::unique_ptr<Device> device, uint64_t calls) {
    const auto engine = MakeEngine(device.get(), GetParam());
    if (absl::IsUnimplemented(engine.status())) GTEST_SKIP() << engine.status();
    ASSERT_TRUE(engine.ok()) << engine.status();
    std::mt19937_64 random(TestSeed());
    Metrics metrics;
    LookupAndHead source(**engine, metrics);
    DraftOptions drafts;
    drafts.source = &source;
    drafts.always = true;
    // Both use the engine's slots, and neither knows what the other one holds.
    const StateCapacity& sizes = (*engine)->capacity();
    const uint64_t cached = std::min(uint64_t{64} << 20, QuarterOf(sizes));
    Stack plain(**engine, random());
    Stack stack(**engine, random(), 4, drafts, cached, AnyBorders(random));
    // Few ids, so that texts repeat themselves and look-up finds something.
    const auto vocab = static_cast<uint32_t>(std::min<size_t>((*engine)->vocab_size(), 12));
    ReuseSchedule schedule(stack, plain, vocab, random());
    while (schedule.calls() < calls) {
      schedule.Round();
      ASSERT_FALSE(HasFatalFailure()) << "after " << schedule.calls() << " calls";
    }
    std::printf("%s\n", schedule.Report().c_str());
    EXPECT_GT(stack.metrics().prefix_hits.value(), 0u);
    const auto by_head = static_cast<size_t>(DraftSource::kMtp);
    EXPECT_EQ(stack.metrics().draft_tokens[by_head].value() > 0, HasHead(GetParam()));
    schedule.CheckNothingIsLeft();
  }

  // With the defaults of --keep-borders and --prompt-borders, from the end to the beginning.
  void CheckRewinds(std::unique_ptr<Device> device) {
    const auto engine = MakeEngine(device.get(), GetParam());
    if (absl::IsUnimplemented(engine.status())) GTEST_SKIP() << engine.status();
    ASSERT_TRUE(engine.ok()) << engine.status();
    const StateCapacity& sizes = (*engine)->capacity();
    if (!sizes.fold_bases) GTEST_SKIP() << "its folds rewrite pages";
    if (sizes.base_slots < 40) GTEST_SKIP() << "its bases leave no room for all borders";
    std::mt19937_64 random(TestSeed());
    Stack stack(**engine, random(), 8, {}, 0, Borders{kAutomaticBorders, kAutomaticBorders});
    ASSERT_TRUE(stack.sessions().Create("a", "").ok());
    Ask ask;
    for (size_t i = 0; i < 170; ++i) ask.prompt.push_back(random() % 12);
    ask.max_tokens = 20;
    ask.stop.ignore_eos = true;
    stack.Run(ask, *stack.sessions().LeaseForTurn("a"));
    ask.max_tokens = 1;
    for (uint64_t position = 190; position > 3; position -= 1 + random() % 3) {
      ASSERT_TRUE(stack.sessions().Rewind("a", position).ok());
      ask.prompt = {3};
      const Received& got = stack.Run(ask, *stack.sessions().LeaseForTurn("a")).received[0];
      ASSERT_LE(position - 1 - got.usage.cached_tokens, 15u) << position;
      stack.ForgetClients();
    }
    EXPECT_EQ(stack.metrics().borders_dropped.value(), 0u);
  }

  static uint64_t Calls(uint64_t few) {
    const char* const wanted = std::getenv("RIVULET_REUSE_SOAK");
    return wanted == nullptr ? few : std::strtoull(wanted, nullptr, 10);
  }
};

TEST_P(DeviceReuseTest, EveryAnswerIsThatOfAPlainRun) {
  RIVULET_NEED_GPU();
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  CheckSchedule(*std::move(gpu), Calls(60));
}

TEST_P(DeviceReuseTest, ARewindComputesFifteenTokensAgain) {
  RIVULET_NEED_GPU();
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  CheckRewinds(*std::move(gpu));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceReuseTest);
INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceReuseTest,
                         testing::ValuesIn(CheckpointFolders("tests/parity/fixtures")),
                         [](const auto& info) { return CheckpointTestName(info); });

// The same without a GPU.
class FakeDeviceReuseTest : public DeviceReuseTest {};

TEST_P(FakeDeviceReuseTest, EveryAnswerIsThatOfAPlainRun) {
  CheckSchedule(LateFakeDevice(), Calls(25));
}

TEST_P(FakeDeviceReuseTest, ARewindComputesFifteenTokensAgain) { CheckRewinds(LateFakeDevice()); }

std::string Fixture(const char* name) { return std::string("tests/parity/fixtures/") + name; }

// Window and softmax, log-linear, buckets, running states, delta rules, experts, and heads for
// further tokens.
INSTANTIATE_TEST_SUITE_P(OneOfEachKind, FakeDeviceReuseTest,
                         testing::Values(Fixture("softmax_window_hybrid"),
                                         Fixture("hattention_clamp"), Fixture("anna_hybrid_conv"),
                                         Fixture("upstream_hf_llama_gqa"), Fixture("falcon_mamba"),
                                         Fixture("h_gated_deltanet"), Fixture("rwkv7_wide_tied"),
                                         Fixture("upstream_hf_qwen3_5"),
                                         Fixture("upstream_hf_bamba"),
                                         Fixture("upstream_hf_qwen3_5_predictor"),
                                         Fixture("upstream_hf_nemotron_h_predictor")),
                         [](const auto& info) { return CheckpointTestName(info); });

}  // namespace
}  // namespace rivulet
