// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/cuda_device.h"

#include <cstdlib>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/strings.h"

namespace rivulet {
namespace {

bool GpuIsRequired() {
  const char* const value = std::getenv("REQUIRE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

TEST(CudaDeviceTest, FindsADeviceOrSaysWhyNot) {
  const absl::StatusOr<int> count = CudaDeviceCount();
  if (count.ok()) {
    EXPECT_GE(*count, 1);
    return;
  }
  EXPECT_EQ(count.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(ToStd(count.status().message()), testing::HasSubstr("--device cpu"));
  ASSERT_FALSE(GpuIsRequired()) << "REQUIRE_GPU=1, but " << count.status();
  GTEST_SKIP() << "NO GPU: nothing ran on a device (" << count.status() << ")";
}

}  // namespace
}  // namespace rivulet
