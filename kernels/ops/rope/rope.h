// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Rotary positions, rotate-half form (docs/mixers.md#softmax-attention): with f_i the inverse
// frequencies of a head's first rotary_dim numbers and n the token's absolute position in its
// session,
//
//     y[i]     = x[i] cos(n f_i) - x[i + R/2] sin(n f_i)          i < R/2, R = rotary_dim
//     y[i+R/2] = x[i+R/2] cos(n f_i) + x[i] sin(n f_i)
//
// and numbers from R on stay as they are. Frequencies and angles are fp32, as transformers has
// them. The interleaved form (GPT-J: pairs 2i, 2i+1) is not here.
//
// A layer takes the angles of its step once (Angles) and rotates queries and keys by them (Apply).
// A token's bits depend on its position and its own numbers alone.
//
// Threading: a Rope is immutable; Apply writes x, and two calls on different x may run at once.
#ifndef RIVULET_KERNELS_OPS_ROPE_ROPE_H_
#define RIVULET_KERNELS_OPS_ROPE_ROPE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class Device;
struct DeviceStep;
struct PoolKeysCall;

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLong };

// What a checkpoint decides.
struct RopeConfig {
  float theta = 10000.0f;
  size_t rotary_dim = 0;  // numbers of each head that are rotated; even
  // f_i = theta^(-2 i / period) before scaling; 0: rotary_dim. Below it by one where a checkpoint
  // asks for an odd number to rotate, as transformers rounds it.
  size_t period = 0;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;  // kLinear, kLlama3, kYarn
  // kLlama3: wavelengths above original/low are stretched by factor, below original/high not.
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  float original_max_position = 8192.0f;  // kLlama3, kYarn
  // kYarn: frequencies of beta_fast turns or more in the original positions stay, those of
  // beta_slow turns or fewer are stretched by factor, and a ramp over i blends between them.
  double beta_fast = 32;
  double beta_slow = 1;
  bool whole_ramp = true;            // the ramp begins and ends at whole numbers i
  std::vector<float> divisors = {};  // kLong, [rotary_dim / 2]: of the frequencies
  // Cosines and sines are multiplied by it, so that scores are by its square.
  float amplitude = 1.0f;
  uint64_t most_tokens = UINT64_MAX;  // that a session may hold
};

// f_i for i < rotary_dim / 2, scaling included.
std::vector<float> InverseFrequencies(const RopeConfig& config);

// The angles of a step's tokens, row t for token t, times the amplitude. Lives as long as the
// workspace they are in.
struct RopeAngles {
  ConstFloatMatrix cosines;  // [T, rotary_dim / 2]
  ConstFloatMatrix sines;    // [T, rotary_dim / 2]
};

class Rope {
 public:
  explicit Rope(const RopeConfig& config)
      : frequencies_(InverseFrequencies(config)),
        amplitude_(config.amplitude),
        most_tokens_(config.most_tokens) {}

  uint64_t most_tokens() const { return most_tokens_; }

  // `tokens` rows, which the segments cover.
  RopeAngles Angles(std::span<const Segment> segments, size_t tokens, Workspace& workspace,
                    ThreadPool& pool) const;

  // Rotates x [T, H * head_stride] in place, in device memory.
  void Enqueue(const DeviceStep& step, FloatMatrix x, size_t head_stride) const;
  // For an operation that rotates what it makes.
  void SetRotation(Device& device, PoolKeysCall& call) const;

 private:
  std::vector<float> frequencies_;
  float amplitude_;
  uint64_t most_tokens_;
};

// Rotates x [T, H * head_stride] in place; each head has at least rotary_dim numbers.
void ApplyRope(const RopeAngles& angles, FloatMatrix x, size_t heads, size_t head_stride,
               ThreadPool& pool);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_ROPE_ROPE_H_
