// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Forks, rewinds, drafts and the bases that folds leave, on a device: every session has the
// log-probabilities of its whole text. On the GPU and on a fake device for every checkpoint that
// the device serves, and for the test models, whose log-linear layers have more pages.
//
// RIVULET_MODELS: as in server/engine/device_engine_test.cc.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "model_loader/loaded_model.h"
#include "nlohmann/json.hpp"
#include "server/engine/checkpoint_folders.h"
#include "server/engine/device_engine.h"
#include "server/engine/random_model.h"
#include "server/engine/same_logprobs.h"
#include "server/engine/test_models.h"
#include "server/session/session.h"

namespace rivulet {
namespace {

using Answers = std::vector<Logprobs>;

struct Story {
  std::unique_ptr<Session> session;
  Answers answers;  // after each of its tokens
};

class StoryDevice {
 public:
  // UNIMPLEMENTED: the device does not serve this checkpoint.
  static absl::StatusOr<StoryDevice> Make(std::unique_ptr<Device> device,
                                          const std::string& model) {
    auto loaded = Load(device.get(), model);
    if (!loaded.ok()) return loaded.status();
    auto engine = MakeDeviceEngine(*std::move(loaded), device.get(),
                                   {.threads = 4, .state_memory = uint64_t{256} << 20});
    if (!engine.ok()) return engine.status();
    return StoryDevice(std::move(device), *std::move(engine));
  }
  Engine& engine() { return *engine_; }

  Story Begin() { return {Session::CreateAtRest(engine_->states(), ledger_), {}}; }

  // Tells the story on with these tokens, in segments of at most `piece`.
  void Tell(Story& story, const std::vector<uint32_t>& tokens, size_t piece,
            BorderRule borders = {}) {
    Session& session = *story.session;
    session.Keep(4, nullptr);
    ASSERT_TRUE(session.Wake().ok());
    session.Append(tokens);
    while (session.pending() > 0) Step(story, std::min(piece, session.pending()), borders);
    session.Rest();
  }

  // The same token by token, with drafts of those that follow, some of them wrong.
  void TellWithDrafts(Story& story, const std::vector<uint32_t>& tokens, std::mt19937& random) {
    Session& session = *story.session;
    session.Keep(4, nullptr);
    ASSERT_TRUE(session.Wake().ok());
    while (session.pending() > 0) Step(story, session.pending());
    for (size_t told = 0; told < tokens.size();) {
      session.Append(tokens[told++]);
      const size_t most = std::min(session.MostDrafts(), tokens.size() - told);
      std::vector<uint32_t> drafts(tokens.begin() + static_cast<ptrdiff_t>(told),
                                   tokens.begin() + static_cast<ptrdiff_t>(told + most));
      for (uint32_t& draft : drafts) {
        if (random() % 5 == 0) draft = random() % engine_->vocab_size();
      }
      StepDrafts(story, drafts);
      for (size_t i = 0; i < drafts.size() && drafts[i] == tokens[told]; ++i) {
        session.Append(tokens[told++]);
        Commit(story, 1);
      }
      session.CancelSegment();
    }
    session.Rest();
  }

 private:
  // A checkpoint's folder, or the name of a test model.
  static absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(Device* device,
                                                                 const std::string& model) {
    LoadOptions options;
    options.predictor = model.ends_with("_predictor");  // its head for further tokens
    options.mixer.device = device;
    for (const TestModel& test : AllTestModels()) {
      if (test.name == model) {
        return MakeRandomModel(nlohmann::json::parse(test.config), 1, options);
      }
    }
    return LoadModel(model, options);
  }

  StoryDevice(std::unique_ptr<Device> device, std::unique_ptr<Engine> engine)
      : device_(std::move(device)), engine_(std::move(engine)) {
    params_.temperature = 0.0f;
  }

  // The pending token and drafts; commits the token.
  void StepDrafts(Story& story, const std::vector<uint32_t>& drafts) {
    Session& session = *story.session;
    StepPlan plan;
    session.tokens().CopyTo(session.position(), 1, plan.tokens);
    plan.tokens.insert(plan.tokens.end(), drafts.begin(), drafts.end());
    AddRow(plan, *session.PlanDrafts(0, drafts.size()));
    result_ = engine_->Step(plan).rows[0];
    taken_ = 0;
    ASSERT_TRUE(result_.status.ok()) << result_.status;
    Commit(story, 1);
  }
  void Commit(Story& story, size_t count) {
    story.session->CommitTokens(count);
    story.answers.resize(story.session->position());
    story.answers.back() = result_.samples[taken_++].logprob;
  }

  // Answers to tokens that are computed again take the place of the old ones, which they equal.
  void Step(Story& story, size_t count, BorderRule borders = {}) {
    Session& session = *story.session;
    StepPlan plan;
    session.tokens().CopyTo(session.position(), count, plan.tokens);
    const uint64_t position = session.position();
    AddRow(plan, *session.PlanSegment(0, count, borders));
    const StepResult result = engine_->Step(plan);
    ASSERT_TRUE(result.rows[0].status.ok()) << result.rows[0].status;
    session.CommitSegment();
    story.answers.resize(session.position());
    for (size_t i = 0; i < count; ++i) {
      story.answers[position + i] = result.rows[0].samples[i].logprob;
    }
  }

  // With a sample after each token.
  void AddRow(StepPlan& plan, const Segment& segment) {
    StepRow& row = plan.rows.emplace_back();
    row.segment = segment;
    row.samples = static_cast<uint32_t>(segment.tokens);
    row.spec.params = &params_;
    row.spec.logprobs = 8;
    row.spec.position = segment.position + 1;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  RowResult result_;  // of StepDrafts
  size_t taken_ = 0;  // samples of it
  std::shared_ptr<TokenLedger> ledger_ = std::make_shared<TokenLedger>();
  SamplingParams params_;
};

class DeviceSessionTest : public testing::TestWithParam<std::string> {
 protected:
  std::vector<uint32_t> Random(size_t count, uint32_t vocab) {
    std::vector<uint32_t> tokens(count);
    for (uint32_t& token : tokens) token = random_() % vocab;
    return tokens;
  }

  // Borders to keep of a piece, where folds can leave them.
  BorderRule AnyBorders(StoryDevice& device) {
    const StateCapacity& capacity = device.engine().capacity();
    return {capacity.fold_bases ? random_() % 3 * capacity.fold_interval : 0, 100};
  }

  void ExpectSame(const Answers& answers, const Answers& whole, uint64_t first) {
    for (uint64_t i = first; i < answers.size(); ++i) {
      ASSERT_TRUE(Same(answers[i], whole[i])) << "after token " << i;
    }
  }

  // Feeds a long piece whose folds leave a base at each multiple of `every`. The session has the
  // same bits as with folds in place, and so do sessions that continue from any of these bases.
  void CheckBorders(StoryDevice& device, uint64_t every) {
    const auto vocab = static_cast<uint32_t>(device.engine().vocab_size());
    Story story = device.Begin(), whole = device.Begin();
    device.Tell(story, Random(1 + random_() % 40, vocab), 1000);
    const uint64_t begin = story.session->tokens().size();
    const std::vector<uint32_t> piece = Random(100 + random_() % 60, vocab);
    device.Tell(story, piece, 1000, {every, 100});
    ASSERT_GE(story.session->borders(), piece.size() / every - 1);
    device.Tell(whole, story.session->tokens().Copy(), 1000);
    ASSERT_EQ(story.answers.size(), whole.answers.size());
    ExpectSame(story.answers, whole.answers, 0);
    for (uint64_t position = begin; position < whole.answers.size(); position += every / 2 + 1) {
      auto fork = story.session->ForkAt(position, true);
      ASSERT_TRUE(fork.ok()) << fork.status();
      const uint64_t first = (*fork)->position();
      ASSERT_LE(position - first, every);  // one is left to compute in any case
      Story other{*std::move(fork), {}};
      const size_t count = std::min<size_t>(20, whole.answers.size() - position);
      std::vector<uint32_t> next;
      story.session->tokens().CopyTo(position, count, next);
      device.Tell(other, next, 1000);
      SCOPED_TRACE(first);
      ExpectSame(other.answers, whole.answers, first);
      if (HasFatalFailure()) return;
    }
  }

  // Stories that are told on, forked and taken back, beside each as one text.
  void CheckStories(StoryDevice& device) {
    const auto vocab = static_cast<uint32_t>(device.engine().vocab_size());
    std::vector<Story> stories;
    stories.push_back(device.Begin());
    for (int round = 0; round < 12; ++round) {
      Story& story = stories[random_() % stories.size()];
      if (round % 3 == 1) {
        device.TellWithDrafts(story, Random(1 + random_() % 60, vocab), random_);
      } else if (round % 3 == 0) {
        device.Tell(story, Random(1 + random_() % 60, vocab), 1 + random_() % 60,
                    AnyBorders(device));
      } else {
        const uint64_t now = story.session->tokens().size();
        const auto& kept = story.session->kept();
        const uint64_t least = kept.empty() ? now : kept.front().tokens;
        auto fork = story.session->ForkAt(least + random_() % (now - least + 1), true);
        ASSERT_TRUE(fork.ok()) << fork.status();
        Answers answers = story.answers;
        stories.push_back({*std::move(fork), std::move(answers)});
      }
      if (HasFatalFailure()) return;
    }
    for (Story& story : stories) {
      device.Tell(story, Random(20, vocab), 7);
      Story whole = device.Begin();
      device.Tell(whole, story.session->tokens().Copy(), 1000);
      ASSERT_EQ(story.answers.size(), whole.answers.size());
      ExpectSame(story.answers, whole.answers, 0);
      if (HasFatalFailure()) return;
    }
  }

  // On a device of this kind.
  void CheckEachBorder(std::unique_ptr<Device> device) {
    auto made = StoryDevice::Make(std::move(device), GetParam());
    if (absl::IsUnimplemented(made.status())) GTEST_SKIP() << made.status();
    ASSERT_TRUE(made.ok()) << made.status();
    const StateCapacity& capacity = made->engine().capacity();
    if (!capacity.fold_bases) GTEST_SKIP() << "its folds rewrite pages";
    for (const uint64_t every : {1, 2}) CheckBorders(*made, every * capacity.fold_interval);
  }

  std::mt19937 random_{TestSeed()};
};

TEST_P(DeviceSessionTest, ForksAndRewindsHaveTheSameBits) {
  RIVULET_NEED_GPU();
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  auto device = StoryDevice::Make(*std::move(gpu), GetParam());
  if (absl::IsUnimplemented(device.status())) GTEST_SKIP() << device.status();
  ASSERT_TRUE(device.ok()) << device.status();
  CheckStories(*device);
}

TEST_P(DeviceSessionTest, ForksAndRewindsHaveTheSameBitsOnAFakeDevice) {
  auto device = StoryDevice::Make(LateFakeDevice(), GetParam());
  if (absl::IsUnimplemented(device.status())) GTEST_SKIP() << device.status();
  ASSERT_TRUE(device.ok()) << device.status();
  CheckStories(*device);
}

TEST_P(DeviceSessionTest, EveryFoldOfAPromptCanLeaveItsState) {
  RIVULET_NEED_GPU();
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  CheckEachBorder(*std::move(gpu));
}

TEST_P(DeviceSessionTest, EveryFoldOfAPromptCanLeaveItsStateOnAFakeDevice) {
  CheckEachBorder(LateFakeDevice());
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceSessionTest);
INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceSessionTest,
                         testing::ValuesIn(CheckpointFolders("tests/parity/fixtures")),
                         [](const auto& info) { return CheckpointTestName(info); });

std::vector<std::string> TestModelNames() {
  std::vector<std::string> names;
  for (const TestModel& model : AllTestModels()) names.push_back(model.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Models, DeviceSessionTest, testing::ValuesIn(TestModelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rivulet
