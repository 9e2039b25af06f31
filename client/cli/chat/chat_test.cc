// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The loop of `rivulet chat` on lines from the test and a server in this process. Real terminals
// are in tests/e2e/chat_cli_test.cc.
#include "client/cli/chat/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "client/fake_server.h"

namespace rivulet::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// Returns scripted lines, and runs an action before each.
class ScriptedReader final : public LineReader {
 public:
  struct Step {
    ReadResult result;
    std::function<void()> before = [] {};
  };
  ReadResult Read(const std::string& prompt) override {
    prompts_ += prompt;
    if (steps_.empty()) return {ReadResult::kEnd, ""};
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    step.before();
    return step.result;
  }
  void AddToHistory(const std::string& line) override { history_ += line + ";"; }
  void Type(const std::string& line) { steps_.push_back({{ReadResult::kLine, line}}); }

  std::deque<Step> steps_;
  std::string prompts_, history_;
};

class ChatTest : public testing::Test {
 protected:
  struct Result {
    int code;
    std::string output, messages;
  };

  Result Run(bool interactive = true) {
    options_.common.server = server_.address();
    char* texts[2] = {nullptr, nullptr};
    size_t sizes[2] = {0, 0};
    FILE* const output = open_memstream(&texts[0], &sizes[0]);
    FILE* const messages = open_memstream(&texts[1], &sizes[1]);
    Screen screen(output, messages, {.text_on_terminal = true, .messages_on_terminal = true});
    Result result;
    {
      SignalWatcher signals;
      result.code = RunChat(options_, interactive, signals, reader_, screen);
    }
    std::fclose(output);
    std::fclose(messages);
    result.output = texts[0];
    result.messages = texts[1];
    for (char* text : texts) std::free(text);
    return result;
  }

  FakeServer server_;
  ScriptedReader reader_;
  ChatOptions options_;
};

TEST_F(ChatTest, PrintsTheAnswerAndWhatItCost) {
  reader_.Type("once upon");
  const Result result = Run();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, " ONCE UPON\n");
  EXPECT_THAT(result.messages, HasSubstr("[2 tokens"));
  EXPECT_THAT(result.messages, HasSubstr("0 cached"));
  EXPECT_THAT(server_.sessions.ids(), IsEmpty()) << "an unnamed session goes with the chat";
}

TEST_F(ChatTest, ContinuedLinesAreOneTurn) {
  reader_.Type("once\\");
  reader_.Type("upon\\");
  reader_.Type("");
  Run();
  ASSERT_THAT(server_.inference.turns(), SizeIs(1));
  EXPECT_EQ(server_.inference.turns()[0].prompt(), "once\nupon\n");
  EXPECT_EQ(reader_.prompts_, "> ... ... > ");
}

TEST_F(ChatTest, AnInterruptAtThePromptDropsTheLineAndNotTheProgram) {
  reader_.Type("once\\");
  reader_.steps_.push_back({{ReadResult::kInterrupted, ""}});
  reader_.steps_.push_back({{ReadResult::kInterrupted, ""}});
  reader_.Type("upon");
  EXPECT_EQ(Run().code, 0);
  ASSERT_THAT(server_.inference.turns(), SizeIs(1));
  EXPECT_EQ(server_.inference.turns()[0].prompt(), "upon");
}

TEST_F(ChatTest, TerminationDeletesUnnamedSessions) {
  reader_.Type("once");
  reader_.steps_.push_back({{ReadResult::kTerminated, ""}});
  reader_.Type("upon");
  EXPECT_EQ(Run().code, 143);
  EXPECT_THAT(server_.inference.turns(), SizeIs(1));
  EXPECT_THAT(server_.sessions.ids(), IsEmpty());
}

TEST_F(ChatTest, NamesSwitchesAndListsSessions) {
  reader_.Type("/name tale");
  reader_.Type("one");
  reader_.Type("/new");
  reader_.Type("two");
  reader_.Type("/sessions");
  reader_.Type("/switch tale");
  reader_.Type("/stats");
  reader_.Type("/quit");
  reader_.Type("never read");
  const Result result = Run();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.output, HasSubstr("* made-2"));
  EXPECT_THAT(result.output, HasSubstr("  made-1  tale"));
  EXPECT_THAT(result.output, HasSubstr("session    made-1 (tale)\nposition   2 tokens\n"));
  EXPECT_EQ(reader_.prompts_, "> tale> tale> > > > tale> tale> ");
  EXPECT_THAT(server_.inference.turns(), SizeIs(2));
  EXPECT_THAT(server_.sessions.ids(), testing::ElementsAre("made-1"));
}

TEST_F(ChatTest, NamesASessionThatHasBegun) {
  reader_.Type("one");
  reader_.Type("/name tale");
  reader_.Type("/sessions");
  reader_.steps_.push_back(
      {{ReadResult::kLine, "/name late"}, [this] { server_.sessions.Drop("made-1"); }});
  const Result result = Run();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.messages, HasSubstr("its name is tale; it is kept when you leave"));
  EXPECT_THAT(result.output, HasSubstr("* made-1  tale"));
  EXPECT_THAT(result.messages, HasSubstr("error: NOT_FOUND: no session made-1"));
  EXPECT_EQ(reader_.prompts_, "> > tale> tale> tale> ");
}

TEST_F(ChatTest, TakesTurnsBackAndSendsThemAgain) {
  reader_.Type("/undo");
  reader_.Type("/retry");
  reader_.Type("one");
  reader_.Type("two");
  reader_.Type("/retry");
  reader_.Type("/undo");
  reader_.Type("/retry");
  reader_.Type("/stats");
  reader_.Type("/undo");
  reader_.Type("/undo");
  reader_.Type("three");
  const Result result = Run();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.messages, HasSubstr("the session is empty"));
  EXPECT_THAT(result.messages, HasSubstr("no line of yours to send again"));
  EXPECT_THAT(result.messages, HasSubstr("took back the last turn; 2 tokens left"));
  EXPECT_THAT(result.messages, HasSubstr("took back the last turn; 0 tokens left"));
  EXPECT_THAT(result.messages, HasSubstr("keeps no earlier turn"));
  EXPECT_THAT(result.output, HasSubstr("position   2 tokens\n"));
  ASSERT_THAT(server_.inference.turns(), SizeIs(4));
  EXPECT_EQ(server_.inference.turns()[2].prompt(), " two");
  EXPECT_EQ(server_.inference.turns()[3].prompt(), "three") << "the session begins anew";
}

TEST_F(ChatTest, ForksAndShowsTheTree) {
  reader_.Type("/fork");
  reader_.Type("/name first");
  reader_.Type("one");
  reader_.Type("/fork other");
  reader_.Type("two");
  reader_.Type("/tree");
  reader_.Type("/fork");
  const Result result = Run();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.output, HasSubstr("  made-1  first  2 tokens\n"
                                       "*    fork-2  other  4 tokens, forked at 2\n"));
  EXPECT_EQ(server_.inference.turns()[1].session_id(), "fork-2");
  EXPECT_EQ(server_.inference.turns()[1].prompt(), "two");
  EXPECT_THAT(server_.sessions.ids(), testing::ElementsAre("fork-2", "made-1"))
      << "a fork without a name goes with the chat";
}

TEST_F(ChatTest, UnknownCommandsAreReportedAndNotSent) {
  reader_.Type("/nonsense");
  reader_.Type("/switch");
  reader_.Type("/switch missing");
  reader_.Type("/stats");
  reader_.Type("//help");
  const Result result = Run();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.messages, HasSubstr("error: no command /nonsense"));
  EXPECT_THAT(result.messages, HasSubstr("error: /switch needs"));
  EXPECT_THAT(result.messages, HasSubstr("no session missing; /sessions lists them"));
  EXPECT_THAT(result.messages, HasSubstr("the session is empty"));
  EXPECT_EQ(result.output, " /HELP\n");
}

TEST_F(ChatTest, ADroppedSessionIsExplained) {
  reader_.Type("once");
  reader_.steps_.push_back(
      {{ReadResult::kLine, "then"}, [this] { server_.sessions.Drop("made-1"); }});
  reader_.Type("anew");
  const Result result = Run();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.messages, HasSubstr("was dropped to make room"));
  EXPECT_THAT(result.messages, HasSubstr("Your next line starts a new one"));
  EXPECT_THAT(result.output, HasSubstr(" ANEW\n"));
}

TEST_F(ChatTest, AnInterruptedTurnIsReportedOnItsOwnLine) {
  reader_.Type("break");
  reader_.Type("then");
  const Result result = Run();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, " BREAK\n THEN\n");
  EXPECT_THAT(result.messages, HasSubstr("error: UNAVAILABLE: the server is going"));
  EXPECT_THAT(result.messages, Not(HasSubstr("No answer"))) << "that was one";
}

TEST_F(ChatTest, APipeEndsAtTheFirstFailure) {
  reader_.Type("break");
  reader_.Type("then");
  const Result result = Run(/*interactive=*/false);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(server_.inference.turns(), SizeIs(1));
  EXPECT_THAT(result.messages, Not(HasSubstr("/help")));
}

TEST_F(ChatTest, APipeEndsWhereTheServerEndsAnAnswer) {
  reader_.Type("leave");
  reader_.Type("then");
  const Result result = Run(/*interactive=*/false);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(server_.inference.turns(), SizeIs(1));
  EXPECT_THAT(result.messages, HasSubstr("the server ended the answer"));
}

TEST_F(ChatTest, InvalidUtf8IsRefusedByTheClient) {
  reader_.Type("caf\xe9");
  const Result result = Run();
  EXPECT_THAT(result.messages, HasSubstr("not UTF-8"));
  EXPECT_THAT(server_.inference.turns(), IsEmpty());
}

TEST_F(ChatTest, ResumesASession) {
  ASSERT_TRUE([&] {
    v1::CreateSessionRequest request;
    request.set_id("theirs");
    return Client(server_.address()).CreateSession(request).ok();
  }());
  options_.session = "theirs";
  reader_.Type("once");
  EXPECT_EQ(Run().code, 0);
  EXPECT_EQ(server_.inference.turns().at(0).session_id(), "theirs");
  EXPECT_THAT(server_.sessions.ids(), SizeIs(1)) << "it was there before, and stays";
  options_.session = "missing";
  const Result result = Run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.messages, HasSubstr("no session missing; `rivulet sessions` lists them"));
}

TEST_F(ChatTest, ASystemMessageNeedsATemplate) {
  options_.system = "be brief";
  EXPECT_EQ(Run().code, 1);
  server_.inference.set_has_chat_template(true);
  reader_.Type("hello");
  reader_.Type("");  // no message
  EXPECT_EQ(Run().code, 0);
  ASSERT_THAT(server_.inference.turns(), SizeIs(1));
  EXPECT_EQ(server_.inference.turns()[0].messages().messages_size(), 2);
  EXPECT_FALSE(server_.inference.turns()[0].messages().has_enable_thinking());
  options_.thinking = false;
  reader_.Type("hello");
  EXPECT_EQ(Run().code, 0);
  EXPECT_TRUE(server_.inference.turns()[1].messages().has_enable_thinking());
  EXPECT_FALSE(server_.inference.turns()[1].messages().enable_thinking());
}

TEST_F(ChatTest, ThinkingNeedsATemplate) {
  options_.thinking = true;
  reader_.Type("never read");
  const Result result = Run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.messages, HasSubstr("error: --thinking: fake has no chat template"));
  EXPECT_THAT(server_.inference.turns(), IsEmpty());
}

TEST_F(ChatTest, ASystemMessageIsForASessionThatHasNotBegun) {
  server_.inference.set_has_chat_template(true);
  reader_.Type("hello");
  reader_.Type("/name goose");
  EXPECT_EQ(Run().code, 0);
  options_.session = "goose";
  options_.system = "be brief";
  reader_.Type("never read");
  const Result result = Run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.messages, HasSubstr("error: --system: goose has begun"));
  EXPECT_THAT(server_.inference.turns(), SizeIs(1));
}

TEST_F(ChatTest, WithoutTemplatesOfTheServerTheTextIsContinued) {
  server_.inference.set_has_chat_template(true);
  server_.inference.set_applies_templates(false);
  reader_.Type("hello");
  reader_.Type("");  // lets it go on, from now on
  const Result result = Run();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, " HELLO\n");
  const size_t warning = result.messages.find("warning: this server does not apply chat templates");
  EXPECT_NE(warning, std::string::npos) << result.messages;
  EXPECT_EQ(result.messages.find("warning:", warning + 1), std::string::npos) << "once";
  EXPECT_THAT(result.messages, Not(HasSubstr("error")));
  const auto turns = server_.inference.turns();
  ASSERT_THAT(turns, SizeIs(3));
  EXPECT_EQ(turns[1].prompt(), "hello");
  EXPECT_TRUE(turns[2].has_prompt());
}

TEST_F(ChatTest, ASystemMessageIsNotDroppedSilently) {
  server_.inference.set_has_chat_template(true);
  server_.inference.set_applies_templates(false);
  options_.system = "be brief";
  reader_.Type("hello");
  reader_.Type("never read");
  const Result result = Run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.messages, HasSubstr("error: --system: this server does not apply"));
  EXPECT_THAT(server_.inference.turns(), SizeIs(1));
}

TEST_F(ChatTest, ARefusalSaysWhenToRetry) {
  reader_.Type("crowd");
  EXPECT_THAT(Run().messages, HasSubstr("too many wait (try again in 70 ms)\n"));
}

}  // namespace
}  // namespace rivulet::cli
