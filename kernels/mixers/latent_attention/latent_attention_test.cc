// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/latent_attention/latent_attention_config.h"
#include "kernels/mixers/latent_attention/latent_attention_reference.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/latent_attention/vectors/vectors.json";

struct Shape {
  size_t heads = 0, latent = 0, shared_key = 0;
  DType dtype = DType::kFloat32;
};

std::unique_ptr<SuiteSubject> MakeSubject(const Shape& s) {
  const SoftmaxAttentionShape shape =
      LatentAttentionConfig{.heads = s.heads, .latent = s.latent, .shared_key = s.shared_key}
          .Absorbed(s.dtype);
  // Scaled queries: scores grow no further with the latent's width.
  const double bound = std::min(1.0, 8 / std::sqrt(static_cast<double>(shape.head_dim)));
  auto subject = std::make_unique<CoreSubject>(
      std::vector<InputField>{{"q", 0, s.heads, shape.head_dim, shape.padded(), -bound, bound},
                              {"k", 0, 1, shape.head_dim, shape.padded(), -1.0, 1.0}},
      s.heads * s.latent);
  subject->error_bound = s.dtype == DType::kFloat32 ? 1e-5 : 2e-2;
  const auto recurrence =
      std::make_shared<SoftmaxAttentionRecurrence>(shape, subject->state_layout);
  subject->run = [=](const LayerStep& step, const CoreSubject::Inputs& x, FloatMatrix out) {
    const ConstFloatMatrix values = x["k"].Columns(0, shape.padded_values());
    recurrence->Run(step.segments, step.state, {x["q"], x["k"], values}, out, *step.workspace,
                    *step.pool);
  };
  subject->reference = [=](const CoreSubject::Inputs& x) {
    return LatentAttentionReference(shape, x["q"], x["k"]);
  };
  return subject;
}

SuiteCase Core(std::string name, const Shape& shape) {
  return {std::move(name), [=] { return MakeSubject(shape); }};
}

std::vector<SuiteCase> CoreCases() {
  return {Core("r16_p0", {2, 16, 0}), Core("r32_p16_h5", {5, 32, 16}), Core("r64_p7", {3, 64, 7}),
          Core("r512_p64", {2, 512, 64}), Core("r48_p8_bf16", {4, 48, 8, DType::kBFloat16})};
}

INSTANTIATE_TEST_SUITE_P(LatentAttention, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(LatentAttention, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return MakeSubject({p.at("heads"), p.at("latent"), p.at("shared_key")});
  });
}

// Kimi Linear's. A token takes one latent in two layouts, for any number of heads.
TEST(LatentAttention, TheStateIsTheLatent) {
  StateLayout layout;
  const LatentAttentionConfig config{.heads = 32, .latent = 512, .shared_key = 64};
  const SoftmaxAttentionRecurrence recurrence(config.Absorbed(DType::kFloat32), layout);
  EXPECT_EQ(layout.base_bytes(), 0u);
  EXPECT_EQ(layout.page_bytes(), 16 * (576 + 512) * sizeof(float));
}

}  // namespace
}  // namespace rivulet
