// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/conversation.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/jinja/json_text.h"
#include "server/text/detokenizer.h"

namespace rivulet {
namespace {

using jinja::FindEntry;
using jinja::Mapping;
using jinja::Value;

constexpr std::string_view kThink = "<think>";

absl::Status WrongJson(const std::string& field, const char* wanted) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": it must be a JSON ", wanted));
}

Value ClientText(const std::string& text, bool plain) {
  return Value::Marked(MarkedText::Of(text, plain));
}

absl::StatusOr<Value> ReadObject(const std::string& text, const std::string& field, bool plain) {
  RIVULET_ASSIGN_OR_RETURN(Value value, jinja::ParseJsonValue(text, field, plain));
  if (value.mapping() == nullptr) return WrongJson(field, "object {...}");
  return value;
}

// The list that templates take in place of a text.
absl::StatusOr<Value> ReadParts(const v1::Message& proto, const std::string& field, bool plain) {
  auto list = std::make_shared<jinja::Sequence>();
  for (int i = 0; i < proto.parts_size(); ++i) {
    const v1::ContentPart& part = proto.parts(i);
    if (part.type() != "text") {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".parts[", i, "].type = \"", part.type().substr(0, 100),
                       "\": this server takes text only, no images, audio or video"));
    }
    auto entry = std::make_shared<Mapping>();
    SetEntry(*entry, Value::String("type"), Value::String("text"));
    SetEntry(*entry, Value::String("text"), ClientText(part.text(), plain));
    list->items.emplace_back(Value::MappingPointer(std::move(entry)));
  }
  Measure(*list);
  return Value(std::move(list));
}

absl::Status ReadToolCalls(const v1::Message& proto, const std::string& field, bool plain,
                           Mapping& message) {
  if (proto.tool_calls().empty()) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(Value calls,
                           jinja::ParseJsonValue(proto.tool_calls(), field + ".tool_calls", plain));
  if (calls.sequence() == nullptr) return WrongJson(field + ".tool_calls", "array [...]");
  SetEntry(message, Value::String("tool_calls"), std::move(calls));
  return absl::OkStatus();
}

absl::Status ReadFields(const v1::Message& proto, const std::string& field, bool plain,
                        Mapping& message) {
  if (proto.fields().empty()) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const Value fields,
                           ReadObject(proto.fields(), field + ".fields", plain));
  for (const auto& [key, value] : fields.mapping()->entries) SetEntry(message, key, value);
  return absl::OkStatus();
}

bool IsWord(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

// A role that is a word is not plain: templates make a token of it.
void UnmarkRole(Mapping& message) {
  const Value* const role = FindEntry(message, "role");
  const bool word = role != nullptr && role->text() != nullptr && IsWord(role->text()->bytes);
  if (word) SetEntry(message, Value::String("role"), Value::String(role->text()->bytes));
}

absl::StatusOr<Value> ReadMessage(const v1::Message& proto, const std::string& field, bool plain) {
  auto message = std::make_shared<Mapping>();
  const auto set = [&](const char* name, const std::string& text) {
    SetEntry(*message, Value::String(name), ClientText(text, plain));
  };
  set("role", proto.role());
  if (proto.has_content() && proto.parts_size() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": set content or parts, not both"));
  }
  if (proto.has_content()) set("content", proto.content());
  if (proto.parts_size() > 0) {
    RIVULET_ASSIGN_OR_RETURN(Value parts, ReadParts(proto, field, plain));
    SetEntry(*message, Value::String("content"), std::move(parts));
  }
  if (!proto.name().empty()) set("name", proto.name());
  if (proto.has_reasoning_content()) set("reasoning_content", proto.reasoning_content());
  RIVULET_RETURN_IF_ERROR(ReadToolCalls(proto, field, plain, *message));
  if (!proto.tool_call_id().empty()) set("tool_call_id", proto.tool_call_id());
  RIVULET_RETURN_IF_ERROR(ReadFields(proto, field, plain, *message));
  UnmarkRole(*message);
  Measure(*message);
  return Value(Value::MappingPointer(std::move(message)));
}

absl::Status ReadVariables(const v1::Messages& proto, bool plain, ChatTemplateInput& input) {
  if (!proto.variables().empty()) {
    RIVULET_ASSIGN_OR_RETURN(const Value variables,
                             ReadObject(proto.variables(), "messages.variables", plain));
    for (const auto& [key, value] : variables.mapping()->entries) {
      input.variables.emplace_back(key.text()->bytes, value);
    }
  }
  if (proto.has_enable_thinking()) {
    input.variables.emplace_back("enable_thinking", Value(proto.enable_thinking()));
  }
  return absl::OkStatus();
}

// The text of generated tokens, with special tokens as they are written; the rest is plain.
MarkedText WrittenText(const Tokenizer& tokenizer, const std::vector<uint32_t>& tokens) {
  MarkedText text;
  std::string bytes;
  for (const uint32_t token : tokens) {
    if (token >= tokenizer.vocab_size()) continue;
    bytes += tokenizer.TokenBytes(token);
    if (!tokenizer.TokenBytes(token).empty()) continue;
    text.Append(MarkedText::Of(ToUtf8(std::exchange(bytes, {})), /*plain=*/true));
    text.Append(tokenizer.Piece(token));
  }
  text.Append(MarkedText::Of(ToUtf8(bytes), /*plain=*/true));
  return text;
}

bool IsControl(const Tokenizer& tokenizer, uint32_t token) {
  return token < tokenizer.vocab_size() && tokenizer.TokenBytes(token).empty();
}

// What was generated after a conversation's prompt: as the session holds it, and as the content of
// a message.
struct Answer {
  MarkedText held;
  MarkedText content;
};

MarkedText WithoutFirst(const MarkedText& text, size_t bytes) {
  return text.Part(std::string_view(text.bytes).substr(bytes));
}

Answer AnswerOf(const Conversation& conversation, const ServedModel& model,
                std::vector<uint32_t> tokens) {
  const Tokenizer& tokenizer = *model.tokenizer;
  Answer answer;
  answer.held = WrittenText(tokenizer, tokens);
  const bool ends = !tokens.empty() && (IsControl(tokenizer, tokens.back()) ||
                                        std::find(model.eos_ids.begin(), model.eos_ids.end(),
                                                  tokens.back()) != model.eos_ids.end());
  if (ends) tokens.pop_back();
  answer.content = WrittenText(tokenizer, tokens);
  // The space that the tokenizer puts before a text of its own is no part of it.
  if (tokenizer.AddsDummyPrefix() && conversation.ends_in_control) {
    for (MarkedText* const text : {&answer.held, &answer.content}) {
      if (text->bytes.starts_with(" ")) *text = WithoutFirst(*text, 1);
    }
  }
  // The template opened the thinking that the answer closes.
  if (StartsThinking(conversation.text.bytes)) {
    MarkedText content = WithoutFirst(conversation.text, conversation.text.bytes.rfind(kThink));
    content.Append(answer.content);
    answer.content = std::move(content);
  }
  return answer;
}

Value TextMessage(const char* role, const MarkedText& content) {
  auto message = std::make_shared<Mapping>();
  SetEntry(*message, Value::String("role"), Value::String(role));
  SetEntry(*message, Value::String("content"), Value::Marked(content));
  Measure(*message);
  return Value(Value::MappingPointer(std::move(message)));
}

bool BeginsWithAnswer(const std::vector<Value>& messages) {
  if (messages.empty()) return false;
  const Value* const role = FindEntry(*messages[0].mapping(), "role");
  return role != nullptr && role->text() != nullptr && role->text()->bytes == "assistant";
}

// The whole conversation: what is remembered, the answer, and the new messages. Settings that the
// new turn leaves unset stay as they were, unless it says that they do not.
ChatTemplateInput Join(const Conversation& before, const MarkedText& answer,
                       const v1::Messages& proto, ChatTemplateInput added) {
  ChatTemplateInput all = before.input;
  std::vector<Value>& messages = all.messages;
  if (before.has_instructions) messages.erase(messages.begin());
  if (proto.has_instructions()) {
    messages.insert(messages.begin(), added.messages[0]);
    added.messages.erase(added.messages.begin());
  }
  if (!BeginsWithAnswer(added.messages)) messages.push_back(TextMessage("assistant", answer));
  for (Value& message : added.messages) messages.push_back(std::move(message));
  const bool only_these = proto.only_these_settings();
  if (only_these || !added.tools.empty()) all.tools = std::move(added.tools);
  if (only_these || !added.variables.empty()) all.variables = std::move(added.variables);
  if (only_these || !added.name.empty()) all.name = std::move(added.name);
  all.add_generation_prompt = added.add_generation_prompt;
  return all;
}

absl::Status CheckHasTemplate(const ServedModel& model) {
  if (model.chat_template != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "messages: ", model.info.name(), " has no chat template; send prompt or token_ids"));
}

absl::Status CheckBytes(size_t bytes, size_t most_bytes) {
  if (bytes <= most_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("messages: their text has ", bytes,
                                                 " bytes, at most ", most_bytes,
                                                 " are tokenized at once: send less"));
}

size_t HeldBytes(const Conversation& conversation) {
  const ChatTemplateInput& input = conversation.input;
  size_t bytes = sizeof(Conversation) + conversation.text.bytes.size() +
                 conversation.text.mark_bytes() + input.name.size();
  for (const Value& message : input.messages) bytes += jinja::HeldBytes(message);
  for (const Value& tool : input.tools) bytes += jinja::HeldBytes(tool);
  for (const auto& [name, value] : input.variables) bytes += name.size() + jinja::HeldBytes(value);
  return bytes;
}

// Encodes what is behind the first `held` bytes of the conversation's text as the prompt, and
// remembers the conversation with the session.
absl::Status SetPrompt(const ServedModel& model, size_t held, size_t most_bytes,
                       std::shared_ptr<Conversation> conversation, Request& request) {
  const MarkedText text = WithoutFirst(conversation->text, held);
  RIVULET_RETURN_IF_ERROR(CheckBytes(text.bytes.size(), most_bytes));
  RIVULET_ASSIGN_OR_RETURN(request.prompt, model.tokenizer->EncodeMarked(text.bytes, text.plain));
  conversation->tokens = ContextTokens(request) + request.prompt.size();
  conversation->ends_in_control =
      !request.prompt.empty() && IsControl(*model.tokenizer, request.prompt.back());
  conversation->held_bytes = HeldBytes(*conversation);
  request.notes = std::move(conversation);
  return absl::OkStatus();
}

absl::Status Continue(const Conversation& before, const v1::Messages& proto,
                      ChatTemplateInput added, const ServedModel& model, size_t most_bytes,
                      Request& request) {
  const std::vector<uint32_t> generated = request.session.CopyTokens(before.tokens);
  if (before.tokens + generated.size() != request.session.tokens()) {
    return absl::NotFoundError(
        "the session's state was lost in a failed step; create one and send the whole context");
  }
  const Answer answer = AnswerOf(before, model, generated);
  auto conversation = std::make_shared<Conversation>();
  conversation->has_instructions = proto.has_instructions();
  conversation->input = Join(before, answer.content, proto, std::move(added));
  RIVULET_ASSIGN_OR_RETURN(conversation->text, RenderMessages(model, conversation->input));
  MarkedText held = before.text;
  held.Append(answer.held);
  request.begins_anew = !ContinuesText(model.specials, held, conversation->text);
  return SetPrompt(model, request.begins_anew ? 0 : held.bytes.size(), most_bytes,
                   std::move(conversation), request);
}

}  // namespace

bool StartsThinking(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n");
  return end != std::string::npos && std::string_view(text).substr(0, end + 1).ends_with(kThink);
}

bool StartsThinking(const Request& request) {
  const auto* const conversation = dynamic_cast<const Conversation*>(request.notes.get());
  return conversation != nullptr && StartsThinking(conversation->text.bytes);
}

bool ContinuesText(const LiteralMatcher& specials, const MarkedText& held, const MarkedText& text) {
  const size_t size = held.bytes.size();
  if (!text.bytes.starts_with(held.bytes)) return false;
  if (Slice(text.plain, 0, size) == held.plain) return true;
  // Other bytes are plain: which does not matter where no special token is written.
  for (auto match = specials.Find(held.bytes, 0); match.has_value();
       match = specials.Find(held.bytes, match->end)) {
    const bool was_token = !Overlaps(held.plain, match->begin, match->end);
    if (was_token == Overlaps(text.plain, match->begin, match->end)) return false;
  }
  return true;
}

absl::StatusOr<ChatTemplateInput> ReadMessages(const v1::Messages& proto) {
  const bool plain = !proto.special_tokens_in_messages();
  ChatTemplateInput input;
  if (proto.has_instructions()) {
    input.messages.push_back(TextMessage("system", MarkedText::Of(proto.instructions(), plain)));
  }
  for (int i = 0; i < proto.messages_size(); ++i) {
    RIVULET_ASSIGN_OR_RETURN(
        Value message, ReadMessage(proto.messages(i), absl::StrCat("messages[", i, "]"), plain));
    input.messages.push_back(std::move(message));
  }
  for (int i = 0; i < proto.tools_size(); ++i) {
    RIVULET_ASSIGN_OR_RETURN(Value tool,
                             ReadObject(proto.tools(i), absl::StrCat("tools[", i, "]"), plain));
    input.tools.push_back(std::move(tool));
  }
  RIVULET_RETURN_IF_ERROR(ReadVariables(proto, plain, input));
  input.name = proto.template_name();
  input.add_generation_prompt = !proto.has_add_generation_prompt() || proto.add_generation_prompt();
  return input;
}

absl::StatusOr<MarkedText> RenderMessages(const ServedModel& model,
                                          const ChatTemplateInput& input) {
  RIVULET_RETURN_IF_ERROR(CheckHasTemplate(model));
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  jinja::RenderOptions options;
  options.now = {now / 1'000'000, static_cast<int32_t>(now % 1'000'000)};
  auto text = model.chat_template->Render(input, options);
  if (text.ok()) return text;
  return absl::Status(text.status().code(), absl::StrCat("messages: ", text.status().message()));
}

absl::Status ReadConversation(const v1::Messages& proto, const ServedModel& model,
                              size_t most_bytes, Request& request) {
  RIVULET_RETURN_IF_ERROR(CheckHasTemplate(model));
  RIVULET_RETURN_IF_ERROR(CheckBytes(proto.ByteSizeLong(), most_bytes));
  RIVULET_ASSIGN_OR_RETURN(ChatTemplateInput input, ReadMessages(proto));
  if (ContextTokens(request) > 0) {
    const std::shared_ptr<const SessionNotes> notes = request.session.notes();
    const auto* const before = dynamic_cast<const Conversation*>(notes.get());
    if (before != nullptr) {
      return Continue(*before, proto, std::move(input), model, most_bytes, request);
    }
    return absl::FailedPreconditionError(
        "messages: the session holds text that was not sent as messages; begin another session, or "
        "go on with prompt or token_ids");
  }
  auto conversation = std::make_shared<Conversation>();
  conversation->has_instructions = proto.has_instructions();
  conversation->input = std::move(input);
  RIVULET_ASSIGN_OR_RETURN(conversation->text, RenderMessages(model, conversation->input));
  return SetPrompt(model, 0, most_bytes, std::move(conversation), request);
}

}  // namespace rivulet
