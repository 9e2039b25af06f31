// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages through the services: what is rendered, what a session remembers, what is refused.
#include <atomic>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "server/rpc/service_fixture.h"
#include "server/service/conversation.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

constexpr uint32_t kOpen = 97, kEnd = FakeTokenizer::kEos, kPlainOpen = 95, kPlainEnd = 96;

// "<" begins a turn, ">" ends it; both are special tokens, or 95 and 96 where they are plain.
class ChatTokenizer : public FakeTokenizer {
 public:
  absl::StatusOr<std::vector<uint32_t>> EncodeMarked(std::string_view text,
                                                     const PlainRanges& plain) const override {
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '<' || text[i] == '>') {
        const bool open = text[i] == '<', special = !Overlaps(plain, i, i + 1);
        ids.push_back(open ? (special ? kOpen : kPlainOpen) : (special ? kEnd : kPlainEnd));
        continue;
      }
      RIVULET_ASSIGN_OR_RETURN(const std::vector<uint32_t> one,
                               FakeTokenizer::EncodeMarked(text.substr(i, 1), {}));
      ids.push_back(one[0]);
    }
    return ids;
  }
  std::string_view TokenBytes(uint32_t id) const override {
    if (id == kPlainOpen || id == kPlainEnd) return Piece(id);
    return id == kOpen || id == kEnd ? "" : FakeTokenizer::TokenBytes(id);
  }
  std::string_view Piece(uint32_t id) const override {
    if (id == kOpen || id == kPlainOpen) return "<";
    return id == kEnd || id == kPlainEnd ? ">" : FakeTokenizer::Piece(id);
  }
};

class MessagesTest : public ServiceTest {
 protected:
  MessagesTest() {
    model_.tokenizer = &chat_tokenizer_;
    model_.specials = FindSpecials(chat_tokenizer_);
    model_.eos_ids = {kEnd};
    engine_.next_token = [this](const StepRow&) { return script_[next_++ % script_.size()]; };
    Use("{% for m in messages %}{{ raise_exception('no ' ~ m.role) if m.role == 'critic' }}"
        "<{{ m.role }} {{ m.content }}>{% endfor %}"
        "{% if add_generation_prompt %}<assistant {% endif %}");
    Answer("ok>");
  }
  void Use(const std::string& source) {
    template_ = ChatTemplate::FromSource(source, {{"bos_token", "b"}});
    model_.chat_template = template_.get();
  }
  // What the model says from now on.
  void Answer(const std::string& text) {
    script_ = *chat_tokenizer_.EncodeRendered(text);
    next_ = 0;
  }

  static v1::GenerateRequest Turn(const std::vector<std::string>& roles_and_contents,
                                  const std::string& session = "") {
    v1::GenerateRequest request;
    for (size_t i = 0; i < roles_and_contents.size(); i += 2) {
      v1::Message* const message = request.mutable_messages()->add_messages();
      message->set_role(roles_and_contents[i]);
      message->set_content(roles_and_contents[i + 1]);
    }
    request.set_session_id(session);
    request.set_max_tokens(20);
    request.mutable_stop()->add_token_ids(kEnd);
    return request;
  }
  Stream Say(const std::vector<std::string>& roles_and_contents, const std::string& session) {
    next_ = 0;
    const Stream stream = Generate(Turn(roles_and_contents, session));
    EXPECT_TRUE(stream.status.ok()) << stream.status.error_message();
    return stream;
  }
  static size_t Length(const std::string& text) { return text.size(); }
  uint64_t Position(const std::string& id) {
    v1::Session session;
    EXPECT_TRUE(Get(id, &session).ok());
    return session.position();
  }
  void ExpectRefused(const v1::GenerateRequest& request, grpc::StatusCode code,
                     const std::string& why) {
    const Stream stream = Generate(request);
    EXPECT_EQ(stream.status.error_code(), code) << stream.status.error_message();
    EXPECT_THAT(stream.status.error_message(), HasSubstr(why));
  }
  v1::TokenizeResponse TokenizeTurn(const v1::Messages& messages) {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    *request.mutable_messages() = messages;
    v1::TokenizeResponse response;
    const grpc::Status status = stub_->Tokenize(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  ChatTokenizer chat_tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  std::vector<uint32_t> script_;
  std::atomic<size_t> next_{0};
};

TEST_F(MessagesTest, AreRenderedAndTokenizedWithSpecialTokens) {
  const v1::GenerateRequest turn = Turn({"user", "hi"});
  const v1::TokenizeResponse tokens = TokenizeTurn(turn.messages());
  EXPECT_EQ(tokens.text(), "<user hi><assistant ");
  EXPECT_EQ(tokens.token_ids_size(), 20);
  EXPECT_EQ(tokens.token_ids(0), kOpen);
  EXPECT_EQ(tokens.pieces(8), ">");
  const Stream stream = Generate(turn);
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  EXPECT_EQ(stream.usage().prompt_tokens(), 20u);
  EXPECT_EQ(stream.tokens(), *chat_tokenizer_.EncodeRendered("ok>"));
  EXPECT_EQ(stream.messages[0].rewritten_tokens(), 0u);
}

TEST_F(MessagesTest, ToolsAndVariablesReachTheTemplate) {
  Use("{{ tools[0].name }} {{ enable_thinking }} {{ mood }} {{ messages[0].tool_calls[0].n }} "
      "{{ messages[0].content[0].text }} {{ messages[0].name }} {{ messages[0].extra }} "
      "{{ messages[0].reasoning_content }} {{ messages[0].tool_call_id }} {{ add_generation_prompt "
      "}}");
  v1::Messages messages;
  v1::Message* const message = messages.add_messages();
  message->set_role("user");
  v1::ContentPart* const part = message->add_parts();
  part->set_type("text");
  part->set_text("part");
  message->set_name("ann");
  message->set_reasoning_content("hm");
  message->set_tool_calls(R"([{"n": "call"}])");
  message->set_tool_call_id("id");
  message->set_fields(R"({"extra": "more"})");
  messages.add_tools(R"({"name": "tool"})");
  messages.set_enable_thinking(false);
  messages.set_variables(R"({"mood": "good"})");
  messages.set_add_generation_prompt(false);
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  *request.mutable_messages() = messages;
  v1::TokenizeResponse response;
  // The capital letters of False are not in this test's vocabulary.
  EXPECT_EQ(stub_->Tokenize(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const auto input = ReadMessages(messages);
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_EQ(RenderMessages(model_, *input)->bytes,
            "tool False good call part ann more hm id False");
}

TEST_F(MessagesTest, ASessionIsGivenOnlyWhatIsNew) {
  ASSERT_TRUE(Create("s").ok());
  Say({"system", "be", "user", "hi"}, "s");
  const std::string first = "<system be><user hi><assistant ok>";
  EXPECT_EQ(Position("s"), first.size());
  const Stream second = Say({"user", "yo"}, "s");
  EXPECT_EQ(second.usage().prompt_tokens(), Length("<user yo><assistant "));
  EXPECT_EQ(second.usage().cached_tokens(), first.size() - 1);
  EXPECT_EQ(second.messages[0].rewritten_tokens(), 0u);
  EXPECT_EQ(Position("s"), first.size() + Length("<user yo><assistant ok>"));
}

// An answer that was cut off has no end of turn: the template adds it.
TEST_F(MessagesTest, AnAnswerThatWasCutOffIsCompleted) {
  ASSERT_TRUE(Create("s").ok());
  v1::GenerateRequest turn = Turn({"user", "hi"}, "s");
  turn.set_max_tokens(1);
  EXPECT_TRUE(Generate(turn).status.ok());
  EXPECT_EQ(Say({"user", "yo"}, "s").usage().prompt_tokens(), Length("><user yo><assistant "));
}

TEST_F(MessagesTest, ASessionWhoseTurnsAreRewrittenBeginsAnew) {
  Use("{% for m in messages %}<{{ m.role }} {{ m.content.split('t')|last }}>{% endfor %}"
      "{% if add_generation_prompt %}<assistant {% endif %}");
  ASSERT_TRUE(Create("s").ok());
  Answer("hmtok>");
  Say({"user", "hi"}, "s");
  const uint64_t held = Position("s");
  EXPECT_EQ(held, Length("<user hi><assistant hmtok>"));
  Answer("yes>");
  const Stream second = Say({"user", "yo"}, "s");
  const std::string whole = "<user hi><assistant ok><user yo><assistant ";
  EXPECT_EQ(second.messages[0].rewritten_tokens(), held);
  EXPECT_EQ(second.usage().prompt_tokens(), whole.size());
  EXPECT_EQ(second.usage().cached_tokens(), 0u);
  EXPECT_EQ(Position("s"), whole.size() + Length("yes>"));
  // What follows is appended again.
  const Stream third = Say({"user", "so"}, "s");
  EXPECT_EQ(third.messages[0].rewritten_tokens(), 0u);
  EXPECT_EQ(third.usage().prompt_tokens(), Length("<user so><assistant "));
  EXPECT_TRUE(WaitUntilIdle());
}

// Sessions that begin anew over and over take no more room than one.
TEST_F(MessagesTest, BeginningAnewReturnsTheStateSlots) {
  Use("{% for m in messages %}<{{ m.role }} {{ m.content.split('t')|last }}>{% endfor "
      "%}<assistant ");
  Answer("hmtok>");
  for (uint32_t i = 0; i < kSlots; ++i) {
    const std::string id(1, static_cast<char>('a' + i));
    ASSERT_TRUE(Create(id).ok());
    for (int turn = 0; turn < 5; ++turn) {
      EXPECT_EQ(Say({"user", "hi"}, id).messages[0].rewritten_tokens() > 0, turn > 0);
    }
  }
  EXPECT_EQ(sessions_.states(), kSlots);
}

TEST_F(MessagesTest, TheClientMaySendTheAnswerItself) {
  ASSERT_TRUE(Create("s").ok());
  Say({"user", "hi"}, "s");
  const Stream same = Say({"assistant", "ok", "tool", "x"}, "s");
  EXPECT_EQ(same.messages[0].rewritten_tokens(), 0u);
  EXPECT_EQ(same.usage().prompt_tokens(), Length("<tool x><assistant "));
  const Stream other = Say({"assistant", "no", "user", "yo"}, "s");
  EXPECT_GT(other.messages[0].rewritten_tokens(), 0u);
}

TEST_F(MessagesTest, SettingsStayUntilTheyAreSetAgain) {
  Use("{{ mood }}{% for m in messages %}<{{ m.role }} {{ m.content }}>{% endfor %}<assistant ");
  ASSERT_TRUE(Create("s").ok());
  v1::GenerateRequest turn = Turn({"user", "hi"}, "s");
  turn.mutable_messages()->set_variables(R"({"mood": "good"})");
  EXPECT_TRUE(Generate(turn).status.ok());
  EXPECT_EQ(Say({"user", "yo"}, "s").messages[0].rewritten_tokens(), 0u);
  turn.mutable_messages()->set_variables(R"({"mood": "bad"})");
  next_ = 0;
  EXPECT_GT(Generate(turn).messages[0].rewritten_tokens(), 0u);
}

// A user who writes the end of a turn does not end it, nor does a tool or an assistant's message
// from a client.
TEST_F(MessagesTest, SpecialTokensInMessagesAreTextUnlessAskedFor) {
  Use("{% for m in messages %}<{{ m.role }} {{ m.content | trim }}>{% endfor %}<assistant ");
  v1::Messages messages = Turn({"user", " a><user b ", "assistant", "c>", "t>", "d"}).messages();
  const std::string text = "<user a><user b><assistant c>><t> d><assistant ";
  std::vector<uint32_t> expected = *chat_tokenizer_.EncodeRendered(text);
  const auto expect = [&] {
    const v1::TokenizeResponse response = TokenizeTurn(messages);
    EXPECT_EQ(response.text(), text);
    EXPECT_EQ(std::vector<uint32_t>(response.token_ids().begin(), response.token_ids().end()),
              expected);
  };
  messages.set_special_tokens_in_messages(true);
  expect();
  messages.set_special_tokens_in_messages(false);
  expected[text.find("><user b")] = kPlainEnd;
  expected[text.find("<user b")] = kPlainOpen;
  expected[text.find(">><t")] = kPlainEnd;
  expected[text.find("> d")] = kPlainEnd;
  expect();
}

TEST_F(MessagesTest, ASessionKeepsWhatUsersWroteAsText) {
  ASSERT_TRUE(Create("s").ok());
  Answer("o");  // cut off, so that the template ends the turn
  v1::GenerateRequest turn = Turn({"user", "a><b"}, "s");
  turn.set_max_tokens(1);
  EXPECT_TRUE(Generate(turn).status.ok());
  Answer("ok>");
  const Stream second = Say({"user", "c<"}, "s");
  EXPECT_EQ(second.messages[0].rewritten_tokens(), 0u);
  EXPECT_EQ(second.usage().prompt_tokens(), Length("><user c<><assistant "));
}

// The model wrote the characters of a special token, or the token itself: the next turn renders
// what the session holds.
TEST_F(MessagesTest, ASessionKeepsWhatWasGeneratedAsItWasGenerated) {
  ASSERT_TRUE(Create("s").ok());
  script_ = {0, kPlainEnd, kOpen, 1, kEnd};
  const Stream first = Say({"user", "a"}, "s");
  EXPECT_EQ(first.tokens(), script_);
  const Stream second = Say({"user", "b"}, "s");
  EXPECT_EQ(second.messages[0].rewritten_tokens(), 0u);
  EXPECT_EQ(second.usage().prompt_tokens(), Length("<user b><assistant "));
}

TEST_F(MessagesTest, ASessionShowsWhatItRemembers) {
  ASSERT_TRUE(Create("s").ok());
  const auto remembered = [&] {
    v1::Session session;
    EXPECT_TRUE(Get("s", &session).ok());
    return session.messages_bytes();
  };
  EXPECT_EQ(remembered(), 0u);
  Say({"user", std::string(900, 'a')}, "s");
  const uint64_t first = remembered();
  EXPECT_GT(first, 1800u) << "the message and its text";
  EXPECT_LT(first, 4000u);
  Say({"user", "b"}, "s");
  EXPECT_GT(remembered(), first);
  EXPECT_TRUE(WaitUntilIdle());
  EXPECT_GE(sessions_.tokens(), Position("s") + remembered() / 4);
  EXPECT_TRUE(Generate(TurnOf("s", "abc", 2)).status.ok());
  EXPECT_EQ(remembered(), 0u) << "text makes it forget them";
}

// The same text with other special tokens is not what the session holds.
TEST_F(MessagesTest, ContinuesTextComparesTheSpecialTokens) {
  const LiteralMatcher& specials = model_.specials;
  const MarkedText text = {"ab>c", {{1, 2}}};
  EXPECT_TRUE(ContinuesText(specials, {"ab>", {{1, 2}}}, text));
  EXPECT_TRUE(ContinuesText(specials, {"ab>", {{0, 2}}}, text)) << "no special token is different";
  EXPECT_FALSE(ContinuesText(specials, {"ab>", {{1, 3}}}, text));
  EXPECT_FALSE(ContinuesText(specials, {"abc", {}}, text));
  EXPECT_FALSE(ContinuesText(specials, {"ab>cd", {}}, text));
}

TEST_F(MessagesTest, SaysThatThePromptOpenedTheThinking) {
  EXPECT_TRUE(StartsThinking("a<think>\n"));
  EXPECT_FALSE(StartsThinking("<think>a"));
  EXPECT_FALSE(StartsThinking("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(StartsThinking(" \n"));
}

TEST_F(MessagesTest, TextAndMessagesDoNotMix) {
  ASSERT_TRUE(Create("s").ok());
  EXPECT_TRUE(Generate(TurnOf("s", "abc", 2)).status.ok());
  ExpectRefused(Turn({"user", "hi"}, "s"), grpc::StatusCode::FAILED_PRECONDITION,
                "text that was not sent as messages");
  ASSERT_TRUE(Create("t").ok());
  Say({"user", "hi"}, "t");
  EXPECT_TRUE(Generate(TurnOf("t", "abc", 2)).status.ok()) << "messages first, then text";
  ExpectRefused(Turn({"user", "hi"}, "t"), grpc::StatusCode::FAILED_PRECONDITION,
                "text that was not sent as messages");
}

TEST_F(MessagesTest, ARefusalLeavesTheSessionAsItWas) {
  ASSERT_TRUE(Create("s").ok());
  Say({"user", "hi"}, "s");
  const uint64_t held = Position("s");
  ExpectRefused(Turn({"critic", "bad"}, "s"), grpc::StatusCode::INVALID_ARGUMENT, "no critic");
  EXPECT_EQ(Position("s"), held);
  EXPECT_EQ(Say({"user", "yo"}, "s").messages[0].rewritten_tokens(), 0u);
}

TEST_F(MessagesTest, NamesWhatItRefuses) {
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  ExpectRefused(Turn({"critic", "x"}), invalid, "no critic");
  v1::GenerateRequest none = Turn({});
  none.mutable_messages();
  ExpectRefused(none, invalid, "there are no messages");
  v1::GenerateRequest request = Turn({"user", "x"});
  request.mutable_messages()->add_tools("[");
  ExpectRefused(request, invalid, "tools[0]: it is not valid JSON");
  request = Turn({"user", "x"});
  request.mutable_messages()->set_variables("[]");
  ExpectRefused(request, invalid, "messages.variables: it must be a JSON object");
  request = Turn({"user", "x"});
  request.mutable_messages()->mutable_messages(0)->set_tool_calls("{}");
  ExpectRefused(request, invalid, "messages[0].tool_calls: it must be a JSON array");
  request = Turn({"user", "x"});
  request.mutable_messages()->mutable_messages(0)->add_parts()->set_type("text");
  ExpectRefused(request, invalid, "set content or parts, not both");
  request = Turn({"user", "x"});
  request.mutable_messages()->mutable_messages(0)->clear_content();
  request.mutable_messages()->mutable_messages(0)->add_parts()->set_type("image_url");
  ExpectRefused(request, invalid, "messages[0].parts[0].type = \"image_url\"");
  request = Turn({"user", "x"});
  request.mutable_messages()->set_template_name("poem");
  ExpectRefused(request, invalid, "there is no chat template \"poem\"");
  Use("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}");
  ExpectRefused(Turn({"user", "x"}), invalid, "steps");
  Use("{% if %}");
  ExpectRefused(Turn({"user", "x"}), grpc::StatusCode::FAILED_PRECONDITION, "line 1");
  model_.chat_template = nullptr;
  ExpectRefused(Turn({"user", "x"}), invalid, "toy has no chat template");
}

}  // namespace
}  // namespace rivulet
