// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Packed weights that outlive the process: what a load packs is added, and the next load of the
// same weights finds it.
//
// Threading: one thread.
#ifndef RIVULET_KERNELS_MIXERS_PACKED_STORE_H_
#define RIVULET_KERNELS_MIXERS_PACKED_STORE_H_

#include <optional>
#include <string>

#include "kernels/ops/linear/linear.h"

namespace rivulet {

class PackedStore {
 public:
  virtual ~PackedStore() = default;

  // None: not kept, or of other sizes.
  virtual std::optional<PackedLinear> Find(const std::string& name, size_t outputs,
                                           size_t inputs) const = 0;

  // Keeps what Find did not have.
  virtual void Add(const std::string& name, const PackedLinear& packed) = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_PACKED_STORE_H_
