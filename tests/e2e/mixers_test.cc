// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Properties of some mixers, through the real server: contexts limited by a model's levels, states
// that grow, and invalid configs, each refused at load with the key, its value and the remedy.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "kernels/base/test_directory.h"
#include "nlohmann/json.hpp"
#include "rivulet/v1/inference.pb.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

using nlohmann::json;

std::string Fixture(const std::string& name) { return SourcePath("tests/parity/fixtures/" + name); }

struct Served {
  Served(const std::string& fixture, const std::vector<std::string>& flags) {
    auto started = ServerProcess::Start(Fixture(fixture), flags);
    EXPECT_TRUE(started.ok()) << started.status().ToString();
    if (!started.ok()) return;
    server = *std::move(started);
    client = std::make_unique<Client>(server->address());
  }

  struct Answer {
    absl::Status status;
    size_t tokens = 0;
    v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  };
  Answer Generate(uint32_t prompt, uint32_t max_tokens, const std::string& session = "") {
    v1::GenerateRequest request;
    for (uint32_t i = 0; i < prompt; ++i) request.mutable_token_ids()->add_ids(3 + i % 20);
    request.set_max_tokens(max_tokens);
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_sampling()->set_seed(1);
    request.set_session_id(session);
    Answer answer;
    answer.status = client->Generate(request, {}, [&](const v1::GenerateResponse& message) {
      answer.tokens += message.token_ids_size();
      if (message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
        answer.reason = message.finish_reason();
      }
      return true;
    });
    return answer;
  }

  std::unique_ptr<ServerProcess> server;
  std::unique_ptr<Client> client;
};

bool Contains(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

// Five levels reach 2^4 tokens.
TEST(LevelOverflowTest, ErrorEndsAContextWhereTheLevelsDo) {
  Served served("log_linear_mamba2_clamp", {});
  const auto model = served.client->GetModel({});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->max_context(), 16u);
  const auto longest = served.Generate(10, 100);
  EXPECT_TRUE(longest.status.ok()) << longest.status.ToString();
  EXPECT_EQ(longest.tokens, 7u);
  EXPECT_EQ(longest.reason, v1::FINISH_REASON_LENGTH);
  const auto refused = served.Generate(17, 1);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(refused.status.message());
  for (const char* word : {"17 tokens", "reach 16", "--level-overflow clamp"}) {
    EXPECT_TRUE(Contains(message, word)) << word << " is not in: " << message;
  }
  EXPECT_EQ(served.Generate(16, 1).tokens, 1u);
}

TEST(LevelOverflowTest, ASessionIsFullWhereTheLevelsEnd) {
  Served served("log_linear_mamba2_clamp", {});
  v1::CreateSessionRequest create;
  create.set_id("talk");
  ASSERT_TRUE(served.client->CreateSession(create).ok());
  EXPECT_EQ(served.Generate(10, 4, "talk").tokens, 4u);
  EXPECT_EQ(served.Generate(2, 50, "talk").tokens, 1u);  // 16 of 16, and one that is not read
  EXPECT_EQ(served.Generate(1, 1, "talk").status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(LevelOverflowTest, ClampContinues) {
  Served served("log_linear_mamba2_clamp", {"--level-overflow=clamp"});
  EXPECT_EQ(served.client->GetModel({})->max_context(), 0u);
  const auto answer = served.Generate(300, 40);
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_EQ(answer.tokens, 40u);
}

TEST(PagesTest, AGrowingStateIsReportedAndRefusedInTime) {
  Served served("upstream_hf_llama_gqa", {"--state-memory=1MiB", "--state-context=256"});
  const auto model = served.client->GetModel({});
  ASSERT_TRUE(model.ok());
  // 2 layers of 2 heads: 8 numbers of a key and 16 of a padded value.
  EXPECT_EQ(model->state_bytes_per_token(), 2u * 2 * (8 + 16) * 4);
  const auto refused = served.Generate(100, 1000000);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Contains(std::string(refused.status.message()), "max_tokens"));
  EXPECT_TRUE(Contains(std::string(refused.status.message()), "larger --state-context"));
  EXPECT_EQ(served.Generate(100, 50).tokens, 50u);
  v1::CreateSessionRequest create;
  create.set_id("grows");
  ASSERT_TRUE(served.client->CreateSession(create).ok());
  EXPECT_EQ(served.Generate(20, 4, "grows").tokens, 4u);
  const uint64_t small = served.client->GetSession("grows")->state_bytes();
  EXPECT_EQ(served.Generate(160, 4, "grows").tokens, 4u);
  EXPECT_EQ(served.client->GetSession("grows")->state_bytes(), small + 10 * 16 * 384);
}

// A model without a tokenizer cannot chat, but it can have sessions.
TEST(PagesTest, TheCommandLineContinuesASession) {
  Served served("upstream_hf_llama_gqa", {});
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), Binary("rivulet"));
    arguments.push_back("--server=" + served.server->address());
    const Exit exit = RunProgram(arguments);
    EXPECT_EQ(exit.code, 0) << exit.output;
    return exit.output;
  };
  run({"sessions", "create", "--id", "talk"});
  run({"generate", "--session", "talk", "--tokens", "3,4,5", "--max-tokens", "4", "--ignore-eos"});
  run({"generate", "--session", "talk", "--tokens", "6", "--max-tokens", "2", "--ignore-eos"});
  EXPECT_EQ(served.client->GetSession("talk")->position(), 10u);
}

// ---- configs ----

struct BadConfig {
  std::string fixture;
  json change;  // merged over config.json
  std::vector<std::string> words;
};

void ExpectRefused(const BadConfig& bad) {
  const std::string folder = TestDirectory() + "/bad_mixer_config";
  std::filesystem::copy(Fixture(bad.fixture), folder);
  json config = json::parse(std::ifstream(folder + "/config.json"));
  config.update(bad.change);
  std::ofstream(folder + "/config.json") << config;
  const Exit exit = RunProgram({Binary("rivulet-server"), "--model=" + folder,
                                "--listen=127.0.0.1:0", "--http=127.0.0.1:0"});
  EXPECT_GT(exit.code, 0) << exit.output;
  EXPECT_LT(exit.code, 128) << "died of a signal: " << exit.output;
  for (const std::string& word : bad.words) {
    EXPECT_TRUE(Contains(exit.output, word)) << word << " is not in: " << exit.output;
  }
}

TEST(BadMixerConfigTest, NamesKeyValueAndRemedy) {
  const BadConfig cases[] = {
      {"h_gated_deltanet", {{"max_levels", 9}}, {"max_levels", "9", "15"}},
      {"anna", {{"hash_buckets", 12}}, {"hash_buckets", "12", "8"}},
      {"anna", {{"num_hashes", 40}}, {"num_hashes", "40"}},
      {"softmax_window_hybrid",
       {{"layer_types", {"gla"}}},
       {"layer_types has 1 entries", "num_hidden_layers is 2", "one entry per layer"}},
      {"softmax_window_hybrid",
       {{"layer_types", {"gla", "rwkv"}}},
       {"layer_types", "rwkv", "this server has"}},
      {"softmax_window_hybrid",
       {{"layer_config",
         {json::object(), {{"num_heads", 3}, {"num_kv_heads", 2}, {"head_dim", 8}}}}},
       {"num_kv_heads", "2", "3"}},
      {"gated_deltanet_grouped_no_gate", {{"num_v_heads", 3}}, {"num_v_heads", "3", "2"}},
      {"upstream_hf_qwen3_next",
       {{"layer_types", {"linear_attention"}}},
       {"layer_types", "num_hidden_layers", "3"}},
      {"upstream_hf_qwen3_next",
       {{"layer_types", {"linear_attention", "full_attention", "sparse"}}},
       {"layer_types", "sparse", "linear_attention"}},
      {"upstream_hf_qwen3_next", {{"linear_num_value_heads", 3}}, {"linear_num_value_heads", "3"}},
      {"upstream_hf_granite_moe",
       {{"layer_types", {"mamba", "attention"}}},
       {"layer_types", "num_hidden_layers", "3"}},
      {"upstream_hf_granite_moe", {{"mamba_n_heads", 5}}, {"mamba_n_heads", "5"}},
      {"upstream_hf_llama_gqa", {{"num_key_value_heads", 3}}, {"num_key_value_heads", "3", "4"}},
      {"mamba_bias_untied", {{"layer_types", {"mamba", "gla"}}}, {"layer_types", "mamba"}},
  };
  for (const BadConfig& bad : cases) {
    SCOPED_TRACE(bad.fixture + " " + bad.change.dump());
    ExpectRefused(bad);
  }
}

}  // namespace
}  // namespace rivulet::e2e
