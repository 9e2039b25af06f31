// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/command.h"

#include <gtest/gtest.h>

#include <string>

namespace rivulet::cli {
namespace {

void ExpectCommand(std::string_view line, CommandKind kind, const std::string& argument) {
  const Command command = ParseCommand(line);
  EXPECT_EQ(command.kind, kind) << line;
  EXPECT_EQ(command.argument, argument) << line;
}

TEST(CommandTest, ParsesCommands) {
  ExpectCommand("/new", CommandKind::kNew, "");
  ExpectCommand("/new  the long tale ", CommandKind::kNew, "the long tale");
  ExpectCommand("/name x", CommandKind::kName, "x");
  ExpectCommand("/sessions", CommandKind::kSessions, "");
  ExpectCommand("/switch\tab12", CommandKind::kSwitch, "ab12");
  ExpectCommand("/stats ", CommandKind::kStats, "");
  ExpectCommand("/help", CommandKind::kHelp, "");
  ExpectCommand("/quit", CommandKind::kQuit, "");
}

TEST(CommandTest, UnknownCommandsAreNotText) {
  ExpectCommand("/names x", CommandKind::kUnknown, "/names");
  ExpectCommand("/", CommandKind::kUnknown, "/");
  ExpectCommand("/ new", CommandKind::kUnknown, "/");
}

TEST(CommandTest, TextIsUnchanged) {
  ExpectCommand("", CommandKind::kText, "");
  ExpectCommand("  once upon ", CommandKind::kText, "  once upon ");
  ExpectCommand(" /new", CommandKind::kText, " /new");
  ExpectCommand("//new", CommandKind::kText, "/new");
  ExpectCommand("//", CommandKind::kText, "/");
}

TEST(CommandTest, ABackslashContinuesTextAndNotCommands) {
  std::string line = "once\\";
  EXPECT_TRUE(TakeContinuation(line));
  EXPECT_EQ(line, "once");
  EXPECT_FALSE(TakeContinuation(line));
  line = "/name a\\";
  EXPECT_FALSE(TakeContinuation(line));
  line = "";
  EXPECT_FALSE(TakeContinuation(line));
}

TEST(JoinTextTest, PutsASpaceWhereAWriterWould) {
  EXPECT_EQ(JoinText("", "Once"), "Once") << "the first line of a session";
  EXPECT_EQ(JoinText("the king.", "Then"), " Then");
  EXPECT_EQ(JoinText("the king.", "'Oh!'"), " 'Oh!'") << "an opening quote, more often than not";
  EXPECT_EQ(JoinText("the king", ", who"), ", who");
  EXPECT_EQ(JoinText("the king.\n", "Then"), "Then");
  EXPECT_EQ(JoinText("the king.", "\nThen"), "\nThen");
  EXPECT_EQ(JoinText("the king", " and"), " and");
  EXPECT_EQ(JoinText("(", "and"), "and");
  EXPECT_EQ(JoinText("the king", ""), "") << "nothing to join: the model goes on";
  EXPECT_EQ(JoinText("\u6f22", "\u5b57"), " \u5b57");
}

TEST(CommandTest, HelpNamesEveryCommand) {
  for (const char* name : {"/new", "/name", "/sessions", "/switch", "/stats", "/help", "/quit"}) {
    EXPECT_NE(CommandHelp().find(name), std::string_view::npos) << name;
  }
}

}  // namespace
}  // namespace rivulet::cli
