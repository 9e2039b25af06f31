// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/status.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

absl::Status ReturnFirstError(absl::Status status, bool* went_on) {
  RIVULET_RETURN_IF_ERROR(status);
  *went_on = true;
  return absl::OkStatus();
}

TEST(StatusTest, ReturnIfErrorPassesTheErrorOn) {
  bool went_on = false;
  EXPECT_EQ(ReturnFirstError(absl::NotFoundError("gone"), &went_on), absl::NotFoundError("gone"));
  EXPECT_FALSE(went_on);
  EXPECT_TRUE(ReturnFirstError(absl::OkStatus(), &went_on).ok());
  EXPECT_TRUE(went_on);
}

absl::StatusOr<std::unique_ptr<int>> MakeInt(int value) {
  if (value < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Sum(int a, int b) {
  RIVULET_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, MakeInt(a));
  std::unique_ptr<int> second;
  RIVULET_ASSIGN_OR_RETURN(second, MakeInt(b));
  return *first + *second;
}

TEST(StatusTest, AssignOrReturnMovesTheValueOrPassesTheErrorOn) {
  EXPECT_EQ(*Sum(2, 3), 5);
  EXPECT_EQ(Sum(-1, 3).status(), absl::InvalidArgumentError("negative"));
  EXPECT_EQ(Sum(2, -1).status(), absl::InvalidArgumentError("negative"));
}

}  // namespace
}  // namespace rivulet
