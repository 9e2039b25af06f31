// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/latent_attention/latent_attention_subject.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/mixers/latent_attention/latent_attention_config.h"
#include "kernels/mixers/latent_attention/latent_attention_reference.h"

namespace rivulet {
namespace {

constexpr size_t kMostPools = 7;

// Some pools that are full once token t is there, others for each token; [1 + kMostPools].
void ChooseSome(size_t t, size_t pool, float* row) {
  const size_t full = (t + 1) / pool;
  size_t count = 0;
  for (size_t p = 0; p < full && count < kMostPools; ++p) {
    if ((p * p + 3 * t) % 5 < 3) row[1 + count++] = static_cast<float>(p);
  }
  if (count == 0 && full > 0) row[1 + count++] = static_cast<float>(full - 1);
  row[0] = static_cast<float>(count);
}

ChosenPools SomePools(const LayerStep& step, size_t rows, size_t pool) {
  if (pool == 0) return {};
  const FloatMatrix chosen = step.workspace->Take(rows, 1 + kMostPools);
  for (const Segment& segment : step.segments) {
    for (size_t i = 0; i < segment.tokens; ++i) {
      ChooseSome(segment.position + i, pool, chosen.row(segment.first_token + i));
    }
  }
  return {pool, chosen};
}

Sees SeesSome(size_t pool) {
  if (pool == 0) return [](size_t, size_t) { return true; };
  return [pool](size_t t, size_t s) {
    float row[1 + kMostPools];
    ChooseSome(t, pool, row);
    const std::span chosen(row + 1, static_cast<size_t>(row[0]));
    const size_t of = s / pool;
    return s >= (t + 1) / pool * pool ||
           std::find(chosen.begin(), chosen.end(), static_cast<float>(of)) != chosen.end();
  };
}

// On a device values are whole rows of keys; the latent comes first.
void AddDeviceForm(const SoftmaxAttentionShape& shape, CoreSubject& subject) {
  for (size_t i = 0; i < shape.heads * shape.values(); ++i) {
    subject.device_outputs_at.push_back(i / shape.values() * shape.padded() + i % shape.values());
  }
  subject.on_device = [shape, subject = &subject](StateLayout& layout) {
    const auto recurrence = std::make_shared<SoftmaxAttentionRecurrence>(shape, layout);
    return [=](const DeviceStep& step, ConstFloatMatrix rows) {
      const CoreSubject::Inputs x = subject->ByField(rows);
      return DeviceOutput{.rows = recurrence->Enqueue(step, {x["q"], x["k"], x["k"]})};
    };
  };
}

}  // namespace

std::unique_ptr<SuiteSubject> MakeLatentAttentionSubject(const LatentSubjectShape& s) {
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
    const ChosenPools chosen = SomePools(step, out.rows, s.pool);
    recurrence->Run(step.segments, step.state, {x["q"], x["k"], values, chosen}, out,
                    *step.workspace, *step.pool);
  };
  if (s.pool == 0) AddDeviceForm(shape, *subject);
  subject->reference = [=](const CoreSubject::Inputs& x) {
    return LatentAttentionReference(shape, x["q"], x["k"], SeesSome(s.pool));
  };
  return subject;
}

}  // namespace rivulet
