// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Conversations through the real server: a session keeps its state between turns, gives the same
// bits as one prompt, also when it is forked or taken back, and is evicted, expires or is deleted.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/test_seed.h"
#include "rivulet/v1/inference.grpc.pb.h"
#include "tests/e2e/peer.h"

namespace rivulet::e2e {
namespace {

using std::chrono::milliseconds;

// A small model with random weights, whose sessions take 20 KiB each.
std::string SmallModel() { return SourcePath("tests/parity/fixtures/hla_masked"); }
constexpr uint32_t kSmallVocab = 96;

void Append(Tokens& tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

class SessionPeer : public Peer {
 public:
  using Peer::Peer;

  v1::ScoreResponse Score(const Tokens& tokens, const std::string& session = "") {
    v1::ScoreRequest request;
    request.mutable_token_ids()->mutable_ids()->Add(tokens.begin(), tokens.end());
    request.set_session_id(session);
    request.set_top_logprobs(2);
    grpc::ClientContext context;
    v1::ScoreResponse response;
    const grpc::Status status = inference->Score(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  grpc::Status Create(const std::string& id) {
    v1::CreateSessionRequest request;
    request.set_id(id);
    grpc::ClientContext context;
    v1::Session session;
    return sessions->CreateSession(&context, request, &session);
  }
  grpc::Status Get(const std::string& id, v1::Session* session) {
    v1::GetSessionRequest request;
    request.set_id(id);
    grpc::ClientContext context;
    return sessions->GetSession(&context, request, session);
  }
  grpc::Status Delete(const std::string& id) {
    v1::DeleteSessionRequest request;
    request.set_id(id);
    grpc::ClientContext context;
    v1::DeleteSessionResponse response;
    return sessions->DeleteSession(&context, request, &response);
  }
  grpc::Status Fork(const std::string& id, const std::string& new_id) {
    v1::ForkSessionRequest request;
    request.set_id(id);
    request.set_new_id(new_id);
    grpc::ClientContext context;
    v1::Session session;
    return sessions->ForkSession(&context, request, &session);
  }
  grpc::Status Rewind(const std::string& id, uint64_t position) {
    v1::RewindSessionRequest request;
    request.set_id(id);
    request.set_position(position);
    grpc::ClientContext context;
    v1::Session session;
    return sessions->RewindSession(&context, request, &session);
  }
};

bool Eventually(const std::function<bool()>& done) {
  for (int i = 0; i < 2000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

v1::GenerateRequest Request(const Tokens& prompt, uint32_t max_tokens,
                            const std::string& session = "") {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
  request.set_max_tokens(max_tokens);
  request.set_session_id(session);
  request.mutable_stop()->set_ignore_eos(true);
  return request;
}

// Sends requests of all lengths until it is destroyed.
class Neighbours {
 public:
  Neighbours(Peer& peer, uint32_t vocab, uint64_t seed) {
    for (uint64_t i = 0; i < 2; ++i) {
      threads_.emplace_back([this, &peer, vocab, random = std::mt19937_64(seed + i)]() mutable {
        while (!stop_.load()) {
          Tokens prompt(1 + random() % 200);
          for (uint32_t& token : prompt) token = static_cast<uint32_t>(random() % vocab);
          const Turn turn = peer.Generate(Request(prompt, 1 + random() % 30));
          EXPECT_TRUE(turn.status.ok()) << turn.status.error_message();
        }
      });
    }
  }
  ~Neighbours() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Some turns on one session; each must be, bit for bit, what one prompt of all that came before
// gives without a session.
class Conversation {
 public:
  Conversation(SessionPeer& peer, uint32_t vocab, std::string session, uint64_t seed)
      : peer_(peer), vocab_(vocab), session_(std::move(session)), random_(seed) {}

  void Run(int turns) {
    ASSERT_TRUE(peer_.Create(session_).ok());
    for (int i = 0; i < turns && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(session_ + ", turn " + std::to_string(i));
      RunTurn();
      if (i % 2 == 0) CheckScore();
      if (random_() % 3 == 0) GoOnInAFork(i);
      if (random_() % 3 == 0) GoBack();
    }
  }

 private:
  Tokens RandomTokens(size_t count) {
    Tokens tokens(count);
    for (uint32_t& token : tokens) token = static_cast<uint32_t>(3 + random_() % (vocab_ - 3));
    return tokens;
  }

  // Lengths on both sides of a chunk of 16; sometimes nothing new, sometimes nothing generated.
  v1::GenerateRequest RandomTurn() {
    const Tokens prompt = RandomTokens(context_.empty() ? 1 + random_() % 40 : random_() % 40);
    const bool prompt_only = !prompt.empty() && random_() % 6 == 0;
    v1::GenerateRequest request = Request(prompt, prompt_only ? 0 : 1 + random_() % 35, session_);
    request.set_logprobs(3);
    request.set_prompt_logprobs(2);
    v1::SamplingParams& sampling = *request.mutable_sampling();
    sampling.set_temperature(random_() % 2 == 0 ? 0.0f : 0.9f);
    sampling.set_seed(random_());
    sampling.set_repetition_penalty(random_() % 2 == 0 ? 1.0f : 1.2f);
    return request;
  }

  void GoOnInAFork(int turn) {
    const std::string fork = session_ + "." + std::to_string(turn);
    ASSERT_TRUE(peer_.Fork(session_, fork).ok());
    session_ = fork;
    whole_tail_ = false;
  }

  // To where a turn began, or between there and now.
  void GoBack() {
    v1::Session info;
    ASSERT_TRUE(peer_.Get(session_, &info).ok());
    ASSERT_GT(info.kept_positions_size(), 0);
    uint64_t position =
        info.kept_positions(static_cast<int>(random_()) & (info.kept_positions_size() > 1 ? 1 : 0));
    if (random_() % 2 == 0) position += random_() % (context_.size() - position + 1);
    if (position == 0) return;  // a turn without a prompt could not follow
    const grpc::Status status = peer_.Rewind(session_, position);
    ASSERT_TRUE(status.ok()) << status.error_message();
    context_.resize(position);
    whole_tail_ = false;
  }

  void RunTurn() {
    v1::GenerateRequest request = RandomTurn();
    const Turn turn = peer_.Generate(request);
    ASSERT_TRUE(turn.status.ok()) << turn.status.error_message();
    EXPECT_EQ(turn.first.session_id(), session_);
    const uint64_t cached = turn.last.usage().cached_tokens();
    EXPECT_LE(cached, context_.empty() ? 0 : context_.size() - 1);
    if (whole_tail_ && !context_.empty()) {
      EXPECT_EQ(cached, context_.size() - 1) << "all but the last token";
    }
    whole_tail_ = true;
    const bool begins = context_.empty();
    const auto& ids = request.token_ids().ids();
    Append(context_, Tokens(ids.begin(), ids.end()));
    request.clear_session_id();
    request.mutable_token_ids()->mutable_ids()->Assign(context_.begin(), context_.end());
    const Turn whole = peer_.Generate(request);
    ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
    EXPECT_EQ(turn.tokens, whole.tokens);
    EXPECT_EQ(turn.logprobs, whole.logprobs);
    ASSERT_LE(turn.prompt_logprobs.size(), whole.prompt_logprobs.size());
    EXPECT_TRUE(std::equal(turn.prompt_logprobs.rbegin(), turn.prompt_logprobs.rend(),
                           whole.prompt_logprobs.rbegin()));
    const size_t first = begins ? 1 : 0;
    EXPECT_EQ(turn.prompt_logprobs.size() + first, turn.last.usage().prompt_tokens());
    Append(context_, turn.tokens);
  }

  void CheckScore() {
    const Tokens next = RandomTokens(1 + random_() % 30);
    const v1::ScoreResponse scores = peer_.Score(next, session_);
    Tokens all = context_;
    Append(all, next);
    const v1::ScoreResponse whole = peer_.Score(all);
    ASSERT_EQ(scores.tokens_size(), static_cast<int>(next.size()));
    ASSERT_EQ(whole.tokens_size(), static_cast<int>(all.size()) - 1);
    const int before = whole.tokens_size() - scores.tokens_size();
    for (int i = 0; i < scores.tokens_size(); ++i) {
      EXPECT_EQ(scores.tokens(i).SerializeAsString(), whole.tokens(before + i).SerializeAsString());
    }
    v1::Session session;
    ASSERT_TRUE(peer_.Get(session_, &session).ok());
    EXPECT_EQ(session.position(), context_.size()) << "Score leaves the session as it was";
  }

  SessionPeer& peer_;
  const uint32_t vocab_;
  std::string session_;
  std::mt19937_64 random_;
  bool whole_tail_ = true;  // nothing before the last token is computed again
  Tokens context_;
};

TEST(SessionsTest, EverySplitIntoTurnsGivesTheBitsOfOnePrompt) {
  const uint64_t seed = TestSeed();
  SessionPeer peer(SourcePath("models/tales"));
  const Neighbours neighbours(peer, 4096, seed);
  std::vector<std::thread> threads;
  for (uint64_t c = 0; c < 3; ++c) {
    threads.emplace_back(
        [&, c] { Conversation(peer, 4096, "talk-" + std::to_string(c), seed + 100 * c).Run(6); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Text prompts: BOS once, and the text of a turn continues where the last one ended.
TEST(SessionsTest, TextThroughChat) {
  SessionPeer peer(SourcePath("models/tales"));
  grpc::ClientContext context;
  auto stream = peer.inference->Chat(&context);
  const auto turn = [&](const std::string& text) {
    v1::ChatRequest request;
    request.mutable_turn()->set_prompt(text);
    request.mutable_turn()->set_max_tokens(20);
    request.mutable_turn()->mutable_sampling()->set_temperature(0);
    request.mutable_turn()->mutable_stop()->set_ignore_eos(true);
    EXPECT_TRUE(stream->Write(request));
    Turn result;
    v1::GenerateResponse message;
    while (result.last.finish_reason() == v1::FINISH_REASON_UNSPECIFIED && stream->Read(&message)) {
      result.Add(message);
    }
    return result;
  };
  v1::GenerateRequest alone = Request({}, 20);
  alone.set_prompt("Once upon a time");
  alone.mutable_sampling()->set_temperature(0);
  const Turn first = turn("Once upon a time");
  EXPECT_EQ(first.tokens, peer.Generate(alone).tokens);
  const Turn second = turn("The king said");
  EXPECT_EQ(second.last.usage().cached_tokens(), first.last.usage().prompt_tokens() + 20 - 1);
  EXPECT_LT(second.last.usage().prompt_tokens(), first.last.usage().prompt_tokens() + 2);
  EXPECT_EQ(second.tokens.size(), 20u);
  EXPECT_EQ(turn("").tokens.size(), 20u);
  EXPECT_EQ(peer.MetricOf("rivulet_sessions"), 1);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(Eventually([&] { return peer.MetricOf("rivulet_state_slots_used") == 0; }));
  EXPECT_EQ(peer.MetricOf("rivulet_sessions"), 0);
}

// A drain does not wait for a stream on which nothing runs.
TEST(SessionsTest, AnIdleChatEndsWhenTheServerDrains) {
  SessionPeer peer(SmallModel());
  grpc::ClientContext context;
  auto stream = peer.inference->Chat(&context);
  v1::ChatRequest request;
  *request.mutable_turn() = Request({1, 2}, 3);
  ASSERT_TRUE(stream->Write(request));
  v1::GenerateResponse message;
  while (message.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) {
    ASSERT_TRUE(stream->Read(&message));
  }
  peer.Terminate();
  EXPECT_FALSE(stream->Read(&message));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(status.error_message().find("shutting down"), std::string::npos)
      << status.error_message();
}

TEST(SessionsTest, TheLeastRecentlyUsedMakesRoom) {
  SessionPeer peer(SmallModel(), {"--state-memory=512KiB"});
  const int slots = static_cast<int>(peer.MetricOf("rivulet_state_slots_capacity"));
  ASSERT_GT(slots, 3);
  const auto name = [](int i) { return "s" + std::to_string(i); };
  for (int i = 0; i < slots; ++i) {
    ASSERT_TRUE(peer.Create(name(i)).ok());
    ASSERT_TRUE(peer.Generate(Request({1, 2}, 2, name(i))).status.ok());
  }
  ASSERT_TRUE(peer.Generate(Request({3}, 2, name(0))).status.ok()) << "now s1 is the oldest";
  ASSERT_TRUE(peer.Generate(Request({1, 2}, 2)).status.ok()) << "needs a slot";
  const Turn gone = peer.Generate(Request({3}, 2, name(1)));
  EXPECT_EQ(gone.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(gone.status.error_message().find("--state-memory"), std::string::npos)
      << gone.status.error_message();
  for (int i = 0; i < slots; ++i) {
    if (i == 1) continue;
    EXPECT_TRUE(peer.Generate(Request({3}, 2, name(i))).status.ok()) << i;
  }
  v1::GenerateRequest wide = Request({1}, 2);
  wide.set_n(static_cast<uint32_t>(slots) + 1);
  const Turn refused = peer.Generate(wide);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(refused.status.error_message().find("--state-memory"), std::string::npos);
  EXPECT_EQ(peer.MetricOf("rivulet_sessions"), slots - 1) << "no session was dropped for it";
}

TEST(SessionsTest, IdleSessionsLeaveAfterTheirTimeToLive) {
  SessionPeer peer(SmallModel(), {"--session-ttl=1"});
  ASSERT_TRUE(peer.Create("talk").ok());
  ASSERT_TRUE(peer.Create("never-used").ok());
  ASSERT_TRUE(peer.Generate(Request({1, 2}, 2, "talk")).status.ok());
  EXPECT_TRUE(Eventually([&] { return peer.MetricOf("rivulet_sessions") == 0; }));
  EXPECT_EQ(peer.MetricOf("rivulet_state_slots_used"), 0);
  v1::Session session;
  const grpc::Status status = peer.Get("talk", &session);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(status.error_message().find("--session-ttl"), std::string::npos);
}

TEST(SessionsTest, OneTurnAtATime) {
  SessionPeer peer(SourcePath("models/tales"));
  ASSERT_TRUE(peer.Create("talk").ok());
  grpc::ClientContext context;
  auto reader = peer.inference->Generate(&context, Request({1, 5}, 1'000'000, "talk"));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(peer.Generate(Request({3}, 1, "talk")).status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(peer.Delete("talk").error_code(), grpc::StatusCode::ABORTED);
  context.TryCancel();
  uint64_t tokens = 2 + static_cast<uint64_t>(message.token_ids_size());
  while (reader->Read(&message)) tokens += static_cast<uint64_t>(message.token_ids_size());
  // A cancelled turn leaves its session with what it had made, which may be more than was read.
  v1::Session session;
  ASSERT_TRUE(Eventually([&] { return peer.Get("talk", &session).ok() && !session.busy(); }));
  EXPECT_GE(session.position(), tokens);
  const Turn next = peer.Generate(Request({3}, 5, "talk"));
  ASSERT_TRUE(next.status.ok()) << next.status.error_message();
  EXPECT_EQ(next.last.usage().cached_tokens(), session.position() - 1);
}

TEST(SessionsTest, TenThousandTurnsOverAThousandSessionsLeakNothing) {
  constexpr int kThreads = 8, kSessions = 1000 / kThreads, kTurns = 10;
  SessionPeer peer(SmallModel(), {"--state-memory=32MiB", "--log-level=warning"});
  ASSERT_GE(peer.MetricOf("rivulet_state_slots_capacity"), 1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&peer, t] {
      const auto name = [t](int s) { return std::to_string(t) + ":" + std::to_string(s); };
      for (int s = 0; s < kSessions; ++s) ASSERT_TRUE(peer.Create(name(s)).ok());
      for (uint32_t i = 0; i < kTurns; ++i) {
        for (int s = 0; s < kSessions; ++s) {
          const Turn turn = peer.Generate(Request({i % kSmallVocab, 7, 9}, 2, name(s)));
          ASSERT_TRUE(turn.status.ok()) << turn.status.error_message();
          ASSERT_EQ(turn.last.usage().cached_tokens(), i == 0 ? 0 : i * 5 - 1);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(peer.MetricOf("rivulet_sessions"), 1000);
  EXPECT_EQ(peer.MetricOf("rivulet_state_slots_used"), 1000);
  v1::ListSessionsRequest request;
  request.set_page_size(1000);
  v1::ListSessionsResponse list;
  grpc::ClientContext context;
  ASSERT_TRUE(peer.sessions->ListSessions(&context, request, &list).ok());
  ASSERT_EQ(list.sessions_size(), 1000);
  for (const v1::Session& session : list.sessions()) {
    EXPECT_EQ(session.position(), 5u * kTurns);
    ASSERT_TRUE(peer.Delete(session.id()).ok());
  }
  EXPECT_EQ(peer.MetricOf("rivulet_sessions"), 0);
  EXPECT_TRUE(Eventually([&] { return peer.MetricOf("rivulet_state_slots_used") == 0; }));
  EXPECT_EQ(peer.MetricOf("rivulet_state_bytes"), 0);
}

}  // namespace
}  // namespace rivulet::e2e
