// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Models in which a norm's factor comes after a map (RowFactor, LateNorm), and models beside them
// in which it must not: a feed-forward behind it, factors of the residual stream, a bias of the
// map, a sum of mixers, rows of a length that late norms do not serve. Random weights, on the fake
// device and on a GPU, beside the CPU.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "nlohmann/json.hpp"
#include "server/engine/cpu_engine.h"
#include "server/engine/device_engine.h"
#include "server/engine/fed_texts.h"
#include "server/engine/random_model.h"
#include "server/engine/same_logprobs.h"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr size_t kTokens = 60;
// About three quarters of them have a row in a step, so that a GPU's steps have more than 128 rows,
// whose products and recurrences are others than those of few.
constexpr size_t kCrowd = 200, kTokensInCrowd = 18;

// A config.json of the fixtures with other values of some keys.
struct Model {
  const char* name;
  const char* fixture;
  json changes;
  size_t crowd = kCrowd;  // sessions that are fed together
};

const std::vector<Model>& Models() {
  static const std::vector<Model> models = {
      {"granite", "upstream_hf_granite_dense", {{"mamba_n_groups", 1}}},
      {"granite_with_bias",
       "upstream_hf_granite_dense",
       {{"mamba_n_groups", 1}, {"mamba_proj_bias", true}}},
      {"falcon_h1",
       "upstream_hf_falcon_h1_norm",
       {{"mamba_n_groups", 1}, {"mamba_proj_bias", false}, {"projectors_bias", false}}},
      {"mamba2", "upstream_hf_mamba2", {{"hidden_size", 32}, {"num_heads", 4}}},
      {"mamba2_of_odd_width", "upstream_hf_mamba2", {{"hidden_size", 48}, {"num_heads", 6}}},
      // States enough for sums_stream.cu, which brings weights of the next product to L2.
      {"mamba2_of_many_heads",
       "upstream_hf_mamba2",
       {{"hidden_size", 64},
        {"expand", 8},
        {"num_heads", 32},
        {"state_size", 64},
        {"num_hidden_layers", 2}}},
      // Of a GPU alone, where one row has one kernel for the first half of a layer
      // (project_and_recur.cu): a fake device takes half a minute.
      {"mamba2_of_one_launch",
       "upstream_hf_mamba2",
       {{"hidden_size", 768},
        {"expand", 1},
        {"num_heads", 12},
        {"head_dim", 64},
        {"state_size", 128},
        {"n_groups", 1},
        {"num_hidden_layers", 2}},
       4}};
  return models;
}

json ConfigOf(const Model& model) {
  std::ifstream file(std::string("tests/parity/fixtures/") + model.fixture + "/config.json");
  json config = json::parse(file);
  config.update(model.changes);
  return config;
}

std::shared_ptr<const LoadedModel> Load(const Model& model, Device* device) {
  LoadOptions options;
  options.mixer.device = device;
  if (device == nullptr) options.weight_dtype = DType::kFloat32;
  auto loaded = MakeRandomModel(ConfigOf(model), 7, options);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? *std::move(loaded) : nullptr;
}

// The largest difference of log-probabilities that both list; infinite if they have less than half
// of a list in common.
double Distance(const Answers& a, const Answers& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    std::map<uint32_t, float> known;
    for (const TokenLogprob& x : a[i].top) known[x.token] = x.logprob;
    size_t shared = 0;
    for (const TokenLogprob& x : b[i].top) {
      const auto found = known.find(x.token);
      if (found == known.end()) continue;
      worst = WorstDifference(worst, found->second, x.logprob);
      ++shared;
    }
    if (2 * shared < known.size()) return INFINITY;
  }
  return worst;
}

class DeviceFactorTest : public testing::TestWithParam<size_t> {
 protected:
  std::unique_ptr<Engine> CpuEngine() const {
    auto engine = MakeCpuEngine(Load(model(), nullptr), {.threads = 2});
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  std::unique_ptr<Engine> EngineOn(Device* device) const {
    auto engine = MakeDeviceEngine(Load(model(), device), device,
                                   {.threads = 2, .state_memory = uint64_t{512} << 20}, 1);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  static const Model& model() { return Models()[GetParam()]; }

  void SetUp() override {
    const auto cpu = CpuEngine();
    text_.resize(kTokens);
    for (uint32_t& token : text_) token = random_() % cpu->vocab_size();
    expected_ = Feed(*cpu, text_, kTokens);
  }

  // What rounding the operands of products changes on a fake device: 0.28 for Falcon-H1, 0.05 for
  // Mamba-2, 0.02 for Granite. A GPU also rounds the operands of recurrences: 0.68, 0.08 and 0.08
  // were seen there.
  double RoundingCosts() const {
    FakeDevice fake;
    fake.rounding = ProductPrecision::kBFloat16;
    return Distance(expected_, Feed(*EngineOn(&fake), text_, kTokens));
  }

  // Near the CPU, and the same bits from every cut of the text, alone and in a crowd.
  void Check(Device* device, double tolerance) {
    const auto engine = EngineOn(device);
    const Answers whole = Feed(*engine, text_, kTokens);
    EXPECT_LE(Distance(expected_, whole), tolerance);
    for (const size_t piece : {size_t{1}, size_t{7}}) {
      const Answers cut = Feed(*engine, text_, piece);
      EXPECT_TRUE(Same(cut, whole)) << piece;
    }
    const std::vector<uint32_t> beginning(text_.begin(), text_.begin() + kTokensInCrowd);
    const auto crowd = FeedTogether(*engine, std::vector(model().crowd, beginning), 1, random_);
    for (const Answers& answers : crowd) {
      ASSERT_EQ(answers.size(), kTokensInCrowd);
      ASSERT_TRUE(BeginsWith(whole, answers));
    }
  }

  std::mt19937 random_{TestSeed()};
  std::vector<uint32_t> text_;
  Answers expected_;
};

TEST_P(DeviceFactorTest, AFakeDeviceIsNearTheCpu) {
  FakeDevice fake;
  Check(&fake, 5e-4);
}

class DeviceFactorOnGpuTest : public DeviceFactorTest {};

TEST_P(DeviceFactorOnGpuTest, IsNearTheCpu) {
  RIVULET_NEED_GPU();
  const double costs = RoundingCosts();
  ASSERT_LT(costs, 0.5);
  for (const auto& [precision, tolerance] :
       {std::pair(ProductPrecision::kFloat32, 1e-3),
        {ProductPrecision::kBFloat16, std::max(0.15, 4 * costs)}}) {
    auto gpu = OpenCudaDevice(precision);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    Check(gpu->get(), tolerance);
  }
}

std::string NameOf(const testing::TestParamInfo<size_t>& info) { return Models()[info.param].name; }

// Without the last model.
INSTANTIATE_TEST_SUITE_P(Models, DeviceFactorTest, testing::Range(size_t{0}, Models().size() - 1),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Models, DeviceFactorOnGpuTest, testing::Range(size_t{0}, Models().size()),
                         NameOf);

}  // namespace
}  // namespace rivulet
