// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Single operations on the GPU beside the ceilings of its memory, measured in the same run:
// products of few and many rows, and the decode step of a sum for rows with tails of every length.
// Each is recorded several times over different memory, so that nothing comes from the cache, and
// replayed.
//
//   rivulet-device-kernel-bench --rows 1,8,32,128,512
//
// Prints the time of one operation, the bytes that it must move, and the share of the measured read
// rate that this makes; for sums also their time over that of a perfect update of the state in
// place.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "bench/device_timer.h"
#include "kernels/base/status.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/rwkv_operations.h"

ABSL_FLAG(std::string, rows, "1,8,32,128,512", "rows of a step");
ABSL_FLAG(std::string, only, "", "only cases whose name has this in it");

namespace rivulet {
namespace {

constexpr uint32_t kChunk = DeviceTimer::kChunk;

constexpr char kTimeMixing[] = "RWKV-7 32 x 64 x 64";

struct SumCase {
  const char* name;
  uint32_t units, unit_heads, units_per_key, units_per_value, key, value;
  Decay decay;
  bool delta;
};

struct ProductCase {
  const char* name;
  uint32_t outputs, inputs;
};

constexpr ProductCase kProducts[] = {
    {"2.7B in_proj", 10576, 2560},         {"2.7B out_proj", 2560, 5120},
    {"2.7B output map", 50288, 2560},      {"130M in_proj", 3352, 768},
    {"130M out_proj", 768, 1536},          {"Gated DeltaNet q, k, v, gate", 8224, 2048},
    {"Gated DeltaNet output", 2048, 2048}, {"gated MLP in, 2048", 11264, 2048},
    {"gated MLP out, 2048", 2048, 5632}};

class Bench {
 public:
  absl::Status Run();

 private:
  absl::Status Product(const char* name, uint32_t outputs, uint32_t inputs, uint32_t rows);
  absl::Status Sum(const SumCase& sum, uint32_t rows, bool bf16);
  absl::Status TimeMixing(uint32_t rows, bool bf16);
  bool Wanted(const std::string& name) const {
    return name.find(absl::GetFlag(FLAGS_only)) != std::string::npos;
  }

  DeviceTimer timer_;
};

absl::Status Bench::Product(const char* name, uint32_t outputs, uint32_t inputs, uint32_t rows) {
  const size_t bytes = size_t{outputs} * inputs * 2;
  const size_t copies = std::max<size_t>(DeviceTimer::Copies(bytes), 4);
  const auto* weights = static_cast<const uint16_t*>(timer_.Memory(bytes * copies));
  DeviceWorkspace workspace(timer_.device());
  const Operand x = workspace.TakeOperand(rows, inputs);
  const FloatMatrix y = workspace.Take(rows, outputs);
  const auto linear = [&](size_t i) {
    DeviceLinear map;
    map.high = weights + i * bytes / 2;
    map.outputs = outputs;
    map.inputs = map.stride = inputs;
    return map;
  };
  RIVULET_ASSIGN_OR_RETURN(const double plain, timer_.Time(copies, [&](size_t i) {
    timer_.device()->Product(linear(i), x, y);
  }));
  timer_.Print(name, rows, plain, static_cast<double>(bytes));
  return absl::OkStatus();
}

// The time mixing of a layer of a model with 2048 columns (RWKV-7 1.5B).
absl::Status Bench::TimeMixing(uint32_t rows, bool bf16) {
  constexpr uint32_t kHeads = 32, kWidth = 64, kColumns = kHeads * kWidth;
  const size_t state = size_t{kColumns} * kWidth * (bf16 ? 2 : 4);
  const size_t rows_bytes = size_t{kColumns} * kChunk;
  const size_t tail = rows_bytes * (2 * 2 + 2 * 2 + 4);
  const size_t copies = DeviceTimer::Copies(state * rows);
  auto* const states = static_cast<std::byte*>(timer_.Memory(state * rows * copies));
  auto* const tails = static_cast<std::byte*>(timer_.Memory(tail * rows * copies));
  DeviceWorkspace workspace(timer_.device());
  const auto input = [&](size_t columns) { return timer_.Input(workspace, rows, columns); };
  const auto* const weights = static_cast<const float*>(timer_.Memory(kColumns * sizeof(float)));
  TimeMixCall call{.rows = timer_.OneTokenEach(rows),
                   .slots = {},
                   .heads = kHeads,
                   .key_dim = kWidth,
                   .value_dim = kWidth,
                   .padded_key = kWidth,
                   .padded_value = kWidth,
                   .r = input(kColumns),
                   .k = input(kColumns),
                   .decay = input(kColumns),
                   .rate = input(kColumns),
                   .v = input(kColumns),
                   .gate = input(kColumns),
                   .first_values = input(kColumns),
                   .share = input(kColumns),
                   .removed = weights,
                   .replaced = weights,
                   .bonus = weights,
                   .norm_weight = weights,
                   .norm_bias = weights,
                   .key_eps = 1e-6f,
                   .norm_eps = 1e-3f,
                   .bf16_state = bf16,
                   .value_offset = rows_bytes * 4,
                   .decay_offset = rows_bytes * 8,
                   .values = workspace.Take(rows, kColumns),
                   .out = workspace.Take(rows, kColumns),
                   .bonus_sum = workspace.Take(rows, kHeads),
                   .y = workspace.TakeOperand(rows, kColumns)};
  RIVULET_ASSIGN_OR_RETURN(const double seconds, timer_.Time(copies, [&](size_t i) {
    call.slots = {states + i * rows * state, state, tails + i * rows * tail, tail};
    timer_.device()->TimeMix(call);
  }));
  const double inputs = kColumns * (8 * sizeof(float) + 2);
  const double bytes = rows * (static_cast<double>(state) * (1 + 2.0 / kChunk) +
                               0.5 * static_cast<double>(tail) + inputs);
  timer_.Print(std::string(kTimeMixing) + (bf16 ? ", bf16 states" : ", fp32 states"), rows, seconds,
               bytes, 2.0 * rows * static_cast<double>(state));
  return absl::OkStatus();
}

absl::Status Bench::Sum(const SumCase& sum, uint32_t rows, bool bf16) {
  const uint32_t keys = sum.units / sum.units_per_key, values = sum.units / sum.units_per_value;
  const size_t state = size_t{sum.units} * sum.key * sum.value * (bf16 ? 2 : 4);
  const bool channel = sum.decay == Decay::kChannel;
  RecurCall call;
  call.units = sum.units;
  call.unit_heads = sum.unit_heads;
  call.units_per_key = sum.units_per_key;
  call.units_per_value = sum.units_per_value;
  call.key_dim = call.padded_key = sum.key;
  call.value_dim = call.padded_value = sum.value;
  call.key_offset = 0;
  call.value_offset = size_t{keys} * kChunk * sum.key * 2;
  call.decay_offset = call.value_offset + size_t{values} * kChunk * sum.value * 2;
  const size_t decays = channel ? size_t{keys} * sum.key : sum.units;
  const size_t tail = (call.decay_offset + decays * kChunk * 4 + 255) / 256 * 256;
  const size_t copies = DeviceTimer::Copies(state * rows);
  auto* const states = static_cast<std::byte*>(timer_.Memory(state * rows * copies));
  auto* const tails = static_cast<std::byte*>(timer_.Memory(tail * rows * copies));
  call.rows = timer_.OneTokenEach(rows);
  DeviceWorkspace workspace(timer_.device());
  const auto input = [&](size_t columns) { return timer_.Input(workspace, rows, columns); };
  const bool per_head = sum.unit_heads > 1 || sum.units_per_key == 1;
  const FloatMatrix q = input(size_t{per_head ? sum.units * sum.unit_heads : keys} * sum.key);
  const FloatMatrix k = input(size_t{keys} * sum.key), v = input(size_t{values} * sum.value);
  const FloatMatrix g = input(decays), beta = input(sum.units);
  call.q = q.data, call.q_stride = static_cast<uint32_t>(q.stride);
  call.k = k.data, call.k_stride = static_cast<uint32_t>(k.stride);
  call.v = v.data, call.v_stride = static_cast<uint32_t>(v.stride);
  call.g = g.data, call.g_stride = static_cast<uint32_t>(g.stride);
  call.beta = beta.data, call.beta_stride = static_cast<uint32_t>(beta.stride);
  call.query_per_head = per_head;
  call.v_head_stride = sum.value;
  call.decay = sum.decay;
  call.delta = sum.delta;
  call.bf16_state = bf16;
  call.out = workspace.Take(rows, size_t{sum.units} * sum.unit_heads * sum.value);
  RIVULET_ASSIGN_OR_RETURN(const double seconds, timer_.Time(copies, [&](size_t i) {
    call.slots = {states + i * rows * state, state, tails + i * rows * tail, tail};
    timer_.device()->Recur(call);
  }));
  const double inputs = static_cast<double>(
      (q.columns + k.columns + v.columns + g.columns + call.out.columns) * sizeof(float));
  const double bytes = rows * (static_cast<double>(state) * (1 + 2.0 / kChunk) +
                               0.5 * static_cast<double>(tail) + inputs);
  timer_.Print(std::string(sum.name) + (bf16 ? ", bf16 states" : ", fp32 states"), rows, seconds,
               bytes, 2.0 * rows * static_cast<double>(state));
  return absl::OkStatus();
}

absl::Status Bench::Run() {
  RIVULET_RETURN_IF_ERROR(timer_.Open());
  const SumCase sums[] = {
      {"Gated DeltaNet 16 x 128 x 128", 16, 1, 1, 1, 128, 128, Decay::kScalar, true},
      {"Gated DeltaNet 16/32 x 128 x 128", 32, 1, 2, 1, 128, 128, Decay::kScalar, true},
      {"Mamba-2 80 x 64 x 128", 80, 1, 80, 1, 128, 64, Decay::kScalar, false},
      {"GLA 4 x 256 x 512", 4, 1, 1, 1, 256, 512, Decay::kChannel, false},
      {"KDA 32 x 128 x 128", 32, 1, 1, 1, 128, 128, Decay::kChannel, true},
      {"linear 16 x 128 x 128", 16, 1, 1, 1, 128, 128, Decay::kNone, false}};
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_rows), ',')) {
    uint32_t rows = 0;
    if (!absl::SimpleAtoi(text, &rows)) return absl::InvalidArgumentError("--rows: 1,2,3");
    for (const auto& [name, outputs, inputs] : kProducts) {
      if (!Wanted(name)) continue;
      RIVULET_RETURN_IF_ERROR(Product(name, outputs, inputs, rows));
    }
    for (const SumCase& sum : sums) {
      for (const bool bf16 : {false, true}) {
        if (!Wanted(sum.name)) continue;
        RIVULET_RETURN_IF_ERROR(Sum(sum, rows, bf16));
      }
    }
    for (const bool bf16 : {false, true}) {
      if (Wanted(kTimeMixing)) RIVULET_RETURN_IF_ERROR(TimeMixing(rows, bf16));
    }
    timer_.FreeAll();
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("single operations on the GPU beside its memory's ceilings");
  absl::ParseCommandLine(argc, argv);
  rivulet::Bench bench;
  const absl::Status status = bench.Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "rivulet-device-kernel-bench: %s\n", status.ToString().c_str());
  return 1;
}
