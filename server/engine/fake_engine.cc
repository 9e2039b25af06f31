// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/fake_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"

namespace rivulet {
namespace {

uint64_t Mix(uint64_t hash, uint32_t token) {
  hash = (hash ^ (token + 1)) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

// What a page holds: chunks [first, first + count) of its session.
struct PageContent {
  uint64_t first, count;
};

// The first layer is the model; one more for each kind of pages.
StateCapacity SizesOf(const std::vector<PageKind>& pages, size_t fold_interval) {
  std::vector<StateLayout> layers(1 + pages.size(), StateLayout(fold_interval));
  layers[0].Add(StatePart::kBase, "hash", DType::kFloat32, {2});
  layers[0].Add(StatePart::kTail, "tokens", DType::kFloat32, {fold_interval});
  std::vector<const StateLayout*> layouts = {&layers[0]};
  for (size_t i = 0; i < pages.size(); ++i) {
    layers[1 + i].SetPageKind(pages[i]);
    layers[1 + i].Add(StatePart::kPage, "chunks", DType::kFloat32, {sizeof(PageContent) / 4});
    layouts.push_back(&layers[1 + i]);
  }
  return AddUpLayouts(layouts);
}

std::unique_ptr<StatePool> MakePool(uint32_t sessions, const std::vector<PageKind>& pages,
                                    uint64_t context, size_t fold_interval,
                                    std::unique_ptr<StateMemory> memory) {
  const StateCapacity sizes = SizesOf(pages, fold_interval);
  const uint64_t spares = sessions / StatePool::kTailsPerSpare + 1;
  uint64_t bytes = sessions * sizes.tail_bytes + (sessions + spares) * sizes.base_bytes;
  for (const PageCapacity& kind : sizes.pages) {
    bytes += sessions * MostPages(kind.kind, context, kLongestSegment) * kind.page_bytes;
  }
  auto pool = StatePool::Make(sizes, bytes, context, std::move(memory));
  RIVULET_CHECK(pool.ok(), "a fake engine for no session");
  return *std::move(pool);
}

void FoldAppended(const SegmentPages& pages, const LayerState& state, uint64_t chunk) {
  for (uint64_t page = pages.first_page; page < chunk; ++page) {
    const auto* content = state.Page<PageContent>(pages.Appended(page), 0);
    RIVULET_CHECK(content->first == page && content->count == 1, "another session's page");
  }
  *state.Page<PageContent>(pages.Appended(chunk), 0) = {chunk, 1};
}

// Reads oldest first: each page goes on where the last one ended.
void FoldFenwick(const SegmentPages& pages, const LayerState& state, uint64_t chunk, size_t fold) {
  const uint32_t *before = pages.Table(fold), *after = pages.Table(fold + 1);
  const uint32_t made = CarryPage(chunk, pages.levels);
  PageContent merged = {chunk, 1};
  uint64_t next = 0;
  for (uint32_t p = pages.levels; p-- > 0;) {
    if (before[p] == kNoPage) continue;
    const PageContent content = *state.Page<PageContent>(before[p], 0);
    RIVULET_CHECK(content.first == next, "a page of other chunks");
    next += content.count;
    if (p <= made) {
      merged = {std::min(merged.first, content.first), merged.count + content.count};
    } else {
      *state.Page<PageContent>(after[p], 0) = content;
    }
  }
  RIVULET_CHECK(next == chunk, "pages are missing");
  *state.Page<PageContent>(after[made], 0) = merged;
}

}  // namespace

FakeEngine::FakeEngine(uint32_t sessions, const std::vector<PageKind>& pages, uint64_t context,
                       size_t fold_interval, std::unique_ptr<StateMemory> memory)
    : pool_(MakePool(sessions, pages, context, fold_interval, std::move(memory))) {
  // What a fresh base holds must not matter.
  std::memset(pool_->Layer(0).bases, 0xff,
              pool_->capacity().base_slots * pool_->capacity().base_bytes);
}

void FakeEngine::FoldPages(const Segment& segment) {
  const std::vector<PageCapacity>& kinds = capacity().pages;
  const uint64_t interval = capacity().fold_interval;
  const size_t folds = FoldsIn(segment.position, segment.tokens, interval);
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    const SegmentPages& pages = segment.pages[kind];
    const LayerState state = pool_->Layer(1 + kind);
    for (size_t fold = 0; fold < folds; ++fold) {
      const uint64_t chunk = segment.position / interval + fold;
      if (kinds[kind].kind.fenwick()) {
        FoldFenwick(pages, state, chunk, fold);
      } else {
        FoldAppended(pages, state, chunk);
      }
    }
  }
}

uint64_t FakeEngine::Hash(std::span<const uint32_t> tokens) {
  uint64_t hash = 0;
  for (uint32_t token : tokens) hash = Mix(hash, token);
  return hash;
}

uint32_t FakeEngine::NextToken(std::span<const uint32_t> tokens, uint32_t index) {
  return static_cast<uint32_t>(Mix(Hash(tokens), index) % kVocab);
}

uint64_t FakeEngine::StateHash(uint64_t tokens, uint32_t base, uint32_t tail,
                               size_t tail_tokens) const {
  const LayerState state = pool_->Layer(0);
  uint64_t hash = tokens > tail_tokens ? *state.Base<uint64_t>(base, 0) : Hash({});
  for (size_t i = 0; i < tail_tokens; ++i) hash = Mix(hash, state.Tail<uint32_t>(tail, 0)[i]);
  return hash;
}

void CheckFolds(const StepPlan& plan, StatePool& states) {
  for (const StepRow& row : plan.rows) {
    const Segment& segment = row.segment;
    if (!Folds(segment.position, segment.tokens, states.capacity().fold_interval)) continue;
    RIVULET_CHECK(!states.bases().Shared(segment.base_out), "folds into a base that is shared");
  }
}

StepTicket FakeEngine::Launch(const StepPlan& plan) {
  if (checks_folds) CheckFolds(plan, *pool_);
  result_ = StepResult();
  for (const StepRow& row : plan.rows) result_.rows.push_back(RunRow(plan, row));
  return ++steps;
}

StepResult FakeEngine::Await(StepTicket ticket) {
  RIVULET_CHECK(ticket == steps, "no such step");
  return std::move(result_);
}

SampledToken FakeEngine::SampleAfter(const StepRow& row, uint64_t hash) const {
  const uint32_t token =
      next_token ? next_token(row) : static_cast<uint32_t>(Mix(hash, row.spec.index) % kVocab);
  return {absl::OkStatus(), token, {{token, -1.0f}, {}}};
}

RowResult FakeEngine::RunRow(const StepPlan& plan, const StepRow& row) {
  RowResult result;
  if (fail_row) result.status = fail_row(row);
  if (!result.status.ok()) return result;
  const Segment& segment = row.segment;
  const LayerState state = pool_->Layer(0);
  uint32_t base = segment.base_in;
  uint64_t hash = 0;
  ForEachChunkPiece(segment, capacity().fold_interval, [&](const ChunkPiece& piece) {
    for (size_t i = piece.begin; i < piece.end; ++i) {
      const size_t token = piece.first_token + i - piece.begin;
      state.Tail<uint32_t>(segment.tail, 0)[i] = plan.tokens[token];
      const size_t place = token - segment.first_token;
      hash = StateHash(segment.position + place + 1, base, segment.tail, i + 1);
      if (place + row.samples >= segment.tokens) result.samples.push_back(SampleAfter(row, hash));
      if (place >= row.score_targets.size()) continue;
      const float logprob = -static_cast<float>(Mix(hash, row.score_targets[place]) % 1000) / 100;
      result.scores.push_back({{row.score_targets[place], logprob}, {}});
    }
    if (!piece.folds) return;
    base = segment.BaseAfter(piece.fold);
    *state.Base<uint64_t>(base, 0) = hash;
  });
  FoldPages(segment);
  return result;
}

}  // namespace rivulet
