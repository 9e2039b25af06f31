// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/mixture_of_experts/mixture_of_experts.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/base/row_arithmetic.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {

// The pairs of a token and one of its experts. Pair t · per_token + i is token t's i-th expert; a
// pair's row is its place when they are sorted by expert, then by token.
struct ExpertPairs {
  ExpertPairs(size_t tokens, size_t experts, size_t each, Workspace& workspace)
      : per_token(each),
        count(tokens * each),
        expert(workspace.TakeIndices(count)),
        weight(workspace.TakeFloats(count)),
        row(workspace.TakeIndices(count)),
        token_of_row(workspace.TakeIndices(count)),
        group_expert(workspace.TakeIndices(std::min(experts, count))),
        group_row(workspace.TakeIndices(std::min(experts, count) + 1)) {}

  size_t per_token;
  size_t count;
  uint32_t* expert;        // [count], ascending for each token
  float* weight;           // [count]
  uint32_t* row;           // [count]
  uint32_t* token_of_row;  // [count]
  // The experts that were chosen, ascending, and where the rows of each begin.
  size_t groups = 0;
  uint32_t* group_expert;  // [groups]
  uint32_t* group_row;     // [groups + 1]
};

namespace {

// Fills in what follows from the choices: rows, tokens and groups. next_row [experts] is scratch.
void GroupByExpert(ExpertPairs& pairs, size_t experts, uint32_t* next_row) {
  std::fill_n(next_row, experts, 0);
  for (size_t i = 0; i < pairs.count; ++i) ++next_row[pairs.expert[i]];
  uint32_t row = 0;
  for (uint32_t e = 0; e < experts; ++e) {
    const uint32_t rows = std::exchange(next_row[e], row);
    if (rows == 0) continue;
    pairs.group_expert[pairs.groups] = e;
    pairs.group_row[pairs.groups++] = row;
    row += rows;
  }
  pairs.group_row[pairs.groups] = row;
  for (size_t i = 0; i < pairs.count; ++i) {
    pairs.row[i] = next_row[pairs.expert[i]]++;
    pairs.token_of_row[pairs.row[i]] = static_cast<uint32_t>(i / pairs.per_token);
  }
}

// Groups [group, end_group), whose rows are processed together: as many as fit, at least one.
struct Pass {
  Pass(const ExpertPairs& pairs, size_t first_group)
      : group(first_group), end_group(first_group + 1) {
    row = pairs.group_row[group];
    while (end_group < pairs.groups &&
           pairs.group_row[end_group + 1] - row <= MixtureOfExperts::kPassRows) {
      ++end_group;
    }
    rows = pairs.group_row[end_group] - row;
  }
  size_t groups() const { return end_group - group; }

  size_t group;
  size_t end_group;
  size_t row;   // the first one
  size_t rows;  // how many
};

// y = the map of each row's expert of that row of x; rows of x and y are the pass's. All maps'
// pieces are one parallel loop: the maps of a token's experts are too small for a loop each. Where
// x is one row it is every row.
template <typename MapOf>
void ApplyMaps(const ExpertPairs& pairs, const Pass& pass, const MapOf& map_of, ConstFloatMatrix x,
               FloatMatrix y, Workspace& workspace, ThreadPool& pool) {
  uint32_t* first_piece = workspace.TakeIndices(pass.groups() + 1);
  size_t cost = 0;
  first_piece[0] = 0;
  for (size_t i = 0; i < pass.groups(); ++i) {
    const Linear& map = map_of(pairs.group_expert[pass.group + i]);
    const uint32_t* row = pairs.group_row + pass.group + i;
    first_piece[i + 1] = first_piece[i] + static_cast<uint32_t>(map.Pieces(row[1] - row[0]));
    cost += map.Cost(row[1] - row[0]);
  }
  const auto run = [&](size_t piece) {
    const size_t i = static_cast<size_t>(
        std::upper_bound(first_piece, first_piece + pass.groups(), piece) - first_piece - 1);
    const uint32_t* row = pairs.group_row + pass.group + i;
    const size_t first = row[0] - pass.row, rows = row[1] - row[0];
    map_of(pairs.group_expert[pass.group + i])
        .ApplyPiece(x.rows == 1 ? x : x.Rows(first, rows), y.Rows(first, rows),
                    piece - first_piece[i]);
  };
  const size_t pieces = first_piece[pass.groups()];
  if (cost >= Linear::kWorthSharing) return pool.ParallelFor(pieces, run);
  for (size_t piece = 0; piece < pieces; ++piece) run(piece);
}

// y [pass's rows] = the rows of their tokens.
void Gather(const ExpertPairs& pairs, const Pass& pass, ConstFloatMatrix x, FloatMatrix y,
            ThreadPool& pool) {
  ParallelRows(pool, pass.rows, x.columns, [&](size_t r) {
    std::copy_n(x.row(pairs.token_of_row[pass.row + r]), x.columns, y.row(r));
  });
}

// y += weight · output for every pair of the pass.
void AddOutputs(const ExpertPairs& pairs, const Pass& pass, ConstFloatMatrix outputs, FloatMatrix y,
                ThreadPool& pool) {
  ParallelRows(pool, y.rows, y.columns, [&](size_t t) {
    for (size_t i = t * pairs.per_token; i < (t + 1) * pairs.per_token; ++i) {
      const size_t row = pairs.row[i] - pass.row;
      if (pairs.row[i] < pass.row || row >= pass.rows) continue;
      float* sum = y.row(t);
      const float* output = outputs.row(row);
      for (size_t c = 0; c < y.columns; ++c) sum[c] += pairs.weight[i] * output[c];
    }
  });
}

ExpertPairs Route(const MixtureParts& parts, FloatMatrix logits, Workspace& workspace,
                  ThreadPool& pool) {
  const ExpertChoice& choice = parts.choice;
  const float* correction = parts.correction.empty() ? nullptr : parts.correction.data();
  ExpertPairs pairs(logits.rows, choice.experts, choice.experts_per_token, workspace);
  ParallelRows(pool, logits.rows, 4 * choice.experts, [&](size_t t) {
    const size_t first = t * pairs.per_token;
    ChooseExperts(choice, logits.row(t), pairs.expert + first, pairs.weight + first, correction);
  });
  GroupByExpert(pairs, choice.experts, workspace.TakeIndices(choice.experts));
  return pairs;
}

void CheckParts(const MixtureParts& parts) {
  const ExpertChoice& choice = parts.choice;
  RIVULET_CHECK(parts.experts.size() == choice.experts, "not one MLP an expert");
  RIVULET_CHECK(choice.experts_per_token >= 1 && choice.experts_per_token <= choice.experts,
                "more experts for a token than there are");
  const size_t gates = parts.shared != nullptr ? 1 : 0, outputs = parts.router.outputs();
  RIVULET_CHECK(outputs >= choice.experts && outputs <= choice.experts + gates,
                "the router's outputs are not the experts and the shared one's gate");
  for (const ExpertMaps& maps : parts.experts) {
    RIVULET_CHECK(maps.in.outputs() == maps.out.inputs() * (parts.gated ? 2 : 1),
                  "an expert's maps disagree on its width");
  }
}

void Zero(FloatMatrix y) {
  for (size_t t = 0; t < y.rows; ++t) std::fill_n(y.row(t), y.columns, 0.0f);
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(MixtureParts parts) : parts_(std::move(parts)) {
  CheckParts(parts_);
}

// y = the shared expert's part, with which every sum begins.
void MixtureOfExperts::StartSums(const LayerStep& step, ConstFloatMatrix x, ConstFloatMatrix logits,
                                 FloatMatrix y) const {
  if (parts_.shared == nullptr) return Zero(y);
  ThreadPool& pool = *step.pool;
  parts_.shared->Apply(step, x, y);
  if (!shared_is_gated()) return;
  ParallelRows(pool, y.rows, y.columns, [&](size_t t) {
    float gate;
    rivulet::Activate(Activation::kSigmoid, logits.row(t) + parts_.choice.experts, &gate, 1);
    for (size_t c = 0; c < y.columns; ++c) y.row(t)[c] *= gate;
  });
}

// In place: the experts' middle rows, of `width` numbers after it.
void MixtureOfExperts::Activate(FloatMatrix middle, size_t width, ThreadPool& pool) const {
  ParallelRows(pool, middle.rows, width, [&](size_t r) {
    float* row = middle.row(r);
    if (!parts_.gated) return rivulet::Activate(parts_.f, row, row, width);
    if (parts_.limit != 0) ClampGateAndUp(parts_.limit, row, row + width, width);
    GateMultiply(parts_.f, row, row + width, row, width);
  });
}

// y += the chosen experts' outputs for x.
void MixtureOfExperts::AddExperts(const ExpertPairs& pairs, ConstFloatMatrix x, FloatMatrix y,
                                  Workspace& workspace, ThreadPool& pool) const {
  const size_t width = parts_.experts[0].out.inputs();
  const size_t most_rows = std::min(pairs.count, std::max(x.rows, kPassRows));
  const FloatMatrix inputs = workspace.Take(most_rows, x.columns);  // and then the outputs
  const FloatMatrix middle = workspace.Take(most_rows, parts_.experts[0].in.outputs());
  const auto in = [&](size_t e) -> const Linear& { return parts_.experts[e].in; };
  const auto out = [&](size_t e) -> const Linear& { return parts_.experts[e].out; };
  for (size_t group = 0; group < pairs.groups;) {
    const Pass pass(pairs, group);
    if (x.rows > 1) Gather(pairs, pass, x, inputs, pool);
    ApplyMaps(pairs, pass, in, x.rows > 1 ? inputs : x, middle, workspace, pool);
    Activate(middle.Rows(0, pass.rows), width, pool);
    ApplyMaps(pairs, pass, out, middle.Columns(0, width), inputs, workspace, pool);
    AddOutputs(pairs, pass, inputs, y, pool);
    group = pass.end_group;
  }
}

// y += up(the chosen experts' outputs for down(x)).
void MixtureOfExperts::AddLatentExperts(const ExpertPairs& pairs, ConstFloatMatrix x, FloatMatrix y,
                                        Workspace& workspace, ThreadPool& pool) const {
  const size_t width = parts_.latent_down.outputs();
  const FloatMatrix narrow = workspace.Take(x.rows, width);
  const FloatMatrix sum = workspace.Take(x.rows, width);
  const FloatMatrix wide = workspace.Take(x.rows, y.columns);
  parts_.latent_down.Apply(x, narrow, pool);
  Zero(sum);
  AddExperts(pairs, narrow, sum, workspace, pool);
  parts_.latent_up.Apply(sum, wide, pool);
  AddRows(wide, y, pool);
}

void MixtureOfExperts::Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const {
  Workspace& workspace = *step.workspace;
  ThreadPool& pool = *step.pool;
  const FloatMatrix logits = workspace.Take(x.rows, parts_.router.outputs());
  parts_.router.Apply(x, logits, pool);
  StartSums(step, x, logits, y);
  const ExpertPairs pairs = Route(parts_, logits, workspace, pool);
  if (latent()) return AddLatentExperts(pairs, x, y, workspace, pool);
  AddExperts(pairs, x, y, workspace, pool);
}

}  // namespace rivulet
