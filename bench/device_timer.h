// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How benchmarks time operations of a device: memory with numbers in it, the rows of a decode step,
// and recorded steps over memory that is not in the cache.
#ifndef RIVULET_BENCH_DEVICE_TIMER_H_
#define RIVULET_BENCH_DEVICE_TIMER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"

namespace rivulet {

class DeviceTimer {
 public:
  static constexpr uint32_t kChunk = 16;

  // Opens the device, measures its ceilings, and prints both and the head of a table.
  absl::Status Open();
  Device* device() const { return device_.get(); }

  // Until FreeAll. Random numbers of about one. CHECK: there is room.
  void* Memory(size_t bytes);
  void FreeAll();
  // A copy of `data`, until FreeAll.
  template <typename T>
  T* Copy(const std::vector<T>& data) {
    return static_cast<T*>(CopyBytes(data.data(), data.size() * sizeof(T)));
  }
  // How many copies of `bytes` an operation has to take in turn to find nothing in the cache.
  static size_t Copies(size_t bytes);

  // A token of each of `rows` sessions, whose tails have every length; each has `chunks` chunks.
  DeviceRows OneTokenEach(uint32_t rows, uint64_t chunks = 4);
  // [rows, columns]: a token's inputs, numbers that are not positive, as log decays must be.
  FloatMatrix Input(DeviceWorkspace& workspace, uint32_t rows, size_t columns);

  // Seconds of one of `copies` operations, the median of replays.
  absl::StatusOr<double> Time(size_t copies, const std::function<void(size_t)>& enqueue);

  // A line of the table. `in_place_bytes`: what a perfect update of the state moves; 0: no such.
  void Print(const std::string& name, uint32_t rows, double seconds, double bytes,
             double in_place_bytes = 0) const;

 private:
  void* CopyBytes(const void* data, size_t bytes);

  std::unique_ptr<Device> device_;
  DeviceLimits limits_;
  std::vector<void*> memory_;
};

}  // namespace rivulet

#endif  // RIVULET_BENCH_DEVICE_TIMER_H_
