// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_BASE_CHECK_H_
#define RIVULET_KERNELS_BASE_CHECK_H_

namespace rivulet::internal {

// Writes "file:line: CHECK failed: condition: message" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const char* message);

}  // namespace rivulet::internal

// Ends the process on a bug in our own code: RIVULET_CHECK(row < rows, "row outside of the
// plan"). Never for what a caller, a file or a device can cause: those get an absl::Status.
// Evaluated in every build, so keep it out of inner loops.
#define RIVULET_CHECK(condition, message) \
  ((condition) ? static_cast<void>(0)     \
               : ::rivulet::internal::CheckFailed(__FILE__, __LINE__, #condition, message))

#endif  // RIVULET_KERNELS_BASE_CHECK_H_
