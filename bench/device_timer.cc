// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "bench/device_timer.h"

#include <algorithm>
#include <cstdio>

#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/device/segment_turns.h"

namespace rivulet {
namespace {

constexpr size_t kRotated = size_t{512} << 20;  // bytes that an operation's copies cover at least

}  // namespace

absl::Status DeviceTimer::Open() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  RIVULET_ASSIGN_OR_RETURN(device_, OpenCudaDevice(ProductPrecision::kBFloat16));
  limits_ = device_->MeasureLimits();
  std::printf("%s: read %.0f, in place %.0f, copy %.0f GB/s\n\n", device_->name().c_str(),
              limits_.read * 1e-9, limits_.in_place * 1e-9, limits_.copy * 1e-9);
  std::printf("| operation | rows | us | MB | share of the read rate | over in place |\n");
  std::printf("|---|---|---|---|---|---|\n");
  return absl::OkStatus();
}

void* DeviceTimer::Memory(size_t bytes) {
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

void DeviceTimer::FreeAll() {
  for (void* memory : memory_) device_->Free(memory);
  memory_.clear();
}

void* DeviceTimer::CopyBytes(const void* data, size_t bytes) {
  const absl::StatusOr<void*> memory = device_->Allocate(bytes);
  RIVULET_CHECK(memory.ok() && device_->Upload(*memory, data, bytes).ok(), "no memory for a case");
  memory_.push_back(*memory);
  return *memory;
}

size_t DeviceTimer::Copies(size_t bytes) { return std::clamp<size_t>(kRotated / bytes, 2, 64); }

DeviceRows DeviceTimer::OneTokenEach(uint32_t rows, uint64_t chunks) {
  std::vector<DeviceSegment> segments;
  std::vector<uint32_t> tokens;
  for (uint32_t r = 0; r < rows; ++r) {
    segments.push_back({r, 1, chunks * kChunk + r % kChunk, r, r, r, 0});
    tokens.push_back(r);
  }
  SetTurns(segments, kChunk);
  return {Copy(segments), Copy(tokens), rows, rows, true};
}

FloatMatrix DeviceTimer::Input(DeviceWorkspace& workspace, uint32_t rows, size_t columns) {
  const FloatMatrix matrix = workspace.Take(rows, columns);
  std::vector<float> numbers(rows * matrix.stride);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = -0.05f * static_cast<float>(i % 13);
  RIVULET_CHECK(device_->Upload(matrix.data, numbers.data(), numbers.size() * 4).ok(), "upload");
  return matrix;
}

absl::StatusOr<double> DeviceTimer::Time(size_t copies,
                                         const std::function<void(size_t)>& enqueue) {
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

void DeviceTimer::Print(const std::string& name, uint32_t rows, double seconds, double bytes,
                        double in_place_bytes) const {
  std::printf("| %s | %u | %.2f | %.2f | %.1f %% |", name.c_str(), rows, seconds * 1e6,
              bytes * 1e-6, 100 * bytes / limits_.read / seconds);
  if (in_place_bytes != 0) std::printf(" %.2f |", seconds / (in_place_bytes / limits_.in_place));
  std::printf("\n");
}

}  // namespace rivulet
