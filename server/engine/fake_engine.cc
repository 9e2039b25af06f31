// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/fake_engine.h"

#include <utility>

#include "kernels/base/check.h"

namespace rivulet {
namespace {

uint64_t Mix(uint64_t hash, uint32_t token) {
  hash = (hash ^ (token + 1)) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

std::unique_ptr<StatePool> MakePool(uint32_t sessions) {
  StateLayout layout;
  layout.Add(StatePart::kCheckpoint, "hash", DType::kFloat32, {2});
  layout.Add(StatePart::kTail, "tokens", DType::kFloat32, {kFoldInterval});
  const StateLayout* layers[] = {&layout};
  const StateSizes sizes = AddUpLayouts(layers);
  const uint64_t spares = sessions / StatePool::kTailsPerSpare + 1;
  auto pool = StatePool::Make(
      sizes, sessions * sizes.tail_bytes + (sessions + spares) * sizes.checkpoint_bytes);
  RIVULET_CHECK(pool.ok(), "a fake engine for no session");
  return *std::move(pool);
}

}  // namespace

FakeEngine::FakeEngine(uint32_t sessions) : pool_(MakePool(sessions)) {}

uint64_t FakeEngine::Hash(std::span<const uint32_t> tokens) {
  uint64_t hash = 0;  // as a checkpoint of zeros
  for (uint32_t token : tokens) hash = Mix(hash, token);
  return hash;
}

uint32_t FakeEngine::NextToken(std::span<const uint32_t> tokens, uint32_t index) {
  return static_cast<uint32_t>(Mix(Hash(tokens), index) % kVocab);
}

uint64_t FakeEngine::StateHash(uint32_t checkpoint, uint32_t tail, size_t tail_tokens) const {
  const LayerState state = pool_->Layer(0);
  uint64_t hash = *state.Checkpoint<uint64_t>(checkpoint, 0);
  for (size_t i = 0; i < tail_tokens; ++i) hash = Mix(hash, state.Tail<uint32_t>(tail, 0)[i]);
  return hash;
}

StepResult FakeEngine::Step(const StepPlan& plan) {
  ++steps;
  StepResult result;
  for (const StepRow& row : plan.rows) result.rows.push_back(RunRow(plan, row));
  return result;
}

RowResult FakeEngine::RunRow(const StepPlan& plan, const StepRow& row) {
  RowResult result;
  if (fail_row) result.status = fail_row(row);
  if (!result.status.ok()) return result;
  const Segment& segment = row.segment;
  const LayerState state = pool_->Layer(0);
  uint32_t checkpoint = segment.checkpoint_in;
  uint64_t hash = 0;
  ForEachChunkPiece(segment, [&](const ChunkPiece& piece) {
    for (size_t i = piece.begin; i < piece.end; ++i) {
      const size_t token = piece.first_token + i - piece.begin;
      state.Tail<uint32_t>(segment.tail, 0)[i] = plan.tokens[token];
      hash = StateHash(checkpoint, segment.tail, i + 1);
      const size_t place = token - segment.first_token;
      if (place >= row.score_targets.size()) continue;
      const float logprob = -static_cast<float>(Mix(hash, row.score_targets[place]) % 1000) / 100;
      result.scores.push_back({{row.score_targets[place], logprob}, {}});
    }
    if (!piece.folds) return;
    checkpoint = segment.checkpoint_out;
    RIVULET_CHECK(!pool_->CheckpointShared(checkpoint), "folds into a checkpoint that is shared");
    *state.Checkpoint<uint64_t>(checkpoint, 0) = hash;
  });
  result.sampled = row.sample;
  if (!row.sample) return result;
  result.token = next_token ? next_token(row) : Mix(hash, row.spec.index) % kVocab;
  result.logprob = {{result.token, -1.0f}, {}};
  return result;
}

}  // namespace rivulet
