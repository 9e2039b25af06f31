// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/chat_template.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/jinja/json_text.h"
#include "model_loader/testing.h"

namespace rivulet {
namespace {

using jinja::Value;
using testing::HasSubstr;

class ChatTemplateTest : public testing::Test {
 protected:
  ChatTemplateTest() : directory_(TestDirectory()) {
    std::filesystem::create_directories(directory_ + "/additional_chat_templates");
  }
  void Write(const std::string& name, const std::string& text) {
    WriteTestFile(directory_ + "/" + name, text);
  }

  static Value Json(const std::string& text) { return *jinja::ParseJsonValue(text, "test"); }
  static ChatTemplateInput Input(const std::string& message = R"({"role": "user"})") {
    ChatTemplateInput input;
    input.messages = {Json(message)};
    return input;
  }
  absl::StatusOr<std::string> Render(const ChatTemplateInput& input) {
    auto loaded = ChatTemplate::Load(directory_);
    if (!loaded.ok()) return loaded.status();
    if (*loaded == nullptr) return absl::NotFoundError("no template");
    auto text = (*loaded)->Render(input, {});
    if (!text.ok()) return text.status();
    return std::move(text->bytes);
  }
  static std::string Rendered(const std::string& source, const ChatTemplateInput& input) {
    const auto text = ChatTemplate::FromSource(source, {})->Render(input, {});
    return text.ok() ? text->bytes : std::string(text.status().message());
  }

  std::string directory_;
};

TEST_F(ChatTemplateTest, ACheckpointMayHaveNone) {
  EXPECT_TRUE(absl::IsNotFound(Render(Input()).status()));
  Write("tokenizer_config.json", R"({"chat_template": null, "bos_token": "<s>"})");
  EXPECT_TRUE(absl::IsNotFound(Render(Input()).status()));
}

TEST_F(ChatTemplateTest, IsAStringOfTheTokenizersConfig) {
  Write(
      "tokenizer_config.json",
      R"({"chat_template": "{{ bos_token }}{{ eos_token }}|{{ pad_token }}|{{ messages[0].role }}|)"
      R"({{ tools }}|{{ documents }}|{{ add_generation_prompt }}", "bos_token": "<s>",)"
      R"("eos_token": {"content": "</s>", "special": true}})");
  Write("special_tokens_map.json", R"({"pad_token": "<pad>", "bos_token": "older"})");
  EXPECT_EQ(*Render(Input()), "<s></s>|<pad>|user|None|None|True");
}

TEST_F(ChatTemplateTest, MayBeSeveralByName) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
    {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "documents"}]})");
  ChatTemplateInput input = Input();
  EXPECT_EQ(*Render(input), "plain");
  input.tools = {Json(R"({"name": "f"})")};
  EXPECT_EQ(*Render(input), "tools");
  input.name = "rag";
  EXPECT_EQ(*Render(input), "documents");
  input.name = "poem";
  const absl::Status status = Render(input).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("there are: default rag tool_use"));
}

TEST_F(ChatTemplateTest, FilesTakePrecedence) {
  Write("tokenizer_config.json", R"({"chat_template": "from the config"})");
  Write("chat_template.jinja", "from the file");
  Write("additional_chat_templates/rag.jinja", "another file");
  ChatTemplateInput input = Input();
  EXPECT_EQ(*Render(input), "from the file");
  input.name = "rag";
  EXPECT_EQ(*Render(input), "another file");
}

TEST_F(ChatTemplateTest, RefusesAConfigThatIsNone) {
  for (const char* const config :
       {"[]", "{", R"({"chat_template": 5})", R"({"chat_template": [{"name": "default"}]})"}) {
    Write("tokenizer_config.json", config);
    EXPECT_EQ(Render(Input()).status().code(), absl::StatusCode::kInvalidArgument) << config;
  }
}

TEST_F(ChatTemplateTest, ATemplateThatIsNotValidLoadsAndFailsLater) {
  Write("chat_template.jinja", "{% if %}");
  const absl::Status status = Render(Input()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("line 1"));
}

TEST_F(ChatTemplateTest, NeedsAMessage) {
  EXPECT_EQ(Rendered("x", ChatTemplateInput()), "there are no messages");
}

// As transformers: a template sees a field that is none as one that does not exist, and a message's
// reasoning by each of its names.
TEST_F(ChatTemplateTest, PreparesMessages) {
  const std::string source =
      "{{ messages[0].content is defined }} {{ messages[0].reasoning_content }} "
      "{{ messages[0].thinking }}";
  EXPECT_EQ(Rendered(source, Input(R"({"role": "a", "content": null, "reasoning": "r"})")),
            "False r r");
  EXPECT_EQ(Rendered(source, Input(R"({"role": "a", "thinking": "t", "reasoning_content": "c"})")),
            "False c t");
}

TEST_F(ChatTemplateTest, VariablesDoNotReplaceTheMessages) {
  ChatTemplateInput input = Input();
  input.variables = {{"messages", Json("[]")}, {"bos_token", Json("\"<b>\"")}, {"x", Json("1")}};
  EXPECT_EQ(Rendered("{{ messages|length }}{{ bos_token }}{{ x }}", input), "1<b>1");
}

}  // namespace
}  // namespace rivulet
