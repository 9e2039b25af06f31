// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// States that are kept after every token: Mamba's selective scan and H3's modes.
//
// A group of lanes owns a state's numbers, 16 bytes a lane at a time, so that a warp's load is
// adjacent bytes. A warp takes some *items* at a time for the same states, 4 / kFours in the scan
// and 4 for modes: for decoding one token of each of as many segments, whose states are then loaded
// at once and share the constants; for longer segments as many tokens of one segment, whose state
// stays in registers from its first token to its last. Both run the same code for an item, with one
// order of additions: over a lane's numbers ascending, then a fixed tree over the lanes of the
// group. So prefill and decode have the same bits.
//
// Bytes expected of a token: its state read and written once; of a longer segment likewise, and
// once more written if it crosses a chunk border, or for each one that it keeps.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/fours.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/running_state.cuh"
#include "kernels/device/running_state_operations.h"

namespace rivulet::cuda {
namespace {

constexpr int kWarps = 4;  // of a block
constexpr float kLog2E = 1.4426950408889634f;

// 2^x within 2 units in the last place.
__device__ float PowerOfTwo(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// x + the other lanes' of a group of kLanes adjacent lanes, in every one of them.
template <int kLanes>
__device__ float GroupSum(float x) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// A lane's numbers of a state: kFours times 16 bytes, kStep float4 apart.
template <int kFours, int kStep>
struct Held {
  float4 four[kFours];

  __device__ void Load(const std::byte* state, size_t first) {
#pragma unroll
    for (int v = 0; v < kFours; ++v) {
      four[v] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (state != nullptr) four[v] = reinterpret_cast<const float4*>(state)[first + v * kStep];
    }
  }
  __device__ void Store(std::byte* state, size_t first) const {
#pragma unroll
    for (int v = 0; v < kFours; ++v) {
      reinterpret_cast<float4*>(state)[first + v * kStep] = four[v];
    }
  }
};

// --- selective scan ------------------------------------------------------------------------------

// Four lanes own a channel, so a warp has eight channels.
constexpr uint32_t kScanChannels = 8;

// What items of a warp read. A lane has the inputs of channel lane % 8 of item lane / 8, and its
// quarter of every item's B and C.
template <int kFours>
struct ScanItems {
  static constexpr int kItems = 4 / kFours;  // so that registers suffice
  float dt, x, z;
  float4 b[kItems][kFours], c[kItems][kFours];

  // Of tokens `first` and on, of which there are `count`; channels from `channel` on.
  __device__ void Load(const SelectiveScanCall& call, uint32_t first, uint32_t count,
                       uint32_t channel, bool aligned) {
    const uint32_t lane = threadIdx.x % 32, own = channel + lane % kScanChannels;
    dt = x = z = 0.0f;
    if (lane / kScanChannels < count && own < call.channels) {
      const size_t token = first + lane / kScanChannels;
      dt = call.dt.data[token * call.dt.stride + own];
      x = call.x.data[token * call.x.stride + own];
      z = call.z.data[token * call.z.stride + own];
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
#pragma unroll
      for (int v = 0; v < kFours; ++v) {
        const uint32_t n = (v * 4 + lane % 4) * 4, size = i < count ? call.state_size : 0;
        const size_t token = first + i;
        b[i][v] = LoadFour(call.b.data + token * call.b.stride, n, size, aligned);
        c[i][v] = LoadFour(call.c.data + token * call.c.stride, n, size, aligned);
      }
    }
  }
};

// h of one number after a token; adds what it contributes to y.
__device__ void ScanNumber(float& h, float a, float delta, float step, float b, float c, float& y) {
  h = fmaf(PowerOfTwo(delta * a), h, step * b);
  y = fmaf(h, c, y);
}

// Σ_n h C of the group's channel, in its four lanes. delta is Δ · log2 e.
template <int kFours>
__device__ float ScanItem(Held<kFours, 4>& h, const Held<kFours, 4>& a, float delta, float step,
                          const float4 (&b)[kFours], const float4 (&c)[kFours]) {
  float y = 0.0f;
#pragma unroll
  for (int v = 0; v < kFours; ++v) {
    ScanNumber(h.four[v].x, a.four[v].x, delta, step, b[v].x, c[v].x, y);
    ScanNumber(h.four[v].y, a.four[v].y, delta, step, b[v].y, c[v].y, y);
    ScanNumber(h.four[v].z, a.four[v].z, delta, step, b[v].z, c[v].z, y);
    ScanNumber(h.four[v].w, a.four[v].w, delta, step, b[v].w, c[v].w, y);
  }
  return GroupSum<4>(y);
}

// A lane's channel and item on the way through a token.
struct ScanLane {
  float delta, step, y;

  template <int kFours>
  __device__ explicit ScanLane(const ScanItems<kFours>& items) : y(0.0f) {
    const float softplus = Function(Activation::kSoftplus, items.dt);
    delta = softplus * kLog2E;
    step = softplus * items.x;
  }

  // Item i through the warp's states h. Every lane takes part.
  template <int kFours>
  __device__ void Run(const ScanItems<kFours>& items, int i, const Held<kFours, 4>& a,
                      Held<kFours, 4>& h) {
    const uint32_t lane = threadIdx.x % 32, source = i * kScanChannels + lane / 4;
    const float own_delta = __shfl_sync(0xffffffffu, delta, source);
    const float own_step = __shfl_sync(0xffffffffu, step, source);
    const float sum = ScanItem<kFours>(h, a, own_delta, own_step, items.b[i], items.c[i]);
    const float mine = __shfl_sync(0xffffffffu, sum, lane % kScanChannels * 4);
    if (lane / kScanChannels == i) y = mine;
  }

  template <int kFours>
  __device__ void Finish(const SelectiveScanCall& call, const ScanItems<kFours>& items,
                         uint32_t token, uint32_t channel) const {
    const float skip = channel < call.channels ? call.skip[channel] : 0.0f;
    const float sum = fmaf(skip, items.x, y);
    StoreOperand(call.y, token, channel, sum * Function(Activation::kSilu, items.z));
  }
};

// One token of each of kItems segments.
template <int kFours>
__global__ void __launch_bounds__(kWarps * 32)
    ScanDecodeKernel(const __grid_constant__ SelectiveScanCall call, bool aligned) {
  constexpr int kItems = ScanItems<kFours>::kItems;
  AllowNextKernel();
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t channel = (blockIdx.x * kWarps + threadIdx.x / 32) * kScanChannels;
  if (channel >= call.y.columns) return AwaitLastKernel();
  const uint32_t first = blockIdx.y * kItems;
  const uint32_t count = min(static_cast<uint32_t>(kItems), call.rows.segment_count - first);
  // In float4: the lane's part of its group's channel.
  const size_t place = static_cast<size_t>(channel + lane / 4) * call.padded_state / 4 + lane % 4;
  // States are those of earlier steps: no kernel of this one has written them.
  Held<kFours, 4> a, h[kItems];
  std::byte* to[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    to[i] = nullptr;
    h[i].Load(nullptr, 0);
    if (i >= count) continue;
    const RunningState state = StateOf(call, call.rows.segments[first + i]);
    if (state.tokens == 0) continue;
    h[i].Load(state.from, place);
    to[i] = PlaceAfter(state, 1);
  }
  a.Load(reinterpret_cast<const std::byte*>(call.a), place);
  AwaitLastKernel();
  ScanItems<kFours> items;
  items.Load(call, first, count, channel, aligned);
  ScanLane own(items);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    own.Run(items, i, a, h[i]);
    if (to[i] != nullptr) h[i].Store(to[i], place);
  }
  const uint32_t item = lane / kScanChannels;
  if (item < count && call.rows.segments[first + item].tokens != 0) {
    own.Finish(call, items, first + item, channel + lane % kScanChannels);
  }
}

// A segment of any length.
template <int kFours>
__global__ void __launch_bounds__(kWarps * 32)
    ScanSegmentKernel(const __grid_constant__ SelectiveScanCall call, bool aligned) {
  constexpr int kItems = ScanItems<kFours>::kItems;
  AllowNextKernel();
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t channel = (blockIdx.x * kWarps + threadIdx.x / 32) * kScanChannels;
  const DeviceSegment& segment = call.rows.segments[blockIdx.y];
  if (channel >= call.y.columns || segment.tokens == 0) return AwaitLastKernel();
  const size_t place = static_cast<size_t>(channel + lane / 4) * call.padded_state / 4 + lane % 4;
  const RunningState state = StateOf(call, segment);
  Held<kFours, 4> a, h;
  h.Load(state.from, place);
  a.Load(reinterpret_cast<const std::byte*>(call.a), place);
  AwaitLastKernel();
  ScanItems<kFours> items, next;
  next.Load(call, segment.first_token, state.tokens, channel, aligned);
  for (uint32_t done = 0; done < state.tokens; done += kItems) {
    const uint32_t token = segment.first_token + done, left = state.tokens - done;
    items = next;
    if (left > kItems) next.Load(call, token + kItems, left - kItems, channel, aligned);
    ScanLane own(items);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (i >= left) break;
      own.Run(items, i, a, h);
      std::byte* const to = PlaceWithin(call, segment, state, done + i + 1);
      if (to != nullptr) h.Store(to, place);
    }
    const uint32_t item = lane / kScanChannels;
    if (item < kItems && item < left) {
      own.Finish(call, items, token + item, channel + lane % kScanChannels);
    }
  }
}

template <int kFours>
void LaunchScan(const SelectiveScanCall& call, const LaunchContext& context) {
  const uint32_t channels = kWarps * kScanChannels, items = ScanItems<kFours>::kItems;
  const uint32_t blocks = (call.y.columns + channels - 1) / channels;
  const uint32_t segments = call.rows.segment_count;
  const bool aligned = Aligned(call.b, call.state_size) && Aligned(call.c, call.state_size);
  if (call.rows.single) {
    context.Run(ScanDecodeKernel<kFours>, dim3(blocks, (segments + items - 1) / items), kWarps * 32,
                0, call, aligned);
  } else {
    context.Run(ScanSegmentKernel<kFours>, dim3(blocks, segments), kWarps * 32, 0, call, aligned);
  }
}

// --- H3's modes ----------------------------------------------------------------------------------

constexpr int kModeItems = 4;

// kLanes lanes own a pair of rows of a head; a lane has kFours times two modes.
template <int kLanes, int kFours>
struct Modes {
  Held<kFours, kLanes> poles, weights;
  float skip;

  __device__ void Load(const ModeScanCall& call, uint32_t head) {
    const uint32_t lane = threadIdx.x % kLanes;
    const size_t first = static_cast<size_t>(head) * call.padded_modes / 2 + lane;
    poles.Load(reinterpret_cast<const std::byte*>(call.poles), first);
    weights.Load(reinterpret_cast<const std::byte*>(call.weights), first);
    skip = call.skip[head];
  }

  // One mode after a token with input u; adds what it contributes to the parts of Σ weight · x.
  __device__ static void Number(float& re, float& im, float pole_re, float pole_im, float weight_re,
                                float weight_im, float u, float& real, float& imaginary) {
    const float next = fmaf(pole_re, re, u) - pole_im * im;
    im = fmaf(pole_re, im, pole_im * re);
    re = next;
    real = fmaf(weight_re, re, real);
    imaginary = fmaf(weight_im, im, imaginary);
  }

  // Re Σ weight · x + skip · u, in every lane of the group.
  __device__ float Run(Held<kFours, kLanes>& x, float u) const {
    float real = 0.0f, imaginary = 0.0f;
#pragma unroll
    for (int v = 0; v < kFours; ++v) {
      const float4 &p = poles.four[v], &w = weights.four[v];
      Number(x.four[v].x, x.four[v].y, p.x, p.y, w.x, w.y, u, real, imaginary);
      Number(x.four[v].z, x.four[v].w, p.z, p.w, w.z, w.w, u, real, imaginary);
    }
    return fmaf(skip, u, GroupSum<kLanes>(real - imaginary));
  }
};

// Where a group of lanes works: row j of a head, column h·hd + j.
struct ModeGroup {
  uint32_t column, head, j;
  bool used;  // false: the column is padding

  template <int kLanes>
  __device__ static ModeGroup Of(const ModeScanCall& call) {
    constexpr uint32_t kGroups = kWarps * 32 / kLanes;
    const uint32_t column = blockIdx.x * kGroups + threadIdx.x / kLanes;
    const bool used = column < call.heads * call.head_dim;
    const uint32_t safe = used ? column : 0;
    return {column, safe / call.head_dim, safe % call.head_dim, used};
  }
  __device__ uint32_t Output(const ModeScanCall& call) const {
    return used ? j * call.heads + head : column;
  }
};

// What an item reads for row i of its head.
struct ModeInput {
  float q = 0.0f, k = 0.0f, v = 0.0f;

  __device__ void Load(const ModeScanCall& call, const ModeGroup& group, uint32_t token,
                       uint32_t i) {
    const uint32_t row = group.head * call.head_dim;
    q = call.q.data[static_cast<size_t>(token) * call.q.stride + row + i];
    k = call.k.data[static_cast<size_t>(token) * call.k.stride + row + i];
    v = call.v.data[static_cast<size_t>(token) * call.v.stride + row + group.j];
  }
};

// y of rows 0 to i of a head, of which `read` is that of row i; the last one stores it.
__device__ void AddRow(const ModeScanCall& call, const ModeGroup& group, uint32_t token, uint32_t i,
                       float read, float q) {
  float* partial = nullptr;
  if (call.head_dim > 1) {
    partial = call.partial.data + static_cast<size_t>(token) * call.partial.stride + group.column;
  }
  const float y = i == 0 ? read * q : fmaf(read, q, *partial);
  if (i + 1 < call.head_dim) {
    *partial = y;
  } else {
    StoreOperand(call.y, token, group.Output(call), y);
  }
}

// One token of each of kModeItems segments. A column of padding runs on zeros of its own.
template <int kLanes, int kFours>
__global__ void __launch_bounds__(kWarps * 32)
    ModeDecodeKernel(const __grid_constant__ ModeScanCall call) {
  AllowNextKernel();
  const ModeGroup group = ModeGroup::Of<kLanes>(call);
  const uint32_t lane = threadIdx.x % kLanes, first = blockIdx.y * kModeItems;
  const uint32_t count = min(static_cast<uint32_t>(kModeItems), call.rows.segment_count - first);
  const std::byte* from[kModeItems];  // null: zeros
  std::byte* to[kModeItems];          // null: the segment has no token
#pragma unroll
  for (int s = 0; s < kModeItems; ++s) {
    from[s] = to[s] = nullptr;
    if (s >= count) continue;
    const RunningState state = StateOf(call, call.rows.segments[first + s]);
    if (state.tokens == 0) continue;
    if (group.used) from[s] = state.from;
    to[s] = PlaceAfter(state, 1);
  }
  Modes<kLanes, kFours> modes;
  modes.Load(call, group.head);
  for (uint32_t i = 0; i < call.head_dim; ++i) {
    const size_t place =
        (static_cast<size_t>(i) * call.padded_columns + group.column) * (call.padded_modes / 2) +
        lane;
    Held<kFours, kLanes> x[kModeItems];
    ModeInput inputs[kModeItems];
#pragma unroll
    for (int s = 0; s < kModeItems; ++s) x[s].Load(from[s], place);
    // States are those of earlier steps: no kernel of this one has written them.
    if (i == 0) AwaitLastKernel();
#pragma unroll
    for (int s = 0; s < kModeItems; ++s) {
      if (to[s] != nullptr && group.used) inputs[s].Load(call, group, first + s, i);
    }
#pragma unroll
    for (int s = 0; s < kModeItems; ++s) {
      const float read = modes.Run(x[s], inputs[s].k * inputs[s].v);
      if (to[s] == nullptr || group.column >= call.padded_columns) continue;
      x[s].Store(to[s], place);
      if (lane == 0) AddRow(call, group, first + s, i, read, inputs[s].q);
    }
  }
}

// A segment of any length: row i of all its tokens, then row i + 1, so that a state stays in
// registers.
template <int kLanes, int kFours>
__global__ void __launch_bounds__(kWarps * 32)
    ModeSegmentKernel(const __grid_constant__ ModeScanCall call) {
  AllowNextKernel();
  const DeviceSegment& segment = call.rows.segments[blockIdx.y];
  if (segment.tokens == 0) return AwaitLastKernel();
  const ModeGroup group = ModeGroup::Of<kLanes>(call);
  const uint32_t lane = threadIdx.x % kLanes;
  const RunningState state = StateOf(call, segment);
  const bool stores = group.column < call.padded_columns;
  Modes<kLanes, kFours> modes;
  modes.Load(call, group.head);
  AwaitLastKernel();
  for (uint32_t i = 0; i < call.head_dim; ++i) {
    const size_t place =
        (static_cast<size_t>(i) * call.padded_columns + group.column) * (call.padded_modes / 2) +
        lane;
    Held<kFours, kLanes> x;
    x.Load(group.used ? state.from : nullptr, place);
    ModeInput inputs[kModeItems], next[kModeItems];
    const auto load = [&](uint32_t done) {
#pragma unroll
      for (int s = 0; s < kModeItems; ++s) {
        if (done + s < state.tokens && group.used) {
          next[s].Load(call, group, segment.first_token + done + s, i);
        }
      }
    };
    load(0);
    for (uint32_t done = 0; done < state.tokens; done += kModeItems) {
#pragma unroll
      for (int s = 0; s < kModeItems; ++s) inputs[s] = next[s];
      load(done + kModeItems);
#pragma unroll
      for (int s = 0; s < kModeItems; ++s) {
        if (done + s >= state.tokens) break;
        const float read = modes.Run(x, inputs[s].k * inputs[s].v);
        if (!stores) continue;
        std::byte* const to = PlaceWithin(call, segment, state, done + s + 1);
        if (to != nullptr) x.Store(to, place);
        if (lane == 0) AddRow(call, group, segment.first_token + done + s, i, read, inputs[s].q);
      }
    }
  }
}

template <int kLanes, int kFours>
void LaunchModes(const ModeScanCall& call, const LaunchContext& context) {
  constexpr uint32_t kGroups = kWarps * 32 / kLanes;
  const uint32_t blocks = (call.padded_columns + kGroups - 1) / kGroups;
  const uint32_t segments = call.rows.segment_count;
  if (call.rows.single) {
    context.Run(ModeDecodeKernel<kLanes, kFours>,
                dim3(blocks, (segments + kModeItems - 1) / kModeItems), kWarps * 32, 0, call);
  } else {
    context.Run(ModeSegmentKernel<kLanes, kFours>, dim3(blocks, segments), kWarps * 32, 0, call);
  }
}

}  // namespace

void LaunchSelectiveScan(const SelectiveScanCall& call, const LaunchContext& context) {
  const auto launch = call.padded_state == 16   ? LaunchScan<1>
                      : call.padded_state == 32 ? LaunchScan<2>
                                                : LaunchScan<4>;
  ByParts(call, [&](const SelectiveScanCall& part) { launch(part, context); });
}

void LaunchModeScan(const ModeScanCall& call, const LaunchContext& context) {
  const auto launch = call.padded_modes == 16    ? LaunchModes<8, 1>
                      : call.padded_modes == 32  ? LaunchModes<8, 2>
                      : call.padded_modes == 64  ? LaunchModes<16, 2>
                      : call.padded_modes == 128 ? LaunchModes<32, 2>
                                                 : LaunchModes<32, 4>;
  ByParts(call, [&](const ModeScanCall& part) { launch(part, context); });
}

}  // namespace rivulet::cuda
