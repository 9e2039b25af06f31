// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Owned host memory, cache-line aligned and zeroed when allocated, and the bump allocator of a
// step's temporaries.
#ifndef RIVULET_KERNELS_BASE_ALIGNED_BUFFER_H_
#define RIVULET_KERNELS_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>

#include "kernels/base/tensor_view.h"

namespace rivulet {

inline constexpr size_t kAlignment = 64;
// Every padded row is a multiple of this many floats: one SIMD block (kernels/base/simd-inl.h).
inline constexpr size_t kBlock = 16;

constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr size_t PaddedColumns(size_t columns) { return RoundUp(columns, kBlock); }

// Zeroed memory on a 64-byte border; throws std::bad_alloc. From kMappedBytes on it is fresh pages
// from the system, huge ones if available: untouched memory costs nothing (state slots), and
// weights are read 2 to 7 % faster (kernels/ops/linear/NOTES.md).
inline constexpr size_t kMappedBytes = size_t{4} << 20;
void* AllocateZeroed(size_t bytes);
void FreeZeroed(void* memory, size_t bytes);

// Move-only.
template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size) : size_(size), data_(Allocate(size)) {}

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    size_t bytes = 0;
    void operator()(T* pointer) const { FreeZeroed(pointer, bytes); }
  };
  static std::unique_ptr<T[], Free> Allocate(size_t size) {
    if (size == 0) return nullptr;
    const size_t bytes = RoundUp(size * sizeof(T), kAlignment);
    return {static_cast<T*>(AllocateZeroed(bytes)), Free{bytes}};
  }

  size_t size_ = 0;
  std::unique_ptr<T[], Free> data_;
};

// Temporaries of one layer of one step. Take() never fails and never moves earlier results; its
// result is NOT zeroed and valid until Reset(). After the first steps it allocates nothing.
// Engine thread only.
class Workspace {
 public:
  // [rows, columns] fp32 with padded stride (a multiple of kBlock), 64-byte aligned.
  FloatMatrix Take(size_t rows, size_t columns) {
    const size_t stride = PaddedColumns(columns);
    return {TakeFloats(rows * stride), rows, columns, stride};
  }
  float* TakeFloats(size_t count) {
    count = RoundUp(count, kBlock);
    if (next_ < blocks_.size() && used_ + count <= blocks_[next_].size()) return Bump(count);
    NextBlock(count);
    return Bump(count);
  }
  uint32_t* TakeIndices(size_t count) {
    static_assert(sizeof(uint32_t) == sizeof(float));
    return new (TakeFloats(count)) uint32_t[count];
  }
  void Reset() {
    next_ = 0;
    used_ = 0;
  }

 private:
  float* Bump(size_t count) {
    float* result = blocks_[next_].data() + used_;
    used_ += count;
    return result;
  }
  void NextBlock(size_t count) {
    while (next_ < blocks_.size() && used_ + count > blocks_[next_].size()) {
      ++next_;
      used_ = 0;
    }
    if (next_ == blocks_.size()) blocks_.emplace_back(count > kMinimum ? count : kMinimum);
    used_ = 0;
  }
  static constexpr size_t kMinimum = size_t{1} << 20;

  std::deque<AlignedBuffer<float>> blocks_;
  size_t next_ = 0;
  size_t used_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_ALIGNED_BUFFER_H_
