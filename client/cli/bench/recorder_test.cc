// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rivulet::cli::bench {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::Pair;

TimePoint At(int64_t ms) { return TimePoint() + milliseconds(ms); }

v1::GenerateResponse Tokens(int count) {
  v1::GenerateResponse message;
  for (int i = 0; i < count; ++i) message.add_token_ids(1);
  return message;
}

int64_t Ms(std::chrono::nanoseconds value) { return value / milliseconds(1); }

// Runs one request due at `due` whose messages come as (time, tokens); it ends with the last.
void Play(Recorder& recorder, int64_t due, const std::vector<std::pair<int64_t, int>>& messages) {
  uint32_t wanted = 0;
  for (const auto& [at, tokens] : messages) wanted += static_cast<uint32_t>(tokens);
  RequestRecord record = recorder.StartRequest(At(due), At(due), 0, wanted);
  for (const auto& [at, tokens] : messages) recorder.OnMessage(record, Tokens(tokens), At(at));
  recorder.OnEnd(record, absl::OkStatus(), false, At(messages.back().first));
}

TEST(BenchRecorderTest, TokensOfOneMessageEachWaitedForIt) {
  Recorder recorder({});
  recorder.BeginPhase("load", At(0));
  Play(recorder, 0, {{10, 1}, {12, 1}, {112, 8}, {112, 0}});
  recorder.EndPhase(At(200));
  const PhaseStatistics phase = recorder.TakePhases().at(0);
  EXPECT_EQ(Ms(phase.first_token.max()), 10);
  EXPECT_EQ(phase.token_gap.count(), 9u);
  EXPECT_EQ(phase.message_gap.count(), 2u);
  EXPECT_EQ(Ms(phase.token_gap.min()), 2);
  // Eight of nine tokens came after a stall of 100 ms; the mean alone would say 11 ms.
  EXPECT_EQ(Ms(phase.token_gap.Percentile(0.5)), 100);
  EXPECT_EQ(Ms(phase.per_token_mean.max()), 11);
  EXPECT_EQ(phase.output_tokens, 10u);
  EXPECT_EQ(phase.messages, 3u);
  EXPECT_EQ(phase.PerSecond(phase.output_tokens), 50);
}

TEST(BenchRecorderTest, MessagesThatWereReadyTogetherAreOne) {
  Recorder recorder({.slo_itl_ms = 50});
  recorder.BeginPhase("load", At(0));
  RequestRecord record = recorder.StartRequest(At(0), At(0), 0, 9);
  const auto moment = kTogether - std::chrono::microseconds(1);
  recorder.OnMessage(record, Tokens(1), At(10));
  recorder.OnMessage(record, Tokens(2), At(10) + moment);
  for (int i = 0; i < 3; ++i) recorder.OnMessage(record, Tokens(2), At(110) + i * moment);
  recorder.OnEnd(record, absl::OkStatus(), false, At(111));
  recorder.EndPhase(At(200));
  const PhaseStatistics phase = recorder.TakePhases().at(0);
  EXPECT_EQ(phase.messages, 2u);
  EXPECT_EQ(phase.message_gap.count(), 1u);
  EXPECT_EQ(phase.token_gap.count(), 6u) << "the first three have no gap";
  EXPECT_EQ(Ms(phase.token_gap.min()), 99) << "each was waited for as long as the first of them";
  EXPECT_EQ(phase.good, 0u) << "they are late too";
  EXPECT_EQ(phase.output_tokens, 9u);
}

TEST(BenchRecorderTest, ARequestWithOneMessageHasNoTimePerToken) {
  Recorder recorder({});
  recorder.BeginPhase("load", At(0));
  Play(recorder, 0, {{10, 8}});
  Play(recorder, 0, {{10, 4}, {10, 4}});
  recorder.EndPhase(At(200));
  const PhaseStatistics phase = recorder.TakePhases().at(0);
  EXPECT_EQ(phase.succeeded, 2u);
  EXPECT_EQ(phase.per_token_mean.count(), 0u);
  EXPECT_EQ(phase.token_gap.count(), 0u);
}

TEST(BenchRecorderTest, LatencyCountsFromWhenTheRequestWasDue) {
  Recorder recorder({.rate = 10});
  recorder.BeginPhase("load", At(0));
  RequestRecord record = recorder.StartRequest(At(100), At(350), 0, 1);  // the client was late
  recorder.OnMessage(record, Tokens(1), At(400));
  recorder.OnEnd(record, absl::OkStatus(), false, At(410));
  recorder.EndPhase(At(500));
  const PhaseStatistics phase = recorder.TakePhases().at(0);
  EXPECT_EQ(Ms(phase.first_token.max()), 300);
  EXPECT_EQ(Ms(phase.end_to_end.max()), 310);
  EXPECT_EQ(Ms(phase.send_lag.max()), 250);
}

TEST(BenchRecorderTest, EventsAndRequestsBelongToTheirOwnPhase) {
  Recorder recorder({});
  RequestRecord warm = recorder.StartRequest(At(0), At(0), 0, 3);
  recorder.OnMessage(warm, Tokens(1), At(5));
  recorder.BeginPhase("load", At(100));
  recorder.OnMessage(warm, Tokens(2), At(105));
  recorder.OnEnd(warm, absl::OkStatus(), false, At(105));
  RequestRecord late = recorder.StartRequest(At(190), At(190), 0, 2);
  recorder.OnMessage(late, Tokens(1), At(195));
  recorder.EndPhase(At(200));
  recorder.OnMessage(late, Tokens(1), At(250));
  recorder.OnEnd(late, absl::OkStatus(), false, At(250));
  const PhaseStatistics phase = recorder.TakePhases().at(0);
  EXPECT_EQ(phase.output_tokens, 3u);      // 2 of warm, 1 of late
  EXPECT_EQ(phase.token_gap.count(), 2u);  // of warm; late's gap ended after the phase
  EXPECT_EQ(phase.completed, 1u);          // warm
  EXPECT_EQ(phase.due, 1u);                // late
  EXPECT_EQ(phase.succeeded, 1u);
  EXPECT_EQ(Ms(phase.end_to_end.max()), 60);
  EXPECT_EQ(phase.good, 0u);  // none was both due and completed in the phase
  EXPECT_EQ(recorder.total_tokens(), 5u);
}

TEST(BenchRecorderTest, GoodputNeedsBothLimits) {
  Recorder recorder({.slo_ttft_ms = 50, .slo_itl_ms = 20});
  recorder.BeginPhase("load", At(0));
  Play(recorder, 0, {{50, 1}, {70, 1}});             // just good
  Play(recorder, 0, {{51, 1}, {60, 1}});             // first token late
  Play(recorder, 0, {{10, 1}, {31, 1}});             // second late
  Play(recorder, 0, {{10, 1}, {20, 198}, {41, 1}});  // one of 200 late: still good
  Play(recorder, 0, {{10, 1}, {20, 96}, {41, 3}});   // three of 100
  recorder.EndPhase(At(1000));
  const PhaseStatistics phase = recorder.TakePhases().at(0);
  EXPECT_EQ(phase.completed, 5u);
  EXPECT_EQ(phase.good, 2u);
}

TEST(BenchRecorderTest, OutcomesAddUpToWhatWasDue) {
  Recorder recorder({});
  recorder.BeginPhase("load", At(0));
  Play(recorder, 0, {{1, 1}});
  RequestRecord refused = recorder.StartRequest(At(0), At(0), 0, 1);
  recorder.OnEnd(refused, absl::ResourceExhaustedError("8 of 8 wait"), false, At(1));
  RequestRecord cut = recorder.StartRequest(At(0), At(0), 0, 1);
  recorder.OnEnd(cut, absl::CancelledError("x"), true, At(1));
  recorder.OnNotSent();
  RequestRecord brief = recorder.StartRequest(At(0), At(0), 0, 7);
  recorder.OnMessage(brief, Tokens(3), At(1));
  recorder.OnEnd(brief, absl::OkStatus(), false, At(1));
  recorder.EndPhase(At(10));
  const PhaseStatistics phase = recorder.TakePhases().at(0);
  EXPECT_EQ(phase.due, 5u);
  EXPECT_EQ(phase.succeeded + phase.failed + phase.cut_off + phase.not_sent, phase.due);
  EXPECT_EQ(phase.failed, 1u);
  EXPECT_EQ(phase.cut_off, 1u);
  EXPECT_EQ(phase.not_sent, 1u);
  EXPECT_EQ(phase.wrong_length, 1u);
  EXPECT_THAT(phase.errors.by_code(), ElementsAre(Pair("RESOURCE_EXHAUSTED", 1)));
}

TEST(BenchRecorderTest, ErrorsThatDifferInNumbersAreOneKind) {
  ErrorTable table;
  table.Add(absl::AbortedError("session 17 is busy"));
  table.Add(absl::AbortedError("session 3 is busy"));
  table.Add(absl::AbortedError("other"));
  EXPECT_THAT(table.by_kind(), ElementsAre(Pair(Pair("ABORTED", "other"), 1),
                                           Pair(Pair("ABORTED", "session # is busy"), 2)));
  EXPECT_EQ(table.total(), 3u);
}

TEST(BenchRecorderTest, KindsOfErrorsAreBounded) {
  ErrorTable table;
  for (int i = 0; i < 1000; ++i) table.Add(absl::InternalError(std::string(i, 'x')));
  EXPECT_LE(table.by_kind().size(), ErrorTable::kMaxKinds + 1);
  EXPECT_EQ(table.total(), 1000u);
  uint64_t sum = 0;
  for (const auto& [kind, count] : table.by_kind()) sum += count;
  EXPECT_EQ(sum, 1000u);
}

TEST(BenchRecorderTest, InterferingPromptsAreNotRequests) {
  Recorder recorder({.interfere_prompt = 9});
  recorder.BeginPhase("with", At(0));
  RequestRecord record = recorder.StartInterfering(At(0));
  recorder.OnMessage(record, Tokens(1), At(80));
  recorder.OnEnd(record, absl::OkStatus(), false, At(90));
  recorder.OnEnd(recorder.StartInterfering(At(90)), absl::InternalError("x"), false, At(91));
  recorder.OnEnd(recorder.StartInterfering(At(95)), absl::CancelledError("x"), true, At(96));
  recorder.EndPhase(At(100));
  const PhaseStatistics phase = recorder.TakePhases().at(0);
  EXPECT_EQ(phase.due, 0u);
  EXPECT_EQ(phase.output_tokens, 0u);
  EXPECT_EQ(phase.interference.succeeded, 1u);
  EXPECT_EQ(phase.interference.failed, 1u);
  EXPECT_EQ(Ms(phase.interference.first_token.max()), 80);
  EXPECT_EQ(phase.errors.total(), 1u);
}

TEST(BenchRecorderTest, TurnsCountTheirCachedTokens) {
  Recorder recorder({.turns = 2});
  recorder.BeginPhase("load", At(0));
  for (uint32_t turn : {0U, 1U, 1U}) {
    RequestRecord record = recorder.StartRequest(At(0), At(0), turn, 1);
    v1::GenerateResponse message = Tokens(1);
    message.mutable_usage()->set_prompt_tokens(10);
    message.mutable_usage()->set_cached_tokens(100 * turn);
    recorder.OnMessage(record, message, At(5));
    recorder.OnEnd(record, absl::OkStatus(), false, At(5));
  }
  recorder.EndPhase(At(10));
  const PhaseStatistics phase = recorder.TakePhases().at(0);
  ASSERT_EQ(phase.turns.size(), 2u);
  EXPECT_EQ(phase.turns[0].cached_tokens, 0u);
  EXPECT_EQ(phase.turns[1].cached_tokens, 200u);
  EXPECT_EQ(phase.turns[1].prompt_tokens, 20u);
  EXPECT_EQ(phase.turns[1].succeeded, 2u);
  EXPECT_EQ(phase.prompt_tokens, 30u);
}

}  // namespace
}  // namespace rivulet::cli::bench
