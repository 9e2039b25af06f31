// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/base/widen.h"
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

// The tile sizes change speed, never bits: each sum is its own chain. The sums of a tile, the
// weights of one input and the input fit in the registers (32 with AVX-512, 16 with AVX2). With 16,
// fp32 weights can be multiplied from memory, but bf16 ones must be widened into registers first,
// and once for many rows.
template <typename Weight>
constexpr bool kWidensIntoFew = kVectors == 2 && sizeof(Weight) == 2;
template <typename Weight>
constexpr size_t kMaxTokens = kVectors == 1 || kWidensIntoFew<Weight> ? 6 : 3;
template <typename Weight>
constexpr size_t PanelsOfTile(size_t tokens) {
  if (kVectors == 1 || (kVectors == 2 && tokens == 1)) return 4;
  return kWidensIntoFew<Weight> && tokens > 2 ? 1 : 2;
}
// Inputs of a cut: the panels of a tile stay in the second-level cache.
constexpr size_t kCutInputs = 256;

// Where a tile is in its chains: inputs [input, end_input) come next. `sums` [kTokens][kPanels][16]
// keeps the chains between two ranges of inputs; storing an fp32 number and loading it again
// changes no bit.
struct TileRange {
  size_t token;
  size_t panel;
  size_t input;
  size_t end_input;
  float* sums;
};

template <size_t kTokens, size_t kPanels>
HWY_INLINE void LoadSums(const TileRange& range, Block (&sums)[kTokens][kPanels]) {
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t p = 0; p < kPanels; ++p) {
      sums[t][p] =
          range.input == 0 ? ZeroBlock() : LoadBlock(range.sums + (t * kPanels + p) * kBlock);
    }
  }
}

template <size_t kTokens, size_t kPanels>
HWY_INLINE void StoreSums(const TileRange& range, const Block (&sums)[kTokens][kPanels]) {
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t p = 0; p < kPanels; ++p) {
      StoreBlock(sums[t][p], range.sums + (t * kPanels + p) * kBlock);
    }
  }
}

// The chains are complete: adds the bias and writes y.
template <size_t kTokens, size_t kPanels>
HWY_INLINE void StoreOutputs(const LinearArguments& a, const TileRange& range,
                             const Block (&sums)[kTokens][kPanels]) {
  for (size_t p = 0; p < kPanels; ++p) {
    const size_t first = (range.panel + p) * kBlock;
    const size_t count = std::min(kBlock, a.outputs - first);
    for (size_t t = 0; t < kTokens; ++t) {
      const Block y = a.bias == nullptr ? sums[t][p] : Add(sums[t][p], LoadBlock(a.bias + first));
      StoreUpTo(y, a.y.row(range.token + t) + first, count);
    }
  }
}

// y = x Wᵀ + b for kTokens rows, kPanels panels and a range of the inputs.
template <size_t kTokens, size_t kPanels, typename Weight>
HWY_INLINE void Tile(const LinearArguments& a, const Weight* weights, const TileRange& range) {
  const float* x = a.x.row(range.token);
  weights += range.panel * a.inputs * kBlock;
  Block sums[kTokens][kPanels];
  LoadSums(range, sums);
  for (size_t i = range.input; i < range.end_input; ++i) {
    if constexpr (kTokens == 1) {  // a weight is used once, and needs no register for long
      const Block input = SetBlock(x[i]);
      for (size_t p = 0; p < kPanels; ++p) {
        const Block weight = LoadBlock(weights + (p * a.inputs + i) * kBlock);
        sums[0][p] = MulAdd(input, weight, sums[0][p]);
      }
      continue;
    }
    Block weight[kPanels];
    for (size_t p = 0; p < kPanels; ++p) {
      weight[p] = LoadBlock(weights + (p * a.inputs + i) * kBlock);
    }
    for (size_t t = 0; t < kTokens; ++t) {
      const Block input = SetBlock(x[t * a.x.stride + i]);
      for (size_t p = 0; p < kPanels; ++p) sums[t][p] = MulAdd(input, weight[p], sums[t][p]);
    }
  }
  if (range.end_input < a.inputs) return StoreSums(range, sums);
  StoreOutputs(a, range, sums);
}

template <size_t kPanels, typename Weight>
void TileOf(size_t tokens, const LinearArguments& a, const Weight* weights,
            const TileRange& range) {
  constexpr size_t kMost = kMaxTokens<Weight>;
  static_assert(kMost == 3 || kMost == 6);
  switch (tokens) {
    case 1:
      return Tile<1, kPanels>(a, weights, range);
    case 2:
      return Tile<2, kPanels>(a, weights, range);
    case 3:
      return Tile<3, kPanels>(a, weights, range);
    case 4:
      return Tile<std::min<size_t>(4, kMost), kPanels>(a, weights, range);
    case 5:
      return Tile<std::min<size_t>(5, kMost), kPanels>(a, weights, range);
    default:
      return Tile<kMost, kPanels>(a, weights, range);
  }
}

template <typename Weight>
size_t TilesOf(const LinearRange& range) {
  return (range.end_token - range.token + kMaxTokens<Weight> - 1) / kMaxTokens<Weight>;
}

// All rows of the task and kPanels panels. With more than one tile of rows, the inputs are cut so
// that the weights of a cut come from memory once and from the nearest cache for the other tiles.
// Rows are dealt evenly: 8 as 4 + 4, not 6 + 2.
template <size_t kPanels, typename Weight>
void PanelTask(const LinearArguments& a, const Weight* weights, const LinearRange& range,
               size_t panel) {
  alignas(64) float sums[kTaskTokens * kPanels * kBlock];
  const size_t tokens = range.end_token - range.token;
  const size_t tiles = TilesOf<Weight>(range);
  const size_t cut = tiles <= 1 ? a.inputs : kCutInputs;
  for (size_t input = 0; input < a.inputs; input += cut) {
    for (size_t i = 0; i < tiles; ++i) {
      const size_t first = tokens * i / tiles;
      const size_t count = tokens * (i + 1) / tiles - first;
      TileOf<kPanels>(count, a, weights,
                      {range.token + first, panel, input, std::min(input + cut, a.inputs),
                       sums + first * kPanels * kBlock});
    }
  }
}

template <size_t kPanels, typename Weight>
void PanelTasks(const LinearArguments& a, const Weight* weights, const LinearRange& range) {
  size_t panel = range.panel;
  for (; panel + kPanels <= range.end_panel; panel += kPanels) {
    PanelTask<kPanels>(a, weights, range, panel);
  }
  for (; panel < range.end_panel; ++panel) PanelTask<1>(a, weights, range, panel);
}

template <typename Weight>
void LinearTask(const LinearArguments& a, const Weight* weights, const LinearRange& range) {
  const size_t tiles = TilesOf<Weight>(range);
  const size_t most_tokens = (range.end_token - range.token + tiles - 1) / tiles;
  const size_t panels = PanelsOfTile<Weight>(most_tokens);
  if (panels == 1) return PanelTasks<1>(a, weights, range);
  if (kVectors <= 2 && panels == 4) return PanelTasks<4>(a, weights, range);
  PanelTasks<2>(a, weights, range);
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

// One row of a source.
struct SourceRow {
  const std::byte* data;
  DType dtype;
};

std::vector<SourceRow> RowsOf(const std::vector<LinearSource>& sources, size_t inputs) {
  std::vector<SourceRow> rows;
  for (const LinearSource& source : sources) {
    const auto* data = static_cast<const std::byte*>(source.data);
    const size_t row_bytes = inputs * DTypeSize(source.dtype);
    for (size_t i = 0; i < source.outputs; ++i) {
      rows.push_back({data + i * row_bytes, source.dtype});
    }
  }
  return rows;
}

// to [count] = the row's numbers from `first` on.
void CopyNumbers(const SourceRow& row, size_t first, size_t count, float* to) {
  WidenToFloat(row.data + first * DTypeSize(row.dtype), row.dtype, count, to);
}
void CopyNumbers(const SourceRow& row, size_t first, size_t count, uint16_t* to) {
  const std::byte* from = row.data + first * DTypeSize(row.dtype);
  if (row.dtype == DType::kBFloat16) {
    std::memcpy(to, from, count * sizeof(uint16_t));
    return;
  }
  for (size_t i = 0; i < count; ++i) to[i] = FloatToBFloat16(NumberAt(from, row.dtype, i));
}

// Up to 16 rows become the lanes of a panel [inputs][16]. A tile at a time, which stays in the
// nearest cache: rows are read and the panel is written in order.
template <typename Weight>
void PackPanel(std::span<const SourceRow> rows, size_t inputs, Weight* panel) {
  constexpr size_t kTileInputs = 64;
  Weight tile[kBlock][kTileInputs] = {};
  for (size_t first = 0; first < inputs; first += kTileInputs) {
    const size_t count = std::min(kTileInputs, inputs - first);
    for (size_t lane = 0; lane < rows.size(); ++lane) {
      CopyNumbers(rows[lane], first, count, tile[lane]);
    }
    Weight* to = panel + first * kBlock;
    for (size_t i = 0; i < count; ++i) {
      for (size_t lane = 0; lane < kBlock; ++lane) to[i * kBlock + lane] = tile[lane][i];
    }
  }
}

// What a map owns when it packed its weights itself.
struct OwnWeights {
  AlignedBuffer<std::byte> panels;
  AlignedBuffer<std::byte> bias;
};

template <typename Weight>
AlignedBuffer<std::byte> PackPanels(std::span<const SourceRow> rows, size_t inputs,
                                    ThreadPool* pool) {
  AlignedBuffer<std::byte> panels(PaddedColumns(rows.size()) * inputs * sizeof(Weight));
  auto* const first_panel = reinterpret_cast<Weight*>(panels.data());
  ForEachTask(pool, PaddedColumns(rows.size()) / kBlock, [&](size_t panel) {
    const size_t first = panel * kBlock;
    PackPanel(rows.subspan(first, std::min(kBlock, rows.size() - first)), inputs,
              first_panel + first * inputs);
  });
  return panels;
}

AlignedBuffer<std::byte> PackBias(const std::vector<LinearSource>& sources, size_t outputs) {
  const auto has_bias = [](const LinearSource& source) { return source.bias != nullptr; };
  if (std::none_of(sources.begin(), sources.end(), has_bias)) return {};
  AlignedBuffer<std::byte> bias(PaddedColumns(outputs) * sizeof(float));
  auto* to = reinterpret_cast<float*>(bias.data());
  for (const LinearSource& source : sources) {
    if (has_bias(source)) std::copy_n(source.bias, source.outputs, to);
    to += source.outputs;
  }
  return bias;
}

std::span<const std::byte> BytesOf(const AlignedBuffer<std::byte>& buffer) {
  return {buffer.data(), buffer.size()};
}

size_t GroupsOf(size_t count, size_t most) { return (count + most - 1) / most; }

}  // namespace

Linear Linear::Pack(const std::vector<LinearSource>& sources, size_t inputs, DType dtype,
                    ThreadPool* pool) {
  RIVULET_CHECK(dtype != DType::kFloat16, "packed weights are fp32 or bf16");
  const std::vector<SourceRow> rows = RowsOf(sources, inputs);
  auto own = std::make_shared<OwnWeights>();
  own->panels = dtype == DType::kFloat32 ? PackPanels<float>(rows, inputs, pool)
                                         : PackPanels<uint16_t>(rows, inputs, pool);
  own->bias = PackBias(sources, rows.size());
  return FromPacked({inputs, rows.size(), dtype, BytesOf(own->panels), BytesOf(own->bias), own});
}

Linear Linear::FromPacked(const PackedLinear& packed) {
  const size_t padded = PaddedColumns(packed.outputs);
  RIVULET_CHECK(packed.panels.size() == padded * packed.inputs * DTypeSize(packed.dtype),
                "the panels of a packed map have another size");
  RIVULET_CHECK(packed.bias.empty() || packed.bias.size() == padded * sizeof(float),
                "the bias of a packed map has another size");
  Linear result;
  result.inputs_ = packed.inputs;
  result.outputs_ = packed.outputs;
  result.dtype_ = packed.dtype;
  result.panels_ = packed.panels;
  result.bias_ = packed.bias;
  result.owner_ = packed.owner;
  return result;
}

PackedLinear Linear::packed() const {
  RIVULET_CHECK(device_.high == nullptr && device_.float8 == nullptr,
                "a device's weights are not the host's");
  return {inputs_, outputs_, dtype_, panels_, bias_, owner_};
}

Linear Linear::OnDevice(const DeviceLinear& packed, DType dtype) {
  Linear result;
  result.inputs_ = packed.inputs;
  result.outputs_ = packed.outputs;
  result.dtype_ = dtype;
  result.device_ = packed;
  return result;
}

size_t Linear::weight_bytes() const {
  const size_t parts = device_.low != nullptr ? 2 : 1;
  if (device_.float8 != nullptr) return size_t{device_.outputs} * device_.stride;
  if (device_.high != nullptr) return size_t{device_.outputs} * device_.stride * parts * 2;
  return panels_.size() + bias_.size();
}

size_t Linear::Pieces(size_t rows) const {
  return GroupsOf(PaddedColumns(outputs_) / kBlock, kTaskPanels) * GroupsOf(rows, kTaskTokens);
}

size_t Linear::Cost(size_t rows) const {
  return std::max(rows * PaddedColumns(outputs_) * inputs_, weight_bytes());
}

void Linear::ApplyPiece(ConstFloatMatrix x, FloatMatrix y, size_t piece) const {
  const auto* bias = bias_.empty() ? nullptr : reinterpret_cast<const float*>(bias_.data());
  const LinearArguments arguments{x, y, inputs_, outputs_, bias};
  const size_t panels = PaddedColumns(outputs_) / kBlock;
  const size_t groups = GroupsOf(x.rows, kTaskTokens);
  const size_t panel = piece / groups * kTaskPanels;
  const size_t group = piece % groups;
  const LinearRange range{x.rows * group / groups, x.rows * (group + 1) / groups, panel,
                          std::min(panel + kTaskPanels, panels)};
  if (dtype_ == DType::kFloat32) {
    HWY_DYNAMIC_DISPATCH(LinearTaskFloat32)
    (arguments, reinterpret_cast<const float*>(panels_.data()), range);
  } else {
    HWY_DYNAMIC_DISPATCH(LinearTaskBFloat16)
    (arguments, reinterpret_cast<const uint16_t*>(panels_.data()), range);
  }
}

void Linear::Apply(ConstFloatMatrix x, FloatMatrix y, ThreadPool& pool) const {
  const size_t pieces = Pieces(x.rows);
  const auto run = [&](size_t piece) { ApplyPiece(x, y, piece); };
  if (Cost(x.rows) >= kWorthSharing) return pool.ParallelFor(pieces, run);
  for (size_t piece = 0; piece < pieces; ++piece) run(piece);
}

}  // namespace rivulet
#endif  // HWY_ONCE
