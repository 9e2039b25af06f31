// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_support.h"
#include "kernels/mixers/latent_attention/latent_attention_config.h"
#include "kernels/mixers/latent_attention/latent_attention_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/latent_attention/vectors/vectors.json";

SuiteCase Core(std::string name, const LatentSubjectShape& shape) {
  return {std::move(name), [=] { return MakeLatentAttentionSubject(shape); }};
}

std::vector<SuiteCase> CoreCases() {
  return {Core("r16_p0", {2, 16, 0}),
          Core("r32_p16_h5", {5, 32, 16}),
          Core("r64_p7", {3, 64, 7}),
          Core("r512_p64", {2, 512, 64}),
          Core("r48_p8_bf16", {4, 48, 8, DType::kBFloat16}),
          Core("r32_h19_pools16", {19, 32, 0, DType::kFloat32, 16}),
          Core("r20_p5_pools4", {3, 20, 5, DType::kFloat32, 4}),
          Core("r16_pools1", {2, 16, 0, DType::kFloat32, 1}),
          Core("r16_pools8_bf16", {2, 16, 0, DType::kBFloat16, 8}),
          Core("r32_pools16_bf16", {2, 32, 0, DType::kBFloat16, 16})};
}

INSTANTIATE_TEST_SUITE_P(LatentAttention, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(LatentAttention, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return MakeLatentAttentionSubject({p.at("heads"), p.at("latent"), p.at("shared_key")});
  });
}

// What a session of these rows gives, over all tokens or over every pool.
std::vector<float> Attended(const SoftmaxAttentionShape& shape, ConstFloatMatrix q,
                            ConstFloatMatrix k, size_t pool, size_t threads) {
  StateLayout layout;
  const SoftmaxAttentionRecurrence recurrence(shape, layout);
  const size_t tokens = q.rows, pages = tokens / layout.fold_interval();
  std::vector<std::byte> tails(layout.tail_bytes()), memory(pages * layout.page_bytes());
  std::vector<uint32_t> slots(pages);
  for (size_t i = 0; i < pages; ++i) slots[i] = static_cast<uint32_t>(i);
  const SegmentPages table{slots.data(), pages, 0, 0};
  const Segment segment{.tokens = tokens, .pages = &table};
  LayerState state;
  state.tails = tails.data();
  state.pages = memory.data();
  state.page_stride = layout.page_bytes();
  TestMatrix out(tokens, shape.heads * shape.values()), chosen(tokens, 2 + tokens);
  for (size_t t = 0; t < tokens && pool > 0; ++t) {
    chosen.view().row(t)[0] = static_cast<float>((t + 1) / pool);
    for (size_t p = 0; p <= tokens; ++p) chosen.view().row(t)[1 + p] = static_cast<float>(p);
  }
  Workspace workspace;
  ThreadPool threads_of(threads);
  recurrence.Run({&segment, 1}, state,
                 {q, k, k.Columns(0, shape.padded_values()), {pool, chosen.view()}}, out.view(),
                 workspace, threads_of);
  EXPECT_TRUE(out.CanariesAlive());
  return out.Values();
}

// More tokens than a span, so that spans of chosen ones are joined as well.
TEST(LatentAttention, EveryPoolChosenGivesTheBitsOfAllTokens) {
  constexpr size_t kTokens = 2 * kSpanTokens + 77;
  std::mt19937_64 random(TestSeed());
  const SoftmaxAttentionShape shape =
      LatentAttentionConfig{.heads = 3, .latent = 16, .shared_key = 0}.Absorbed(DType::kFloat32);
  TestMatrix q(kTokens, 3 * shape.padded()), k(kTokens, shape.padded());
  q.Fill(RandomFloats(kTokens * 3 * shape.padded(), random, 0.5f));
  k.Fill(RandomFloats(kTokens * shape.padded(), random));
  const std::vector<float> all = Attended(shape, q.view(), k.view(), 0, 2);
  for (const size_t pool : {16, 4, 1}) {
    EXPECT_TRUE(SameBits(Attended(shape, q.view(), k.view(), pool, 1 + pool % 3), all)) << pool;
  }
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
