// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// GenerateResponses → a response object of /v1/responses and the events of its stream.
//
//   created, in_progress
//   reasoning      output_item.added, content_part.added, reasoning_text.delta ..., and their ends
//   the message    output_item.added, content_part.added, output_text.delta ..., and their ends
//   each call      output_item.added, function_call_arguments.delta, .done, output_item.done
//   completed, incomplete or failed
//
// The ends of the last item, and calls, come with the last events: the calls are known at the end.
// The whole output is kept, since the last event has it too.
//
// Threading: one thread at a time.
#ifndef RIVULET_SERVER_OPENAI_RESPONSE_REPLY_H_
#define RIVULET_SERVER_OPENAI_RESPONSE_REPLY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model_loader/tokenizer.h"
#include "rivulet/v1/inference.pb.h"
#include "server/openai/json_body.h"
#include "server/openai/logprobs.h"
#include "server/openai/tool_calls.h"
#include "server/text/thinking_splitter.h"

namespace rivulet::openai {

struct ResponseFormat {
  std::string id;
  std::string model;
  bool stream = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  uint64_t context_tokens = 0;  // that the session held before, unless it is rewritten
  Json echo = {};               // ResponseRequest::echo
  std::shared_ptr<const ToolSchemas> tools = nullptr;  // null: calls are text
};

class ResponseReply {
 public:
  // The tokenizer may be null; else it outlives the reply.
  ResponseReply(ResponseFormat format, const Tokenizer* tokenizer);

  // The next message → the events of a stream, or nothing. RESOURCE_EXHAUSTED when the output
  // becomes larger than kMaxMessageBytes.
  absl::StatusOr<std::string> Add(const v1::GenerateResponse& message);
  // The end of the output, after the last message: its events, or nothing.
  std::string Finish();
  // The last event of a stream: completed or incomplete.
  std::string LastEvent();
  std::string FailedEvent(const absl::Status& status);
  // The response object as it is now: in progress up to Finish.
  std::string Object() const;

  // Of the first message, empty before it.
  const std::string& request_id() const { return request_id_; }
  const std::string& id() const { return format_.id; }
  // Tokens of the context and of the output. After the last message.
  uint64_t tokens() const { return input_tokens_ + output_tokens_; }
  size_t kept_bytes() const { return kept_bytes_; }

 private:
  enum class Open : uint8_t { kNothing, kReasoning, kMessage };

  void Begin(const v1::GenerateResponse& message);
  absl::Status CountBytes(const v1::GenerateResponse& message);
  void CountReasoning(const v1::GenerateResponse& message);
  void AddText(Open kind, const std::string& text);
  void OpenItem(Open kind);
  void CloseItem(bool last);
  void AddCall(const ToolCall& call);
  void End(const v1::GenerateResponse& message);
  Json Part(const std::string& text, bool whole) const;
  // Keeps an event for the stream.
  void Emit(const char* type, Json fields);
  void EmitPart(const char* type, Json fields);
  std::string TakeEvents();
  Json Describe() const;
  Json UsageJson() const;

  const ResponseFormat format_;
  const Tokenizer* const tokenizer_;
  const int64_t created_;
  int64_t completed_ = 0;
  std::string request_id_;
  std::string status_ = "in_progress";
  Json incomplete_ = nullptr;
  Json error_ = nullptr;

  ThinkingSplitter splitter_{false};
  std::optional<ToolCallParser> parser_;
  Json output_ = Json::array();  // items that are whole
  Open open_ = Open::kNothing;
  std::string item_id_;  // of the open item
  std::string text_;     // of the open item
  Json logprobs_ = Json::array();
  Json new_logprobs_ = Json::array();  // since the last delta

  // Which tokens are reasoning: those before the first that adds to the answer.
  ThinkingSplitter token_splitter_{false};
  bool answers_ = false;
  uint64_t before_answer_ = 0;
  bool thought_ = false;

  uint64_t input_tokens_ = 0, cached_tokens_ = 0, output_tokens_ = 0;
  uint64_t sequence_ = 0;
  std::string events_;
  size_t kept_bytes_ = 0;
};

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_RESPONSE_REPLY_H_
