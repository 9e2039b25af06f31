// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/log/load_progress.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(LoadProgressTest, TheLineHasABarAPercentageAndWhatIsDone) {
  EXPECT_EQ(LoadProgressLine(0, "embeddings", 99),
            "loading [....................]   0 %  embeddings");
  EXPECT_EQ(LoadProgressLine(0.251, "layer 3 of 12", 99),
            "loading [#####...............]  25 %  layer 3 of 12");
  EXPECT_EQ(LoadProgressLine(1, "ready", 99), "loading [####################] 100 %  ready");
  EXPECT_EQ(LoadProgressLine(7, "ready", 99), LoadProgressLine(1, "ready", 99));
  EXPECT_EQ(LoadProgressLine(0.5, "layer 3 of 12", 12), "loading [###");
}

// Under ctest stderr is no terminal.
TEST(LoadProgressTest, WithoutATerminalThereIsALineForEachTenth) {
  const auto progress = LoadProgress();
  testing::internal::CaptureStderr();
  for (int i = 0; i <= 100; ++i) progress(i / 100.0, "layer");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11) << text;
  EXPECT_NE(text.find("info loading percent=0 now=layer"), std::string::npos);
  EXPECT_NE(text.find("info loading percent=100 now=layer"), std::string::npos);
}

}  // namespace
}  // namespace rivulet
