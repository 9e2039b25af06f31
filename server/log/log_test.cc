// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/log/log.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(LogTest, QuotesWhatWouldBreakALine) {
  EXPECT_EQ(FormatLogLine("done", {{"id", "a1"}, {"tokens", 17}, {"seconds", 0.5}}),
            "done id=a1 tokens=17 seconds=0.5");
  EXPECT_EQ(FormatLogLine("done", {{"id", "a b\n\"c\"\x01"}, {"empty", ""}}),
            "done id=\"a b\\n\\\"c\\\"\\x01\" empty=\"\"");
}

// A log pipe that nobody read stopped every request after 64 KiB of lines.
TEST(LogTest, FullPipeDropsLinesAndDoesNotWait) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int saved = dup(STDERR_FILENO);
  ASSERT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
  for (int i = 0; i < 5000; ++i) LogInfo("line", {{"text", std::string(200, 'x')}});
  std::string text(1 << 17, '\0');
  EXPECT_GT(read(ends[0], text.data(), text.size()), 4096);
  LogInfo("last");
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, read(ends[0], text.data(), text.size()))));
  dup2(saved, STDERR_FILENO);
  for (const int end : {ends[0], ends[1], saved}) close(end);
  EXPECT_NE(text.find("last lines_dropped_before="), std::string::npos) << text;
}

TEST(LogTest, UnknownLevelIsRefused) {
  EXPECT_FALSE(SetLogLevel("loud"));
  EXPECT_TRUE(SetLogLevel("info"));
}

}  // namespace
}  // namespace rivulet
