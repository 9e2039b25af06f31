// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/mixture_of_experts/mixture_of_experts.h"

#include <set>
#include <string>

#include "kernels/base/test_support.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/device_step.h"
#include "kernels/device/fake_device.h"
#include "kernels/ops/gated_mlp/gated_mlp.h"
#include "kernels/ops/mixture_of_experts/device_experts.h"

namespace rivulet {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Linear MapOn(Device& device, const std::vector<LinearSource>& sources, size_t inputs) {
  return Linear::OnDevice(*device.Pack(sources, inputs), DType::kFloat32);
}
Linear MapOn(Device& device, const std::vector<float>& weights, size_t outputs, size_t inputs) {
  return MapOn(device, {{weights.data(), DType::kFloat32, outputs, nullptr}}, inputs);
}

// y of x [T, hidden], of tokens of segments of their own; that of `absent` has none.
std::vector<float> OnDevice(FakeDevice& device, const FeedForward& block,
                            const std::vector<float>& x, size_t hidden, size_t absent = SIZE_MAX) {
  const auto tokens = static_cast<uint32_t>(x.size() / hidden);
  std::vector<DeviceSegment> segments(tokens);
  for (uint32_t t = 0; t < tokens; ++t) {
    segments[t].first_token = t;
    segments[t].tokens = t == absent ? 0 : 1;
  }
  DeviceWorkspace workspace(&device);
  const DeviceRows rows{segments.data(), nullptr, tokens, tokens, true};
  const FloatMatrix y = workspace.Take(tokens, hidden);
  block.Enqueue({&device, &workspace, rows, {}}, OperandOf(device, x, tokens, hidden), y);
  return NumbersOf(device, y);
}

// One gated MLP's weights and what it computes.
struct Expert {
  Expert(size_t hidden_size, size_t width_size, std::mt19937_64& random, float clamp = 0)
      : hidden(hidden_size),
        width(width_size),
        limit(clamp),
        gate_up(RandomFloats(2 * width * hidden, random, 0.5f)),
        down(RandomFloats(hidden * width, random, 0.5f)) {}

  ExpertMaps Pack(DType dtype) const {
    const DType fp32 = DType::kFloat32;
    return {Linear::Pack({{gate_up.data(), fp32, 2 * width, nullptr}}, hidden, dtype),
            Linear::Pack({{down.data(), fp32, hidden, nullptr}}, width, dtype)};
  }
  std::unique_ptr<FeedForward> PackOn(Device& device) const {
    return std::make_unique<GatedMlp>(MapOn(device, gate_up, 2 * width, hidden),
                                      MapOn(device, down, hidden, width),
                                      GatedMlpForm{.limit = limit});
  }
  std::vector<double> Apply(const float* x) const {
    std::vector<double> y(hidden);
    for (size_t i = 0; i < width; ++i) {
      double gate = 0, up = 0;
      for (size_t c = 0; c < hidden; ++c) {
        gate += double{gate_up[i * hidden + c]} * x[c];
        up += double{gate_up[(width + i) * hidden + c]} * x[c];
      }
      if (limit != 0) gate = std::min<double>(gate, limit);
      if (limit != 0) up = std::clamp<double>(up, -limit, limit);
      for (size_t c = 0; c < hidden; ++c) {
        y[c] += down[c * width + i] * gate * Sigmoid(gate) * up;
      }
    }
    return y;
  }

  size_t hidden, width;
  float limit;  // of gate and up; 0: none
  std::vector<float> gate_up, down;
};

struct Shape {
  std::string name;
  ExpertChoice choice;
  size_t hidden, width;
  size_t shared_width = 0;  // 0: none
  bool shared_gate = false;
  float limit = 0;
};

struct Mixture {
  Mixture(const Shape& of, std::mt19937_64& random)
      : shape(of), router(RandomFloats((of.choice.experts + 1) * of.hidden, random)) {
    for (size_t e = 0; e < of.choice.experts; ++e) {
      experts.emplace_back(of.hidden, of.width, random, of.limit);
    }
    if (of.shared_width > 0) shared.emplace(of.hidden, of.shared_width, random, of.limit);
  }

  MixtureOfExperts Pack(DType dtype = DType::kFloat32) const {
    const size_t outputs = shape.choice.experts + (shape.shared_gate ? 1 : 0);
    MixtureParts parts{.choice = shape.choice,
                       .router = Linear::Pack({{router.data(), DType::kFloat32, outputs, nullptr}},
                                              shape.hidden, DType::kFloat32)};
    for (const Expert& expert : experts) parts.experts.push_back(expert.Pack(dtype));
    if (shared.has_value()) {
      ExpertMaps maps = shared->Pack(dtype);
      parts.shared = std::make_unique<GatedMlp>(std::move(maps.in), std::move(maps.out),
                                                GatedMlpForm{.limit = shape.limit});
    }
    parts.limit = shape.limit;
    return MixtureOfExperts(std::move(parts));
  }

  DeviceExperts PackOn(Device& device) const {
    const size_t hidden = shape.hidden, width = shape.width;
    std::vector<LinearSource> gate_up, down;
    for (const Expert& expert : experts) {
      gate_up.push_back({expert.gate_up.data(), DType::kFloat32, 2 * width, nullptr});
      down.push_back({expert.down.data(), DType::kFloat32, hidden, nullptr});
    }
    const size_t outputs = shape.choice.experts + (shape.shared_gate ? 1 : 0);
    DeviceMixtureParts parts{.choice = shape.choice,
                             .router = MapOn(device, router, outputs, hidden)};
    parts.in = MapOn(device, gate_up, hidden);
    parts.out = MapOn(device, down, width);
    if (shared.has_value()) parts.shared = shared->PackOn(device);
    parts.limit = shape.limit;
    return DeviceExperts(std::move(parts));
  }

  double Logit(const float* x, size_t output) const {
    double sum = 0;
    for (size_t c = 0; c < shape.hidden; ++c) {
      sum += double{router[output * shape.hidden + c]} * x[c];
    }
    return sum;
  }

  // The definition: sort all experts by probability, take the first few.
  std::vector<double> Reference(const float* x) const {
    const size_t count = shape.choice.experts, chosen = shape.choice.experts_per_token;
    std::vector<std::pair<double, size_t>> order;
    double sum_of_all = 0, sum_of_chosen = 0;
    for (size_t e = 0; e < count; ++e) {
      order.emplace_back(-std::exp(Logit(x, e)), e);
      sum_of_all -= order.back().first;
    }
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < chosen; ++i) sum_of_chosen -= order[i].first;
    std::vector<double> y(shape.hidden);
    const auto add = [&](double weight, const Expert& expert) {
      const std::vector<double> output = expert.Apply(x);
      for (size_t c = 0; c < shape.hidden; ++c) y[c] += weight * output[c];
    };
    for (size_t i = 0; i < chosen; ++i) {
      const double sum = shape.choice.weights_sum_to_one ? sum_of_chosen : sum_of_all;
      add(-order[i].first / sum, experts[order[i].second]);
    }
    if (shared.has_value()) add(shape.shared_gate ? Sigmoid(Logit(x, count)) : 1, *shared);
    return y;
  }

  Shape shape;
  std::vector<float> router;
  std::vector<Expert> experts;
  std::optional<Expert> shared;
};

class MixtureOfExpertsTest : public testing::TestWithParam<Shape> {
 protected:
  std::mt19937_64 random_{TestSeed()};
  Mixture mixture_{GetParam(), random_};
};

TEST_P(MixtureOfExpertsTest, MatchesFp64) {
  const size_t hidden = GetParam().hidden;
  const MixtureOfExperts packed = mixture_.Pack();
  ThreadPool pool(2);
  for (const size_t tokens : {0, 1, 2, 40}) {
    TestMatrix x(tokens, hidden, 1, 2), y(tokens, hidden, 2, 1);
    x.Fill(RandomFloats(tokens * hidden, random_));
    std::vector<double> reference;
    for (size_t t = 0; t < tokens; ++t) {
      for (double value : mixture_.Reference(x.view().row(t))) reference.push_back(value);
    }
    Workspace workspace;
    packed.Apply({{}, {}, &workspace, &pool}, x.view(), y.view());
    EXPECT_TRUE(Close(y.Values(), reference, 1e-5)) << tokens;
    EXPECT_TRUE(y.CanariesAlive());
  }
}

TEST_P(MixtureOfExpertsTest, OnADeviceItMatchesFp64) {
  const size_t hidden = GetParam().hidden;
  FakeDevice device;
  const DeviceExperts experts = mixture_.PackOn(device);
  ASSERT_TRUE(experts.runs_on_device());
  constexpr uint32_t kAbsent = 3;
  for (const uint32_t tokens : {1, 2, 40}) {
    const std::vector<float> x = RandomFloats(tokens * hidden, random_);
    const std::vector<float> y = OnDevice(device, experts, x, hidden, kAbsent);
    for (uint32_t t = 0; t < tokens; ++t) {
      if (t == kAbsent) continue;
      const auto row = y.begin() + t * hidden;
      EXPECT_TRUE(
          Close(std::vector<float>(row, row + hidden), mixture_.Reference(&x[t * hidden]), 1e-4))
          << t << " of " << tokens;
    }
  }
}

// Also more pairs than fit one pass, some experts that all tokens choose and some that none does.
TEST_P(MixtureOfExpertsTest, RowsAloneAndInAnyCompanyHaveTheSameBits) {
  const size_t hidden = GetParam().hidden;
  constexpr size_t kAlone = 150;
  const size_t tokens = MixtureOfExperts::kPassRows + 100;
  TestMatrix x(tokens, hidden);
  x.Fill(RandomFloats(tokens * hidden, random_));
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const MixtureOfExperts packed = mixture_.Pack(dtype);
    std::vector<float> first;
    ForEachFusedTarget([&](const char* target) {
      for (const size_t threads : {1, 3}) {
        ThreadPool pool(threads);
        Workspace workspace;
        TestMatrix together(tokens, hidden), alone(kAlone, hidden), cut(tokens, hidden);
        packed.Apply({{}, {}, &workspace, &pool}, x.view(), together.view());
        for (size_t t = 0; t < kAlone; ++t) {
          workspace.Reset();
          packed.Apply({{}, {}, &workspace, &pool}, x.view().Rows(t, 1), alone.view().Rows(t, 1));
        }
        for (size_t t = 0, count = 0; t < tokens; t += count) {
          count = std::min<size_t>(1 + random_() % 50, tokens - t);
          workspace.Reset();
          packed.Apply({{}, {}, &workspace, &pool}, x.view().Rows(t, count),
                       cut.view().Rows(t, count));
        }
        if (first.empty()) first = together.Values();
        EXPECT_TRUE(SameBits(together.Values(), first)) << target << " threads " << threads;
        const std::span<const float> start(first.data(), kAlone * hidden);
        EXPECT_TRUE(SameBits(alone.Values(), start)) << target << " threads " << threads;
        EXPECT_TRUE(SameBits(cut.Values(), first)) << target << " threads " << threads;
      }
    });
  }
}

TEST_P(MixtureOfExpertsTest, NaNStaysInItsRow) {
  const size_t hidden = GetParam().hidden;
  const MixtureOfExperts packed = mixture_.Pack();
  ThreadPool pool(1);
  TestMatrix x(3, hidden), with(3, hidden), without(3, hidden);
  x.Fill(RandomFloats(3 * hidden, random_));
  Workspace workspace;
  packed.Apply({{}, {}, &workspace, &pool}, x.view(), without.view());
  x.view().row(1)[0] = std::nanf("");
  packed.Apply({{}, {}, &workspace, &pool}, x.view(), with.view());
  for (const size_t t : {0, 2}) {
    EXPECT_TRUE(SameBits({with.view().row(t), hidden}, {without.view().row(t), hidden}));
  }
  EXPECT_TRUE(std::isnan(with.view().row(1)[0]));
}

INSTANTIATE_TEST_SUITE_P(Shapes, MixtureOfExpertsTest,
                         testing::Values(Shape{"QwenNext", {8, 3, true}, 48, 20, 33, true},
                                         Shape{"Granite", {5, 2, true}, 32, 16, 40, false},
                                         Shape{"SoftmaxOverAll", {9, 2, false}, 33, 17, 0, false},
                                         Shape{"Clamped", {6, 2, true}, 32, 16, 24, false, 0.6f},
                                         Shape{"OneOfOne", {1, 1, true}, 16, 16, 0, false},
                                         Shape{"AllOfThem", {4, 4, false}, 16, 300, 8, true}),
                         [](const auto& info) { return info.param.name; });

// Experts out(relu²(in down x)) in a narrower space beside a shared MLP, in fp64 from the weights.
struct LatentMixture {
  static constexpr size_t kExperts = 4, kHidden = 24, kLatent = 9, kWidth = 20;

  explicit LatentMixture(std::mt19937_64& random)
      : router(RandomFloats(kExperts * kHidden, random)),
        down(RandomFloats(kLatent * kHidden, random, 0.5f)),
        up(RandomFloats(kHidden * kLatent, random, 0.5f)),
        shared(kHidden, kWidth, random) {
    for (size_t e = 0; e < kExperts; ++e) {
      in.push_back(RandomFloats(kWidth * kLatent, random, 0.5f));
      out.push_back(RandomFloats(kLatent * kWidth, random, 0.5f));
    }
  }

  static Linear Map(const std::vector<float>& weights, size_t outputs, size_t inputs) {
    const DType fp32 = DType::kFloat32;
    return Linear::Pack({{weights.data(), fp32, outputs, nullptr}}, inputs, fp32);
  }

  MixtureOfExperts Pack() const {
    MixtureParts parts{.choice = {.experts = kExperts, .experts_per_token = 2},
                       .router = Map(router, kExperts, kHidden)};
    for (size_t e = 0; e < kExperts; ++e) {
      parts.experts.push_back({Map(in[e], kWidth, kLatent), Map(out[e], kLatent, kWidth)});
    }
    parts.gated = false;
    parts.f = Activation::kReluSquared;
    parts.latent_down = Map(down, kLatent, kHidden);
    parts.latent_up = Map(up, kHidden, kLatent);
    ExpertMaps maps = shared.Pack(DType::kFloat32);
    parts.shared = std::make_unique<GatedMlp>(std::move(maps.in), std::move(maps.out));
    return MixtureOfExperts(std::move(parts));
  }

  DeviceExperts PackOn(Device& device) const {
    DeviceMixtureParts parts{.choice = {.experts = kExperts, .experts_per_token = 2},
                             .router = MapOn(device, router, kExperts, kHidden)};
    std::vector<LinearSource> ins, outs;
    for (size_t e = 0; e < kExperts; ++e) {
      ins.push_back({in[e].data(), DType::kFloat32, kWidth, nullptr});
      outs.push_back({out[e].data(), DType::kFloat32, kLatent, nullptr});
    }
    parts.in = MapOn(device, ins, kLatent);
    parts.out = MapOn(device, outs, kWidth);
    parts.gated = false;
    parts.f = Activation::kReluSquared;
    parts.latent_down = MapOn(device, down, kLatent, kHidden);
    parts.latent_up = MapOn(device, up, kHidden, kLatent);
    parts.shared = shared.PackOn(device);
    return DeviceExperts(std::move(parts));
  }

  static std::vector<double> Apply(const std::vector<float>& weights, size_t outputs,
                                   const std::vector<double>& x) {
    std::vector<double> y(outputs);
    for (size_t o = 0; o < outputs; ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += double{weights[o * x.size() + i]} * x[i];
    }
    return y;
  }

  std::vector<double> Reference(const float* row) const {
    const std::vector<double> x(row, row + kHidden), narrow = Apply(down, kLatent, x);
    const std::vector<double> logits = Apply(router, kExperts, x);
    std::vector<size_t> order = {0, 1, 2, 3};
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    const double first = std::exp(logits[order[0]]), second = std::exp(logits[order[1]]);
    std::vector<double> sum(kLatent);
    for (size_t i = 0; i < 2; ++i) {
      std::vector<double> middle = Apply(in[order[i]], kWidth, narrow);
      for (double& value : middle) value = value > 0 ? value * value : 0;
      const double weight = (i == 0 ? first : second) / (first + second);
      const std::vector<double> y = Apply(out[order[i]], kLatent, middle);
      for (size_t c = 0; c < kLatent; ++c) sum[c] += weight * y[c];
    }
    std::vector<double> y = shared.Apply(row);
    const std::vector<double> wide = Apply(up, kHidden, sum);
    for (size_t c = 0; c < kHidden; ++c) y[c] += wide[c];
    return y;
  }

  std::vector<float> router, down, up;
  Expert shared;
  std::vector<std::vector<float>> in, out;
};

TEST(LatentExpertsTest, MatchFp64AndRowsDoNotMatter) {
  std::mt19937_64 random(TestSeed());
  const LatentMixture mixture(random);
  const MixtureOfExperts packed = mixture.Pack();
  constexpr size_t kTokens = 30, kHidden = LatentMixture::kHidden;
  TestMatrix x(kTokens, kHidden, 1, 2), y(kTokens, kHidden, 2, 1), alone(kTokens, kHidden);
  x.Fill(RandomFloats(kTokens * kHidden, random));
  std::vector<double> reference;
  ThreadPool pool(2);
  Workspace workspace;
  for (size_t t = 0; t < kTokens; ++t) {
    for (double value : mixture.Reference(x.view().row(t))) reference.push_back(value);
    workspace.Reset();
    packed.Apply({{}, {}, &workspace, &pool}, x.view().Rows(t, 1), alone.view().Rows(t, 1));
  }
  workspace.Reset();
  packed.Apply({{}, {}, &workspace, &pool}, x.view(), y.view());
  EXPECT_TRUE(Close(y.Values(), reference, 1e-5));
  EXPECT_TRUE(SameBits(alone.Values(), y.Values()));
  EXPECT_TRUE(y.CanariesAlive());
}

TEST(LatentExpertsTest, OnADeviceTheyMatchFp64) {
  std::mt19937_64 random(TestSeed());
  const LatentMixture mixture(random);
  FakeDevice device;
  const DeviceExperts packed = mixture.PackOn(device);
  constexpr size_t kTokens = 20, kHidden = LatentMixture::kHidden;
  const std::vector<float> x = RandomFloats(kTokens * kHidden, random);
  std::vector<double> reference;
  for (size_t t = 0; t < kTokens; ++t) {
    for (double value : mixture.Reference(&x[t * kHidden])) reference.push_back(value);
  }
  EXPECT_TRUE(Close(OnDevice(device, packed, x, kHidden), reference, 1e-4));
}

std::vector<uint32_t> Chosen(const ExpertChoice& choice, std::vector<float> logits) {
  std::vector<uint32_t> ids(choice.experts_per_token);
  std::vector<float> weights(choice.experts_per_token);
  ChooseExperts(choice, logits.data(), ids.data(), weights.data());
  return ids;
}

TEST(ExpertChoiceTest, TakesTheLargestLowestIndexFirst) {
  using Ids = std::vector<uint32_t>;
  EXPECT_EQ(Chosen({5, 2}, {0, 3, 1, 2, -1}), (Ids{1, 3}));
  EXPECT_EQ(Chosen({5, 2}, {1, 1, 1, 1, 1}), (Ids{0, 1}));
  EXPECT_EQ(Chosen({5, 3}, {0, 2, 1, 1, 1}), (Ids{1, 2, 3}));
  EXPECT_EQ(Chosen({5, 3}, {1, 1, 2, 1, 3}), (Ids{0, 2, 4}));
  EXPECT_EQ(Chosen({3, 3}, {3, 2, 1}), (Ids{0, 1, 2}));
  EXPECT_EQ(Chosen({4, 2}, {-1e30f, -INFINITY, 5, -INFINITY}), (Ids{0, 2}));
}

TEST(ExpertChoiceTest, NaNComesLastAndIdsStayDistinct) {
  using Ids = std::vector<uint32_t>;
  EXPECT_EQ(Chosen({4, 2}, {NAN, 1, NAN, 2}), (Ids{1, 3}));
  EXPECT_EQ(Chosen({4, 3}, {NAN, 1, NAN, 2}), (Ids{0, 1, 3}));
  EXPECT_EQ(Chosen({3, 2}, {NAN, NAN, NAN}), (Ids{0, 1}));
}

TEST(ExpertChoiceTest, MatchesASortOnRandomLogits) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 300; ++round) {
    const size_t experts = 1 + random() % 70, chosen = 1 + random() % experts;
    std::vector<float> logits(experts);
    for (float& logit : logits) logit = static_cast<float>(random() % 20);  // many ties
    std::vector<uint32_t> order(experts);
    for (uint32_t e = 0; e < experts; ++e) order[e] = e;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    const std::set<uint32_t> sorted(order.begin(), order.begin() + static_cast<long>(chosen));
    EXPECT_EQ(Chosen({experts, chosen}, logits),
              std::vector<uint32_t>(sorted.begin(), sorted.end()));
  }
}

TEST(ExpertChoiceTest, WeightsAreOfTheChosenOrOfAll) {
  uint32_t ids[2];
  float weights[2];
  std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  ChooseExperts({3, 2, true}, logits.data(), ids, weights);
  EXPECT_NEAR(weights[0], 2.0 / 7, 1e-6);
  EXPECT_NEAR(weights[1], 5.0 / 7, 1e-6);
  logits = {0, std::log(2.0f), std::log(5.0f)};
  ChooseExperts({3, 2, false}, logits.data(), ids, weights);
  EXPECT_NEAR(weights[0], 2.0 / 8, 1e-6);
  EXPECT_NEAR(weights[1], 5.0 / 8, 1e-6);
}

}  // namespace
}  // namespace rivulet
