// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The GPU's engine beside the CPU's on every real checkpoint that it serves: numbers within
// tolerance, and the same bits for every cut of a prompt, neighbours, slots and number of rows.
// fake_device_engine_test.cc does the same without a GPU.
//
// RIVULET_MODELS: folders with checkpoints in their subfolders, separated by colons; by default the
// repository's fixtures.
#include "server/engine/device_engine.h"

#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "server/engine/checkpoint_folders.h"
#include "server/engine/device_engine_fixture.h"
#include "server/engine/fed_texts.h"
#include "server/engine/same_logprobs.h"

namespace rivulet {
namespace {

constexpr size_t kTokens = 90;

// The status says why there is none.
absl::StatusOr<DeviceAndEngine> DeviceEngineFor(const std::string& model,
                                                ProductPrecision precision, DType state) {
  auto device = OpenCudaDevice(precision);
  if (!device.ok()) return device.status();
  constexpr uint64_t kForMany = uint64_t{1} << 30;  // of the test below
  return EngineOn(*std::move(device), model, {.state = state, .state_memory = kForMany});
}

// How far a device's numbers may be from the exact ones. Random checkpoints magnify what rounding
// the operands of products changes, some a thousand times as much as others. So more than a small
// difference is measured by what the same rounding of linear maps costs on the fake device, with
// room for recurrences and attention, whose products only a GPU rounds. The most that was seen is
// 8.3 times (qwen3_next in fp32).
constexpr double kSmallInFp32 = 1e-3, kSmallInBFloat16 = 0.25, kRoom = 16;

class DeviceEngineTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { RIVULET_NEED_GPU(); }

  std::vector<uint32_t> RandomText(uint32_t vocab) {
    std::vector<uint32_t> tokens(kTokens);
    for (uint32_t& token : tokens) token = random_() % vocab;
    return tokens;
  }

  std::mt19937 random_{TestSeed()};
};

TEST_P(DeviceEngineTest, IsNearTheCpu) {
  const auto exact = DeviceEngineFor(GetParam(), ProductPrecision::kFloat32, DType::kFloat32);
  if (absl::IsUnimplemented(exact.status())) GTEST_SKIP() << exact.status();
  ASSERT_TRUE(exact.ok()) << exact.status();
  const auto rounded = DeviceEngineFor(GetParam(), ProductPrecision::kBFloat16, DType::kFloat32);
  ASSERT_TRUE(rounded.ok()) << rounded.status();
  const std::unique_ptr<Engine> cpu = CpuEngineFor(GetParam());
  ASSERT_NE(cpu, nullptr);
  const std::vector<uint32_t> text = RandomText(cpu->vocab_size());
  const Answers expected = Feed(*cpu, text, kTokens);
  const double fp32 = Distance(expected, Feed(*exact->engine, text, kTokens));
  const double bf16 = RoundedDistance(GetParam(), expected, Feed(*rounded->engine, text, kTokens));
  std::printf("%s: log-probabilities differ by %.2g in fp32, %.2g in bf16\n", GetParam().c_str(),
              fp32, bf16);
  // The fake device is slow: it is asked where the difference is not small anyway.
  const auto fake = [&](ProductPrecision rounding) {
    return Feed(*RoundingFake(GetParam(), rounding).engine, text, kTokens);
  };
  if (fp32 > kSmallInFp32) {
    EXPECT_LE(fp32, kRoom * Distance(expected, fake(ProductPrecision::kFloat32)));
  }
  if (bf16 > kSmallInBFloat16) {
    const Answers rounded_fake = fake(ProductPrecision::kBFloat16);
    EXPECT_LE(bf16, kRoom * RoundedDistance(GetParam(), expected, rounded_fake));
  }
}

TEST_P(DeviceEngineTest, HasTheSameBitsFromEverySchedule) {
  for (const auto& [precision, state] : {std::pair(ProductPrecision::kBFloat16, DType::kFloat32),
                                         {ProductPrecision::kFloat32, DType::kFloat32},
                                         {ProductPrecision::kBFloat16, DType::kBFloat16}}) {
    const auto device = DeviceEngineFor(GetParam(), precision, state);
    if (absl::IsUnimplemented(device.status())) GTEST_SKIP() << device.status();
    if (state == DType::kBFloat16 && absl::IsInvalidArgument(device.status())) continue;
    ASSERT_TRUE(device.ok()) << device.status();
    Engine& engine = *device->engine;
    std::vector<std::vector<uint32_t>> texts;
    std::vector<Answers> whole;
    for (size_t i = 0; i < 11; ++i) {
      texts.push_back(RandomText(engine.vocab_size()));
      whole.push_back(Feed(engine, texts.back(), kTokens));
    }
    const auto check = [&](size_t text, const Answers& answers, const char* how) {
      ASSERT_EQ(answers.size(), kTokens);
      for (size_t i = 0; i < kTokens; ++i) {
        ASSERT_TRUE(Same(answers[i], whole[text][i]))
            << how << ": text " << text << " differs after token " << i;
      }
    };
    check(0, Feed(engine, texts[0], 1), "token by token");
    check(1, Feed(engine, texts[1], 7), "in pieces of 7");
    check(2, Feed(engine, texts[2], 16), "in pieces of 16");
    for (const size_t longest : {1, 3, 40}) {
      const std::vector<Answers> together = FeedTogether(engine, texts, longest, random_);
      for (size_t i = 0; i < texts.size(); ++i) check(i, together[i], "in company");
    }
    // Steps of 20 to 128 tokens in as many as 33 short segments, which are replayed.
    std::vector<std::vector<uint32_t>> crowd;
    for (size_t copy = 0; copy < 3; ++copy) crowd.insert(crowd.end(), texts.begin(), texts.end());
    const std::vector<Answers> together = FeedTogether(engine, crowd, 4, random_);
    for (size_t i = 0; i < crowd.size(); ++i) check(i % texts.size(), together[i], "in a crowd");
    // Decode rows that the device runs separately from a piece of another text.
    std::vector<std::vector<uint32_t>> many;
    for (size_t copy = 0; copy < 3; ++copy) many.insert(many.end(), crowd.begin(), crowd.end());
    const std::vector<Answers> beside = FeedBeside(engine, many, kTokens, random_);
    for (size_t i = 0; i + 1 < many.size(); ++i) {
      check(i % texts.size(), beside[i], "beside a prompt");
    }
    ASSERT_FALSE(beside.back().empty());
    ASSERT_TRUE(BeginsWith(whole.back(), beside.back())) << "beside decode rows";
  }
}

// With the same rounded weights as on the fake device, whose products are of fp32 numbers.
TEST_P(DeviceEngineTest, Float8WeightsAreThoseOfTheFakeDevice) {
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const auto device = EngineOn(*std::move(gpu), GetParam(), {.weights = DType::kFloat8});
  if (absl::IsUnimplemented(device.status())) GTEST_SKIP() << device.status();
  ASSERT_TRUE(device.ok()) << device.status();
  Engine& engine = *device->engine;
  const std::vector<uint32_t> text = RandomText(engine.vocab_size());
  const Answers whole = Feed(engine, text, kTokens);
  for (const size_t piece : {1, 7, 40}) {
    const Answers answers = Feed(engine, text, piece);
    EXPECT_TRUE(Same(whole, answers)) << piece;
  }
  const auto fake =
      EngineOn(std::make_unique<FakeDevice>(), GetParam(), {.weights = DType::kFloat8});
  ASSERT_TRUE(fake.ok()) << fake.status();
  const double distance = Float8Distance(GetParam(), Feed(*fake->engine, text, kTokens), whole);
  std::printf("%s: fp8 log-probabilities differ by %.2g from the fake device's\n",
              GetParam().c_str(), distance);
  if (distance <= kSmallInBFloat16) return;
  const auto rounded = RoundingFake(GetParam(), ProductPrecision::kBFloat16, DType::kFloat8);
  const Answers exact = Feed(*fake->engine, text, kTokens);
  EXPECT_LE(distance,
            kRoom * Float8Distance(GetParam(), exact, Feed(*rounded.engine, text, kTokens)));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceEngineTest);
INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceEngineTest,
                         testing::ValuesIn(CheckpointFolders("tests/parity/fixtures:models")),
                         [](const auto& info) { return CheckpointTestName(info); });

}  // namespace
}  // namespace rivulet
