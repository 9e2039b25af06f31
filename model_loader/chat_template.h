// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The chat templates of a checkpoint: messages → the text that the model was trained on.
//
// They are read from chat_template.jinja (with others by name in additional_chat_templates/), or
// else from chat_template of tokenizer_config.json, one or a list of named ones. The text is the
// one that transformers' apply_chat_template renders (model_loader/jinja). It has all special
// tokens, BOS too if the template writes it: encode it with Tokenizer::EncodeMarked, and add
// nothing. What it copies from its input keeps its marks (marked_text.h).
//
// It does not tokenize, and it knows no sessions. Threading: const after Load, any thread.
#ifndef RIVULET_MODEL_LOADER_CHAT_TEMPLATE_H_
#define RIVULET_MODEL_LOADER_CHAT_TEMPLATE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/jinja/template.h"
#include "model_loader/jinja/value.h"
#include "model_loader/marked_text.h"

namespace rivulet {

struct ChatTemplateInput {
  std::vector<jinja::Value> messages;  // mappings, with at least "role"
  std::vector<jinja::Value> tools;     // JSON schemas; empty: none
  // Further names for the template, such as enable_thinking. They take precedence over the special
  // tokens.
  std::vector<std::pair<std::string, jinja::Value>> variables;
  bool add_generation_prompt = true;
  std::string name;  // which template; empty: "tool_use" with tools if there is one, or "default"
};

class ChatTemplate {
 public:
  // Null if the checkpoint has none. INVALID_ARGUMENT for files that cannot be read. A template
  // that is not valid fails in Render, so that the model can be served without it.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(const std::string& directory);
  // One template, for tests. `special_tokens`: names such as "bos_token", and their text.
  static std::unique_ptr<ChatTemplate> FromSource(
      const std::string& source, std::vector<std::pair<std::string, std::string>> special_tokens);

  // INVALID_ARGUMENT when there are no messages, when the template refuses them (the message is the
  // template's), or when it fails; FAILED_PRECONDITION when the template itself is not valid.
  absl::StatusOr<MarkedText> Render(const ChatTemplateInput& input,
                                    const jinja::RenderOptions& options) const;

  // Whether the text is written in one of the templates.
  bool Mentions(std::string_view text) const { return sources_.find(text) != std::string::npos; }

  // A special token that the checkpoint does not name, from its tokenizer. Before the first Render.
  void AddSpecialToken(const std::string& name, const std::string& text);

 private:
  using Parsed = absl::StatusOr<jinja::Template>;

  absl::StatusOr<const jinja::Template*> Choose(const ChatTemplateInput& input) const;

  std::map<std::string, Parsed> templates_;
  std::map<std::string, std::string> special_tokens_;
  std::string sources_;  // of all templates
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_CHAT_TEMPLATE_H_
