// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/allocation_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace rivulet {
namespace {

std::atomic<uint64_t> allocations{0};

}  // namespace

uint64_t AllocationCount() { return allocations.load(std::memory_order_relaxed); }

}  // namespace rivulet

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RIVULET_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RIVULET_SANITIZED
#endif

#ifndef RIVULET_SANITIZED
// The other forms of new (arrays, nothrow) call this one by default.
void* operator new(size_t size) {
  rivulet::allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif
