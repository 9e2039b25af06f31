// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The parity checkpoints through the server's own RPCs: Score's log-probabilities (the given token
// and the 20 best at every place) and greedy Generate, against what the model's own library or the
// float64 oracle computed. tests/parity/parity_test.cc compares every token of the vocabulary below
// the RPC. RIVULET_PARITY_DIR adds the checkpoints of a folder like tests/parity/fixtures.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "client/client.h"
#include "kernels/base/worst_difference.h"
#include "tests/e2e/server_process.h"
#include "tests/parity/expected.h"

namespace rivulet::e2e {
namespace {

constexpr double kTolerance = 2e-4;  // docs/architecture.md#bit-equality

std::string NameOf(const std::string& directory) {
  return std::filesystem::path(directory).filename().string();
}

class ParityRpcTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto expected = ReadExpected(GetParam());
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    expected_ = *std::move(expected);
    std::vector<std::string> flags;
    const LoadOptions options = FixtureOptions(NameOf(GetParam()));
    if (!options.config_override.empty()) {
      flags.push_back("--override-config=" + options.config_override);
    }
    if (options.mixer.level_overflow == LevelOverflow::kClamp) {
      flags.push_back("--level-overflow=clamp");
    }
    auto server = ServerProcess::Start(GetParam(), flags);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    EXPECT_EQ(server_->Stop().code, 0);
  }

  ExpectedOutputs expected_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_P(ParityRpcTest, ScoreAndGreedyGenerate) {
  Client client(server_->address());
  v1::ScoreRequest score;
  score.mutable_token_ids()->mutable_ids()->Assign(expected_.input_ids.begin(),
                                                   expected_.input_ids.end());
  score.set_top_logprobs(20);
  const auto scored = client.Score(score);
  ASSERT_TRUE(scored.ok()) << scored.status().ToString();
  ASSERT_EQ(static_cast<size_t>(scored->tokens_size()), expected_.input_ids.size() - 1);
  double worst = 0;
  for (int t = 0; t < scored->tokens_size(); ++t) {
    const v1::TokenLogprob& token = scored->tokens(t);
    const std::vector<float>& want = expected_.logprobs[static_cast<size_t>(t)];
    ASSERT_EQ(token.token_id(), expected_.input_ids[static_cast<size_t>(t) + 1]);
    worst = WorstDifference(worst, token.logprob(), want[token.token_id()]);
    ASSERT_EQ(token.top_size(), 20);
    for (const v1::TokenLogprob& top : token.top()) {
      worst = WorstDifference(worst, top.logprob(), want.at(top.token_id()));
    }
  }
  std::cout << NameOf(GetParam()) << ": largest difference " << worst << std::endl;
  EXPECT_LE(worst, kTolerance);

  v1::GenerateRequest generate;
  generate.mutable_token_ids()->mutable_ids()->Assign(expected_.prompt_ids.begin(),
                                                      expected_.prompt_ids.end());
  generate.set_max_tokens(static_cast<uint32_t>(expected_.greedy_ids.size()));
  generate.mutable_sampling()->set_temperature(0);
  generate.mutable_stop()->set_ignore_eos(true);
  std::vector<uint32_t> ids;
  const absl::Status status = client.Generate(generate, {}, [&](const auto& message) {
    ids.insert(ids.end(), message.token_ids().begin(), message.token_ids().end());
    return true;
  });
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(ids, expected_.greedy_ids);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ParityRpcTest, testing::ValuesIn(ParityDirectories()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace rivulet::e2e
