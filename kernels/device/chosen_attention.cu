// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention where each token sees chosen pools (softmax_operations.h): the kernel of
// softmax_attention.cu, which gives tokens of other pools no weight. A decode row reads the pages
// of its pools alone, and has zeros in the place of others; rows of a prompt read all pages.
#include "kernels/device/softmax_launch.cuh"

namespace rivulet::cuda::softmax {
namespace {

template <typename Kv, int kParts, int kPairs, bool kShared>
void LaunchOfWidth(const AttendCall& call, SegmentRange range, bool walked,
                   const LaunchContext& context) {
  if (walked) return LaunchWalked<Kv, kParts, kPairs, kShared, true>(call, range, context);
  LaunchKernel<Kv, kParts, 1, kPairs, RowKind::kDecoded, kShared, true>(call, range, context);
}

}  // namespace

template <typename Kv, int kParts>
void LaunchChosen(const AttendCall& call, SegmentRange range, bool walked,
                  const LaunchContext& context) {
  const uint32_t pairs = (call.padded / 16 + kWarps - 1) / kWarps;
  if (call.values_are_keys) {
    constexpr int kSharedPairs = kMostSharedWidth / 16 / kWarps;
    LaunchOfWidth<Kv, kParts, kSharedPairs, true>(call, range, walked, context);
  } else if (pairs == 1) {
    LaunchOfWidth<Kv, kParts, 1, false>(call, range, walked, context);
  } else if (pairs == 2) {
    LaunchOfWidth<Kv, kParts, 2, false>(call, range, walked, context);
  } else {
    LaunchOfWidth<Kv, kParts, 4, false>(call, range, walked, context);
  }
}

template void LaunchChosen<float, 2>(const AttendCall&, SegmentRange, bool, const LaunchContext&);
template void LaunchChosen<bf16, 2>(const AttendCall&, SegmentRange, bool, const LaunchContext&);
template void LaunchChosen<bf16, 1>(const AttendCall&, SegmentRange, bool, const LaunchContext&);

}  // namespace rivulet::cuda::softmax
