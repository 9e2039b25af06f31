// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the products of experts share, with weights of either kind.
#ifndef RIVULET_KERNELS_DEVICE_EXPERTS_CUH_
#define RIVULET_KERNELS_DEVICE_EXPERTS_CUH_

#include <cstdint>

#include "kernels/device/experts_operations.h"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {

// The rows of a tile, or of their tokens.
template <int kTokenTiles>
struct TileRows {
  const uint16_t* row[kTokenTiles * 2];
  uint32_t width;

  __device__ TileRows(const ExpertProductCall& call, const ExpertTile& tile)
      : width(call.x.columns) {
#pragma unroll
    for (int slot = 0; slot < kTokenTiles * 2; ++slot) {
      const uint32_t i = slot * 8 + threadIdx.x % 32 / 4;
      row[slot] = nullptr;
      if (i >= tile.rows) continue;
      uint32_t index = tile.first_row + i;
      if (call.by_token) index = call.routing.token_of_row[index];
      row[slot] = call.x.data + static_cast<size_t>(index) * call.x.stride;
    }
  }
  __device__ uint32_t columns() const { return width; }
  __device__ bool Has(uint32_t slot) const { return row[slot] != nullptr; }
  __device__ const uint16_t* Row(uint32_t slot) const { return row[slot]; }
};

// With weights in fp8.
void LaunchFloat8ExpertProduct(const ExpertProductCall& call, const LaunchContext& context);

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_EXPERTS_CUH_
