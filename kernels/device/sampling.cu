// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sampling: a block for each row of logits, with the ids that the CPU would draw
// (sampling_operations.h). Sums of weights are sums of integers, so their order is free, and atomic
// additions are exact.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/sampling_operations.h"
#include "kernels/device/warp_scan.cuh"

namespace rivulet::cuda {
namespace {

using namespace sampling;
using ull = unsigned long long;

constexpr uint32_t kThreads = 1024;
constexpr uint32_t kWarps = kThreads / 32;
static_assert(kWarps == 32, "a warp joins what all have found");
// The first buckets of a search are of falling weight, 16 for each factor e; later ones are of 8
// bits of the key.
constexpr uint32_t kBuckets = 512;
constexpr float kBucketsPerUnit = 16.0f;
// Candidates that are sorted in shared memory.
constexpr uint32_t kListed = 2 * kThreads;
constexpr uint32_t kTile = 2 * kListed;  // terms of a sum of exponentials that lie there meanwhile

struct Shared {
  union {
    ull list[kListed];
    float terms[kTile];
  };
  uint32_t counts[kBuckets];
  ull masses[kBuckets];
  ull sums[kWarps];
  float values[kWarps];
  uint32_t ids[kWarps];
  uint32_t listed;
  uint32_t broken;
  float best;
  uint32_t best_token;
  uint32_t found;
  float sampled_logit;
  // What a search has found.
  uint32_t bucket;
  ull before, mass, key;
};

// A row that is being searched: weights 2^40 · e^{(l - max) · inverse}, or 1 for every token.
struct Row {
  float* logits;
  uint32_t vocab;
  float max;
  float inverse;
  bool equal;

  __device__ float Share(float l) const { return ExpOfNegative((l - max) * inverse); }
  __device__ ull Weight(float l) const { return equal ? 1 : FixedPoint(Share(l)); }
  __device__ uint32_t Bucket(float l) const {
    const float depth = (max - l) * inverse * kBucketsPerUnit;
    return static_cast<uint32_t>(fminf(depth, kBuckets - 1.0f));
  }
};

__device__ ull WarpSum(ull x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// The sum of the threads up to this one.
__device__ ull BlockScan(ull x, Shared& shared) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x = WarpScan(x, lane);
  __syncthreads();  // sums may still be read
  if (lane == 31) shared.sums[warp] = x;
  __syncthreads();
  if (warp == 0) {
    const ull sum = WarpScan(shared.sums[lane], lane);
    __syncwarp();
    shared.sums[lane] = sum;
  }
  __syncthreads();
  return warp == 0 ? x : x + shared.sums[warp - 1];
}

// --- one look at the whole row ------------------------------------------------------------------

// The largest logit that a thread or a warp has seen, the lowest id among equals, and the first
// that the thread has seen that is not finite.
struct Largest {
  float best = -INFINITY;
  uint32_t id = kNoToken, broken = kNoToken;

  // Of rising ids.
  __device__ void See(float x, uint32_t i) {
    if (!isfinite(x) && i < broken) broken = i;
    if (x > best) best = x, id = i;
  }
  __device__ void OfWarp() {
    for (int step = 16; step > 0; step /= 2) {
      const float x = __shfl_xor_sync(kAllLanes, best, step);
      const uint32_t i = __shfl_xor_sync(kAllLanes, id, step);
      if (x > best || (x == best && i < id)) best = x, id = i;
    }
  }
};

// Of a thread's logits. Loads of several fours run at once: a row comes from L2.
__device__ Largest LargestOfThread(const Row& row) {
  constexpr uint32_t kAtOnce = 7;
  const auto* const logits = reinterpret_cast<const float4*>(row.logits);
  const uint32_t fours = reinterpret_cast<uintptr_t>(logits) % 16 == 0 ? row.vocab / 4 : 0;
  Largest largest;
#pragma unroll 1
  for (uint32_t first = threadIdx.x; first < fours; first += kAtOnce * kThreads) {
    float4 x[kAtOnce];
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) x[j] = logits[min(first + j * kThreads, fours - 1)];
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      const uint32_t four = first + j * kThreads;
      if (four >= fours) break;
      largest.See(x[j].x, 4 * four), largest.See(x[j].y, 4 * four + 1);
      largest.See(x[j].z, 4 * four + 2), largest.See(x[j].w, 4 * four + 3);
    }
  }
  for (uint32_t i = 4 * fours + threadIdx.x; i < row.vocab; i += kThreads) {
    largest.See(row.logits[i], i);
  }
  return largest;
}

// Finds the largest logit and the first that is not finite, which is kept if one was found before.
__device__ void Scan(const Row& row, Shared& shared) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Largest largest = LargestOfThread(row);
  if (largest.broken != kNoToken) atomicMin(&shared.broken, largest.broken);
  largest.OfWarp();
  if (lane == 0) shared.values[warp] = largest.best, shared.ids[warp] = largest.id;
  __syncthreads();
  if (warp == 0) {
    Largest all = {shared.values[lane], shared.ids[lane]};
    all.OfWarp();
    if (lane == 0) shared.best = all.best, shared.best_token = all.id < row.vocab ? all.id : 0;
  }
  __syncthreads();
}

// --- which token ends a prefix of the ranking ---------------------------------------------------

// Tokens that a search still looks at: those of a bucket of level 0, and of them those whose key
// begins with `prefix`, 8 bits for each further level.
struct Candidates {
  int levels = 0;
  uint32_t bucket = 0;
  ull prefix = 0;

  __device__ bool Has(const Row& row, float l, ull key) const {
    if (levels == 0) return true;
    return row.Bucket(l) == bucket && (levels == 1 || key >> (72 - 8 * levels) == prefix);
  }
  __device__ uint32_t NextBucket(const Row& row, float l, ull key) const {
    return levels == 0 ? row.Bucket(l) : static_cast<uint32_t>(key >> (64 - 8 * levels)) & 255;
  }
  __device__ void Enter(uint32_t next) {
    if (levels == 0) bucket = next;
    if (levels > 0) prefix = prefix << 8 | next;
    ++levels;
  }
};

// Counts and weighs the candidates by their next bucket. Tokens without weight are left out.
__device__ void Fill(const Row& row, const Candidates& candidates, Shared& shared) {
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kBuckets; i += kThreads) {
    shared.counts[i] = 0;
    shared.masses[i] = 0;
  }
  __syncthreads();
#pragma unroll 2
  for (uint32_t i = threadIdx.x; i < row.vocab; i += kThreads) {
    const float l = row.logits[i];
    const ull key = RankKey(l, i), weight = row.Weight(l);
    if (weight == 0 || !candidates.Has(row, l, key)) continue;
    const uint32_t bucket = candidates.NextBucket(row, l, key);
    atomicAdd(&shared.counts[bucket], 1u);
    atomicAdd(&shared.masses[bucket], weight);
  }
  __syncthreads();
}

// Lists the keys of the candidates, which are no more than kListed, and sorts them.
__device__ void ListSorted(const Row& row, const Candidates& candidates, Shared& shared) {
  for (uint32_t i = threadIdx.x; i < kListed; i += kThreads) shared.list[i] = ~ull{0};
  if (threadIdx.x == 0) shared.listed = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < row.vocab; i += kThreads) {
    const float l = row.logits[i];
    const ull key = RankKey(l, i);
    if (!candidates.Has(row, l, key) || row.Weight(l) == 0) continue;
    shared.list[atomicAdd(&shared.listed, 1u)] = key;
  }
  __syncthreads();
  uint32_t size = 2;
  while (size < shared.listed) size *= 2;
  for (uint32_t run = 2; run <= size; run *= 2) {  // bitonic
    for (uint32_t distance = run / 2; distance > 0; distance /= 2) {
      for (uint32_t pair = threadIdx.x; pair < size / 2; pair += kThreads) {
        const uint32_t a = 2 * pair - (pair & (distance - 1)), b = a + distance;
        const ull x = shared.list[a], y = shared.list[b];
        if ((x > y) == ((a & run) == 0)) {
          shared.list[a] = y;
          shared.list[b] = x;
        }
      }
      __syncthreads();
    }
  }
}

// The sorted candidate at which the prefix reaches `target`. `before`: what precedes the list.
__device__ void WalkList(const Row& row, bool by_count, ull target, ull before, ull mass_before,
                         Shared& shared) {
  ull weights[2];
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t place = 2 * threadIdx.x + i;
    const bool used = place < shared.listed;
    weights[i] = used ? row.Weight(row.logits[static_cast<uint32_t>(shared.list[place])]) : 0;
  }
  const ull mass = mass_before + BlockScan(weights[0] + weights[1], shared);
  ull masses[2] = {mass - weights[1], mass};
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t place = 2 * threadIdx.x + i;
    const ull reached = by_count ? before + place + 1 : masses[i];
    const ull reached_before = by_count ? before + place : masses[i] - weights[i];
    if (place < shared.listed && reached >= target && reached_before < target) {
      shared.key = shared.list[place];
      shared.mass = masses[i];
    }
  }
  __syncthreads();
}

// Finds the fewest best tokens whose count or mass reaches `target`, or all if all do not:
// shared.key is the last one's, shared.mass what they weigh. `filled`: level 0 is in the buckets;
// returns whether it still is.
__device__ bool Search(const Row& row, bool by_count, ull target, bool filled, Shared& shared) {
  Candidates candidates;
  ull before = 0, mass_before = 0;  // of the tokens in front of the candidates
  for (;;) {
    if (candidates.levels > 0 || !filled) Fill(row, candidates, shared);
    const uint32_t i = threadIdx.x;
    const ull count = i < kBuckets ? shared.counts[i] : 0;
    const ull mass = i < kBuckets ? shared.masses[i] : 0;
    const ull counts = BlockScan(count, shared);
    const ull all_counts = before + shared.sums[kWarps - 1];
    const ull masses = BlockScan(mass, shared);
    const ull all_masses = mass_before + shared.sums[kWarps - 1];
    const ull all = by_count ? all_counts : all_masses;
    if (target > all) target = all;
    const ull reached = by_count ? before + counts : mass_before + masses;
    const ull amount = by_count ? count : mass;
    if (amount != 0 && reached >= target && reached - amount < target) {
      shared.bucket = i;
      shared.before = before + counts - count;
      shared.mass = mass_before + masses - mass;
    }
    __syncthreads();
    before = shared.before;
    mass_before = shared.mass;
    candidates.Enter(shared.bucket);
    const uint32_t left = shared.counts[shared.bucket];
    __syncthreads();
    if (left <= kListed) break;
  }
  ListSorted(row, candidates, shared);
  WalkList(row, by_count, target, before, mass_before, shared);
  return candidates.levels == 1;
}

// The key of the last token that top_k and top_p keep.
__device__ ull LastKept(const Row& row, const SampleRow& how, Shared& shared) {
  Fill(row, {}, shared);
  bool filled = true;
  ull mass;
  if (how.top_k != 0) {
    filled = Search(row, true, how.top_k, filled, shared);
    mass = shared.mass;
    if (how.top_p == 1.0f) return shared.key;
  } else {
    BlockScan(threadIdx.x < kBuckets ? shared.masses[threadIdx.x] : 0, shared);
    mass = shared.sums[kWarps - 1];
  }
  __syncthreads();
  const double goal = ceil(__ull2double_rn(mass) * static_cast<double>(how.top_p));
  Search(row, false, static_cast<ull>(goal), filled, shared);
  return shared.key;
}

// --- the draw -----------------------------------------------------------------------------------

// What a draw weighs.
struct Kept {
  Row row;
  float min_p;
  ull last;

  __device__ ull Weight(uint32_t token, uint32_t end) const {
    if (token >= end) return 0;
    const float l = row.logits[token];
    const float share = row.Share(l);
    return share < min_p || RankKey(l, token) > last ? 0 : FixedPoint(share);
  }
};

// Weighs tokens [begin, end) in kWarps parts of `part`, a warp each: shared.sums are the sums of
// the parts up to each.
__device__ void WeighParts(const Kept& kept, uint32_t begin, uint32_t part, uint32_t end,
                           Shared& shared) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t first = begin + warp * part, after = min(first + part, end);
  ull sum = 0;
#pragma unroll 2
  for (uint32_t i = first + lane; i < after; i += 32) sum += kept.Weight(i, after);
  sum = WarpSum(sum);
  __syncthreads();
  if (lane == 0) shared.sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    const ull scanned = WarpScan(shared.sums[lane], lane);
    __syncwarp();
    shared.sums[lane] = scanned;
  }
  __syncthreads();
}

// The part that holds `place`, and the place in it.
__device__ uint32_t PartOf(ull& place, const Shared& shared) {
  uint32_t part = 0;
  while (part + 1 < kWarps && place >= shared.sums[part]) ++part;
  if (part > 0) place -= shared.sums[part - 1];
  return part;
}

__device__ uint32_t PartSize(uint32_t tokens) { return (tokens + kThreads - 1) / kThreads * 32; }

__device__ uint32_t Draw(const Kept& kept, ull random_bits, Shared& shared) {
  uint32_t begin = 0, end = kept.row.vocab, part = PartSize(end);
  WeighParts(kept, begin, part, end, shared);
  // Uniform in [0, total): the upper half of the 128-bit product.
  ull place = __umul64hi(random_bits, shared.sums[kWarps - 1]);
  for (int level = 0; level < 2; ++level) {
    begin += PartOf(place, shared) * part;
    end = min(begin + part, end);
    if (level == 1) break;
    part = PartSize(part);
    WeighParts(kept, begin, part, end, shared);
  }
  if (threadIdx.x < 32) {
    for (; begin < end; begin += 32) {
      const ull sum = WarpScan(kept.Weight(begin + threadIdx.x, end), threadIdx.x % 32);
      const uint32_t reached = __ballot_sync(kAllLanes, place < sum);
      if (reached != 0) {
        if (threadIdx.x == 0) shared.found = begin + __ffs(static_cast<int>(reached)) - 1;
        break;
      }
      place -= __shfl_sync(kAllLanes, sum, 31);
    }
  }
  __syncthreads();
  return shared.found;
}

// --- log-probabilities --------------------------------------------------------------------------

// Σ e^{l - max} in the order of the CPU: lane i of 16 adds the terms i, i + 16, ...
__device__ float SumOfExp(const Row& row, Shared& shared) {
  float sum = 0.0f;
  for (uint32_t begin = 0; begin < row.vocab; begin += kTile) {
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < kTile; i += kThreads) {
      const uint32_t token = begin + i;
      shared.terms[i] = token < row.vocab ? ExpOfNegative(row.logits[token] - row.max) : 0.0f;
    }
    __syncthreads();
    if (threadIdx.x >= 16) continue;
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < kTile; i += 16) sum += shared.terms[i];
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int step = 8; step > 0; step /= 2) sum += __shfl_down_sync(kAllLanes, sum, step);
  }
  return sum;  // in thread 0
}

// The best logits. All tokens weigh the same, so the mass is their count.
__device__ void BestLogits(Row row, uint32_t wanted, LogprobResult& result, Shared& shared) {
  const uint32_t count = min(wanted, row.vocab);
  if (count == 0) return;
  row.equal = true;
  row.inverse = 1.0f;
  Search(row, true, count, false, shared);
  const ull last = shared.key;
  __syncthreads();
  if (threadIdx.x == 0) shared.listed = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < row.vocab; i += kThreads) {
    const ull key = RankKey(row.logits[i], i);
    if (key <= last) shared.list[atomicAdd(&shared.listed, 1u)] = key;
  }
  __syncthreads();
  if (threadIdx.x < count) {
    const ull key = shared.list[threadIdx.x];
    uint32_t rank = 0;
    for (uint32_t i = 0; i < count; ++i) rank += shared.list[i] < key;
    result.tokens[rank] = static_cast<uint32_t>(key);
    result.logits[rank] = row.logits[static_cast<uint32_t>(key)];
  }
  __syncthreads();
}

// REQUIRES: the row has been scanned, is finite and not yet changed.
__device__ void TakeLogits(Row row, const SampleRow& how, LogprobResult& result, Shared& shared) {
  row.max = shared.best;
  const float sum = SumOfExp(row, shared);
  if (threadIdx.x == 0) {
    result.max = row.max;
    result.sum = sum;
    if (how.scored < row.vocab) result.scored = row.logits[how.scored];
  }
  BestLogits(row, how.top_logits, result, shared);
  __syncthreads();  // before other threads change the row: thread 0 has read its logit
}

// --- masks --------------------------------------------------------------------------------------

// Takes the tokens that the mask lacks out of the draw. Their logits are not looked at. A thread
// handles tokens of one half of a word, so the threads of a warp read the same word.
__device__ void Confine(const Row& row, const uint64_t* mask) {
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < row.vocab; i += kThreads) {
    if (!MayCome(mask, i)) row.logits[i] = kForbiddenLogit;
  }
  __syncthreads();
}

// --- edits --------------------------------------------------------------------------------------

// Changes one logit and keeps it as it was. A forbidden token's is not looked at, unless it has
// been already.
__device__ void Apply(const Row& row, const SampleRow& how, LogitEdit& edit, bool looked_at,
                      Shared& shared) {
  if (edit.token >= row.vocab) return;
  const float l = row.logits[edit.token];
  edit.raw = l;
  const bool hidden = !looked_at && (edit.marks & LogitEdit::kForbidden) != 0;
  if (!hidden && !isfinite(l)) {
    atomicMin(&shared.broken, edit.token);
    return;
  }
  row.logits[edit.token] = Edited(l, edit, how);
}

// `last`: a token that precedes the draw and that the edits do not count, or kNoToken; its edit is
// returned in `extra` if it has none of its own.
__device__ void ApplyEdits(const Row& row, const SampleRow& how, LogitEdit* edits, uint32_t last,
                           LogitEdit& extra, bool looked_at, Shared& shared) {
  extra = {last, LogitEdit::kInSession | 1u, 0.0f, 0.0f};
  if (threadIdx.x == 0) shared.found = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < how.edits; i += kThreads) {
    LogitEdit edit = edits[i];
    if (edit.token == last) {
      edit.marks = (edit.marks + 1) | LogitEdit::kInSession;
      shared.found = 1;
    }
    Apply(row, how, edit, looked_at, shared);
    edits[i].raw = edit.raw;
  }
  __syncthreads();
  if (threadIdx.x == 0 && last != kNoToken && shared.found == 0) {
    Apply(row, how, extra, looked_at, shared);
  }
  __syncthreads();
}

// The logit of the token as it was before the edits, in shared.sampled_logit.
__device__ void FindRaw(const Row& row, const SampleRow& how, const LogitEdit* edits,
                        const LogitEdit& extra, uint32_t token, Shared& shared) {
  if (threadIdx.x == 0) shared.sampled_logit = row.logits[token];
  __syncthreads();
  // At most one edit is the token's; `extra` is thread 0's, and is not applied if an edit is.
  if (threadIdx.x == 0 && extra.token == token) shared.sampled_logit = extra.raw;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < how.edits; i += kThreads) {
    if (edits[i].token == token) shared.sampled_logit = edits[i].raw;
  }
  __syncthreads();
}

// --- the row ------------------------------------------------------------------------------------

__device__ uint32_t DrawFrom(Row row, const SampleRow& how, Shared& shared) {
  if (how.inverse_temperature == 0.0f) return shared.best_token;
  row.max = shared.best;
  row.inverse = how.inverse_temperature;
  row.equal = false;
  const bool ranked = how.top_k != 0 || how.top_p != 1.0f;
  const ull last = ranked ? LastKept(row, how, shared) : ~ull{0};
  __syncthreads();
  return Draw({row, how.min_p, last}, how.random_bits, shared);
}

__global__ void __launch_bounds__(kThreads) SampleKernel(SampleCall call) {
  __shared__ Shared shared;
  AllowNextKernel();
  AwaitLastKernel();
  const SampleRow how = call.rows[blockIdx.x];
  const bool wants_logits = how.top_logits != kNoToken;
  if (how.samples == 0 && !wants_logits) return;
  Row row = {call.logits.data + blockIdx.x * call.logits.stride,
             static_cast<uint32_t>(call.logits.columns), 0.0f, 1.0f, false};
  if (threadIdx.x == 0) shared.broken = kNoToken;
  const uint32_t last = how.counts_last != 0 ? call.last_tokens[how.slot] : kNoToken;
  __syncthreads();
  if (wants_logits) {
    Scan(row, shared);
    if (shared.broken == kNoToken) TakeLogits(row, how, call.logprobs[blockIdx.x], shared);
  }
  LogitEdit* const edits = call.edits + how.first_edit;
  LogitEdit extra = {kNoToken, 0, 0.0f, 0.0f};
  const bool confined = how.samples != 0 && how.mask != kNoMask;
  if (confined) Confine(row, call.masks + how.mask);
  const bool changes = confined || (how.samples != 0 && (how.edits != 0 || last != kNoToken));
  if (changes) ApplyEdits(row, how, edits, last, extra, wants_logits, shared);
  if (changes || !wants_logits) Scan(row, shared);
  const uint32_t broken = shared.broken;
  uint32_t token = 0;
  if (broken == kNoToken && how.samples != 0) token = DrawFrom(row, how, shared);
  if (broken == kNoToken && wants_logits) FindRaw(row, how, edits, extra, token, shared);
  if (threadIdx.x != 0) return;
  call.results[blockIdx.x] = {token, broken, broken == kNoToken ? 0.0f : row.logits[broken]};
  if (broken == kNoToken && wants_logits) {
    call.logprobs[blockIdx.x].sampled = shared.sampled_logit;
  }
  if (how.samples != 0 && how.slot != kNoToken) call.last_tokens[how.slot] = token;
}

}  // namespace

void LaunchSample(const SampleCall& call, const LaunchContext& context) {
  if (call.count != 0) context.Run(SampleKernel, dim3(call.count), kThreads, 0, call);
}

}  // namespace rivulet::cuda
