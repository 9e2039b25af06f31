// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Slots of one layer in a device's memory, the sessions that hold them and the steps that advance
// them, for the suite on devices: what server/engine and server/session do for a whole model,
// without either. For tests only: fails through googletest and CHECK.
#ifndef RIVULET_KERNELS_MIXERS_MIXER_SUITE_DEVICE_RUN_H_
#define RIVULET_KERNELS_MIXERS_MIXER_SUITE_DEVICE_RUN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/device/device_step.h"
#include "kernels/mixers/mixer_suite_device_subject.h"
#include "kernels/recurrence/pages.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// A device's memory for the suite: temporaries of steps, states, and pinned memory to copy through.
// It grows to what the largest test takes and is used again by the next ones.
class DeviceSuiteMemory {
 public:
  explicit DeviceSuiteMemory(Device& device)
      : device(device), workspace(&device), states(&device), sent_(device), read_(device) {}

  // Waits for the device. The bytes hold until the next call.
  std::span<const std::byte> Read(const void* from, size_t bytes);

  // Pinned memory to fill and temporary memory of the device that Send copies it to; one at a time.
  struct Message {
    std::byte *here, *there;
    size_t bytes;
  };
  Message NewMessage(size_t bytes);
  void Send(const Message& message);

  DeviceSuiteMemory& WithoutStates() {
    states.Reset();
    return *this;
  }

  Device& device;
  DeviceWorkspace workspace, states;

 private:
  struct Pinned {
    explicit Pinned(Device& device) : device(device) {}
    ~Pinned() { device.FreePinned(data); }
    std::byte* Of(size_t bytes);

    Device& device;
    std::byte* data = nullptr;
    size_t size = 0;
  };
  Pinned sent_, read_;
};

// Reference-counted slots in one run of device memory, each with guard bytes behind it. Everything
// is NaN at first, and a slot is again whenever it is handed out. Slots come in an order that looks
// random.
class DeviceSuiteSlots : public SlotSource {
 public:
  DeviceSuiteSlots(DeviceSuiteMemory& memory, size_t bytes, size_t slots);

  std::byte* data() const { return data_; }
  size_t stride() const { return stride_; }
  // Of a slot, with the guard.
  std::string Bytes(uint32_t slot) const;
  // Whether the guards of all slots, and the slots that were never held, are unchanged.
  bool OthersAreUntouched() const;
  void Copy(uint32_t from, uint32_t to);

  uint32_t Take();  // Acquire
  absl::StatusOr<uint32_t> Acquire() override { return Take(); }
  void Share(uint32_t slot) override { ++holders_[slot]; }
  void Release(uint32_t slot) override;
  bool Shared(uint32_t slot) const override { return holders_[slot] > 1; }

 private:
  DeviceSuiteMemory& memory_;
  size_t bytes_, stride_;
  std::byte* data_;
  std::vector<uint32_t> holders_, free_;
  std::vector<bool> used_;  // was ever handed out
};

class DeviceSuiteRun;

// One session: its text, how far it is, and what it holds.
class DeviceSuiteSession {
 public:
  DeviceSuiteSession(DeviceSuiteRun& run, size_t text);
  DeviceSuiteSession(DeviceSuiteSession&& other) noexcept;
  DeviceSuiteSession& operator=(DeviceSuiteSession&&) = delete;
  ~DeviceSuiteSession();

  // One that continues with another text from the session's last chunk border, with the base and
  // the pages that both share then, in a tail of its own. `copies_tail`: from where the session is.
  DeviceSuiteSession Fork(size_t other_text, bool copies_tail) const;

  size_t text;
  uint64_t position = 0;
  uint32_t base, tail;
  PageTable pages;

 private:
  friend class DeviceSuiteRun;
  DeviceSuiteSession(DeviceSuiteRun& run, size_t text, uint64_t position, uint32_t base,
                     PageTable pages);

  DeviceSuiteRun* run_;
};

// A subject's states and texts on a device.
class DeviceSuiteRun {
 public:
  // Rows of a text [tokens, input_columns] on the host, without padding.
  struct Text {
    std::vector<float> rows;
  };
  struct Sizes {
    size_t sessions = 0;  // at the same time
    size_t bases = 0;     // beside two a session, and as many pages of a counter
    size_t tokens = 0;    // of a text
    size_t input_columns = 0, output_columns = 0;
  };
  // Takes the memory's states: one at a time.
  DeviceSuiteRun(DeviceSuiteMemory& memory, DeviceSubject& subject, const std::vector<Text>& texts,
                 const Sizes& sizes);
  DeviceSuiteRun(const DeviceSuiteRun&) = delete;
  DeviceSuiteRun& operator=(const DeviceSuiteRun&) = delete;

  // A part of a step: the session's next tokens, or a segment without tokens (session null).
  struct Piece {
    DeviceSuiteSession* session = nullptr;
    size_t tokens = 0;
    size_t text = SIZE_MAX;  // other tokens than the session's own
    // For each fold of the piece a base of its own; it stays held (Segment::fold_bases). Tables of
    // pages after each fold but the last go to `tables`.
    std::vector<uint32_t>* fold_bases = nullptr;
    std::vector<PageTable>* tables = nullptr;
  };
  struct Form {
    bool single = false;  // DeviceRows::single: every segment has one row
    size_t padding = 0;   // rows of a last segment without tokens
    size_t decodes = 0;   // DeviceRows::decodes: the first segments, which have one row each
  };
  // Runs a step and advances its sessions. Output rows hold until the next step or read.
  // REQUIRES: there is a token.
  void Step(std::span<const Piece> pieces, const Form& form);
  void Step(std::span<const Piece> pieces) { Step(pieces, {}); }

  // A session that continues from a base at a chunk border, which it takes over.
  DeviceSuiteSession Resume(size_t text, uint64_t position, uint32_t base, PageTable table);

  // [output_columns] of a piece's token; after Step.
  const float* Output(size_t piece, size_t token) const {
    return outputs_ + (first_rows_[piece] + token) * output_stride_;
  }
  const Sizes& sizes() const { return sizes_; }
  size_t chunk() const { return subject_.layout().fold_interval(); }
  const StateLayout& layout() const { return subject_.layout(); }
  // The numbers of a base, without the gaps between planes.
  std::string BasePlanes(uint32_t slot) const;

  DeviceSuiteSlots bases, tails, pages;

 private:
  struct Description;
  void AddPiece(const Piece& piece, const Form& form, Description& d);
  void AddPadding(size_t rows, Description& d);
  void AddPages(const Piece& piece, Description& d);
  void PlanBases(const Piece& piece, DeviceSegment& segment, Description& d);
  void SetFoldBases(const DeviceSegment& segment, size_t folds, Description& d);
  struct Sent;
  Sent Send(const Description& d);
  DeviceStep StepOf(const Description& d, const Sent& sent, const Form& form);
  void Finish(std::span<const Piece> pieces, const Description& d);
  FloatMatrix TextsOnDevice(const std::vector<Text>& texts);
  void Fetch(const DeviceOutput& output, size_t rows);
  void Reorder(size_t rows);

  DeviceSuiteMemory& memory_;
  DeviceSubject& subject_;
  const Sizes sizes_;
  FloatMatrix texts_;  // [texts · tokens, columns] on the device
  std::vector<size_t> first_rows_;
  const float* outputs_ = nullptr;
  size_t output_stride_ = 0;
  std::vector<float> converted_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MIXER_SUITE_DEVICE_RUN_H_
