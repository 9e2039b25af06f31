// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A block of the grid of AttendStreamKernel (softmax_launch.cuh), for segments of one token and
// pages of bf16. Its last warp copies keys and values through a ring, from one item to the next
// without a pause; the others attend to them as Attender does, in the same order, so the bits are
// the same.
//
//   ring      blocks of 64 tokens: keys, values, keys, values ...; a slot's full barrier says that
//             its copies have come, its empty barrier that no warp reads it any more
//   items     with a slot of keys that begins an item comes what the item is; kNoItem ends the work
//
// Bytes expected: keys and values once for each tile of heads.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_STREAM_CUH_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_STREAM_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/softmax_attender.cuh"

namespace rivulet::cuda::softmax {

constexpr uint32_t kStreamThreads = kThreads + 32;

template <int kParts, int kPairs, bool kExact>
class AttendStream
    : private Attender<bf16, kParts, 1, kPairs, RowKind::kStreamed, false, false, kExact> {
  using Base = Attender<bf16, kParts, 1, kPairs, RowKind::kStreamed, false, false, kExact>;

 public:
  using Base::kRows;
  // Blocks that share a processor: some attend while others wait. They share its memory, so a ring
  // has three slots with heads of 128, and two with heads of 256.
  static constexpr int kResident = kPairs <= 2 ? 3 : 2;

  __host__ __device__ static constexpr size_t SharedBytes(uint32_t padded, uint32_t slots) {
    return Base::SharedBytes(padded, slots) + kScoreBytes + slots * kBytesOfSlot;
  }

  __device__ AttendStream(const AttendCall& call, SegmentRange range, std::byte* memory)
      : Base(call, range, memory) {
    std::byte* const behind = Base::End();
    other_s_ = reinterpret_cast<float*>(behind);
    full_ = reinterpret_cast<uint64_t*>(behind + kScoreBytes);
    empty_ = full_ + range.slots;
    items_ = reinterpret_cast<Item*>(behind + kScoreBytes + range.slots * 2 * sizeof(uint64_t));
  }

  __device__ void Run() {
    if (warp_ == 0) CountUnits<false>(c_, range_, 1, units_);
    if (threadIdx.x == Base::kFetcher) {
      for (uint32_t slot = 0; slot < range_.slots; ++slot) {
        InitBarrier(&full_[slot], kArrivalsWithCopies);
        InitBarrier(&empty_[slot], kWarps);
      }
    }
    __syncthreads();
    warp_ == kWarps ? Produce() : Consume();
  }

 private:
  static constexpr uint32_t kNoItem = UINT32_MAX;
  static constexpr size_t kScoreBytes = kRows * kScoreStride * sizeof(float);
  static constexpr size_t kBytesOfSlot = 2 * sizeof(uint64_t) + sizeof(Item);

  using Base::c_, Base::item_, Base::k_, Base::lane_, Base::next_, Base::range_, Base::s_,
      Base::tiling_, Base::units_, Base::warp_;

  __device__ bf16* Slot() const { return k_ + ring_.at * Base::Plane(); }

  // --- the warp that copies ----------------------------------------------------------------------

  __device__ void Produce() {
    const uint32_t items = units_[range_.count] * c_.kv_heads * tiling_.head_tiles;
    for (uint32_t item = blockIdx.x; item < items; item = gridDim.x + NextItem()) {
      item_ = TakeItem<false>(c_, range_, tiling_, units_, item);
      if (awaited_) Base::FetchNextItem();
      CopyItem();
    }
    AwaitKernels(false);
    ClaimSlot();
    if (lane_ == 0) items_[ring_.at].place = kNoItem;
    ArriveWithCopies(&full_[ring_.at]);
    Base::LeaveItems(items);
  }

  // What was fetched for after the item in work. Kernels before may still use the counter.
  __device__ uint32_t NextItem() {
    AwaitKernels(true);
    return __shfl_sync(kAllLanes, next_, 0);
  }
  __device__ void AwaitKernels(bool fetch) {
    if (awaited_) return;
    AwaitLastKernel();
    awaited_ = true;
    if (fetch) Base::FetchNextItem();
  }

  __device__ void CopyItem() {
    Pages pages = PagesOf(item_.block);
    for (bool first = true; item_.block <= item_.last_block; ++item_.block, first = false) {
      const Pages next = PagesOf(item_.block + 1);
      const bool full = __all_sync(kAllLanes, pages.count == kChunk);
      ClaimSlot();
      if (first && lane_ == 0) items_[ring_.at] = item_;
      CopyPages(pages.keys, pages.count, full);
      ClaimSlot();
      CopyPages(pages.values, pages.count, full);
      pages = next;
    }
  }

  // Each lane knows a block's page `lane % kBlockPages`: its rows, and how many are there.
  struct Pages {
    const bf16 *keys, *values;
    uint32_t count;
  };
  __device__ Pages PagesOf(uint32_t block) const {
    const typename Base::Rows rows = Base::RowsOf(block, lane_ % kBlockPages);
    return {Base::Keys(rows), Base::Values(rows), rows.count};
  }

  // Waits until the next slot may be written. Before the kernels before have ended, only pages that
  // earlier steps wrote may be copied, and there is no reason to wait while slots are free.
  __device__ void ClaimSlot() {
    if (!ring_.first_round || !Base::IsOld(item_.block + 1)) AwaitKernels(true);
    WaitBarrier(&empty_[ring_.at], ring_.parity ^ 1);
  }

  __device__ void CopyPages(const bf16* rows, uint32_t count, bool full) {
    if (kExact && full) {
#pragma unroll
      for (uint32_t part = 0; part < kBlockPages; ++part) {
        CopyPage(Base::Place(Slot(), part), OfLane(rows, part));
      }
    } else {
#pragma unroll 1
      for (uint32_t part = 0; part < kBlockPages; ++part) {
        const uint32_t of_part = __shfl_sync(kAllLanes, count, part);
        Base::CopyRows(Base::Place(Slot(), part), OfLane(rows, part), of_part);
      }
      __syncwarp();  // the lane that arrives also does for zeros that others have stored
    }
    ArriveWithCopies(&full_[ring_.at]);
    ring_.Advance(range_.slots);
  }

  // A full page where kExact, without instructions between copies.
  __device__ void CopyPage(bf16* to, const bf16* from) const {
    constexpr uint32_t kEights = Base::kWidest / 8, kRowsAtOnce = 32 / kEights;
    constexpr uint32_t kStride = (Base::kWidest + kPad) * sizeof(bf16);
    const uint32_t row = lane_ / kEights, column = lane_ % kEights;
    const uint32_t shared = SharedAddress(to) + row * kStride + column * 16;
    from += lane_ * 8;
#pragma unroll
    for (uint32_t i = 0; i < kChunk / kRowsAtOnce; ++i) {
      CopyAsync(shared + i * kRowsAtOnce * kStride, from + i * 32 * 8, Base::policy_);
    }
  }

  __device__ static const bf16* OfLane(const bf16* pointer, uint32_t lane) {
    return reinterpret_cast<const bf16*>(
        __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(pointer), lane));
  }

  // --- the warps that attend ---------------------------------------------------------------------

  __device__ void Consume() {
    AwaitLastKernel();   // for queries, and for the partials of the last launch to be joined
    bool ended = false;  // an item, which is joined after the next one's first block
    for (;;) {
      WaitBarrier(&full_[ring_.at], ring_.parity);
      item_ = items_[ring_.at];
      const bool more = item_.place != kNoItem;
      if (more) BeginItem();
      for (bool first = true;; first = false) {
        if (more) AddBlock();
        if (first && ended) Base::JoinIfLast();
        if (!more) return;
        if (Base::EndsSpan()) Base::EndSpan();
        if (++item_.block > item_.last_block) break;
      }
      ended = Base::EndItem();
    }
  }

  __device__ void BeginItem() {
    Base::ResetRows();
    Base::TakeQueries();
    Base::Meet();
  }

  // Scores of the next block go to the other buffer, since a warp may still read these weights.
  __device__ void AddBlock() {
    WaitBarrier(&full_[ring_.at], ring_.parity);
    Base::Score(Slot());
    LeaveSlot();  // scores that have been stored were computed from all keys
    Base::Meet();
    Base::Weigh();
    WaitBarrier(&full_[ring_.at], ring_.parity);
    Base::Meet();
    Base::AddValues(Slot());
    LeaveSlot(ZeroBehind(BitsOfSums(Base::o_[0])));
    float* const other = other_s_;
    other_s_ = s_;
    s_ = other;
  }

  // zero: where nothing else says that what was loaded from the slot is in registers.
  __device__ void LeaveSlot(uint32_t zero = 0) {
    __syncwarp();
    if (lane_ == 0) Arrive(SharedAddress(&empty_[ring_.at]) + zero);
    ring_.Advance(range_.slots);
  }

  Ring ring_;                // of the next slot, for the warp that copies and for each that attends
  bool awaited_ = false;     // the warp that copies: the kernels before have ended
  float* other_s_;           // [kRows, kScoreStride]
  uint64_t *full_, *empty_;  // [slots]
  Item* items_;              // [slots], where a slot begins one
};

}  // namespace rivulet::cuda::softmax

#endif  // RIVULET_KERNELS_DEVICE_SOFTMAX_STREAM_CUH_
