// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/vllm/engine_request.h"

#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/vllm/engine_reply.h"

namespace rivulet::vllm_engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

wire::GenerateRequest Tokenized() {
  wire::GenerateRequest request;
  for (const uint32_t id : {5u, 6u, 7u}) request.mutable_tokenized()->add_input_ids(id);
  return request;
}

// Of a request that `change` was made to.
absl::StatusOr<EngineRequest> Read(const std::function<void(wire::GenerateRequest&)>& change) {
  wire::GenerateRequest request = Tokenized();
  change(request);
  return ReadRequest(request);
}
absl::StatusOr<EngineRequest> ReadParams(const std::function<void(wire::SamplingParams&)>& change) {
  return Read([&](wire::GenerateRequest& request) { change(*request.mutable_sampling_params()); });
}

// vLLM's own defaults, not the checkpoint's.
TEST(EngineRequestTest, WhatIsLeftOutHasVllmsDefault) {
  const auto read = ReadRequest(Tokenized());
  ASSERT_TRUE(read.ok()) << read.status();
  const v1::GenerateRequest& proto = read->proto;
  EXPECT_THAT(proto.token_ids().ids(), ElementsAre(5, 6, 7));
  const v1::SamplingParams& sampling = proto.sampling();
  EXPECT_TRUE(sampling.has_temperature() && sampling.has_top_p() && sampling.has_top_k());
  EXPECT_TRUE(sampling.has_min_p() && sampling.has_repetition_penalty());
  EXPECT_EQ(sampling.temperature(), 1);
  EXPECT_EQ(sampling.top_p(), 1);
  EXPECT_EQ(sampling.top_k(), 0u);
  EXPECT_EQ(sampling.min_p(), 0);
  EXPECT_EQ(sampling.repetition_penalty(), 1);
  EXPECT_FALSE(sampling.has_seed());
  EXPECT_FALSE(proto.has_max_tokens());
  EXPECT_FALSE(proto.has_n());
  EXPECT_EQ(proto.logprobs(), 0u);
  EXPECT_FALSE(proto.has_structured_output());
}

TEST(EngineRequestTest, EveryServedFieldArrives) {
  const auto read = Read([](wire::GenerateRequest& request) {
    request.set_request_id("mine");
    request.set_stream(true);
    request.mutable_tokenized()->set_original_text("for logs");
    request.set_data_parallel_rank(0);
    wire::SamplingParams& params = *request.mutable_sampling_params();
    params.set_temperature(0);
    params.set_top_p(0.5);
    params.set_top_k(9);
    params.set_min_p(0.25);
    params.set_frequency_penalty(0.5);
    params.set_presence_penalty(-0.5);
    params.set_repetition_penalty(1.25);
    params.set_max_tokens(11);
    params.set_min_tokens(3);
    params.add_stop("end");
    params.add_stop_token_ids(8);
    params.set_skip_special_tokens(true);
    params.set_spaces_between_special_tokens(true);
    params.set_ignore_eos(true);
    params.set_n(4);
    params.set_logprobs(3);
    params.set_prompt_logprobs(2);
    params.set_seed(17);
    params.set_include_stop_str_in_output(true);
    (*params.mutable_logit_bias())[6] = -5;
    params.set_grammar_from_first_token(true);
    params.set_regex("a+");
  });
  ASSERT_TRUE(read.ok()) << read.status();
  const v1::GenerateRequest& proto = read->proto;
  EXPECT_EQ(proto.request_id(), "mine");
  EXPECT_EQ(proto.sampling().temperature(), 0);
  EXPECT_EQ(proto.sampling().top_p(), 0.5);
  EXPECT_EQ(proto.sampling().top_k(), 9u);
  EXPECT_EQ(proto.sampling().min_p(), 0.25);
  EXPECT_EQ(proto.sampling().frequency_penalty(), 0.5);
  EXPECT_EQ(proto.sampling().presence_penalty(), -0.5);
  EXPECT_EQ(proto.sampling().repetition_penalty(), 1.25);
  EXPECT_EQ(proto.sampling().seed(), 17u);
  EXPECT_EQ(proto.sampling().logit_bias().at(6), -5);
  EXPECT_EQ(proto.max_tokens(), 11u);
  EXPECT_EQ(proto.n(), 4u);
  EXPECT_EQ(proto.logprobs(), 3u);
  EXPECT_EQ(proto.prompt_logprobs(), 2u);
  EXPECT_THAT(proto.stop().strings(), ElementsAre("end"));
  EXPECT_THAT(proto.stop().token_ids(), ElementsAre(8));
  EXPECT_TRUE(proto.stop().ignore_eos() && proto.stop().include_stop());
  EXPECT_EQ(proto.stop().min_tokens(), 3u);
  EXPECT_EQ(proto.structured_output().regex(), "a+");
  EXPECT_TRUE(read->format.stream);
}

TEST(EngineRequestTest, ATextIsTokenizedWithItsSpecialTokens) {
  const auto read = Read([](wire::GenerateRequest& request) { request.set_text("<s>abc"); });
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->proto.prompt(), "<s>abc");
  EXPECT_TRUE(read->proto.special_tokens());
}

TEST(EngineRequestTest, WhatIsNotServedIsRefusedByName) {
  const auto refused = [](const std::function<void(wire::GenerateRequest&)>& change) {
    const auto read = Read(change);
    EXPECT_FALSE(read.ok());
    EXPECT_TRUE(read.ok() || absl::IsInvalidArgument(read.status())) << read.status();
    return std::string(read.status().message());
  };
  using Request = wire::GenerateRequest;
  EXPECT_THAT(refused([](Request& r) { r.mutable_mm_inputs(); }), HasSubstr("mm_inputs"));
  EXPECT_THAT(refused([](Request& r) { r.add_extra_mm_inputs(); }), HasSubstr("extra_mm_inputs"));
  EXPECT_THAT(refused([](Request& r) { r.mutable_media_refs(); }), HasSubstr("media_refs"));
  EXPECT_THAT(refused([](Request& r) { r.mutable_kv_transfer_params(); }),
              HasSubstr("kv_transfer_params"));
  EXPECT_THAT(refused([](Request& r) { r.set_kv_transfer_params_json("{}"); }),
              HasSubstr("kv_transfer_params_json"));
  EXPECT_THAT(refused([](Request& r) { r.set_data_parallel_rank(1); }),
              HasSubstr("data_parallel_rank = 1"));
  EXPECT_THAT(
      refused([](Request& r) { r.mutable_sampling_params()->set_truncate_prompt_tokens(5); }),
      HasSubstr("truncate_prompt_tokens"));
  EXPECT_THAT(refused([](Request& r) { r.clear_input(); }), HasSubstr("no input"));
  EXPECT_THAT(refused([](Request& r) {
                r.set_text("x");
                r.mutable_sampling_params()->set_prompt_logprobs(0);
              }),
              HasSubstr("prompt_logprobs"));
}

TEST(EngineRequestTest, NumbersBeyondTheirLimitsAreNamed) {
  const auto refused = [](const std::function<void(wire::SamplingParams&)>& change) {
    return std::string(ReadParams(change).status().message());
  };
  using Params = wire::SamplingParams;
  EXPECT_THAT(refused([](Params& p) { p.set_seed(-2); }), HasSubstr("seed = -2"));
  EXPECT_THAT(refused([](Params& p) { p.set_seed(std::numeric_limits<int32_t>::min()); }),
              HasSubstr("seed = -2147483648"));
  EXPECT_THAT(refused([](Params& p) { p.set_logprobs(-1); }), HasSubstr("logprobs = -1"));
  EXPECT_THAT(refused([](Params& p) { p.set_prompt_logprobs(-1); }),
              HasSubstr("prompt_logprobs = -1"));
  EXPECT_THAT(refused([](Params& p) { (*p.mutable_logit_bias())[-1] = 1; }),
              HasSubstr("logit_bias: -1"));
}

TEST(EngineRequestTest, AStructuralTagIsNotImplemented) {
  const auto read = ReadParams([](wire::SamplingParams& p) { p.set_structural_tag("{}"); });
  EXPECT_TRUE(absl::IsUnimplemented(read.status())) << read.status();
}

TEST(EngineRequestTest, ASeedOfMinusOneIsDrawn) {
  const auto read = ReadParams([](wire::SamplingParams& p) { p.set_seed(-1); });
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->proto.sampling().has_seed());
}

// ---- The reply.

v1::GenerateResponse Message(const std::vector<uint32_t>& tokens,
                             v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED) {
  v1::GenerateResponse message;
  for (const uint32_t token : tokens) {
    message.add_token_ids(token);
    v1::TokenLogprob& logprob = *message.add_logprobs();
    logprob.set_token_id(token);
    logprob.set_logprob(-1);
    v1::TokenLogprob& top = *logprob.add_top();
    top.set_token_id(token + 1);
    top.set_logprob(-0.5);
  }
  message.set_finish_reason(reason);
  return message;
}

TEST(EngineReplyTest, AStreamHasChunksAndACompleteWithoutThem) {
  EngineReply reply({.stream = true, .logprobs = 0});
  const auto first = reply.Add(Message({1, 2}));
  ASSERT_EQ(first->size(), 1u);
  EXPECT_THAT(first->front().chunk().token_ids(), ElementsAre(1, 2));
  EXPECT_THAT(first->front().chunk().output_logprobs().token_ids(), ElementsAre(1, 2));
  EXPECT_EQ(first->front().chunk().output_logprobs().top_logprobs_size(), 0);
  const auto last = reply.Add(Message({3}, v1::FINISH_REASON_LENGTH));
  ASSERT_EQ(last->size(), 2u);
  EXPECT_THAT(last->front().chunk().token_ids(), ElementsAre(3));
  EXPECT_THAT(last->back().complete().output_ids(), IsEmpty());
  EXPECT_EQ(last->back().complete().finish_reason(), "length");
}

TEST(EngineReplyTest, AWholeReplyHasEverythingAtOnce) {
  EngineReply reply({.stream = false, .logprobs = 1});
  EXPECT_THAT(*reply.Add(Message({1, 2})), IsEmpty());
  EXPECT_EQ(reply.kept_logprobs(), 2u);
  const auto last = reply.Add(Message({3}, v1::FINISH_REASON_EOS));
  ASSERT_EQ(last->size(), 1u);
  const wire::GenerateComplete& complete = last->front().complete();
  EXPECT_THAT(complete.output_ids(), ElementsAre(1, 2, 3));
  EXPECT_EQ(complete.finish_reason(), "stop");
  EXPECT_EQ(complete.matched_stop_case(), wire::GenerateComplete::MATCHED_STOP_NOT_SET);
  ASSERT_EQ(complete.output_logprobs().top_logprobs_size(), 3);
  EXPECT_THAT(complete.output_logprobs().top_logprobs(2).token_ids(), ElementsAre(4));
  EXPECT_EQ(reply.kept_logprobs(), 0u);
}

TEST(EngineReplyTest, SaysWhatHasStoppedIt) {
  EngineReply reply({.stream = false, .stop_token_ids = {3}});
  const auto token = reply.Add(Message({1, 3}, v1::FINISH_REASON_STOP));
  EXPECT_EQ(token->front().complete().matched_token_id(), 3u);
  v1::GenerateResponse text = Message({1}, v1::FINISH_REASON_STOP);
  text.set_matched_stop("end");
  text.set_index(1);
  EXPECT_EQ(reply.Add(text)->front().complete().matched_stop_str(), "end");
  v1::GenerateResponse grammar = Message({4}, v1::FINISH_REASON_STOP);
  grammar.set_index(2);
  EXPECT_EQ(reply.Add(grammar)->front().complete().matched_stop_case(),
            wire::GenerateComplete::MATCHED_STOP_NOT_SET);
}

TEST(EngineReplyTest, TheFirstTokenOfAContextHasNoLogprob) {
  v1::GenerateResponse message = Message({9}, v1::FINISH_REASON_LENGTH);
  for (const uint32_t id : {6u, 7u}) {
    v1::TokenLogprob& logprob = *message.add_prompt_logprobs();
    logprob.set_token_id(id);
    logprob.set_logprob(-2);
  }
  EngineReply context({.stream = true, .prompt_logprobs = 1, .prompt_tokens = 3, .first_token = 5});
  const auto chunks = context.Add(message);
  const wire::InputLogProbs& prompt = chunks->front().chunk().input_logprobs();
  EXPECT_THAT(prompt.token_ids(), ElementsAre(5, 6, 7));
  EXPECT_FALSE(prompt.token_logprobs(0).has_value());
  EXPECT_EQ(prompt.token_logprobs(1).value(), -2);
  EngineReply session(
      {.stream = false, .prompt_logprobs = 1, .prompt_tokens = 2, .first_token = 6});
  EXPECT_THAT(session.Add(message)->front().complete().input_logprobs().token_ids(),
              ElementsAre(6, 7));
}

TEST(EngineReplyTest, AWholeReplyHasALimit) {
  EngineReply reply({.stream = false});
  v1::GenerateResponse large;
  large.mutable_token_ids()->Resize(1 << 20, 7);
  absl::Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) status = reply.Add(large).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("stream"));
}

}  // namespace
}  // namespace rivulet::vllm_engine
