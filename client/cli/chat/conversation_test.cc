// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "client/fake_server.h"

namespace rivulet::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ConversationTest : public testing::Test {
 protected:
  absl::Status Say(const std::string& line) { return SayTo(conversation_, line); }
  absl::Status SayTo(Conversation& conversation, const std::string& line) {
    text_.clear();
    return conversation.Say(line, {}, [this](const std::string& text) {
      text_ += text;
      return true;
    });
  }
  std::string LastPrompt() const { return server_.inference.turns().back().prompt(); }
  void Create(const std::string& id, const std::string& name) {
    v1::CreateSessionRequest request;
    request.set_id(id);
    request.set_name(name);
    ASSERT_TRUE(client_.CreateSession(request).ok());
  }

  FakeServer server_;
  Client client_{server_.address()};
  Conversation conversation_{client_, {}, false, ""};
  std::string text_;
};

TEST_F(ConversationTest, CreatesTheSessionWithTheFirstLine) {
  EXPECT_THAT(server_.sessions.ids(), IsEmpty());
  ASSERT_TRUE(Say("once upon").ok());
  EXPECT_THAT(server_.sessions.ids(), ElementsAre("made-1"));
  EXPECT_EQ(conversation_.id(), "made-1");
  EXPECT_EQ(text_, " ONCE UPON");
}

TEST_F(ConversationTest, ASecondTurnReportsWhatWasCached) {
  ASSERT_TRUE(Say("once upon").ok());
  EXPECT_EQ(conversation_.last_turn().usage.cached_tokens(), 0u);
  ASSERT_TRUE(Say("a time").ok());
  EXPECT_EQ(conversation_.last_turn().usage.cached_tokens(), 4u);
  EXPECT_EQ(conversation_.last_turn().seed, 11u);
  EXPECT_EQ(conversation_.last_turn().finish_reason, v1::FINISH_REASON_EOS);
  EXPECT_GT(conversation_.last_turn().first_token_seconds, 0);
  EXPECT_GT(conversation_.last_turn().tokens_per_second, 0) << "however short the turn";
}

TEST_F(ConversationTest, JoinsALineToATextThatGoesOn) {
  std::thread canceller([this] {
    while (!conversation_.CancelTurn()) std::this_thread::yield();
  });
  ASSERT_TRUE(Say("hang").ok());
  canceller.join();
  EXPECT_EQ(conversation_.last_turn().finish_reason, v1::FINISH_REASON_CANCELLED);
  ASSERT_TRUE(Say("then").ok());
  EXPECT_EQ(LastPrompt(), " then");
  ASSERT_TRUE(Say("anew").ok());
  EXPECT_EQ(LastPrompt(), "anew") << "the text before it had ended";
}

TEST_F(ConversationTest, NothingToCancelBetweenTurns) {
  EXPECT_FALSE(conversation_.CancelTurn());
  ASSERT_TRUE(Say("once").ok());
  EXPECT_FALSE(conversation_.CancelTurn());
}

TEST_F(ConversationTest, ANameIsSetWhenTheSessionIsCreated) {
  ASSERT_TRUE(conversation_.SetName("tale", {}).ok());
  EXPECT_THAT(server_.sessions.ids(), IsEmpty());
  ASSERT_TRUE(Say("once").ok());
  EXPECT_EQ(conversation_.Describe({})->name(), "tale");
}

TEST_F(ConversationTest, ASessionThatHasBegunIsRenamed) {
  ASSERT_TRUE(Say("once").ok());
  ASSERT_TRUE(conversation_.SetName("tale", {}).ok());
  EXPECT_EQ(conversation_.name(), "tale");
  EXPECT_EQ(conversation_.Describe({})->name(), "tale");
  server_.sessions.Drop("made-1");
  EXPECT_TRUE(absl::IsNotFound(conversation_.SetName("other", {})));
  EXPECT_EQ(conversation_.name(), "tale");
}

TEST_F(ConversationTest, DeletesOnlyItsOwnUnnamedSessions) {
  Create("theirs", "");
  ASSERT_TRUE(Say("one").ok());  // made-1, to be deleted
  conversation_.StartNew("tale");
  ASSERT_TRUE(Say("two").ok());  // made-2, named
  conversation_.StartNew("");
  ASSERT_TRUE(Say("three").ok());  // made-3, kept by the late name
  EXPECT_TRUE(conversation_.SetName("late", {}).ok());
  ASSERT_TRUE(conversation_.Switch("theirs", {}).ok());
  ASSERT_TRUE(Say("four").ok());
  conversation_.DeleteUnnamed({});
  EXPECT_THAT(server_.sessions.ids(), ElementsAre("made-2", "made-3", "theirs"));
}

TEST_F(ConversationTest, SwitchesByIdNameAndStartOfAnId) {
  for (const char* id : {"abc", "abd", "xyz", "page", "pagf"}) Create(id, std::string("n-") + id);
  ASSERT_TRUE(conversation_.Switch("abc", {}).ok());
  EXPECT_EQ(conversation_.name(), "n-abc");
  ASSERT_TRUE(conversation_.Switch("n-abd", {}).ok());
  EXPECT_EQ(conversation_.id(), "abd");
  ASSERT_TRUE(conversation_.Switch("xy", {}).ok());
  EXPECT_EQ(conversation_.id(), "xyz");
}

TEST_F(ConversationTest, AFailedSwitchChangesNothing) {
  for (const char* id : {"abc", "abd"}) Create(id, "same");
  ASSERT_TRUE(conversation_.Switch("abc", {}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(conversation_.Switch("ab", {})));
  EXPECT_TRUE(absl::IsFailedPrecondition(conversation_.Switch("same", {})));
  EXPECT_TRUE(absl::IsNotFound(conversation_.Switch("nothing", {})));
  EXPECT_EQ(conversation_.id(), "abc");
}

TEST_F(ConversationTest, SwitchingBackRemembersHowTheTextEnded) {
  ASSERT_TRUE(Say("one").ok());  // ends with EOS
  conversation_.StartNew("");
  ASSERT_TRUE(Say("two").ok());
  ASSERT_TRUE(conversation_.Switch("made-1", {}).ok());
  ASSERT_TRUE(Say("then").ok());
  EXPECT_EQ(LastPrompt(), "then");
  EXPECT_EQ(conversation_.last_turn().usage.cached_tokens(), 2u);
}

TEST_F(ConversationTest, AResumedSessionContinuesWithinAText) {
  Create("theirs", "");
  ASSERT_TRUE(conversation_.Switch("theirs", {}).ok());
  ASSERT_TRUE(Say("once").ok());
  EXPECT_EQ(LastPrompt(), "once") << "it was empty";
  Conversation other(client_, {}, false, "");
  ASSERT_TRUE(other.Switch("theirs", {}).ok());
  ASSERT_TRUE(SayTo(other, "then").ok());
  EXPECT_EQ(LastPrompt(), " then");
}

TEST_F(ConversationTest, ADroppedSessionIsReplacedByANewOneOfTheSameName) {
  conversation_.StartNew("tale");
  ASSERT_TRUE(Say("once").ok());
  server_.sessions.Drop("made-1");
  const absl::Status status = Say("then");
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_NE(status.message().find("dropped to make room"), absl::string_view::npos);
  EXPECT_EQ(conversation_.id(), "");
  ASSERT_TRUE(Say("once").ok());
  EXPECT_EQ(conversation_.Describe({})->name(), "tale");
  EXPECT_EQ(LastPrompt(), "once");
}

TEST_F(ConversationTest, ABrokenTurnKeepsTheSession) {
  ASSERT_TRUE(Say("once").ok());
  EXPECT_TRUE(absl::IsUnavailable(Say("break now")));
  EXPECT_EQ(text_, " BREAK NOW");
  EXPECT_EQ(conversation_.last_turn().finish_reason, v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(conversation_.id(), "made-1");
  EXPECT_TRUE(Say("then").ok());
}

TEST_F(ConversationTest, AModelWithATemplateGetsMessages) {
  Conversation chat(client_, {}, true, "be brief");
  ASSERT_TRUE(SayTo(chat, "hello").ok());
  ASSERT_TRUE(SayTo(chat, "again").ok());
  const auto turns = server_.inference.turns();
  ASSERT_EQ(turns.at(0).messages().messages_size(), 2);
  EXPECT_EQ(turns[0].messages().messages(0).role(), "system");
  EXPECT_EQ(turns[0].messages().messages(1).content(), "hello");
  ASSERT_EQ(turns.at(1).messages().messages_size(), 1);
  EXPECT_EQ(turns[1].messages().messages(0).role(), "user");
  EXPECT_FALSE(turns[1].messages().special_tokens_in_messages());
  v1::GenerateRequest special;
  special.set_special_tokens(true);
  Conversation other(client_, special, true, "");
  ASSERT_TRUE(SayTo(other, "<end>").ok());
  EXPECT_TRUE(server_.inference.turns().at(2).messages().special_tokens_in_messages());
}

}  // namespace
}  // namespace rivulet::cli
