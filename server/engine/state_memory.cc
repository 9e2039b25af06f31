// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/state_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace rivulet {

HostStateMemory::~HostStateMemory() {
  if (begin_ != nullptr) munmap(begin_, bytes_);
}

absl::Status HostStateMemory::Reserve(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("the system refuses ", bytes,
                                                     " bytes for --state-memory (",
                                                     std::strerror(errno), "): lower it"));
  }
  // A token reads whole states, so large pages save TLB misses. Only a hint: failure is harmless.
  madvise(memory, bytes, MADV_HUGEPAGE);
  begin_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
  return absl::OkStatus();
}

void HostStateMemory::Copy(size_t from, size_t to, size_t bytes) {
  std::memcpy(begin_ + to, begin_ + from, bytes);
}

}  // namespace rivulet
