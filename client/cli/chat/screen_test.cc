// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/screen.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace rivulet::cli {
namespace {

// What was written to a FILE in memory.
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

TEST_F(ScreenTest, GeneratedTextCannotDriveATerminal) {
  Screen screen(output_.file(), messages_.file(), {.safe_text = true, .colours = false});
  EXPECT_TRUE(screen.Text("caf\u00e9\n\x1b[2Jgone"));
  EXPECT_EQ(output_.text(), "caf\u00e9\n^[[2Jgone");
}

TEST_F(ScreenTest, AFileGetsTheTextAsItIs) {
  Screen screen(output_.file(), messages_.file(), {.safe_text = false, .colours = false});
  EXPECT_TRUE(screen.Text("a\x1b[2J"));
  EXPECT_EQ(output_.text(), "a\x1b[2J");
}

TEST_F(ScreenTest, AMessageStartsOnALineOfItsOwn) {
  Screen screen(output_.file(), messages_.file(), {.safe_text = true, .colours = false});
  screen.Text("a tale");
  screen.Note("noted");
  screen.Note("again");
  screen.Text("ends with a line\n");
  screen.Error(absl::NotFoundError("no \x1b[31msession\nhere"));
  EXPECT_EQ(output_.text(), "a tale\nends with a line\n");
  EXPECT_EQ(messages_.text(), "noted\nagain\nerror: NOT_FOUND: no ^[[31msession^Jhere\n");
}

TEST_F(ScreenTest, ColoursOnlyWhereWanted) {
  Screen screen(output_.file(), messages_.file(), {.safe_text = true, .colours = true});
  screen.Text("plain\n");
  screen.Note("dim");
  EXPECT_EQ(output_.text(), "plain\n");
  EXPECT_EQ(messages_.text(), "\x1b[2mdim\x1b[0m\n");
}

TEST(ScreenStyleTest, FilesGetNoColours) {
  // ctest gives a pipe; where a person runs this on a terminal there is nothing to see.
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

}  // namespace
}  // namespace rivulet::cli
