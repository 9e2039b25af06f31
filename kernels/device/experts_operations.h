// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Operations of a mixture of experts (kernels/ops/mixture_of_experts) whose choices stay on the
// device: nothing is copied to the host, and no launch depends on what was chosen.
//
//   Route           which experts each token gets, and the pairs of a token and an expert sorted
//                   by expert, then by token
//   ExpertProduct   each pair's row times its expert's map, an expert's weights read once for a
//                   tile of its rows
//   CombineExperts  each token's sum
//
// Bits: a pair's row of a product is the same chain as in Device::Product, so it does not depend on
// the other rows of its tile; a token's sum begins with the shared expert and runs over its experts
// in ascending order. A token of a segment without tokens gets no expert, and none is read for it.
//
// Letters: T tokens, X experts, P = T · per_token pairs; pair t · per_token + i is token t's i-th
// expert. All pointers are to device memory.
#ifndef RIVULET_KERNELS_DEVICE_EXPERTS_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_EXPERTS_OPERATIONS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

// What the kernels reach: the first is what fits a block's shared memory, the second what a grid
// holds for the longest step.
inline constexpr uint32_t kMostDeviceExperts = 4096;
inline constexpr uint32_t kMostDeviceExpertsPerToken = 32;

// Adjacent sorted rows of one expert, at most ExpertRouting::tile_rows.
struct ExpertTile {
  uint32_t expert;
  uint32_t first_row;
  uint32_t rows;  // 0: no tile
  uint32_t unused;
};

struct ExpertRouting {
  uint32_t experts = 0;    // X <= kMostDeviceExperts
  uint32_t per_token = 0;  // <= kMostDeviceExpertsPerToken; 0 in CombineExperts: no experts
  uint32_t tile_rows = 0;  // 16
  uint32_t most_tiles = 0;
  uint32_t* expert = nullptr;        // [P], ascending for each token; UINT32_MAX: none
  float* weight = nullptr;           // [P]
  uint32_t* row = nullptr;           // [P]: the pair's place in the order; UINT32_MAX: none
  uint32_t* token_of_row = nullptr;  // [P]
  uint32_t* members = nullptr;       // scratch [T / 32 rounded up, X]
  ExpertTile* tiles = nullptr;       // [most_tiles]
};

// The rows of a tile. Tiles of 32 or 64 rows would read an expert's weights from L2 less often in
// long prompts; whether that is faster was not measured.
inline constexpr uint32_t kExpertTileRows = 16;

// The most tiles that any choices need: a partial one for each expert, and full ones.
constexpr uint32_t MostExpertTiles(uint32_t pairs, uint32_t experts, uint32_t tile_rows) {
  const uint32_t chosen = std::min(pairs, experts);
  return chosen + (pairs - chosen) / tile_rows;
}

// The experts of the largest scores, the lowest id among equals; NaN is below everything. Scores
// are the logits, or σ(logit) + correction. Fields without a comment: ExpertChoice
// (kernels/ops/mixture_of_experts).
struct RouteCall {
  DeviceRows rows;
  ConstFloatMatrix logits;  // [T, X or more]
  bool weights_sum_to_one = true;
  float scaling = 1;
  bool sigmoid = false;
  // Of a choice by sigmoid.
  const float* correction = nullptr;  // [X]; null: zeros
  uint32_t groups = 1, groups_per_token = 1;
  FloatMatrix scores = {};  // scratch [T, X + groups]
  ExpertRouting routing;
};

// y [P, outputs]: row r = the map of row r's expert times row r of x, or the token's row of x.
struct ExpertProductCall {
  ExpertRouting routing;
  DeviceLinear map;  // of expert 0; the others' follow without gaps. Its bias is not added
  Operand x;         // [P, inputs], or [T, inputs] with by_token
  bool by_token = false;
  FloatMatrix y;
};

// y [T, columns] = (adds ? gate · y : 0) + Σ weight · output over the token's pairs, ascending.
struct CombineExpertsCall {
  ExpertRouting routing;
  ConstFloatMatrix outputs;    // [P, columns]
  bool adds = false;           // y holds the shared expert's output
  ConstFloatMatrix gate = {};  // [T, 1]: the gate is its sigmoid; null data: one
  FloatMatrix y;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_EXPERTS_OPERATIONS_H_
