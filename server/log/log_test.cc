// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/log/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/utf8.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

TEST(LogTest, QuotesWhatWouldBreakALine) {
  testing::internal::CaptureStderr();
  LogInfo("done", {{"id", "a1"}, {"tokens", 17}, {"seconds", 0.5}});
  LogWarning("done", {{"id", "a b\n\"c\"\x01"}, {"empty", ""}});
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("Z info done id=a1 tokens=17 seconds=0.5\n"));
  EXPECT_THAT(lines, HasSubstr("Z warning done id=\"a b\\n\\\"c\\\"\\x01\" empty=\"\"\n"));
}

// A byte that is not UTF-8 ends many programs that read logs, and C1 controls drive terminals.
TEST(LogTest, LinesAreUtf8WithoutControls) {
  testing::internal::CaptureStderr();
  LogInfo("done", {{"id", "\xff"}, {"cut", "b\xc3"}, {"c1", "\xc2\x9b"}, {"good", "\xc3\xa9"}});
  std::string long_text(3000, 'x');
  for (int i = 0; i < 1000; ++i) long_text += "\xe2\x82\xac";
  for (const size_t start : {0, 1, 2}) LogInfo("long", {{"text", long_text.substr(start)}});
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines,
              HasSubstr("done id=\"\\xff\" cut=\"b\\xc3\" c1=\"\\xc2\\x9b\" good=\xc3\xa9\n"));
  EXPECT_EQ(ValidUtf8Length(lines), lines.size());
}

// An unread log pipe once stopped every request after 64 KiB of lines.
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

// The level was lowered for the line that reports the change, and lines of other threads with it.
TEST(LogTest, AChangeOfLevelShowsNoOtherLines) {
  ASSERT_TRUE(SetLogLevel("error"));
  std::atomic<int> calls{0};
  std::atomic<bool> done{false};
  testing::internal::CaptureStderr();
  std::thread other([&] {
    for (; !done; ++calls) LogInfo("hidden");
  });
  for (int i = 0; i < 1000 || calls < 100'000; ++i) {
    ChangeLogLevel("off", "test");
    ChangeLogLevel("error", "test");
  }
  done = true;
  other.join();
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("info log_level_changed from=error to=off client=test"));
  EXPECT_THAT(lines, HasSubstr("info log_level_changed from=off to=error client=test"));
  EXPECT_THAT(lines, testing::Not(HasSubstr("hidden")));
  SetLogLevel("info");
}

TEST(LogTest, UnknownLevelIsRefused) {
  EXPECT_FALSE(SetLogLevel("loud"));
  EXPECT_TRUE(SetLogLevel("info"));
}

}  // namespace
}  // namespace rivulet
