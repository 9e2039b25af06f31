// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For running_state_test.cc: layers of one operation on a state each, on whichever device a step
// names.
#ifndef RIVULET_KERNELS_DEVICE_RUNNING_STATE_LAYERS_H_
#define RIVULET_KERNELS_DEVICE_RUNNING_STATE_LAYERS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/device/gated.h"
#include "kernels/device/running_state_operations.h"
#include "kernels/device/rwkv_operations.h"

namespace rivulet {

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

inline std::vector<float> Random(size_t count, float low, float high, std::mt19937& random) {
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = distribution(random);
  return numbers;
}

inline Layer SelectiveScan(uint32_t channels, uint32_t states, std::mt19937& random) {
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

inline Layer GatedScan(uint32_t channels, std::mt19937& random) {
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
inline Layer ShiftAndModes(uint32_t heads, uint32_t head_dim, uint32_t window, uint32_t modes,
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

inline Layer TokenShift(uint32_t channels, uint32_t mixtures, std::mt19937& random) {
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
inline Layer OwnMixtures(uint32_t channels, std::mt19937& random) {
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

inline Layer TimeMix(const TimeMixShape& shape, std::mt19937& random) {
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

inline std::string NameOf(const SumShape& shape) {
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

inline std::shared_ptr<const SumNumbers> NumbersFor(const SumShape& shape, std::mt19937& random) {
  auto numbers = std::make_shared<SumNumbers>();
  numbers->rates = Random(shape.units + 3, -1.0f, -0.1f, random);
  numbers->skips = Random(size_t{shape.units} * shape.value_dim, -1.0f, 1.0f, random);
  for (uint32_t i = 0; i < shape.units * kChunk; ++i) {
    numbers->constants.push_back(-0.1f * static_cast<float>((i % kChunk + 1) * (i / kChunk + 1)));
  }
  return numbers;
}

inline RecurCall CallOf(const SumShape& shape, const SumNumbers& numbers, const DeviceStep& step,
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
inline Layer Sum(const SumShape& shape, std::mt19937& random) {
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

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_RUNNING_STATE_LAYERS_H_
