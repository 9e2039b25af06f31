// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace rivulet {
namespace {

void* MapPages(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: small pages work as well
  return memory;
}

}  // namespace

void* AllocateZeroed(size_t bytes) {
  if (bytes >= kMappedBytes) return MapPages(bytes);
  void* memory = std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment));
  if (memory == nullptr) throw std::bad_alloc();
  return std::memset(memory, 0, bytes);
}

void FreeZeroed(void* memory, size_t bytes) {
  if (bytes < kMappedBytes) return std::free(memory);
  munmap(memory, bytes);
}

}  // namespace rivulet
