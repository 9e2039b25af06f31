// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How tests of operations put numbers into a device's memory and take them out, the same on a GPU
// and on FakeDevice.
#ifndef RIVULET_KERNELS_DEVICE_DEVICE_BUFFERS_H_
#define RIVULET_KERNELS_DEVICE_DEVICE_BUFFERS_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/device/device.h"
#include "kernels/device/fake_operations.h"

namespace rivulet {

// A copy in the device's memory, which the device frees.
template <typename T>
T* ToDevice(Device& device, const std::vector<T>& numbers) {
  const absl::StatusOr<void*> memory = device.Allocate(numbers.size() * sizeof(T));
  if (!memory.ok()) std::abort();
  EXPECT_TRUE(device.Upload(*memory, numbers.data(), numbers.size() * sizeof(T)).ok());
  return static_cast<T*>(*memory);
}

template <typename T>
std::vector<T> FromDevice(Device& device, const T* from, size_t count) {
  std::vector<T> result(count);
  void* const pinned = device.AllocatePinned(count * sizeof(T));
  device.CopyToHost(pinned, from, count * sizeof(T));
  const absl::Status status = device.Synchronize();
  EXPECT_TRUE(status.ok()) << status;
  std::memcpy(static_cast<void*>(result.data()), pinned, count * sizeof(T));
  device.FreePinned(pinned);
  return result;
}

inline bool IsFake(const Device& device) { return device.name() == "fake"; }

// The numbers of an operand that was copied to the host, with its padding: on a GPU the sums of
// their parts.
inline std::vector<float> HostNumbersOf(bool fake, const Operand& y) {
  std::vector<float> numbers;
  for (size_t i = 0; i < size_t{y.rows} * y.columns; ++i) {
    const uint16_t* at = y.data + i / y.columns * y.stride + i % y.columns;
    if (fake) {
      numbers.push_back(fake::FromHalves(at[0], at[y.columns]));
    } else {
      numbers.push_back(BFloat16ToFloat(at[0]) +
                        (y.two_parts ? BFloat16ToFloat(at[y.columns]) : 0));
    }
  }
  return numbers;
}

// The same of an operand in the device's memory.
inline std::vector<float> NumbersOf(Device& device, const Operand& y) {
  std::vector<uint16_t> bits = FromDevice(device, y.data, size_t{y.rows} * y.stride);
  Operand host = y;
  host.data = bits.data();
  return HostNumbersOf(IsFake(device), host);
}

// x [rows, columns] as the input of a product.
inline Operand OperandOf(Device& device, const std::vector<float>& x, size_t rows, size_t columns) {
  const bool two = device.precision() == ProductPrecision::kFloat32;
  const size_t padded = PaddedColumns(columns), stride = padded * (two ? 2 : 1);
  std::vector<uint16_t> bits(ProductRows(rows) * stride, 0);
  for (size_t i = 0; i < rows * columns; ++i) {
    uint16_t* to = bits.data() + i / columns * stride + i % columns;
    if (IsFake(device)) {
      fake::ToHalves(x[i], to[0], to[padded]);
      continue;
    }
    *to = FloatToBFloat16(x[i]);
    if (two) to[padded] = FloatToBFloat16(x[i] - BFloat16ToFloat(*to));
  }
  return {ToDevice(device, bits), static_cast<uint32_t>(rows), static_cast<uint32_t>(padded),
          static_cast<uint32_t>(stride), two};
}

// [rows, columns], each row padded to a multiple of 16.
inline FloatMatrix MatrixOn(Device& device, const std::vector<float>& x, size_t rows,
                            size_t columns) {
  const size_t stride = PaddedColumns(columns);
  std::vector<float> padded(ProductRows(rows) * stride, 0.0f);
  for (size_t i = 0; i < rows * columns; ++i) padded[i / columns * stride + i % columns] = x[i];
  return {ToDevice(device, padded), rows, columns, stride};
}

// The numbers of a matrix without its padding.
inline std::vector<float> NumbersOf(Device& device, ConstFloatMatrix x) {
  const std::vector<float> all = FromDevice(device, x.data, x.rows * x.stride);
  std::vector<float> result;
  for (size_t r = 0; r < x.rows; ++r) {
    result.insert(result.end(), all.begin() + r * x.stride, all.begin() + r * x.stride + x.columns);
  }
  return result;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_DEVICE_BUFFERS_H_
