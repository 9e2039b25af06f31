// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/kserve/infer_request.h"

#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/kserve/infer_reply.h"
#include "server/kserve/infer_tensors.h"
#include "server/kserve/sampling_parameters.h"

namespace rivulet::kserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Request = wire::ModelInferRequest;
using Tensor = Request::InferInputTensor;

Tensor& AddInput(Request& request, const std::string& name, const std::string& datatype,
                 std::initializer_list<int64_t> shape = {1}) {
  Tensor& tensor = *request.add_inputs();
  tensor.set_name(name);
  tensor.set_datatype(datatype);
  for (const int64_t dimension : shape) tensor.add_shape(dimension);
  return tensor;
}

void AddText(Request& request, const std::string& name, const std::string& text) {
  AddInput(request, name, "BYTES").mutable_contents()->add_bytes_contents(text);
}
void AddBool(Request& request, const std::string& name, bool value) {
  AddInput(request, name, "BOOL").mutable_contents()->add_bool_contents(value);
}

Request Prompt(const std::string& text = "abc") {
  Request request;
  request.set_model_name("toy");
  request.set_id("mine");
  AddText(request, "text_input", text);
  return request;
}

absl::StatusOr<InferRequest> Read(const std::function<void(Request&)>& change) {
  Request request = Prompt();
  change(request);
  return ReadInferRequest(request, "toy");
}
absl::StatusOr<InferRequest> ReadSampling(const std::string& json) {
  return Read([&](Request& request) { AddText(request, "sampling_parameters", json); });
}
std::string Refused(const std::function<void(Request&)>& change) {
  const auto read = Read(change);
  EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status();
  return std::string(read.status().message());
}
std::string RefusedSampling(const std::string& json) {
  return Refused([&](Request& request) { AddText(request, "sampling_parameters", json); });
}

TEST(InferRequestTest, APromptAlone) {
  const auto read = ReadInferRequest(Prompt(), "toy");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->proto.prompt(), "abc");
  EXPECT_EQ(read->proto.request_id(), "mine");
  EXPECT_FALSE(read->proto.sampling().has_temperature());  // the checkpoint's
  EXPECT_FALSE(read->format.stream);
  EXPECT_EQ(read->format.prompt, "abc");  // is put before the text, as in Triton
  EXPECT_EQ(read->format.completions, 1u);
  EXPECT_TRUE(read->sequence.session.empty());
}

TEST(InferRequestTest, SamplingParametersMayBeTexts) {
  const auto read = ReadSampling(
      R"({"temperature": "0.5", "top_p": 0.75, "top_k": -1, "min_p": 0.25, "seed": "7", "n": 2,
          "max_tokens": "11", "min_tokens": 3, "stop": "end", "stop_token_ids": [8, "9"],
          "ignore_eos": "true", "include_stop_str_in_output": true, "frequency_penalty": 0.5,
          "presence_penalty": -0.5, "repetition_penalty": 1.25, "logit_bias": {"6": -5},
          "skip_special_tokens": true, "seed_": null})");
  ASSERT_TRUE(read.ok()) << read.status();
  const v1::SamplingParams& sampling = read->proto.sampling();
  EXPECT_EQ(sampling.temperature(), 0.5);
  EXPECT_EQ(sampling.top_p(), 0.75);
  EXPECT_TRUE(sampling.has_top_k());
  EXPECT_EQ(sampling.top_k(), 0u);
  EXPECT_EQ(sampling.min_p(), 0.25);
  EXPECT_EQ(sampling.seed(), 7u);
  EXPECT_EQ(sampling.frequency_penalty(), 0.5);
  EXPECT_EQ(sampling.presence_penalty(), -0.5);
  EXPECT_EQ(sampling.repetition_penalty(), 1.25);
  EXPECT_EQ(sampling.logit_bias().at(6), -5);
  EXPECT_EQ(read->proto.n(), 2u);
  EXPECT_EQ(read->proto.max_tokens(), 11u);
  EXPECT_THAT(read->proto.stop().strings(), ElementsAre("end"));
  EXPECT_THAT(read->proto.stop().token_ids(), ElementsAre(8, 9));
  EXPECT_TRUE(read->proto.stop().ignore_eos() && read->proto.stop().include_stop());
  EXPECT_EQ(read->proto.stop().min_tokens(), 3u);
}

TEST(InferRequestTest, TextsMayBeToldWhatToMatch) {
  const auto output = [](const std::string& json) {
    const auto read = ReadSampling(R"({"structured_outputs": )" + json + "}");
    EXPECT_TRUE(read.ok()) << json << read.status();
    return read.ok() ? read->proto.structured_output() : v1::StructuredOutput();
  };
  EXPECT_EQ(output(R"({"json": {"b": 1, "a": 2}})").json_schema(), R"({"b":1,"a":2})");
  EXPECT_EQ(output(R"({"json": "{ }"})").json_schema(), "{ }");
  EXPECT_EQ(output(R"("{\"json\": {\"b\": 1}}")").json_schema(), R"({"b":1})");
  EXPECT_TRUE(output(R"({"json_object": true})").json_object());
  EXPECT_EQ(output(R"({"regex": "a+"})").regex(), "a+");
  EXPECT_EQ(output(R"({"grammar": "root ::= [a]"})").grammar(), "root ::= [a]");
  EXPECT_THAT(output(R"({"choice": ["x", "y"]})").choices().strings(), ElementsAre("x", "y"));
  const auto read = Read([](Request& request) {
    (*request.mutable_parameters())["structured_outputs"].set_string_param(R"({"regex": "b"})");
  });
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->proto.structured_output().regex(), "b");
  for (const char* const json :
       {"{}", "[]", "1", "true", R"("x")", R"("[]")", R"("\"{}\"")", R"({"regex": 1})",
        R"({"grammar": {}})", R"({"choice": "x"})", R"({"choice": [1]})", R"({"json_object": 1})",
        R"({"guided": "x"})", R"({"regex": "a", "choice": ["a"]})"}) {
    EXPECT_THAT(RefusedSampling(std::string(R"({"structured_outputs": )") + json + "}"),
                HasSubstr("structured_outputs"))
        << json;
  }
}

TEST(InferRequestTest, AKeyOfSamplingParametersIsThereOnce) {
  EXPECT_THAT(RefusedSampling(R"({"seed": 1, "seed": 2})"), HasSubstr("twice"));
  EXPECT_THAT(RefusedSampling(R"({"temperature": NaN})"), HasSubstr("sampling_parameters"));
}

TEST(InferRequestTest, ParametersOfTheRequestAreSamplingParametersToo) {
  const auto read = Read([](Request& request) {
    (*request.mutable_parameters())["temperature"].set_double_param(0.5);
    (*request.mutable_parameters())["max_tokens"].set_int64_param(9);
    (*request.mutable_parameters())["ignore_eos"].set_bool_param(true);
    AddText(request, "sampling_parameters", R"({"top_k": 3})");
  });
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->proto.sampling().temperature(), 0.5);
  EXPECT_EQ(read->proto.sampling().top_k(), 3u);
  EXPECT_EQ(read->proto.max_tokens(), 9u);
  EXPECT_THAT(Refused([](Request& request) {
                (*request.mutable_parameters())["top_k"].set_int64_param(4);
                AddText(request, "sampling_parameters", R"({"top_k": 3})");
              }),
              HasSubstr("'top_k': it is there twice"));
}

TEST(InferRequestTest, BadSamplingParametersAreNamed) {
  EXPECT_THAT(RefusedSampling("{"), HasSubstr("sampling_parameters"));
  EXPECT_THAT(RefusedSampling("[]"), HasSubstr("JSON object"));
  EXPECT_THAT(RefusedSampling(R"({"nonsense": 1})"), HasSubstr("'nonsense'"));
  EXPECT_THAT(RefusedSampling(R"({"logprobs": 1})"), HasSubstr("'logprobs'"));
  EXPECT_THAT(RefusedSampling(R"({"temperature": "hot"})"), HasSubstr("'temperature'"));
  EXPECT_THAT(RefusedSampling(R"({"temperature": {}})"), HasSubstr("'temperature'"));
  EXPECT_THAT(RefusedSampling(R"({"max_tokens": -1})"), HasSubstr("'max_tokens'"));
  EXPECT_THAT(RefusedSampling(R"({"max_tokens": 4294967296})"), HasSubstr("'max_tokens'"));
  EXPECT_THAT(RefusedSampling(R"({"max_tokens": 1.5})"), HasSubstr("'max_tokens'"));
  EXPECT_THAT(RefusedSampling(R"({"seed": 18446744073709551615})"), HasSubstr("'seed'"));
  EXPECT_THAT(RefusedSampling(R"({"seed": -1})"), HasSubstr("'seed'"));
  EXPECT_THAT(RefusedSampling(R"({"top_k": -2})"), HasSubstr("'top_k'"));
  EXPECT_THAT(RefusedSampling(R"({"stop": [1]})"), HasSubstr("'stop'"));
  EXPECT_THAT(RefusedSampling(R"({"stop_token_ids": 1})"), HasSubstr("'stop_token_ids'"));
  EXPECT_THAT(RefusedSampling(R"({"logit_bias": {"x": 1}})"), HasSubstr("'logit_bias'"));
  EXPECT_THAT(RefusedSampling(R"({"logit_bias": {"+7": 1}})"), HasSubstr("'logit_bias'"));
  EXPECT_THAT(RefusedSampling(R"({"ignore_eos": 1})"), HasSubstr("'ignore_eos'"));
  EXPECT_THAT(RefusedSampling(R"({"skip_special_tokens": false})"),
              HasSubstr("'skip_special_tokens'"));
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{\"a\":";
  EXPECT_THAT(RefusedSampling(deep), HasSubstr("sampling_parameters"));
  EXPECT_THAT(RefusedSampling(std::string(SamplingParameters::kLargestJson + 1, ' ')),
              HasSubstr("at most"));
}

TEST(InferRequestTest, SequencesAreSessionsWithNamesOfTheirOwn) {
  const auto sequence = [](const std::function<void(wire::InferParameter&)>& set) {
    const auto read = Read([&](Request& request) {
      set((*request.mutable_parameters())["sequence_id"]);
      (*request.mutable_parameters())["sequence_start"].set_bool_param(true);
      (*request.mutable_parameters())["sequence_end"].set_bool_param(false);
    });
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->sequence.start);
    EXPECT_FALSE(read->sequence.end);
    return read->sequence.session;
  };
  using Parameter = wire::InferParameter;
  EXPECT_EQ(sequence([](Parameter& id) { id.set_int64_param(7); }), "sequence:7");
  EXPECT_EQ(sequence([](Parameter& id) { id.set_uint64_param(UINT64_MAX); }),
            "sequence:18446744073709551615");
  EXPECT_EQ(sequence([](Parameter& id) { id.set_string_param("me"); }), "sequence:me");
}

TEST(InferRequestTest, BadParametersAreNamed) {
  const auto refused = [](const std::string& name,
                          const std::function<void(wire::InferParameter&)>& set) {
    return Refused([&](Request& request) { set((*request.mutable_parameters())[name]); });
  };
  using Parameter = wire::InferParameter;
  EXPECT_THAT(refused("sequence_id", [](Parameter& p) { p.set_int64_param(-1); }),
              HasSubstr("'sequence_id'"));
  EXPECT_THAT(refused("sequence_id", [](Parameter& p) { p.set_bool_param(true); }),
              HasSubstr("'sequence_id'"));
  EXPECT_THAT(refused("sequence_start", [](Parameter& p) { p.set_bool_param(true); }),
              HasSubstr("sequence_id"));
  EXPECT_THAT(refused("sequence_end", [](Parameter& p) { p.set_int64_param(1); }),
              HasSubstr("'sequence_end'"));
  EXPECT_THAT(refused("priority", [](Parameter& p) { p.set_uint64_param(1); }),
              HasSubstr("'priority'"));
  EXPECT_THAT(refused("timeout", [](Parameter& p) { p.set_string_param("1"); }),
              HasSubstr("'timeout'"));
  EXPECT_THAT(refused("anything", [](Parameter& p) { p.set_string_param("1"); }),
              HasSubstr("'anything'"));
}

TEST(InferRequestTest, ATimeoutHasALimit) {
  const auto read = Read([](Request& request) {
    (*request.mutable_parameters())["timeout"].set_uint64_param(UINT64_MAX);
    (*request.mutable_parameters())["priority"].set_uint64_param(0);
    (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
  });
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->timeout, std::chrono::hours(24 * 365));
}

TEST(InferRequestTest, OtherModelsAndVersionsAreNotFound) {
  for (const auto& [model, version] : {std::pair("other", ""), std::pair("toy", "2")}) {
    Request request = Prompt();
    request.set_model_name(model);
    request.set_model_version(version);
    EXPECT_TRUE(absl::IsNotFound(ReadInferRequest(request, "toy").status()));
  }
  Request request = Prompt();
  request.set_model_version("1");
  EXPECT_TRUE(ReadInferRequest(request, "toy").ok());
}

TEST(InferRequestTest, TokenIdsOfAnyIntegerType) {
  const auto ids = [](const std::function<void(Tensor&)>& fill, const std::string& type) {
    Request request;
    request.set_model_name("toy");
    fill(AddInput(request, "input_ids", type, {1, 3}));
    const auto read = ReadInferRequest(request, "toy");
    EXPECT_TRUE(read.ok()) << read.status();
    const auto& found = read->proto.token_ids().ids();
    return std::vector<uint32_t>(found.begin(), found.end());
  };
  const auto fill = [](auto add) {
    return [add](Tensor& tensor) {
      for (const int id : {3, 4, 5}) (tensor.mutable_contents()->*add)(id);
    };
  };
  using Contents = wire::InferTensorContents;
  EXPECT_THAT(ids(fill(&Contents::add_int_contents), "INT32"), ElementsAre(3, 4, 5));
  EXPECT_THAT(ids(fill(&Contents::add_int64_contents), "INT64"), ElementsAre(3, 4, 5));
  EXPECT_THAT(ids(fill(&Contents::add_uint_contents), "UINT32"), ElementsAre(3, 4, 5));
  Request raw;
  raw.set_model_name("toy");
  AddInput(raw, "input_ids", "INT64", {2});
  raw.add_raw_input_contents(std::string("\x05\0\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0", 16));
  EXPECT_THAT(ReadInferRequest(raw, "toy")->proto.token_ids().ids(), ElementsAre(5, 513));
}

TEST(InferRequestTest, BadTensorsAreNamed) {
  EXPECT_THAT(Refused([](Request& r) { r.clear_inputs(); }), HasSubstr("text_input"));
  EXPECT_THAT(Refused([](Request& r) {
                AddInput(r, "input_ids", "INT32").mutable_contents()->add_int_contents(1);
              }),
              HasSubstr("input_ids"));
  EXPECT_THAT(Refused([](Request& r) { AddText(r, "text_input", "x"); }), HasSubstr("twice"));
  EXPECT_THAT(Refused([](Request& r) { AddText(r, "other", "x"); }), HasSubstr("'other'"));
  EXPECT_THAT(Refused([](Request& r) { AddText(r, "stream", "x"); }), HasSubstr("not BOOL"));
  EXPECT_THAT(Refused([](Request& r) { r.mutable_inputs(0)->set_shape(0, 2); }),
              HasSubstr("'text_input'"));
  EXPECT_THAT(Refused([](Request& r) { r.mutable_inputs(0)->set_shape(0, -1); }),
              HasSubstr("'text_input'"));
  EXPECT_THAT(
      Refused([](Request& r) { r.mutable_inputs(0)->mutable_contents()->clear_bytes_contents(); }),
      HasSubstr("'text_input'"));
  EXPECT_THAT(Refused([](Request& r) {
                r.mutable_inputs(0)->mutable_contents()->set_bytes_contents(0, "\xFF");
              }),
              HasSubstr("UTF-8"));
  EXPECT_THAT(Refused([](Request& r) {
                (*r.mutable_inputs(0)->mutable_parameters())["shared_memory_region"];
              }),
              HasSubstr("'shared_memory_region'"));
  EXPECT_THAT(Refused([](Request& r) {
                r.add_raw_input_contents("x");
                r.add_raw_input_contents("x");
              }),
              HasSubstr("raw_input_contents"));
  for (const std::string& bytes :
       {std::string(), std::string("\x01\0\0", 3), std::string("\x02\0\0\0x", 5),
        std::string("\xFF\xFF\xFF\xFFx", 5)}) {
    EXPECT_THAT(Refused([&](Request& r) { r.add_raw_input_contents(bytes); }),
                HasSubstr("raw contents"));
  }
  EXPECT_THAT(Refused([](Request& r) { AddBool(r, "return_logprobs", true); }),
              HasSubstr("'return_logprobs'"));
  EXPECT_THAT(Refused([](Request& r) { r.add_outputs()->set_name("other"); }),
              HasSubstr("'other'"));
  EXPECT_THAT(Refused([](Request& r) {
                auto& output = *r.add_outputs();
                output.set_name("text_output");
                (*output.mutable_parameters())["classification"].set_int64_param(3);
              }),
              HasSubstr("'classification'"));
}

TEST(InferRequestTest, BadTokenIdsAreNamed) {
  const auto refused = [](const std::string& type, std::initializer_list<int64_t> shape,
                          const std::string& raw) {
    Request request;
    request.set_model_name("toy");
    AddInput(request, "input_ids", type, shape);
    request.add_raw_input_contents(raw);
    const auto read = ReadInferRequest(request, "toy");
    EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status();
    return std::string(read.status().message());
  };
  EXPECT_THAT(refused("FP32", {1}, std::string(4, '\0')), HasSubstr("FP32"));
  EXPECT_THAT(refused("INT32", {2}, std::string(4, '\0')), HasSubstr("4 bytes came"));
  EXPECT_THAT(refused("INT32", {1}, "\xFF\xFF\xFF\xFF"), HasSubstr("-1"));
  EXPECT_THAT(refused("INT64", {1}, std::string("\0\0\0\0\1\0\0\0", 8)), HasSubstr("4294967296"));
  EXPECT_THAT(refused("INT32", {std::numeric_limits<int64_t>::max(), 2}, ""), HasSubstr("shape"));
  EXPECT_THAT(refused("INT32", {1 << 20, 1 << 20}, ""), HasSubstr("shape"));
}

TEST(InferRequestTest, StreamsHaveOneCompletionAndNoPrompt) {
  const auto stream = Read([](Request& r) { AddBool(r, "stream", true); });
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_TRUE(stream->format.stream);
  EXPECT_EQ(stream->format.prompt, "");
  EXPECT_THAT(Refused([](Request& r) {
                AddBool(r, "stream", true);
                AddBool(r, "exclude_input_in_output", false);
              }),
              HasSubstr("exclude_input_in_output"));
  EXPECT_THAT(Refused([](Request& r) {
                AddBool(r, "stream", true);
                AddText(r, "sampling_parameters", R"({"n": 2})");
              }),
              HasSubstr("n = 2"));
  const auto without = Read([](Request& r) { AddBool(r, "exclude_input_in_output", true); });
  EXPECT_EQ(without->format.prompt, "");
}

// ---- The reply.

v1::GenerateResponse Message(const std::string& text, const std::vector<uint32_t>& ids,
                             v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED,
                             uint32_t index = 0) {
  v1::GenerateResponse message;
  message.set_text(text);
  for (const uint32_t id : ids) message.add_token_ids(id);
  message.set_finish_reason(reason);
  message.set_index(index);
  message.mutable_usage()->set_prompt_tokens(3);
  return message;
}

std::string Length(size_t size) { return {static_cast<char>(size), 0, 0, 0}; }

TEST(InferReplyTest, AStreamHasAResponseForEachPieceAndAFlagInTheLast) {
  InferReply reply({.id = "x", .model = "toy", .stream = true, .output_ids = true});
  const auto first = reply.Add(Message("ab", {1, 2}));
  ASSERT_TRUE(first->has_value());
  EXPECT_EQ((*first)->id(), "x");
  EXPECT_EQ((*first)->outputs(0).name(), "text_output");
  EXPECT_EQ((*first)->raw_output_contents(0), Length(2) + "ab");
  EXPECT_EQ((*first)->raw_output_contents(1), Length(1) + Length(2));
  EXPECT_FALSE((*first)->parameters().at("triton_final_response").bool_param());
  EXPECT_FALSE(reply.Add(Message("", {}))->has_value());
  const auto last = reply.Add(Message("", {}, v1::FINISH_REASON_EOS));
  EXPECT_EQ((*last)->raw_output_contents(0), Length(0));
  EXPECT_TRUE((*last)->parameters().at("triton_final_response").bool_param());
  EXPECT_TRUE(reply.complete());
}

TEST(InferReplyTest, AWholeReplyHasAllCompletions) {
  InferReply reply({.prompt = "p",
                    .completions = 2,
                    .finish_reason = true,
                    .input_tokens = true,
                    .output_tokens = true});
  EXPECT_FALSE(reply.Add(Message("a", {1}))->has_value());
  EXPECT_FALSE(reply.Add(Message("b", {2}, v1::FINISH_REASON_LENGTH, 1))->has_value());
  const auto last = reply.Add(Message("c", {3, 4}, v1::FINISH_REASON_STOP));
  ASSERT_TRUE(last->has_value());
  EXPECT_EQ((*last)->raw_output_contents(0), Length(3) + "pac" + Length(2) + "pb");
  EXPECT_EQ((*last)->raw_output_contents(1), Length(4) + "stop" + Length(6) + "length");
  EXPECT_EQ((*last)->raw_output_contents(2), Length(3));
  EXPECT_EQ((*last)->raw_output_contents(3), Length(3) + Length(1));
  EXPECT_THAT((*last)->outputs(0).shape(), ElementsAre(2));
}

TEST(InferReplyTest, AReplyThatFailsIsNotComplete) {
  InferReply reply({.stream = true});
  const auto last = reply.Add(Message("a", {1}, v1::FINISH_REASON_DEADLINE));
  EXPECT_FALSE((*last)->parameters().at("triton_final_response").bool_param());
  EXPECT_FALSE(reply.complete());
}

TEST(InferReplyTest, AWholeReplyHasALimit) {
  InferReply reply(InferFormat{});
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    status = reply.Add(Message(std::string(1 << 20, 'x'), {1})).status();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

}  // namespace
}  // namespace rivulet::kserve
