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
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/device/rwkv_operations.h"

ABSL_FLAG(std::string, rows, "1,8,32,128,512", "rows of a step");
ABSL_FLAG(std::string, only, "", "only cases whose name has this in it");

namespace rivulet {
namespace {

constexpr uint32_t kChunk = 16;
constexpr size_t kRotated = size_t{512} << 20;  // bytes that an operation's copies cover at least

constexpr char kTimeMixing[] = "RWKV-7 32 x 64 x 64";

struct SumCase {
  const char* name;
  uint32_t units, unit_heads, units_per_key, units_per_value, key, value;
  Decay decay;
  bool delta;
};

class Bench {
 public:
  absl::Status Run();

 private:
  void* Memory(size_t bytes);
  absl::StatusOr<double> Time(size_t copies, const std::function<void(size_t)>& enqueue);
  absl::Status Product(const char* name, uint32_t outputs, uint32_t inputs, uint32_t rows);
  absl::Status Sum(const SumCase& sum, uint32_t rows, bool bf16);
  absl::Status TimeMixing(uint32_t rows, bool bf16);
  DeviceRows OneTokenEach(uint32_t rows);
  FloatMatrix Input(DeviceWorkspace& workspace, uint32_t rows, size_t columns);
  bool Wanted(const std::string& name) const {
    return name.find(absl::GetFlag(FLAGS_only)) != std::string::npos;
  }
  void Print(const std::string& name, uint32_t rows, double seconds, double bytes,
             double in_place_bytes = 0) const;

  std::unique_ptr<Device> device_;
  DeviceLimits limits_;
  std::vector<void*> memory_;
};

// Freed at the end of the case. Random numbers of about one.
void* Bench::Memory(size_t bytes) {
  const absl::StatusOr<void*> memory = device_->Allocate(bytes);
  RIVULET_CHECK(memory.ok(), "no memory for a case");
  memory_.push_back(*memory);
  std::vector<uint32_t> numbers(std::min<size_t>(bytes / 4 + 1, 1 << 20));
  uint32_t x = 1;
  // Two bf16 numbers of random sign and exponents near that of one; as fp32 about the same.
  for (uint32_t& number : numbers) {
    x = x * 1664525 + 1013904223;
    number = (x & 0x80ff80ff) | 0x3e003e00;
  }
  for (size_t at = 0; at < bytes; at += numbers.size() * 4) {
    const size_t part = std::min(bytes - at, numbers.size() * 4);
    RIVULET_CHECK(device_->Upload(static_cast<std::byte*>(*memory) + at, numbers.data(), part).ok(),
                  "an upload");
  }
  return *memory;
}

// Seconds of one of `copies` operations, the median of replays.
absl::StatusOr<double> Bench::Time(size_t copies, const std::function<void(size_t)>& enqueue) {
  for (size_t i = 0; i < copies; ++i) enqueue(i);
  RIVULET_RETURN_IF_ERROR(device_->Synchronize());
  device_->BeginRecording();
  for (size_t i = 0; i < copies; ++i) enqueue(i);
  RIVULET_ASSIGN_OR_RETURN(const size_t recording, device_->EndRecording());
  std::vector<double> seconds;
  for (int repeat = 0; repeat < 12; ++repeat) {
    device_->Record(0);
    device_->Replay(recording);
    device_->Record(1);
    RIVULET_RETURN_IF_ERROR(device_->Wait(1));
    if (repeat >= 3) seconds.push_back(device_->SecondsBetween(0, 1));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2] / static_cast<double>(copies);
}

void Bench::Print(const std::string& name, uint32_t rows, double seconds, double bytes,
                  double in_place_bytes) const {
  std::printf("| %s | %u | %.2f | %.2f | %.1f %% |", name.c_str(), rows, seconds * 1e6,
              bytes * 1e-6, 100 * bytes / limits_.read / seconds);
  if (in_place_bytes != 0) std::printf(" %.2f |", seconds / (in_place_bytes / limits_.in_place));
  std::printf("\n");
}

absl::Status Bench::Product(const char* name, uint32_t outputs, uint32_t inputs, uint32_t rows) {
  const size_t bytes = size_t{outputs} * inputs * 2;
  const size_t copies = std::max<size_t>(kRotated / bytes, 4);
  const auto* weights = static_cast<const uint16_t*>(Memory(bytes * copies));
  DeviceWorkspace workspace(device_.get());
  const Operand x = workspace.TakeOperand(rows, inputs);
  const FloatMatrix y = workspace.Take(rows, outputs);
  const auto linear = [&](size_t i) {
    DeviceLinear map;
    map.high = weights + i * bytes / 2;
    map.outputs = outputs;
    map.inputs = map.stride = inputs;
    return map;
  };
  RIVULET_ASSIGN_OR_RETURN(const double plain,
                           Time(copies, [&](size_t i) { device_->Product(linear(i), x, y); }));
  Print(name, rows, plain, static_cast<double>(bytes));
  return absl::OkStatus();
}

// A token of each of `rows` sessions, whose tails have every length.
DeviceRows Bench::OneTokenEach(uint32_t rows) {
  std::vector<DeviceSegment> segments;
  std::vector<uint32_t> tokens;
  for (uint32_t r = 0; r < rows; ++r) {
    segments.push_back({r, 1, 64 + r % kChunk, r, r, r, 0});
    tokens.push_back(r);
  }
  void* const described = Memory(segments.size() * sizeof(DeviceSegment));
  void* const segment_of = Memory(tokens.size() * sizeof(uint32_t));
  const auto upload = [&](void* to, const void* from, size_t bytes) {
    RIVULET_CHECK(device_->Upload(to, from, bytes).ok(), "an upload");
  };
  upload(described, segments.data(), segments.size() * sizeof(DeviceSegment));
  upload(segment_of, tokens.data(), tokens.size() * sizeof(uint32_t));
  return {static_cast<const DeviceSegment*>(described), static_cast<const uint32_t*>(segment_of),
          rows, rows, true};
}

// A token's inputs: numbers that are not positive, as log decays must be.
FloatMatrix Bench::Input(DeviceWorkspace& workspace, uint32_t rows, size_t columns) {
  const FloatMatrix matrix = workspace.Take(rows, columns);
  std::vector<float> numbers(rows * matrix.stride);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = -0.05f * static_cast<float>(i % 13);
  RIVULET_CHECK(device_->Upload(matrix.data, numbers.data(), numbers.size() * 4).ok(), "upload");
  return matrix;
}

// The time mixing of a layer of a model with 2048 columns (RWKV-7 1.5B).
absl::Status Bench::TimeMixing(uint32_t rows, bool bf16) {
  constexpr uint32_t kHeads = 32, kWidth = 64, kColumns = kHeads * kWidth;
  const size_t state = size_t{kColumns} * kWidth * (bf16 ? 2 : 4);
  const size_t rows_bytes = size_t{kColumns} * kChunk;
  const size_t tail = rows_bytes * (2 * 2 + 2 * 2 + 4);
  const size_t copies = std::clamp<size_t>(kRotated / (state * rows), 2, 64);
  auto* const states = static_cast<std::byte*>(Memory(state * rows * copies));
  auto* const tails = static_cast<std::byte*>(Memory(tail * rows * copies));
  DeviceWorkspace workspace(device_.get());
  const auto input = [&](size_t columns) { return Input(workspace, rows, columns); };
  const auto* const weights = static_cast<const float*>(Memory(kColumns * sizeof(float)));
  TimeMixCall call{.rows = OneTokenEach(rows),
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
  RIVULET_ASSIGN_OR_RETURN(
      const double seconds, Time(copies, [&](size_t i) {
        call.slots = {states + i * rows * state, state, tails + i * rows * tail, tail};
        device_->TimeMix(call);
      }));
  const double inputs = kColumns * (8 * sizeof(float) + 2);
  const double bytes = rows * (static_cast<double>(state) * (1 + 2.0 / kChunk) +
                               0.5 * static_cast<double>(tail) + inputs);
  Print(std::string(kTimeMixing) + (bf16 ? ", bf16 states" : ", fp32 states"), rows, seconds, bytes,
        2.0 * rows * static_cast<double>(state));
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
  const size_t copies = std::clamp<size_t>(kRotated / (state * rows), 2, 64);
  auto* const states = static_cast<std::byte*>(Memory(state * rows * copies));
  auto* const tails = static_cast<std::byte*>(Memory(tail * rows * copies));
  call.rows = OneTokenEach(rows);
  DeviceWorkspace workspace(device_.get());
  const auto input = [&](size_t columns) { return Input(workspace, rows, columns); };
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
  RIVULET_ASSIGN_OR_RETURN(
      const double seconds, Time(copies, [&](size_t i) {
        call.slots = {states + i * rows * state, state, tails + i * rows * tail, tail};
        device_->Recur(call);
      }));
  const double inputs = static_cast<double>(
      (q.columns + k.columns + v.columns + g.columns + call.out.columns) * sizeof(float));
  const double bytes = rows * (static_cast<double>(state) * (1 + 2.0 / kChunk) +
                               0.5 * static_cast<double>(tail) + inputs);
  Print(std::string(sum.name) + (bf16 ? ", bf16 states" : ", fp32 states"), rows, seconds, bytes,
        2.0 * rows * static_cast<double>(state));
  return absl::OkStatus();
}

absl::Status Bench::Run() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  RIVULET_ASSIGN_OR_RETURN(device_, OpenCudaDevice(ProductPrecision::kBFloat16));
  limits_ = device_->MeasureLimits();
  std::printf("%s: read %.0f, in place %.0f, copy %.0f GB/s\n\n", device_->name().c_str(),
              limits_.read * 1e-9, limits_.in_place * 1e-9, limits_.copy * 1e-9);
  std::printf("| operation | rows | us | MB | share of the read rate | over in place |\n");
  std::printf("|---|---|---|---|---|---|\n");
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
    for (const auto& [name, outputs, inputs] :
         {std::tuple("2.7B in_proj", 10576u, 2560u), {"2.7B out_proj", 2560u, 5120u}}) {
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
    for (void* memory : memory_) device_->Free(memory);
    memory_.clear();
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
