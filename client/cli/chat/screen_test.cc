// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

namespace rivulet::cli {
namespace {

// A FILE in memory.
class MemoryFile {
 public:
  MemoryFile() : file_(open_memstream(&text_, &size_)) {}
  ~MemoryFile() {
    std::fclose(file_);
    std::free(text_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  FILE* const file_;
};

class ScreenTest : public testing::Test {
 protected:
  MemoryFile output_, messages_;
};

TEST_F(ScreenTest, GeneratedTextCannotControlATerminal) {
  Screen screen(output_.file(), messages_.file(), {.text_on_terminal = true});
  EXPECT_TRUE(screen.Text("caf\u00e9\n\x1b[2Jgone"));
  screen.EndText();
  EXPECT_EQ(output_.text(), "caf\u00e9\n^[[2Jgone\n");
}

TEST_F(ScreenTest, WithoutATerminalOnlyTheReportOfTheCacheFollowsATurn) {
  Screen screen(output_.file(), messages_.file(), {});
  TurnNumbers turn;
  screen.TurnSummary(turn);
  EXPECT_EQ(messages_.text(), "");
  turn.cache.emplace().set_miss(v1::CACHE_MISS_SHORT);
  screen.TurnSummary(turn);
  EXPECT_EQ(messages_.text(), "prefix cache: nothing reused: the prompt is too short\n");
}

TEST_F(ScreenTest, DimsThinking) {
  Screen screen(output_.file(), messages_.file(),
                {.text_on_terminal = true, .dims_thinking = true});
  screen.BeginText(true);
  for (const char* const piece : {"hm", " hm</th", "ink>\n\nYes", ". <think>again"})
    screen.Text(piece);
  screen.EndText();
  EXPECT_EQ(output_.text(), "\033[2mhm hm</think>\033[0m\n\nYes.\033[2m<think>again\033[0m\n");
  screen.BeginText(false);
  screen.Text("no");
  screen.EndText();
  EXPECT_TRUE(output_.text().ends_with("[0m\nno\n"));
}

TEST_F(ScreenTest, WrapsTextAndMessagesAtTheTerminalsWidth) {
  size_t width = 10;
  Screen screen(
      output_.file(), messages_.file(),
      {.text_on_terminal = true, .messages_on_terminal = true, .width = [&] { return width; }});
  screen.Text("there was a mil");
  EXPECT_EQ(output_.text(), "there was\na") << "the last word may still grow";
  screen.Text("ler");
  width = 20;
  screen.Text(" who had a goose");
  screen.Note("this was noted below");
  width = 9;
  screen.Note("and this");
  screen.Note("and also this");
  EXPECT_EQ(output_.text(), "there was\na miller who had a\ngoose\n");
  EXPECT_EQ(messages_.text(), "this was noted below\nand this\nand also\nthis\n");
}

TEST_F(ScreenTest, AFileGetsTheTextAtOnceAndUnchanged) {
  Screen screen(output_.file(), messages_.file(), {.width = [] { return size_t{3}; }});
  EXPECT_TRUE(screen.Text("a\x1b[2J long wor"));
  EXPECT_EQ(output_.text(), "a\x1b[2J long wor");
  screen.Note("not wrapped");
  EXPECT_EQ(messages_.text(), "not wrapped\n");
}

TEST_F(ScreenTest, AMessageStartsOnItsOwnLine) {
  Screen screen(output_.file(), messages_.file(), {.text_on_terminal = true});
  screen.Text("a tale");
  screen.Note("noted");
  screen.Note("again");
  screen.Text("ends with a line\n");
  screen.Error(absl::NotFoundError("no \x1b[31msession\nhere"));
  EXPECT_EQ(output_.text(), "a tale\nends with a line\n");
  EXPECT_EQ(messages_.text(), "noted\nagain\nerror: NOT_FOUND: no ^[[31msession^Jhere\n");
}

TEST_F(ScreenTest, ColoursOnlyWhereWanted) {
  Screen screen(output_.file(), messages_.file(), {.text_on_terminal = true, .colours = true});
  screen.Text("plain\n");
  screen.Note("dim");
  EXPECT_EQ(output_.text(), "plain\n");
  EXPECT_EQ(messages_.text(), "\x1b[2mdim\x1b[0m\n");
}

TEST_F(ScreenTest, SummariesAreForTerminals) {
  TurnNumbers turn;
  turn.usage.set_completion_tokens(1);
  Screen(output_.file(), messages_.file(), {}).TurnSummary(turn);
  EXPECT_EQ(messages_.text(), "");
  Screen(output_.file(), messages_.file(), {.messages_on_terminal = true}).TurnSummary(turn);
  EXPECT_EQ(messages_.text(), "[1 token, 0 cached, first token 0 ms]\n");
}

TEST(ScreenStyleTest, FilesGetNoColours) {
  // ctest provides a pipe; on a terminal this cannot be tested.
  if (isatty(STDERR_FILENO) != 0) GTEST_SKIP() << "standard error is a terminal";
  EXPECT_FALSE(Screen::StyleOfStandardStreams().colours);
}

TEST(SummaryTest, SaysWhatATurnCost) {
  TurnNumbers turn;
  turn.usage.set_completion_tokens(24);
  turn.usage.set_cached_tokens(31);
  turn.first_token_seconds = 0.0121;
  turn.tokens_per_second = 180.24;
  turn.finish_reason = v1::FINISH_REASON_LENGTH;
  EXPECT_EQ(Summary(turn), "24 tokens, 180.2 tokens/s, 31 cached, first token 12 ms, length limit");
  turn.finish_reason = v1::FINISH_REASON_CANCELLED;
  turn.tokens_per_second = 0;
  EXPECT_EQ(Summary(turn), "24 tokens, 31 cached, first token 12 ms, stopped by you");
  turn.usage.set_completion_tokens(1);
  EXPECT_EQ(Summary(turn), "1 token, 31 cached, first token 12 ms, stopped by you");
  turn.usage.set_completion_tokens(24);
  turn.finish_reason = v1::FINISH_REASON_STOP;
  turn.matched_stop = "END";
  EXPECT_EQ(Summary(turn), "24 tokens, 31 cached, first token 12 ms, stopped before END");
}

TEST(SummaryTest, SaysWhatTheCacheHad) {
  TurnNumbers turn;
  turn.finish_reason = v1::FINISH_REASON_LENGTH;
  turn.cache.emplace().set_reused_tokens(96);
  turn.cache->set_known_tokens(112);
  EXPECT_THAT(Summary(turn), testing::HasSubstr("96 tokens reused, 112 known, length limit"));
  const std::pair<v1::CacheMiss, const char*> misses[] = {
      {v1::CACHE_MISS_OFF, "off"},      {v1::CACHE_MISS_SESSION, "its own state"},
      {v1::CACHE_MISS_SHORT, "short"},  {v1::CACHE_MISS_PROMPT_LOGPROBS, "log-probabilities"},
      {v1::CACHE_MISS_UNKNOWN, "salt"}, {v1::CACHE_MISS_NOT_KEPT, "not kept"},
  };
  for (const auto& [miss, why] : misses) {
    turn.cache->set_miss(miss);
    EXPECT_THAT(Summary(turn), testing::HasSubstr(why));
  }
}

}  // namespace
}  // namespace rivulet::cli
