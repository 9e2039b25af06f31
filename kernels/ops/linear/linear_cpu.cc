// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/linear/linear_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/linear/linear_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// The tile sizes change speed, never bits: each sum is its own chain. The sums of a tile and the
// weights of one input fit in the registers (32 with AVX-512, 16 with AVX2).
constexpr size_t kMaxTokens = kVectors == 1 ? 6 : 3;
constexpr size_t PanelsOfTile(size_t tokens) {
  if (kVectors == 1) return tokens <= 2 ? 8 : 4;
  return tokens == 1 ? 4 : 2;
}

// y = x Wᵀ + b for kTokens rows and kPanels panels.
template <size_t kTokens, size_t kPanels, typename Weight>
HWY_INLINE void Tile(const LinearArguments& a, const Weight* weights, size_t token, size_t panel) {
  const float* x = a.x.row(token);
  weights += panel * a.inputs * kBlock;
  Block sums[kTokens][kPanels];
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t p = 0; p < kPanels; ++p) sums[t][p] = ZeroBlock();
  }
  for (size_t i = 0; i < a.inputs; ++i) {
    Block weight[kPanels];
    for (size_t p = 0; p < kPanels; ++p) {
      weight[p] = LoadBlock(weights + (p * a.inputs + i) * kBlock);
    }
    for (size_t t = 0; t < kTokens; ++t) {
      const Block input = SetBlock(x[t * a.x.stride + i]);
      for (size_t p = 0; p < kPanels; ++p) sums[t][p] = MulAdd(input, weight[p], sums[t][p]);
    }
  }
  for (size_t p = 0; p < kPanels; ++p) {
    const size_t first = (panel + p) * kBlock;
    const size_t count = std::min(kBlock, a.outputs - first);
    for (size_t t = 0; t < kTokens; ++t) {
      Block& sum = sums[t][p];
      if (a.bias != nullptr) sum = Add(sum, LoadBlock(a.bias + first));
      StoreUpTo(sum, a.y.row(token + t) + first, count);
    }
  }
}

// kTokens rows from `token`, panels [panel, end): as many whole tiles as fit, the rest one by one.
template <size_t kTokens, typename Weight>
void TileRow(const LinearArguments& a, const Weight* weights, size_t token, size_t panel,
             size_t end) {
  constexpr size_t kPanels = PanelsOfTile(kTokens);
  for (; panel + kPanels <= end; panel += kPanels) {
    Tile<kTokens, kPanels>(a, weights, token, panel);
  }
  for (; panel < end; ++panel) Tile<kTokens, 1>(a, weights, token, panel);
}

template <typename Weight>
void TileRowOf(size_t tokens, const LinearArguments& a, const Weight* weights, size_t token,
               size_t panel, size_t end) {
  static_assert(kMaxTokens == 3 || kMaxTokens == 6);
  switch (tokens) {
    case 1:
      return TileRow<1>(a, weights, token, panel, end);
    case 2:
      return TileRow<2>(a, weights, token, panel, end);
    case 3:
      return TileRow<3>(a, weights, token, panel, end);
    case 4:
      return TileRow<std::min<size_t>(4, kMaxTokens)>(a, weights, token, panel, end);
    case 5:
      return TileRow<std::min<size_t>(5, kMaxTokens)>(a, weights, token, panel, end);
    default:
      return TileRow<kMaxTokens>(a, weights, token, panel, end);
  }
}

// Rows are dealt evenly to the tiles: 8 as 4 + 4, not 6 + 2.
template <typename Weight>
void LinearTask(const LinearArguments& a, const Weight* weights, const LinearRange& range) {
  const size_t tokens = range.end_token - range.token;
  const size_t tiles = (tokens + kMaxTokens - 1) / kMaxTokens;
  for (size_t i = 0; i < tiles; ++i) {
    const size_t first = tokens * i / tiles;
    const size_t next = tokens * (i + 1) / tiles;
    TileRowOf(next - first, a, weights, range.token + first, range.panel, range.end_panel);
  }
}

void LinearTaskFloat32(const LinearArguments& a, const float* weights, const LinearRange& range) {
  LinearTask(a, weights, range);
}
void LinearTaskBFloat16(const LinearArguments& a, const uint16_t* weights,
                        const LinearRange& range) {
  LinearTask(a, weights, range);
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(LinearTaskFloat32);
HWY_EXPORT(LinearTaskBFloat16);

namespace {

float LoadAsFloat(const std::byte* from, DType dtype) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return dtype == DType::kBFloat16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
}

void StoreWeight(float value, float* to) { *to = value; }
void StoreWeight(float value, uint16_t* to) { *to = FloatToBFloat16(value); }

// Row `row` of the source becomes lane `output % 16` of panel `output / 16`.
template <typename Weight>
void PackRow(const LinearSource& source, size_t row, size_t inputs, size_t output, Weight* panels) {
  const size_t size = DTypeSize(source.dtype);
  const std::byte* from = static_cast<const std::byte*>(source.data) + row * inputs * size;
  Weight* to = panels + output / kBlock * inputs * kBlock + output % kBlock;
  for (size_t i = 0; i < inputs; ++i) {
    StoreWeight(LoadAsFloat(from + i * size, source.dtype), to + i * kBlock);
  }
}

template <typename Weight>
AlignedBuffer<Weight> PackPanels(const std::vector<LinearSource>& sources, size_t inputs,
                                 size_t outputs) {
  AlignedBuffer<Weight> panels(PaddedColumns(outputs) * inputs);
  size_t output = 0;
  for (const LinearSource& source : sources) {
    for (size_t row = 0; row < source.outputs; ++row, ++output) {
      PackRow(source, row, inputs, output, panels.data());
    }
  }
  return panels;
}

AlignedBuffer<float> PackBias(const std::vector<LinearSource>& sources, size_t outputs) {
  const auto has_bias = [](const LinearSource& source) { return source.bias != nullptr; };
  if (std::none_of(sources.begin(), sources.end(), has_bias)) return {};
  AlignedBuffer<float> bias(PaddedColumns(outputs));
  size_t output = 0;
  for (const LinearSource& source : sources) {
    if (has_bias(source)) std::copy_n(source.bias, source.outputs, bias.data() + output);
    output += source.outputs;
  }
  return bias;
}

// Panels and tokens of one task. The panels are what one tile of one token takes; the tokens are
// enough that the weights, which a task reads once for every tile, cost little beside the sums.
constexpr size_t kTaskPanels = 8;
constexpr size_t kTaskTokens = 96;
// Multiply-adds below which waking the pool costs more than it saves.
constexpr size_t kWorthWaking = size_t{1} << 19;

}  // namespace

Linear Linear::Pack(const std::vector<LinearSource>& sources, size_t inputs, DType dtype) {
  RIVULET_CHECK(dtype != DType::kFloat16, "packed weights are fp32 or bf16");
  Linear result;
  result.inputs_ = inputs;
  result.dtype_ = dtype;
  for (const LinearSource& source : sources) result.outputs_ += source.outputs;
  if (dtype == DType::kFloat32) {
    result.panels_fp32_ = PackPanels<float>(sources, inputs, result.outputs_);
  } else {
    result.panels_bf16_ = PackPanels<uint16_t>(sources, inputs, result.outputs_);
  }
  result.bias_ = PackBias(sources, result.outputs_);
  return result;
}

size_t Linear::weight_bytes() const {
  return panels_fp32_.size() * sizeof(float) + panels_bf16_.size() * sizeof(uint16_t) +
         bias_.size() * sizeof(float);
}

void Linear::Apply(ConstFloatMatrix x, FloatMatrix y, ThreadPool& pool) const {
  const LinearArguments arguments{x, y, inputs_, outputs_, bias_.data()};
  const auto task = [&](const LinearRange& range) {
    if (dtype_ == DType::kFloat32) {
      HWY_DYNAMIC_DISPATCH(LinearTaskFloat32)(arguments, panels_fp32_.data(), range);
    } else {
      HWY_DYNAMIC_DISPATCH(LinearTaskBFloat16)(arguments, panels_bf16_.data(), range);
    }
  };
  const size_t panels = PaddedColumns(outputs_) / kBlock;
  if (pool.threads() == 1 || x.rows * panels * kBlock * inputs_ < kWorthWaking) {
    return task({0, x.rows, 0, panels});
  }
  const size_t panel_groups = (panels + kTaskPanels - 1) / kTaskPanels;
  const size_t token_groups = (x.rows + kTaskTokens - 1) / kTaskTokens;
  pool.ParallelFor(panel_groups * token_groups, [&](size_t i) {
    const size_t panel = i / token_groups * kTaskPanels;
    const size_t group = i % token_groups;
    task({x.rows * group / token_groups, x.rows * (group + 1) / token_groups, panel,
          std::min(panel + kTaskPanels, panels)});
  });
}

}  // namespace rivulet
#endif  // HWY_ONCE
