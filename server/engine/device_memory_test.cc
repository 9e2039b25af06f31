// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Engines on devices of every size: what is left becomes slots, and too little memory is said with
// what it is for and with flags that help.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "kernels/device/fake_device.h"
#include "server/engine/device_engine_fixture.h"

namespace rivulet {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

absl::StatusOr<DeviceAndEngine> EngineWithAllOf(uint64_t memory_bytes, uint64_t state_memory = 0) {
  auto device = std::make_unique<FakeDevice>();
  device->memory_bytes = memory_bytes;
  return EngineOn(std::move(device), "tests/parity/fixtures/mamba2_hf",
                  {.state_memory = state_memory});
}

// The flags that a text names.
std::set<std::string> FlagsIn(absl::string_view text) {
  std::set<std::string> flags;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" ,;:="))) {
    if (absl::StartsWith(word, "--")) flags.insert(std::string(word));
  }
  return flags;
}

void ExpectHelp(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  const std::set<std::string> known = {"--dtype", "--state-dtype", "--state-context",
                                       "--state-memory"};
  const std::set<std::string> flags = FlagsIn(status.message());
  EXPECT_TRUE(flags.contains("--dtype")) << status;
  for (const std::string& flag : flags) EXPECT_TRUE(known.contains(flag)) << flag << ": " << status;
  EXPECT_NE(status.message().find(" bytes"), std::string::npos) << status;
}

TEST(DeviceMemoryTest, SlotsTakeWhatTheDeviceHasLeft) {
  const auto small = EngineWithAllOf(880 * kMiB), large = EngineWithAllOf(900 * kMiB);
  ASSERT_TRUE(small.ok()) << small.status();
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_GT(small->engine->capacity().tail_slots, 0u);
  EXPECT_GT(large->engine->capacity().tail_slots, small->engine->capacity().tail_slots);
  EXPECT_GT(large->engine->memory().free, 700 * kMiB);
}

TEST(DeviceMemoryTest, TooLittleIsSaidWithWhatHelps) {
  std::set<std::string> parts;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 10, uint64_t{60} << 10}) {
    const absl::Status status = EngineWithAllOf(bytes).status();
    ExpectHelp(status);
    parts.insert(std::string(status.message().substr(0, 16)));
  }
  for (uint64_t bytes = kMiB; bytes < 760 * kMiB; bytes = bytes * 5 / 4 + kMiB) {
    const absl::Status status = EngineWithAllOf(bytes).status();
    ExpectHelp(status);
    parts.insert(std::string(status.message().substr(0, 16)));
  }
  // Weights, buffers or temporaries, and states at least.
  EXPECT_GE(parts.size(), 3u);
}

// More than is left, and so much of it that nothing is left for recordings.
TEST(DeviceMemoryTest, AStateMemoryThatIsTooLargeIsRefused) {
  const auto whole = EngineWithAllOf(900 * kMiB);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const uint64_t left = whole->engine->memory().free;
  for (const uint64_t state_memory : {900 * kMiB, left + 128 * kMiB, left + 100 * kMiB}) {
    const auto engine = EngineWithAllOf(900 * kMiB, state_memory);
    if (engine.ok()) continue;
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(FlagsIn(engine.status().message()).contains("--state-memory")) << engine.status();
  }
  EXPECT_FALSE(EngineWithAllOf(900 * kMiB, 900 * kMiB).ok());
}

}  // namespace
}  // namespace rivulet
