// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Running states, RWKV's operations and sums with decays by channel on the GPU: near the fake
// device's numbers, and the same bits for every cut of the sessions into steps.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gated.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/device/running_state_operations.h"
#include "kernels/device/rwkv_operations.h"

namespace rivulet {
namespace {

constexpr uint32_t kChunk = 16, kSessions = 6, kTokens = 75;
// Of the distance from the fake device: numbers of a state that differ in their last bits may be
// rounded to different neighbours.
constexpr double kBFloat16Limit = 2e-3;

// What a layer does with its inputs, and the bytes that it keeps.
struct Layer {
  std::string name;
  std::vector<size_t> widths;  // columns of the inputs
  size_t outputs;
  size_t base_bytes, tail_bytes;  // with fp32 rows
  std::function<void(const DeviceStep&, const std::vector<FloatMatrix>&, const Operand&)> run;
  double limit = 2e-5;  // of the difference from the fake device with fp32 rows
  std::vector<std::pair<float, float>> ranges = {};  // of the inputs' numbers; empty: ±1.5
};

std::vector<float> Random(size_t count, float low, float high, std::mt19937& random) {
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = distribution(random);
  return numbers;
}

Layer SelectiveScan(uint32_t channels, uint32_t states, std::mt19937& random) {
  const auto padded = static_cast<uint32_t>(PaddedColumns(channels));
  const uint32_t padded_state = PaddedScanStates(states);
  auto a = std::make_shared<std::vector<float>>(size_t{padded} * padded_state, 0.0f);
  for (uint32_t i = 0; i < channels * states; ++i) {
    (*a)[i / states * padded_state + i % states] = Random(1, -2.0f, -0.01f, random)[0];
  }
  auto skip = std::make_shared<std::vector<float>>(Random(channels, -1.0f, 1.0f, random));
  const size_t bytes = a->size() * sizeof(float);
  return {"scan_" + std::to_string(channels) + "_" + std::to_string(states),
          {channels, channels, channels, states, states},
          channels,
          bytes,
          bytes,
          [=](const DeviceStep& step, const std::vector<FloatMatrix>& inputs, const Operand& y) {
            step.device->SelectiveScan({.rows = step.rows,
                                        .slots = step.slots,
                                        .channels = channels,
                                        .state_size = states,
                                        .padded_state = padded_state,
                                        .a = step.device->Constant(*a),
                                        .skip = step.device->Constant(*skip),
                                        .x = inputs[0],
                                        .dt = inputs[1],
                                        .z = inputs[2],
                                        .b = inputs[3],
                                        .c = inputs[4],
                                        .y = y});
          }};
}

Layer GatedScan(uint32_t channels, std::mt19937& random) {
  auto rate = std::make_shared<std::vector<float>>(Random(channels, -4.0f, -0.01f, random));
  const size_t bytes = PaddedColumns(channels) * sizeof(float);
  return {"gated_scan_" + std::to_string(channels),
          {channels, channels, channels},
          channels,
          bytes,
          bytes,
          [=](const DeviceStep& step, const std::vector<FloatMatrix>& inputs, const Operand& y) {
            const FloatMatrix h = step.workspace->Take(inputs[0].rows, channels);
            step.device->GatedScan({.rows = step.rows,
                                    .slots = step.slots,
                                    .channels = channels,
                                    .rate = step.device->Constant(*rate),
                                    .x = inputs[0],
                                    .input_gate = inputs[1],
                                    .recurrent_gate = inputs[2],
                                    .h = h});
            step.device->Finish({.o = h,
                                 .width = channels,
                                 .padded = channels,
                                 .norm_width = 256,
                                 .order = FinishOrder::kGateOnly,
                                 .y = y});
          }};
}

// Filter and modes together, as an H3 layer has them.
Layer ShiftAndModes(uint32_t heads, uint32_t head_dim, uint32_t window, uint32_t modes,
                    std::mt19937& random) {
  const uint32_t channels = heads * head_dim, padded_modes = PaddedModes(modes);
  const auto padded = static_cast<uint32_t>(PaddedColumns(channels));
  const auto ring_rows = static_cast<uint32_t>(RoundUp(std::max(window - 1, 1u), kChunk));
  auto taps = std::make_shared<std::vector<float>>(Random(window * padded, -0.5f, 0.5f, random));
  auto poles = std::make_shared<std::vector<float>>(size_t{heads} * padded_modes * 2, 0.0f);
  auto weights = std::make_shared<std::vector<float>>(poles->size(), 0.0f);
  for (uint32_t i = 0; i < heads * modes; ++i) {
    const size_t at = (i / modes * padded_modes + i % modes) * 2;
    const float radius = Random(1, 0.3f, 0.99f, random)[0], angle = Random(1, 0, 3, random)[0];
    (*poles)[at] = radius * std::cos(angle), (*poles)[at + 1] = radius * std::sin(angle);
    for (size_t part : {0, 1}) (*weights)[at + part] = Random(1, -1.0f, 1.0f, random)[0];
  }
  auto skip = std::make_shared<std::vector<float>>(Random(heads, -1.0f, 1.0f, random));
  const size_t ring = size_t{ring_rows} * padded * sizeof(float);
  const size_t tail = size_t{kChunk} * padded * sizeof(float);
  const size_t state = size_t{head_dim} * padded * padded_modes * 2 * sizeof(float);
  return {"h3_" + std::to_string(heads) + "_" + std::to_string(head_dim) + "_" +
              std::to_string(window) + "_" + std::to_string(modes),
          {channels, channels, channels},
          channels,
          ring + state,
          tail + state,
          [=](const DeviceStep& step, const std::vector<FloatMatrix>& inputs, const Operand& y) {
            const FloatMatrix k = step.workspace->Take(inputs[1].rows, channels);
            step.device->Filter({.rows = step.rows,
                                 .slots = step.slots,
                                 .channels = channels,
                                 .padded = padded,
                                 .window = window,
                                 .ring_rows = ring_rows,
                                 .taps = step.device->Constant(*taps),
                                 .x = inputs[1],
                                 .y = k,
                                 .ring_offset = 0,
                                 .tail_offset = 0});
            step.device->ScanModes({.rows = step.rows,
                                    .slots = step.slots,
                                    .heads = heads,
                                    .head_dim = head_dim,
                                    .padded_columns = padded,
                                    .padded_modes = padded_modes,
                                    .poles = step.device->Constant(*poles),
                                    .weights = step.device->Constant(*weights),
                                    .skip = step.device->Constant(*skip),
                                    .q = inputs[0],
                                    .k = k,
                                    .v = inputs[2],
                                    .partial = step.workspace->Take(k.rows, channels),
                                    .base_offset = ring,
                                    .tail_offset = tail,
                                    .y = y});
          }};
}

Layer TokenShift(uint32_t channels, uint32_t mixtures, std::mt19937& random) {
  const auto padded = static_cast<uint32_t>(PaddedColumns(channels));
  auto mix = std::make_shared<std::vector<std::vector<float>>>();
  for (uint32_t m = 0; m < mixtures; ++m) mix->push_back(Random(channels, 0.0f, 1.0f, random));
  return {"token_shift_" + std::to_string(channels) + "_" + std::to_string(mixtures),
          {channels},
          channels,
          padded * sizeof(float),
          kChunk * padded * sizeof(float),
          [=](const DeviceStep& step, const std::vector<FloatMatrix>& inputs, const Operand& y) {
            TokenShiftCall call{.rows = step.rows,
                                .slots = step.slots,
                                .channels = channels,
                                .x = Gated(step, inputs[0], {}),
                                .mixtures = mixtures,
                                .padded = padded};
            for (uint32_t m = 0; m < mixtures; ++m) {
              call.mix[m] = step.device->Constant((*mix)[m]);
              call.y[m] = step.workspace->TakeOperand(y.rows, channels);
            }
            call.y[mixtures - 1] = y;
            step.device->TokenShift(call);
          }};
}

// The token shift with one mixture, whose weights are two mixtures of each token's own behind it.
Layer OwnMixtures(uint32_t channels, std::mt19937& random) {
  const auto padded = static_cast<uint32_t>(PaddedColumns(channels));
  auto mix = std::make_shared<std::vector<float>>(Random(channels, 0.0f, 1.0f, random));
  auto bias = std::make_shared<std::vector<float>>(Random(2 * channels, -0.5f, 0.5f, random));
  return {"own_mixtures_" + std::to_string(channels),
          {channels, 2 * channels},
          channels,
          padded * sizeof(float),
          kChunk * padded * sizeof(float),
          [=](const DeviceStep& step, const std::vector<FloatMatrix>& inputs, const Operand& y) {
            TokenShiftCall shift{.rows = step.rows,
                                 .slots = step.slots,
                                 .channels = channels,
                                 .x = Gated(step, inputs[0], {}),
                                 .mixtures = 1,
                                 .padded = padded,
                                 .difference = step.workspace->Take(y.rows, channels)};
            shift.mix[0] = step.device->Constant(*mix);
            shift.y[0] = step.workspace->TakeOperand(y.rows, channels);
            step.device->TokenShift(shift);
            OwnMixturesCall own{.x = shift.x,
                                .channels = channels,
                                .difference = shift.difference,
                                .weights = inputs[1],
                                .bias = step.device->Constant(*bias),
                                .mixtures = 2};
            own.y[0] = step.workspace->TakeOperand(y.rows, channels);
            own.y[1] = y;
            step.device->MixOwn(own);
          }};
}

struct TimeMixShape {
  uint32_t heads, key_dim, value_dim;
  bool mixes_values = false, bf16_state = false;
  TimeMixForm form = TimeMixForm::kRwkv7;
};

Layer TimeMix(const TimeMixShape& shape, std::mt19937& random) {
  const uint32_t keys = shape.heads * shape.key_dim, values = shape.heads * shape.value_dim;
  const auto padded_key = static_cast<uint32_t>(PaddedColumns(shape.key_dim));
  const auto padded_value = static_cast<uint32_t>(PaddedColumns(shape.value_dim));
  const auto weights = [&](size_t count, float low, float high) {
    return std::make_shared<std::vector<float>>(Random(count, low, high, random));
  };
  const auto removed = weights(keys, 0.5f, 1.0f), replaced = weights(keys, 0.0f, 1.0f);
  const auto bonus = weights(keys, -0.2f, 0.2f), norm = weights(values, 0.5f, 1.5f);
  const auto bias = weights(values, -0.5f, 0.5f);
  const size_t head_rows = size_t{shape.heads} * kChunk * sizeof(float);
  const size_t key_bytes = head_rows * 2 * padded_key, value_bytes = head_rows * 2 * padded_value;
  const bool low_rank = shape.form == TimeMixForm::kRwkv7;
  return {(low_rank ? "time_mix_" : "time_mix_6_") + std::to_string(shape.key_dim) + "_" +
              std::to_string(shape.value_dim),
          {keys, keys, keys, keys, values, values, values, values},
          values,
          size_t{shape.heads} * padded_key * padded_value * (shape.bf16_state ? 2 : 4),
          key_bytes + value_bytes + head_rows * padded_key,
          [=](const DeviceStep& step, const std::vector<FloatMatrix>& inputs, const Operand& y) {
            const auto constant = [&](const std::shared_ptr<std::vector<float>>& numbers) {
              return step.device->Constant(*numbers);
            };
            TimeMixCall call{.form = shape.form,
                             .rows = step.rows,
                             .slots = step.slots,
                             .heads = shape.heads,
                             .key_dim = shape.key_dim,
                             .value_dim = shape.value_dim,
                             .padded_key = padded_key,
                             .padded_value = padded_value,
                             .r = inputs[0],
                             .k = inputs[1],
                             .decay = inputs[2],
                             .rate = inputs[3],
                             .v = inputs[4],
                             .gate = inputs[5],
                             .first_values = inputs[6],
                             .removed = constant(removed),
                             .replaced = constant(replaced),
                             .bonus = constant(bonus),
                             .norm_weight = constant(norm),
                             .norm_bias = constant(bias),
                             .key_eps = 1e-6f,
                             .norm_eps = 1e-3f,
                             .bf16_state = shape.bf16_state,
                             .value_offset = key_bytes,
                             .decay_offset = key_bytes + value_bytes,
                             .values = step.workspace->Take(y.rows, values),
                             .out = step.workspace->Take(y.rows, values),
                             .bonus_sum = step.workspace->Take(y.rows, shape.heads),
                             .y = y};
            if (shape.mixes_values) call.share = inputs[7];
            step.device->TimeMix(call);
          },
          shape.bf16_state ? kBFloat16Limit : 2e-5};
}

struct SumShape {
  uint32_t units, unit_heads, key_dim, value_dim;
  bool delta = false, bf16_state = false;
  Decay decay = Decay::kChannel;
  uint32_t units_per_key = 1;
  // Of scalar decays: as Mamba-2 has them (steps, rates and a skip), or constant.
  bool steps = false, constant = false;

  uint32_t keys() const { return units / units_per_key; }
  uint32_t queries() const { return units_per_key > 1 ? keys() : units * unit_heads; }
  uint32_t decays() const { return decay == Decay::kChannel ? units * key_dim : units; }
};

std::string NameOf(const SumShape& shape) {
  const char* const decay = shape.decay == Decay::kChannel  ? "channel"
                            : shape.decay == Decay::kScalar ? "scalar"
                                                            : "plain";
  return absl::StrCat(decay, "_sum_", shape.units, "_", shape.unit_heads, "_", shape.key_dim, "_",
                      shape.value_dim, shape.delta ? "_delta" : "", shape.steps ? "_steps" : "",
                      shape.constant ? "_constant" : "", shape.bf16_state ? "_bf16" : "");
}

// What does not depend on the token: rates, skips and cumulative constant decays.
struct SumNumbers {
  std::vector<float> rates, skips, constants;
};

std::shared_ptr<const SumNumbers> NumbersFor(const SumShape& shape, std::mt19937& random) {
  auto numbers = std::make_shared<SumNumbers>();
  numbers->rates = Random(shape.units + 3, -1.0f, -0.1f, random);
  numbers->skips = Random(size_t{shape.units} * shape.value_dim, -1.0f, 1.0f, random);
  for (uint32_t i = 0; i < shape.units * kChunk; ++i) {
    numbers->constants.push_back(-0.1f * static_cast<float>((i % kChunk + 1) * (i / kChunk + 1)));
  }
  return numbers;
}

RecurCall CallOf(const SumShape& shape, const SumNumbers& numbers, const DeviceStep& step,
                 const std::vector<FloatMatrix>& inputs, const FloatMatrix& out) {
  const size_t key_bytes = size_t{shape.keys()} * kChunk * sizeof(float) * shape.key_dim;
  const size_t value_bytes = size_t{shape.units} * kChunk * sizeof(float) * shape.value_dim;
  const auto stride = [&](size_t i) { return static_cast<uint32_t>(inputs[i].stride); };
  RecurCall call = {.rows = step.rows,
                    .slots = step.slots,
                    .units = shape.units,
                    .unit_heads = shape.unit_heads,
                    .units_per_key = shape.units_per_key,
                    .key_dim = shape.key_dim,
                    .value_dim = shape.value_dim,
                    .padded_key = shape.key_dim,
                    .padded_value = shape.value_dim,
                    .q = inputs[0].data,
                    .q_stride = stride(0),
                    .query_per_head = shape.units_per_key == 1,
                    .k = inputs[1].data,
                    .k_stride = stride(1),
                    .v = inputs[2].data,
                    .v_stride = stride(2),
                    .v_head_stride = shape.value_dim,
                    .decay = shape.decay,
                    .g = inputs[3].data,
                    .g_stride = stride(3),
                    .times_step = shape.steps,
                    .delta = shape.delta,
                    .beta = inputs[4].data,
                    .beta_stride = stride(4),
                    .bf16_state = shape.bf16_state,
                    .value_offset = key_bytes,
                    .decay_offset = key_bytes + value_bytes,
                    .out = out};
  if (shape.steps) {
    call.rate = step.device->Constant(numbers.rates);
    call.skip = step.device->Constant(numbers.skips);
  }
  if (shape.constant) call.constant = step.device->Constant(numbers.constants);
  return call;
}

// A sum with one read, optionally by the delta rule.
Layer Sum(const SumShape& shape, std::mt19937& random) {
  const uint32_t keys = shape.keys() * shape.key_dim, values = shape.units * shape.value_dim;
  const uint32_t outputs = values * shape.unit_heads;
  const size_t rows = size_t{kChunk} * sizeof(float);
  // Small keys, or a delta rule grows without bound.
  const float key = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  const std::pair<float, float> decays =
      shape.steps ? std::pair(0.01f, 1.0f) : std::pair(-1.0f, -0.01f);
  return {NameOf(shape),
          {shape.queries() * shape.key_dim, keys, values, shape.decays(), shape.units},
          outputs,
          size_t{shape.units} * shape.key_dim * shape.value_dim * (shape.bf16_state ? 2 : 4),
          rows * (keys + values + shape.decays()),
          [=, numbers = NumbersFor(shape, random)](
              const DeviceStep& step, const std::vector<FloatMatrix>& inputs, const Operand& y) {
            const FloatMatrix out = step.workspace->Take(y.rows, outputs);
            step.device->Recur(CallOf(shape, *numbers, step, inputs, out));
            step.device->Finish({.o = out,
                                 .width = outputs,
                                 .padded = outputs,
                                 .norm_width = 256,
                                 .order = FinishOrder::kGateOnly,
                                 .y = y});
          },
          shape.bf16_state ? kBFloat16Limit : 1e-4,
          {{-key, key}, {-key, key}, {-1.5f, 1.5f}, decays, {0.0f, 1.0f}}};
}

// The numbers of every token of every session, [session][token][columns], for each input.
using Inputs = std::vector<std::vector<float>>;

Inputs RandomInputs(const Layer& layer, std::mt19937& random) {
  Inputs inputs;
  for (size_t i = 0; i < layer.widths.size(); ++i) {
    const auto [low, high] = layer.ranges.empty() ? std::pair(-1.5f, 1.5f) : layer.ranges[i];
    inputs.push_back(Random(kSessions * kTokens * layer.widths[i], low, high, random));
  }
  return inputs;
}

// Feeds the sessions to a layer on a device, some tokens of each in a step. Of each session there
// are `copies`, which go their own ways.
class Sessions {
 public:
  Sessions(Device& device, const Layer& layer, const Inputs& inputs, uint32_t copies)
      : device_(device),
        layer_(layer),
        inputs_(inputs),
        workspace_(&device),
        count_(kSessions * copies),
        positions_(count_, 0),
        base_(count_) {
    std::iota(base_.begin(), base_.end(), 0);
    const uint32_t strays = ~0u;  // NaN: what a slot holds before its first use is not read
    const std::vector<uint32_t> bases(2 * count_ * layer.base_bytes / 4, strays);
    const std::vector<uint32_t> tails(count_ * layer.tail_bytes / 4, strays);
    slots_.bases = static_cast<std::byte*>(Copy(bases));
    slots_.base_stride = layer.base_bytes;
    slots_.tails = static_cast<std::byte*>(Copy(tails));
    slots_.tail_stride = layer.tail_bytes;
  }

  uint32_t count() const { return count_; }
  bool Done() const { return *std::min_element(positions_.begin(), positions_.end()) == kTokens; }
  uint32_t Left(uint32_t session) const { return kTokens - positions_[session]; }

  // One step with counts[s] tokens of session s. `single`: of at most one each.
  void Step(const std::vector<uint32_t>& counts, bool single, std::mt19937& random) {
    std::vector<DeviceSegment> segments;
    std::vector<uint32_t> owners, rows;
    for (uint32_t s = 0; s < count_; ++s) {
      if (counts[s] == 0 && !single) continue;
      const uint32_t position = positions_[s], in = base_[s];
      const bool folds = (position % kChunk + counts[s]) / kChunk > 0;
      if (folds && random() % 2 == 0) base_[s] = in < count_ ? in + count_ : in - count_;
      const auto first = static_cast<uint32_t>(rows.size());
      segments.push_back({first, counts[s], position, in, base_[s], s, 0});
      for (uint32_t i = 0; i < std::max(counts[s], single ? 1u : 0u); ++i) {
        owners.push_back(static_cast<uint32_t>(segments.size()) - 1);
        rows.push_back(s * kTokens + std::min(position + i, kTokens - 1));
      }
      positions_[s] += counts[s];
    }
    Run(segments, owners, rows, single);
  }

  // Of every token: [session][token][outputs, padded].
  std::vector<float> TakeOutputs() { return std::move(outputs_); }

 private:
  template <typename T>
  void* Copy(const std::vector<T>& from) {
    void* to = workspace_.TakeBytes(from.size() * sizeof(T));
    EXPECT_TRUE(device_.Upload(to, from.data(), from.size() * sizeof(T)).ok());
    return to;
  }

  FloatMatrix Rows(size_t input, const std::vector<uint32_t>& rows) {
    const size_t width = layer_.widths[input];
    const FloatMatrix x = workspace_.Take(rows.size(), width);
    std::vector<float> host(rows.size() * x.stride, NAN);
    for (size_t r = 0; r < rows.size(); ++r) {
      const uint32_t row = rows[r] % (kSessions * kTokens);  // copies have the same inputs
      std::copy_n(inputs_[input].data() + row * width, width, host.data() + r * x.stride);
    }
    EXPECT_TRUE(device_.Upload(x.data, host.data(), host.size() * sizeof(float)).ok());
    return x;
  }

  void Run(const std::vector<DeviceSegment>& segments, const std::vector<uint32_t>& owners,
           const std::vector<uint32_t>& rows, bool single) {
    DeviceStep step{&device_, &workspace_, {}, slots_};
    step.rows = {.segments = static_cast<const DeviceSegment*>(Copy(segments)),
                 .segment_of = static_cast<const uint32_t*>(Copy(owners)),
                 .segment_count = static_cast<uint32_t>(segments.size()),
                 .tokens = static_cast<uint32_t>(rows.size()),
                 .single = single};
    std::vector<FloatMatrix> inputs;
    for (size_t i = 0; i < layer_.widths.size(); ++i) inputs.push_back(Rows(i, rows));
    const Operand y = workspace_.TakeOperand(rows.size(), layer_.outputs);
    const size_t numbers = rows.size() * y.stride;
    const std::vector<uint16_t> strays(numbers, 0xffff);
    EXPECT_TRUE(device_.Upload(y.data, strays.data(), numbers * 2).ok());
    layer_.run(step, inputs, y);
    const std::vector<float> result = NumbersOf(device_, y);
    outputs_.resize(size_t{count_} * kTokens * y.columns);
    for (size_t r = 0; r < rows.size(); ++r) {
      if (segments[owners[r]].tokens == 0) continue;
      std::copy_n(result.data() + r * y.columns, y.columns,
                  outputs_.data() + size_t{rows[r]} * y.columns);
    }
  }

  Device& device_;
  const Layer& layer_;
  const Inputs& inputs_;
  DeviceWorkspace workspace_;
  DeviceSlots slots_;
  const uint32_t count_;
  std::vector<uint32_t> positions_, base_;
  std::vector<float> outputs_;
};

enum class Cut { kWhole, kSingle, kPieces };

std::vector<float> Feed(Device& device, const Layer& layer, const Inputs& inputs, Cut cut,
                        std::mt19937& random, uint32_t copies = 1) {
  Sessions sessions(device, layer, inputs, copies);
  while (!sessions.Done()) {
    std::vector<uint32_t> counts(sessions.count(), kTokens);
    // In a step of single tokens some sessions sit out and leave a segment without tokens.
    if (cut == Cut::kSingle) {
      for (uint32_t& count : counts) count = random() % 5 == 0 ? 0 : 1;
    }
    if (cut == Cut::kPieces) {
      for (uint32_t& count : counts) count = random() % 40;
    }
    for (uint32_t s = 0; s < counts.size(); ++s) counts[s] = std::min(counts[s], sessions.Left(s));
    if (std::all_of(counts.begin(), counts.end(), [](uint32_t c) { return c == 0; })) continue;
    sessions.Step(counts, cut == Cut::kSingle, random);
  }
  return sessions.TakeOutputs();
}

// The largest difference, by the largest number.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY, largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::isfinite(a[i]) ? std::max(worst, std::abs(double{a[i]} - b[i])) : INFINITY;
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return worst / largest;
}

std::vector<Layer> Layers(std::mt19937& random) {
  return {GatedScan(300, random),
          GatedScan(7, random),
          SelectiveScan(64, 16, random),
          SelectiveScan(37, 6, random),
          SelectiveScan(1, 1, random),
          SelectiveScan(200, 8, random),
          SelectiveScan(40, 24, random),
          SelectiveScan(50, 64, random),
          ShiftAndModes(64, 1, 64, 32, random),
          ShiftAndModes(19, 1, 1, 1, random),
          ShiftAndModes(7, 2, 17, 8, random),
          ShiftAndModes(33, 1, 100, 50, random),
          ShiftAndModes(5, 4, 18, 3, random),
          ShiftAndModes(9, 1, 200, 100, random),
          ShiftAndModes(6, 1, 300, 150, random),
          TokenShift(40, 6, random),
          TokenShift(300, 1, random),
          TimeMix({3, 64, 64, true}, random),
          TimeMix({2, 24, 40}, random),
          TimeMix({2, 64, 300, true}, random),  // columns of a head in two turns
          TimeMix({1, 8, 5}, random),
          TimeMix({2, 128, 128}, random),
          TimeMix({1, 400, 70, true}, random),
          TimeMix({2, 64, 32, true, true}, random),
          OwnMixtures(40, random),
          OwnMixtures(300, random),
          TimeMix({3, 64, 64, false, false, TimeMixForm::kRwkv6}, random),
          TimeMix({2, 24, 40, false, false, TimeMixForm::kRwkv6}, random),
          TimeMix({2, 64, 300, false, false, TimeMixForm::kRwkv6}, random),
          TimeMix({1, 400, 70, false, false, TimeMixForm::kRwkv6}, random),
          TimeMix({2, 64, 32, false, true, TimeMixForm::kRwkv6}, random),
          Sum({3, 1, 64, 64}, random),
          Sum({2, 1, 256, 128}, random),
          Sum({2, 2, 128, 80}, random),
          Sum({2, 1, 176, 48, false, true}, random),
          Sum({2, 1, 128, 128, true}, random),
          Sum({1, 1, 240, 64, true}, random),
          Sum({2, 1, 32, 32, true, true}, random)};
}

// Sums that many sessions stream through, with every kind of decay and width of keys.
std::vector<Layer> StreamedSums(std::mt19937& random) {
  std::vector<Layer> sums;
  for (const bool bf16 : {false, true}) {
    const std::vector<SumShape> shapes = {
        {4, 1, 128, 64, true, bf16, Decay::kScalar},
        {8, 1, 128, 128, true, bf16, Decay::kScalar, 2},
        {8, 1, 128, 64, false, bf16, Decay::kScalar, 4, true},
        {8, 1, 64, 64, false, bf16, Decay::kScalar, 8, true},
        {4, 2, 64, 80, false, bf16, Decay::kScalar, 1, false, true},
        {4, 1, 256, 48, false, bf16, Decay::kNone},
        {4, 1, 64, 16, true, bf16, Decay::kNone},
        {4, 1, 128, 128, true, bf16},
        {2, 1, 256, 128, false, bf16},
        {4, 3, 64, 64, false, bf16}};
    for (const SumShape& shape : shapes) sums.push_back(Sum(shape, random));
  }
  return sums;
}

// The fake device's own numbers do not depend on the cut, and none of them is what a slot held.
TEST(RunningState, FakeDevice) {
  std::mt19937 random{TestSeed()};
  FakeDevice device;
  for (const Layer& layer : Layers(random)) {
    const Inputs inputs = RandomInputs(layer, random);
    const std::vector<float> whole = Feed(device, layer, inputs, Cut::kWhole, random);
    EXPECT_EQ(Distance(whole, whole), 0) << layer.name;
    EXPECT_EQ(Feed(device, layer, inputs, Cut::kSingle, random), whole) << layer.name;
    EXPECT_EQ(Feed(device, layer, inputs, Cut::kPieces, random), whole) << layer.name;
  }
}

// A session has the bits that it has among few, where other kernels run.
void CheckCompany(const std::vector<Layer>& layers, Device& device, std::mt19937& random) {
  for (const Layer& layer : layers) {
    constexpr uint32_t kCopies = 100;
    const Inputs inputs = RandomInputs(layer, random);
    const std::vector<float> whole = Feed(device, layer, inputs, Cut::kWhole, random);
    EXPECT_EQ(Distance(whole, whole), 0) << layer.name;
    EXPECT_EQ(Feed(device, layer, inputs, Cut::kSingle, random), whole) << layer.name;
    const std::vector<float> company = Feed(device, layer, inputs, Cut::kSingle, random, kCopies);
    for (uint32_t copy = 0; copy < kCopies; ++copy) {
      EXPECT_TRUE(std::equal(whole.begin(), whole.end(), company.begin() + copy * whole.size()))
          << layer.name << ", copy " << copy;
    }
  }
}

TEST(StreamedSums, HaveTheSameBitsInMuchCompany) {
  RIVULET_NEED_GPU();
  std::mt19937 random{TestSeed()};
  auto device = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(device.ok()) << device.status();
  const std::vector<Layer> layers = StreamedSums(random);
  CheckCompany(layers, **device, random);
}

TEST(TimeMixing, HasTheSameBitsInMuchCompany) {
  RIVULET_NEED_GPU();
  std::mt19937 random{TestSeed()};
  auto device = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(device.ok()) << device.status();
  const std::vector<Layer> layers = {
      TimeMix({3, 64, 64, true}, random),
      TimeMix({3, 64, 64, false, false, TimeMixForm::kRwkv6}, random)};
  CheckCompany(layers, **device, random);
}

TEST(StreamedSums, AreNearTheFakeDevice) {
  RIVULET_NEED_GPU();
  std::mt19937 random{TestSeed()};
  auto device = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(device.ok()) << device.status();
  FakeDevice fake;
  const std::vector<Layer> layers = StreamedSums(random);
  for (const Layer& layer : layers) {
    const Inputs inputs = RandomInputs(layer, random);
    const double distance = Distance(Feed(**device, layer, inputs, Cut::kWhole, random),
                                     Feed(fake, layer, inputs, Cut::kWhole, random));
    std::printf("%s: differs from the fake device by %.2g\n", layer.name.c_str(), distance);
    EXPECT_LE(distance, layer.limit) << layer.name;
  }
}

TEST(RunningState, IsNearTheFakeDeviceAndHasTheSameBitsForEveryCut) {
  RIVULET_NEED_GPU();
  std::mt19937 random{TestSeed()};
  FakeDevice fake;
  for (const ProductPrecision precision :
       {ProductPrecision::kFloat32, ProductPrecision::kBFloat16}) {
    auto device = OpenCudaDevice(precision);
    ASSERT_TRUE(device.ok()) << device.status();
    // The device keeps constants by their address, so the layers live as long as it.
    const std::vector<Layer> layers = Layers(random);
    for (const Layer& layer : layers) {
      const Inputs inputs = RandomInputs(layer, random);
      const std::vector<float> whole = Feed(**device, layer, inputs, Cut::kWhole, random);
      if (precision == ProductPrecision::kFloat32) {
        const double distance = Distance(whole, Feed(fake, layer, inputs, Cut::kWhole, random));
        std::printf("%s: differs from the fake device by %.2g\n", layer.name.c_str(), distance);
        EXPECT_LE(distance, layer.limit) << layer.name;
      }
      EXPECT_EQ(Feed(**device, layer, inputs, Cut::kSingle, random), whole) << layer.name;
      EXPECT_EQ(Feed(**device, layer, inputs, Cut::kPieces, random), whole) << layer.name;
    }
  }
}

}  // namespace
}  // namespace rivulet
