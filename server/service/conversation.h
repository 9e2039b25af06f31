// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages → a prompt. On a session, the new messages join those that it remembers, and the
// template renders them all; what the session holds already is compared with the beginning of that
// text:
//
//   remembered text   | generated text |                 what the session holds
//   rendered text ............................. | new    starts with it: the rest is the prompt
//   rendered text ...... | differs                       the session begins anew with all of it
//
// Text is compared, not tokens, because generated tokens are often not those that a tokenizer makes
// of their text; and with it, which of the special tokens written in it are tokens.
//
// What a client sends is plain (model_loader/marked_text.h), so that special tokens written in it
// are text, but for a role that is a word: "<|{{ role }}|>" is how some templates write a token.
// What was generated is as it was generated: special tokens are those tokens, the rest is plain.
//
// Threading: Conversation is immutable; the functions may run on any thread, but on a worker,
// because rendering and tokenizing are slow.
#ifndef RIVULET_SERVER_SERVICE_CONVERSATION_H_
#define RIVULET_SERVER_SERVICE_CONVERSATION_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model_loader/chat_template.h"
#include "model_loader/hf_tokenizer/literal_matcher.h"
#include "model_loader/marked_text.h"
#include "rivulet/v1/inference.pb.h"
#include "server/scheduler/request.h"
#include "server/service/served_model.h"
#include "server/session/session_table.h"

namespace rivulet {

// What a session remembers of a turn that was sent as messages.
struct Conversation final : public SessionNotes {
  size_t bytes() const override { return held_bytes; }

  ChatTemplateInput input;       // all messages so far, and the turn's instructions before them
  MarkedText text;               // what they were rendered to, special tokens included
  uint64_t tokens = 0;           // that the session holds with the turn's prompt
  bool ends_in_control = false;  // the last of them adds no bytes to a text
  bool has_instructions = false;
  size_t held_bytes = 0;  // what all of this takes
};

// With the instructions as the first message. INVALID_ARGUMENT names the field: JSON that is not
// valid, parts that are no text.
absl::StatusOr<ChatTemplateInput> ReadMessages(const v1::Messages& proto);

// The text of a conversation of its own. INVALID_ARGUMENT for a model without a template, and as
// ChatTemplate::Render.
absl::StatusOr<MarkedText> RenderMessages(const ServedModel& model, const ChatTemplateInput& input);

// Sets prompt, begins_anew and notes of a request, whose session is leased if it names one.
// `most_bytes`: of a text that is tokenized. FAILED_PRECONDITION if the session holds tokens that
// were not sent as messages.
absl::Status ReadConversation(const v1::Messages& proto, const ServedModel& model,
                              size_t most_bytes, Request& request);

// Whether the text ends in a <think> that what is generated will close.
bool StartsThinking(const std::string& text);
// Of the conversation that the request's prompt was rendered from, if it was.
bool StartsThinking(const Request& request);

// Whether `text` begins with `held`, which the session has computed, with the same special tokens
// there. `specials`: ServedModel's.
bool ContinuesText(const LiteralMatcher& specials, const MarkedText& held, const MarkedText& text);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_CONVERSATION_H_
