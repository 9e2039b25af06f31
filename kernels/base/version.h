// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_BASE_VERSION_H_
#define RIVULET_KERNELS_BASE_VERSION_H_

#include <string_view>

namespace rivulet {

// The release, for example "0.1.0".
std::string_view Version();

// The git commit of the sources: twelve hexadecimal digits, "-dirty" after them when files were
// changed, or "unknown" outside a git checkout. Only the target rivulet_version defines this, so
// that a new commit recompiles one small file.
std::string_view Commit();

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_VERSION_H_
