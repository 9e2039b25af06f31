// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What all operations of a device are about: the rows of a step, slots, operands of products and
// packed weights. Plain values; all pointers are to device memory. The arguments of each operation
// are in device_operations.h.
#ifndef RIVULET_KERNELS_DEVICE_DEVICE_TYPES_H_
#define RIVULET_KERNELS_DEVICE_DEVICE_TYPES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace rivulet {

// Bytes a second that the device's memory allows, for benchmarks; zeros: not measured.
struct DeviceLimits {
  double read = 0;
  double in_place = 0;  // read + written
  double copy = 0;      // read + written
};

// --- a step's rows ---------------------------------------------------------------------------

// A run of tokens of one session (Segment, as kernels see it). tokens == 0: nothing to do. Aligned,
// so that a thread reads it with few loads.
struct alignas(16) DeviceSegment {
  uint32_t first_token;
  uint32_t tokens;
  uint64_t position;
  uint32_t base_in, base_out;
  uint32_t tail;
  // Kernels that begin with one segment after the other take segment i + turn (modulo 2^32) as
  // number i, where `turn` is that of segment i (segment_turns.h). 0 everywhere: as they lie.
  uint32_t turn;
};

struct DeviceRows {
  const DeviceSegment* segments = nullptr;
  const uint32_t* segment_of = nullptr;  // [tokens]
  uint32_t segment_count = 0;
  uint32_t tokens = 0;
  // Every segment has at most one token, and token t belongs to segment t. Kernels then write tail
  // rows themselves; otherwise a later kernel often writes those that several blocks read.
  bool single = false;
  // [tokens], of the last token of each chunk: the base that the fold there writes
  // (Segment::fold_bases). Null: base_out of its segment, always so where `single`.
  const uint32_t* fold_bases = nullptr;
  // The first `decodes` segments have at most one token each, with token t in segment t, and other
  // segments follow. Operations with faster kernels for single tokens run the two parts one after
  // the other (ByParts). 0: all segments run together.
  uint32_t decodes = 0;
  // In Others(): how many segments were left out in front, and as many tokens.
  uint32_t before = 0;

  constexpr DeviceRows Decodes() const {
    return {segments, segment_of, decodes, decodes, /*single=*/true, nullptr};
  }
  // Tokens keep their numbers, from `before` to `tokens`; segments are counted from the first of
  // the others, so segment_of[token] - before is the segment of a token.
  constexpr DeviceRows Others() const {
    DeviceRows others = *this;
    others.segments += decodes;
    others.segment_count -= decodes;
    others.decodes = 0;
    others.before = decodes;
    return others;
  }
};

// The segment of a token, counted from rows.segments.
constexpr uint32_t SegmentOf(const DeviceRows& rows, uint32_t token) {
  return rows.single ? token : rows.segment_of[token] - rows.before;
}

// The segment that is taken as number `at` (DeviceSegment::turn).
constexpr uint32_t SegmentInTurn(const DeviceRows& rows, uint32_t at) {
  return at + rows.segments[at].turn;
}

// run(call), or run(part) for the decode rows of the call and then for its other rows.
template <typename Call, typename Run>
void ByParts(const Call& call, const Run& run) {
  if (call.rows.decodes == 0) return run(call);
  Call part = call;
  part.rows = call.rows.Decodes();
  run(part);
  part.rows = call.rows.Others();
  run(part);
}

// The base that a segment's fold writes behind this token of the step, the last one of its chunk.
constexpr uint32_t BaseAfter(const DeviceRows& rows, const DeviceSegment& segment, uint32_t token) {
  return rows.fold_bases == nullptr ? segment.base_out : rows.fold_bases[token];
}

// Whether anything reads that base after the step: an earlier fold than the `last` one leaves
// nothing in base_out, which a later one writes.
constexpr bool KeepsBaseAfter(const DeviceRows& rows, const DeviceSegment& segment, uint32_t token,
                              bool last) {
  return last || BaseAfter(rows, segment, token) != segment.base_out;
}

// One layer's slots (LayerState).
struct DeviceSlots {
  std::byte* bases = nullptr;
  size_t base_stride = 0;
  std::byte* tails = nullptr;
  size_t tail_stride = 0;
  std::byte* pages = nullptr;  // of the layer's kind
  size_t page_stride = 0;
};

// The pages of one segment: entries of DevicePages::slots from `first` on.
struct DeviceSegmentPages {
  uint32_t first;
  uint32_t count;       // kAppended
  uint64_t first_page;  // kAppended: which page the first entry is
};

// The pages of one kind that a step's segments read and write (SegmentPages).
struct DevicePages {
  const DeviceSegmentPages* segments = nullptr;  // [segment_count]
  const uint32_t* slots = nullptr;
  uint32_t levels = 0;  // Fenwick: the width of a table
};
// --- products --------------------------------------------------------------------------------

// The input of a product: [rows, columns] in bf16, one part or (ProductPrecision::kFloat32) two:
// number = high + low. Row r of the high part starts at data + r · stride, that of the low part
// `columns` further on. It takes no more memory than as many floats.
struct Operand {
  uint16_t* data = nullptr;
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t stride = 0;  // bf16 numbers
  bool two_parts = false;
};

// A product of more rows than a few may read and write up to this many: temporaries have room for
// them.
constexpr uint32_t ProductRows(size_t rows) {
  const auto count = static_cast<uint32_t>(rows == 0 ? 1 : rows);
  return (count + 63) / 64 * 64;
}

// A packed linear map: [outputs, stride] bf16, row-major, zeros from `inputs` on.
struct DeviceLinear {
  const uint16_t* high = nullptr;
  const uint16_t* low = nullptr;  // null unless ProductPrecision::kFloat32
  // e4m3 in their place (kernels/base/float8.h), [outputs, stride]; high and low are null then, but
  // on a fake device. Output n is scale[n] times the product, before the bias.
  const uint8_t* float8 = nullptr;
  const float* scale = nullptr;  // [outputs]
  const float* bias = nullptr;   // null: none
  uint32_t outputs = 0;
  uint32_t inputs = 0;
  uint32_t stride = 0;
};

// --- embedding ---------------------------------------------------------------------------------

struct DeviceTable {
  const void* data = nullptr;  // [vocab, width]
  DType dtype = DType::kFloat32;
  uint32_t vocab = 0;
  uint32_t width = 0;
  float multiplier = 1;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_DEVICE_TYPES_H_
