// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {
namespace {

TEST(MixerRegistry, FindsEachMixerByItsOneName) {
  std::set<std::string_view> names;
  for (const MixerEntry& entry : MixerRegistry()) {
    EXPECT_TRUE(names.insert(entry.type).second) << entry.type << " is listed twice";
    const auto found = FindMixer(entry.type);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, entry.make);
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"linear_attn", "gla", "mamba2", "hla"}));
}

TEST(MixerRegistry, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  const absl::Status status = FindMixer("softmax").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message().data(), status.message().size());
  EXPECT_THAT(message, testing::HasSubstr("\"softmax\""));
  EXPECT_THAT(message,
              testing::AllOf(testing::HasSubstr("linear_attn, gla"), testing::HasSubstr("hla")));
}

}  // namespace
}  // namespace rivulet
