// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// GenerateResponses → the JSON of a reply: chunks of a stream, or one object.
//
// Threading: one thread at a time.
#ifndef RIVULET_SERVER_OPENAI_REPLY_H_
#define RIVULET_SERVER_OPENAI_REPLY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model_loader/tokenizer.h"
#include "rivulet/v1/inference.pb.h"
#include "server/openai/api_request.h"
#include "server/openai/json_body.h"
#include "server/openai/tool_calls.h"
#include "server/text/thinking_splitter.h"

namespace rivulet::openai {

// A prompt that comes before its completions.
struct Echo {
  std::string text;
  std::vector<uint32_t> tokens = {};  // with log-probabilities: those of the whole prompt
};

// What a reply says of the request. Its numbers and flags, and the prompts only for an echo.
struct ReplyFormat {
  Endpoint endpoint = Endpoint::kChat;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  bool token_ids = false;
  uint32_t choices = 1;  // of each prompt
  size_t prompts = 1;
  std::string model = {};
  std::shared_ptr<const ToolSchemas> tools = nullptr;  // null: calls are text
  std::vector<Echo> echoes = {};                       // of each prompt; empty: none
};

class Reply {
 public:
  // The tokenizer may be null; else it outlives the reply.
  Reply(ReplyFormat format, const Tokenizer* tokenizer);

  // The next message of a prompt. In a stream, returns its events; else keeps it, and returns
  // nothing. Nothing either for a choice that failed without a token: the error follows.
  // RESOURCE_EXHAUSTED when a reply that is not streamed becomes larger than kMaxMessageBytes.
  absl::StatusOr<std::string> Add(v1::GenerateResponse message, size_t prompt = 0);

  // The end of a stream: its usage if asked for, and "[DONE]".
  std::string LastEvents() const;
  // The whole reply. After the last message.
  std::string Whole();

  // From the first message, empty before it.
  const std::string& request_id() const { return request_id_; }
  const std::string& session_id() const { return session_id_; }
  // Log-probabilities kept for Whole.
  size_t kept_logprobs() const { return kept_logprobs_; }

 private:
  struct Choice {
    Choice(bool starts_thinking, const std::shared_ptr<const ToolSchemas>& tools)
        : splitter(starts_thinking) {
      if (tools != nullptr) parser.emplace(tools);
    }

    ThinkingSplitter splitter;
    std::optional<ToolCallParser> parser;
    std::vector<ToolCall> calls;  // known at the end
    bool begun = false;           // a stream's first chunk was made
    bool echoed = false;          // its prompt's text was added, and its log-probabilities were
    bool echoed_logprobs = false;
    std::string thinking;
    std::string answer;
    size_t text_offset = 0;  // characters before the next token (completions' logprobs)
    Json logprobs;
    std::vector<uint32_t> tokens;
    std::vector<size_t> guessed;  // indices of tokens
    std::string finish;
    std::string matched_stop;
  };

  void Begin(const v1::GenerateResponse& message);
  const Echo* EchoOf(const v1::GenerateResponse& message) const;
  // What the text adds to thinking and answer.
  ThinkingSplitter::Parts Split(const v1::GenerateResponse& message, Choice& choice) const;
  Json Frame(const char* object) const;
  Json Chunk(const v1::GenerateResponse& message, Choice& choice);
  Json Delta(const ThinkingSplitter::Parts& parts, Choice& choice) const;
  absl::Status Keep(const v1::GenerateResponse& message, Choice& choice);
  Json WholeChoice(uint32_t index, Choice& choice) const;
  static Json CallsJson(const Choice& choice, bool with_index);
  void AddLogprobs(const v1::GenerateResponse& message, Choice& choice, Json& to) const;
  Json NoLogprobs() const;
  void AddCompletionLogprob(const std::string& text, const v1::TokenLogprob* logprob,
                            Choice& choice, Json& to) const;
  std::string FirstText(uint32_t token) const;
  void AddEchoLogprobs(const v1::GenerateResponse& message, Choice& choice, Json& to) const;
  Json UsageJson() const;

  const ReplyFormat format_;
  const Tokenizer* const tokenizer_;
  const int64_t created_;
  std::string request_id_;
  std::string session_id_;
  std::vector<Choice> choices_;
  struct PromptUsage {
    uint64_t tokens = 0, cached = 0;
  };
  std::vector<PromptUsage> prompts_;
  uint64_t completion_tokens_ = 0;
  uint64_t drafted_tokens_ = 0, accepted_tokens_ = 0;
  size_t kept_bytes_ = 0;
  size_t kept_logprobs_ = 0;
};

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_REPLY_H_
