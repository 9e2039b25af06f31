// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of a session's state in memory, and which piece of a step touches it.
//
// State = base + tail (docs/architecture.md#state). The *base* holds the matrices at the last
// position that is a multiple of the fold interval C, with the convolution inputs before it. The
// *tail* holds one small row for each token since. A base slot may be shared by several sessions
// and is then never written; a tail slot belongs to one session. A mixer whose state grows also
// keeps *pages*, reference-counted; how many depends on the position (pages.h). Slots are numbers,
// so the same description serves host and device memory.
//
// C is a property of the device: all layers of a model on one device have the same one, and every
// layout and page kind says it.
//
// This file deals with bytes and positions. It contains no mathematics and does not know sessions,
// requests or files.
#ifndef RIVULET_KERNELS_RECURRENCE_STATE_H_
#define RIVULET_KERNELS_RECURRENCE_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/device/device_types.h"

namespace rivulet {

// C on the CPU. This line alone decides it: it is the default of MixerOptions and StateLayout. An
// engine for another device sets MixerOptions::fold_interval, and everything else takes C from a
// layout or a capacity.
inline constexpr size_t kFoldInterval = 16;

enum class StatePart : uint8_t { kBase, kTail, kPage };
inline constexpr size_t kStateParts = 3;

// How a session's pages come and go with its position. n = the full chunks of C tokens that it
// holds.
enum class PageRule : uint8_t {
  kNone,      // no pages: a state of fixed size
  kAppended,  // a page for each chunk, in order (softmax attention)
  // A binary counter (docs/architecture.md#state): page p exists when bit p of n is set and holds
  // 2^p chunks. A fold adds the chunk and carries. A page never changes once it is written.
  kFenwick,
  // The same, and a fold may change every page that lives on (log-linear delta rules).
  kRewrittenFenwick,
};

// What all pages of one kind have in common. Layers with equal kinds share their page slots.
struct PageKind {
  PageRule rule = PageRule::kNone;
  // Fenwick: pages 0 .. levels - 1; the last one absorbs every later carry and never moves.
  uint32_t levels = 0;
  // kAppended: only pages with one of the `window` tokens before the chunk's first one, or later
  // ones, are kept; 0: all.
  uint64_t window = 0;
  // C: the tokens of a chunk. StateLayout::SetPageKind fills it in.
  uint32_t fold_interval = 0;

  bool fenwick() const { return rule == PageRule::kFenwick || rule == PageRule::kRewrittenFenwick; }
  friend bool operator==(const PageKind&, const PageKind&) = default;
};

inline constexpr uint32_t kNoPage = UINT32_MAX;

// One array inside a slot.
struct StatePlane {
  std::string name;  // for documentation, metrics and snapshots; unique in its layer
  StatePart part;
  DType dtype;
  std::vector<size_t> shape;  // in elements, padding included
  size_t offset;  // bytes from the start of the layer's part of the slot; 64-byte aligned
};

struct LayerState;

// Where some planes of a layer begin in each part of its slots, in bytes.
struct PartOffsets {
  size_t base = 0, tail = 0, page = 0;

  // The state of those planes' owner: offsets count from there.
  LayerState Of(LayerState state) const;
  DeviceSlots Of(DeviceSlots slots) const;
};

// What one layer keeps for one session: a list of planes in each part. Built once at load, then
// constant.
class StateLayout {
 public:
  // `device_rows`: the layout is a device's, which has planes of its own, and rows of the tail are
  // stored as this type. None: the CPU's, whose rows are fp32.
  explicit StateLayout(size_t fold_interval = kFoldInterval,
                       std::optional<DType> device_rows = std::nullopt)
      : device_(device_rows.has_value()), row_dtype_(device_rows.value_or(DType::kFloat32)) {
    page_kind_.fold_interval = static_cast<uint32_t>(fold_interval);
  }

  bool device() const { return device_; }
  // How rows of a token's inputs are stored.
  DType row_dtype() const { return row_dtype_; }

  // C, the tokens between two bases. Chunk borders are absolute multiples of it.
  size_t fold_interval() const { return page_kind_.fold_interval; }

  // Appends a plane and returns its byte offset inside the layer's part of a slot.
  size_t Add(StatePart part, std::string_view name, DType dtype,
             std::initializer_list<size_t> shape);

  // One without planes for the same device and fold interval.
  StateLayout Empty() const {
    StateLayout empty(fold_interval());
    empty.device_ = device_;
    empty.row_dtype_ = row_dtype_;
    empty.forgets_ = forgets_;
    return empty;
  }
  // Appends another layout's planes, named `prefix` and their names, its page kind and running
  // tail. REQUIRES: of one device and fold interval; one of the two at most has pages.
  PartOffsets Append(const StateLayout& other, std::string_view prefix);

  const std::vector<StatePlane>& planes() const { return planes_; }
  // Of every page plane of this layer; sets kind.fold_interval. REQUIRES: called once at most, with
  // a rule.
  void SetPageKind(PageKind kind);
  const PageKind& page_kind() const { return page_kind_; }

  // A layer whose tail would hold the state after the last token alone keeps rows of guesses
  // beside it (Segment::guesses). Those take memory, so only where there are drafts.
  void SetForgets() { forgets_ = true; }
  bool forgets() const { return forgets_; }
  // The tail holds the state after the last token instead of a row for each token: once a token has
  // run, the state before it is gone.
  void SetRunningTail() { running_tail_ = true; }
  bool running_tail() const { return running_tail_; }

  size_t base_bytes() const { return bytes(StatePart::kBase); }
  size_t tail_bytes() const { return bytes(StatePart::kTail); }
  size_t page_bytes() const { return bytes(StatePart::kPage); }  // of one page

 private:
  size_t bytes(StatePart part) const { return bytes_[static_cast<size_t>(part)]; }

  std::vector<StatePlane> planes_;
  size_t bytes_[kStateParts] = {};
  PageKind page_kind_;
  bool running_tail_ = false;
  bool forgets_ = false;
  bool device_;
  DType row_dtype_;
};

// The pages of one kind that a segment reads and writes, borrowed from the session's PageTable.
//
//   kAppended  slots[i] is page first_page + i: those of the window at the segment's start, then
//              one for each of its folds. Fold f writes page position / C + f.
//   Fenwick    `levels` entries before the first fold, then as many after each: Table(f) is what
//              tokens before fold f read, Table(f + 1) what they read after it. kNoPage: no such
//              page. Fold f makes the page that CarryPage below names. kRewrittenFenwick: and
//              any page that lives on, from its slot in Table(f) to its slot in Table(f + 1), which
//              differ if the old one is shared.
//
// Slots that a fold writes are held by this session alone; their old contents are undefined. A slot
// whose page a fold consumed may be written by a later fold of the same segment.
struct SegmentPages {
  const uint32_t* slots = nullptr;
  size_t count = 0;  // kAppended: entries of slots
  uint64_t first_page = 0;
  uint32_t levels = 0;

  const uint32_t* Table(size_t fold) const { return slots + fold * levels; }
  uint32_t Appended(uint64_t page) const { return slots[page - first_page]; }
};

// Fenwick: the page that the fold of a session's chunk n (from 0) makes. It takes up pages 0 ..
// page - 1, and itself if there is one already, which only the last level can have.
constexpr uint32_t CarryPage(uint64_t n, uint32_t levels) {
  uint32_t page = 0;
  while (page + 1 < levels && (n >> page & 1) != 0) ++page;
  return page;
}

// Fenwick: whether page p exists when n chunks are folded.
constexpr bool HasPage(uint64_t n, uint32_t p, uint32_t levels) {
  return p + 1 < levels ? (n >> p & 1) != 0 : n >> p != 0;
}

// A run of consecutive tokens of one session inside one step. Decode is a run of one; prefill is a
// run of many; the arithmetic is the same.
//
// A run that reaches the end of a chunk folds: its first fold reads `base_in` and writes
// `base_out`, later folds update `base_out`. They may be the same slot (the base
// is not shared) or different ones (it is); both give the same bits. A run that does not reach
// the end of a chunk writes no base. With `fold_bases`, each fold reads the base that the one
// before it wrote and writes one of these, so that states at several borders remain.
struct Segment {
  size_t first_token = 0;  // row of the step's token arrays
  size_t tokens = 0;       // > 0
  uint64_t position = 0;   // absolute position of the first token in its session
  uint32_t base_in = 0;
  uint32_t base_out = 0;
  uint32_t tail = 0;
  // One entry for each kind of pages that the model has; LayerState::page_kind picks a layer's.
  const SegmentPages* pages = nullptr;
  // For each fold the slot that it writes, the last one base_out; null: base_out for all. Only
  // where StateCapacity::fold_bases says so.
  const uint32_t* fold_bases = nullptr;
  // The last so many tokens may turn out wrong: the next segment may begin at any of them, in whose
  // place it has another token. None of them folds.
  size_t guesses = 0;

  // What tokens before fold number `fold` of the segment read, and what that fold writes.
  uint32_t BaseBefore(size_t fold) const { return fold == 0 ? base_in : BaseAfter(fold - 1); }
  uint32_t BaseAfter(size_t fold) const {
    return fold_bases == nullptr ? base_out : fold_bases[fold];
  }
};

// How many chunks of `fold_interval` tokens a run of `tokens` from `position` completes.
constexpr size_t FoldsIn(uint64_t position, size_t tokens, size_t fold_interval) {
  return (position % fold_interval + tokens) / fold_interval;
}

// True if it completes at least one.
constexpr bool Folds(uint64_t position, size_t tokens, size_t fold_interval) {
  return FoldsIn(position, tokens, fold_interval) > 0;
}

// The slots of one layer: slot s of a part starts at base + s * stride. Strides cover all layers,
// so that a slot is one contiguous run of bytes (a snapshot is two copies).
struct LayerState {
  std::byte* bases = nullptr;
  size_t base_stride = 0;
  std::byte* tails = nullptr;
  size_t tail_stride = 0;
  std::byte* pages = nullptr;  // of the layer's kind
  size_t page_stride = 0;
  size_t page_kind = 0;  // which entry of Segment::pages; undefined for a layer without pages

  template <typename T>
  T* Base(uint32_t slot, size_t offset) const {
    return reinterpret_cast<T*>(bases + slot * base_stride + offset);
  }
  template <typename T>
  T* Tail(uint32_t slot, size_t offset) const {
    return reinterpret_cast<T*>(tails + slot * tail_stride + offset);
  }
  template <typename T>
  T* Page(uint32_t slot, size_t offset) const {
    return reinterpret_cast<T*>(pages + slot * page_stride + offset);
  }
};

// A segment cut at absolute chunk borders: pieces of at most C tokens, each inside one chunk. Every
// mixer walks its segments through this, and so every split of a prompt does the same arithmetic.
struct ChunkPiece {
  size_t first_token;  // row of the step's token arrays
  size_t begin, end;   // places in the chunk, 0 <= begin < end <= C
  bool folds;          // end == C
  bool first;          // the segment's first piece
  size_t fold;         // folds of the segment before this piece: it reads Segment::BaseBefore(fold)
                       // and SegmentPages::Table(fold)
};

template <typename Visit>  // void(const ChunkPiece&)
void ForEachChunkPiece(const Segment& segment, size_t fold_interval, Visit&& visit) {
  size_t done = 0, folds = 0;
  while (done < segment.tokens) {
    const size_t begin = (segment.position + done) % fold_interval;
    const size_t end = std::min(begin + segment.tokens - done, fold_interval);
    const bool folds_here = end == fold_interval;
    visit(ChunkPiece{segment.first_token + done, begin, end, folds_here, done == 0, folds});
    done += end - begin;
    folds += folds_here ? 1 : 0;
  }
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_RECURRENCE_STATE_H_
