// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mixer_suite_device_run.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <type_traits>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/segment_turns.h"

namespace rivulet {
namespace {

constexpr size_t kGuard = 256;
constexpr char kNaN = '\xff';

size_t StrideOf(size_t bytes) { return RoundUp(bytes, kGuard) + kGuard; }

// Pages of a session: all of an appended kind, or the live ones of a counter and those that the
// folds of a piece make.
size_t PagesOf(const PageKind& kind, size_t tokens) {
  if (kind.rule == PageRule::kNone) return 0;
  const size_t chunks = tokens / kind.fold_interval + 1;
  if (!kind.fenwick()) return chunks + 1;
  size_t live = 1;
  while (live < kind.levels && chunks >> live != 0) ++live;
  return live + 3;
}

}  // namespace

// --- memory --------------------------------------------------------------------------------------

std::byte* DeviceSuiteMemory::Pinned::Of(size_t bytes) {
  if (bytes <= size) return data;
  EXPECT_TRUE(device.Synchronize().ok());
  device.FreePinned(data);
  size = 2 * bytes;
  data = static_cast<std::byte*>(device.AllocatePinned(size));
  RIVULET_CHECK(data != nullptr, "no pinned memory");
  return data;
}

std::span<const std::byte> DeviceSuiteMemory::Read(const void* from, size_t bytes) {
  std::byte* const to = read_.Of(bytes);
  if (bytes != 0) device.CopyToHost(to, from, bytes);
  const absl::Status status = device.Synchronize();
  EXPECT_TRUE(status.ok()) << status;
  return {to, bytes};
}

DeviceSuiteMemory::Message DeviceSuiteMemory::NewMessage(size_t bytes) {
  return {sent_.Of(bytes), static_cast<std::byte*>(workspace.TakeBytes(bytes)), bytes};
}

void DeviceSuiteMemory::Send(const Message& message) {
  device.CopyToDevice(message.there, message.here, message.bytes);
}

// --- slots ---------------------------------------------------------------------------------------

DeviceSuiteSlots::DeviceSuiteSlots(DeviceSuiteMemory& memory, size_t bytes, size_t slots)
    : memory_(memory),
      bytes_(bytes),
      stride_(StrideOf(bytes)),
      data_(static_cast<std::byte*>(memory.states.TakeBytes((slots + 1) * stride_))),
      holders_(slots),
      free_(slots),
      used_(slots) {
  RIVULET_CHECK(memory.states.status().ok(), "no device memory for the suite's slots");
  const std::string poison(stride_, kNaN);
  EXPECT_TRUE(memory.device.Upload(data_, poison.data(), stride_).ok());
  for (size_t done = 1; done <= slots; done *= 2) {
    const size_t more = std::min(done, slots + 1 - done);
    memory.device.CopyOnDevice(data_ + done * stride_, data_, more * stride_);
  }
  std::iota(free_.begin(), free_.end(), 0u);
  std::shuffle(free_.begin(), free_.end(), std::mt19937_64(slots));
}

std::string DeviceSuiteSlots::Bytes(uint32_t slot) const {
  const std::span<const std::byte> bytes = memory_.Read(data_ + slot * stride_, stride_);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool DeviceSuiteSlots::OthersAreUntouched() const {
  const size_t slots = holders_.size() + 1;
  const auto all = memory_.Read(data_, slots * stride_);
  for (size_t slot = 0; slot < slots; ++slot) {
    const bool used = slot < holders_.size() && used_[slot];
    const auto others = all.subspan(slot * stride_, stride_).subspan(used ? bytes_ : 0);
    for (const std::byte byte : others) {
      if (byte != std::byte{0xff}) return false;
    }
  }
  return true;
}

void DeviceSuiteSlots::Copy(uint32_t from, uint32_t to) {
  if (bytes_ == 0) return;
  memory_.device.CopyOnDevice(data_ + to * stride_, data_ + from * stride_, bytes_);
}

// The last slot is poison and is never handed out.
uint32_t DeviceSuiteSlots::Take() {
  RIVULET_CHECK(!free_.empty(), "the suite has too few slots");
  const uint32_t slot = free_.back();
  free_.pop_back();
  if (used_[slot]) {
    memory_.device.CopyOnDevice(data_ + slot * stride_, data_ + holders_.size() * stride_, stride_);
  }
  holders_[slot] = 1;
  used_[slot] = true;
  return slot;
}

void DeviceSuiteSlots::Release(uint32_t slot) {
  if (--holders_[slot] == 0) free_.push_back(slot);
}

// --- sessions ------------------------------------------------------------------------------------

DeviceSuiteSession::DeviceSuiteSession(DeviceSuiteRun& run, size_t text)
    : DeviceSuiteSession(run, text, 0, run.bases.Take(),
                         PageTable(run.layout().page_kind(), run.pages)) {}

DeviceSuiteSession::DeviceSuiteSession(DeviceSuiteRun& run, size_t text, uint64_t position,
                                       uint32_t base, PageTable pages)
    : text(text),
      position(position),
      base(base),
      tail(run.tails.Take()),
      pages(std::move(pages)),
      run_(&run) {}

DeviceSuiteSession::DeviceSuiteSession(DeviceSuiteSession&& other) noexcept
    : text(other.text),
      position(other.position),
      base(other.base),
      tail(other.tail),
      pages(std::move(other.pages)),
      run_(std::exchange(other.run_, nullptr)) {}

DeviceSuiteSession::~DeviceSuiteSession() {
  if (run_ == nullptr) return;
  run_->bases.Release(base);
  run_->tails.Release(tail);
}

DeviceSuiteSession DeviceSuiteSession::Fork(size_t other_text, bool copies_tail) const {
  run_->bases.Share(base);
  const uint64_t border = position - position % run_->chunk();
  DeviceSuiteSession fork(*run_, other_text, copies_tail ? position : border, base, pages.Fork());
  if (copies_tail) run_->tails.Copy(tail, fork.tail);
  return fork;
}

DeviceSuiteSession DeviceSuiteRun::Resume(size_t text, uint64_t position, uint32_t base,
                                          PageTable table) {
  return DeviceSuiteSession(*this, text, position, base, std::move(table));
}

// --- a step --------------------------------------------------------------------------------------

// What the host says of a step.
struct DeviceSuiteRun::Description {
  std::vector<DeviceSegment> segments;
  std::vector<uint32_t> segment_of, fold_bases, text_rows, page_slots;
  std::vector<DeviceSegmentPages> segment_pages;
  bool has_fold_bases = false;
  std::vector<uint32_t> released;  // bases, after the step
};

// Where it is on the device.
struct DeviceSuiteRun::Sent {
  const DeviceSegment* segments;
  const DeviceSegmentPages* segment_pages;
  const uint32_t *segment_of, *fold_bases, *text_rows, *page_slots;
};

DeviceSuiteRun::DeviceSuiteRun(DeviceSuiteMemory& memory, DeviceSubject& subject,
                               const std::vector<Text>& texts, const Sizes& sizes)
    : bases(memory.WithoutStates(), subject.layout().base_bytes(),
            2 * sizes.sessions + sizes.bases),
      tails(memory, subject.layout().tail_bytes(), 2 * sizes.sessions),
      pages(memory, subject.layout().page_bytes(),
            sizes.sessions * PagesOf(subject.layout().page_kind(), sizes.tokens) +
                (subject.layout().page_kind().fenwick() ? sizes.bases : 0)),
      memory_(memory),
      subject_(subject),
      sizes_(sizes),
      texts_(TextsOnDevice(texts)) {}

FloatMatrix DeviceSuiteRun::TextsOnDevice(const std::vector<Text>& texts) {
  const std::vector<size_t>& from = subject_.inputs_from;
  const size_t columns = from.empty() ? sizes_.input_columns : from.size();
  const FloatMatrix to = memory_.states.Take(texts.size() * sizes_.tokens, columns);
  std::vector<float> rows;
  rows.reserve(to.rows * to.stride);
  for (size_t r = 0; r < to.rows; ++r) {
    const float* row =
        texts[r / sizes_.tokens].rows.data() + r % sizes_.tokens * sizes_.input_columns;
    for (size_t i = 0; i < to.stride; ++i) {
      const size_t column = i >= columns ? DeviceSubject::kNoColumn : from.empty() ? i : from[i];
      rows.push_back(column == DeviceSubject::kNoColumn ? 0.0f : row[column]);
    }
  }
  EXPECT_TRUE(memory_.device.Upload(to.data, rows.data(), rows.size() * sizeof(float)).ok());
  return to;
}

void DeviceSuiteRun::Step(std::span<const Piece> pieces, const Form& form) {
  memory_.workspace.Reset();
  first_rows_.clear();
  Description d;
  for (const Piece& piece : pieces) AddPiece(piece, form, d);
  SetTurns(std::span(d.segments).first(form.single ? d.segments.size() : form.decodes), chunk());
  if (form.padding != 0) AddPadding(form.padding, d);
  const Sent sent = Send(d);
  const size_t rows = d.text_rows.size();
  const FloatMatrix inputs = memory_.workspace.Take(rows, texts_.columns);
  memory_.device.GatherRows({texts_, sent.text_rows, static_cast<uint32_t>(rows), inputs});
  Fetch(subject_.Enqueue(StepOf(d, sent, form), inputs), rows);
  Finish(pieces, d);
}

void DeviceSuiteRun::AddPadding(size_t rows, Description& d) {
  const auto first = static_cast<uint32_t>(d.text_rows.size());
  d.segment_of.resize(first + rows, static_cast<uint32_t>(d.segments.size()));
  d.segments.push_back({first, 0, 0, 0, 0, 0, 0});
  d.segment_pages.push_back({});
  d.fold_bases.resize(first + rows);
  d.text_rows.resize(first + rows, 0);
}

// In one copy.
DeviceSuiteRun::Sent DeviceSuiteRun::Send(const Description& d) {
  const auto bytes = [](const auto& numbers) {
    return RoundUp(numbers.size() * sizeof(numbers[0]), 16);
  };
  const size_t total = bytes(d.segments) + bytes(d.segment_pages) + bytes(d.segment_of) +
                       bytes(d.fold_bases) + bytes(d.text_rows) + bytes(d.page_slots);
  const DeviceSuiteMemory::Message message = memory_.NewMessage(total);
  size_t done = 0;
  const auto add = [&](auto& to, const auto& numbers) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(message.there + done);
    if (!numbers.empty()) {
      std::memcpy(message.here + done, numbers.data(), numbers.size() * sizeof(numbers[0]));
    }
    done += bytes(numbers);
  };
  Sent sent;
  add(sent.segments, d.segments);
  add(sent.segment_pages, d.segment_pages);
  add(sent.segment_of, d.segment_of);
  add(sent.fold_bases, d.fold_bases);
  add(sent.text_rows, d.text_rows);
  add(sent.page_slots, d.page_slots);
  memory_.Send(message);
  return sent;
}

DeviceStep DeviceSuiteRun::StepOf(const Description& d, const Sent& sent, const Form& form) {
  DeviceStep step{&memory_.device, &memory_.workspace, {}, {}};
  step.rows = {sent.segments, sent.segment_of, static_cast<uint32_t>(d.segments.size()),
               static_cast<uint32_t>(d.segment_of.size()), form.single};
  if (d.has_fold_bases) step.rows.fold_bases = sent.fold_bases;
  step.rows.decodes = static_cast<uint32_t>(form.decodes);
  step.slots = {.bases = bases.data(),
                .base_stride = bases.stride(),
                .tails = tails.data(),
                .tail_stride = tails.stride(),
                .pages = pages.data(),
                .page_stride = pages.stride()};
  step.pages = {sent.segment_pages, sent.page_slots, layout().page_kind().levels};
  return step;
}

void DeviceSuiteRun::AddPiece(const Piece& piece, const Form& form, Description& d) {
  const auto first = static_cast<uint32_t>(d.text_rows.size());
  const bool single = form.single || d.segments.size() < form.decodes;
  const size_t rows = single ? 1 : piece.tokens;
  first_rows_.push_back(first);
  d.segment_of.resize(first + rows, static_cast<uint32_t>(d.segments.size()));
  DeviceSegment segment{first, static_cast<uint32_t>(piece.tokens), 0, 0, 0, 0, 0};
  d.fold_bases.resize(first + rows);
  if (piece.tokens == 0) {
    d.text_rows.resize(first + rows, 0);
    d.segment_pages.push_back({});
    d.segments.push_back(segment);
    return;
  }
  DeviceSuiteSession& session = *piece.session;
  const size_t text = piece.text == SIZE_MAX ? session.text : piece.text;
  RIVULET_CHECK(session.position + piece.tokens <= sizes_.tokens, "the text is too short");
  for (size_t i = 0; i < piece.tokens; ++i) {
    d.text_rows.push_back(static_cast<uint32_t>(text * sizes_.tokens + session.position + i));
  }
  segment.position = session.position;
  segment.tail = session.tail;
  PlanBases(piece, segment, d);
  AddPages(piece, d);
  d.segments.push_back(segment);
}

void DeviceSuiteRun::PlanBases(const Piece& piece, DeviceSegment& segment, Description& d) {
  DeviceSuiteSession& session = *piece.session;
  segment.base_in = segment.base_out = session.base;
  const size_t folds = FoldsIn(session.position, piece.tokens, chunk());
  if (folds == 0) return;
  size_t last = segment.first_token + chunk() - session.position % chunk() - 1;
  for (size_t fold = 0; fold < folds && piece.fold_bases != nullptr; ++fold, last += chunk()) {
    segment.base_out = bases.Take();
    piece.fold_bases->push_back(segment.base_out);
    d.fold_bases[last] = segment.base_out;
    d.has_fold_bases = true;
  }
  if (piece.fold_bases != nullptr) {
    bases.Share(segment.base_out);  // the session holds it too
  } else if (bases.Shared(session.base)) {
    segment.base_out = bases.Take();
  }
  if (piece.fold_bases == nullptr) SetFoldBases(segment, folds, d);
  if (segment.base_out != session.base) d.released.push_back(session.base);
  session.base = segment.base_out;
}

// Where other segments have bases of their own for their folds, the table has the one of this too.
void DeviceSuiteRun::SetFoldBases(const DeviceSegment& segment, size_t folds, Description& d) {
  size_t last = segment.first_token + chunk() - segment.position % chunk() - 1;
  for (size_t fold = 0; fold < folds; ++fold, last += chunk()) {
    d.fold_bases[last] = segment.base_out;
  }
}

void DeviceSuiteRun::AddPages(const Piece& piece, Description& d) {
  const bool fenwick = layout().page_kind().fenwick();
  const size_t folds = FoldsIn(piece.session->position, piece.tokens, chunk());
  const absl::StatusOr<SegmentPages> planned =
      piece.session->pages.Plan(piece.session->position, piece.tokens, piece.tables != nullptr);
  RIVULET_CHECK(planned.ok(), "the suite has too few pages");
  const size_t count = fenwick ? (folds + 1) * planned->levels : planned->count;
  d.segment_pages.push_back({static_cast<uint32_t>(d.page_slots.size()),
                             static_cast<uint32_t>(count), planned->first_page});
  d.page_slots.insert(d.page_slots.end(), planned->slots, planned->slots + count);
}

void DeviceSuiteRun::Finish(std::span<const Piece> pieces, const Description& d) {
  for (const Piece& piece : pieces) {
    if (piece.tokens == 0) continue;
    DeviceSuiteSession& session = *piece.session;
    const size_t folds = FoldsIn(session.position, piece.tokens, chunk());
    for (size_t fold = 0; fold < folds && piece.tables != nullptr; ++fold) {
      const bool has_pages = layout().page_kind().rule != PageRule::kNone;
      piece.tables->push_back(has_pages ? session.pages.ForkAt(fold)
                                        : PageTable(layout().page_kind(), pages));
    }
    session.pages.Commit();
    session.position += piece.tokens;
  }
  for (const uint32_t base : d.released) bases.Release(base);
}

// --- results -------------------------------------------------------------------------------------

void DeviceSuiteRun::Fetch(const DeviceOutput& output, size_t rows) {
  const bool plain = output.rows.data != nullptr;
  const size_t row_bytes = plain ? output.rows.stride * 4 : output.operand.stride * 2;
  const void* from = plain ? static_cast<const void*>(output.rows.data) : output.operand.data;
  const auto bytes = memory_.Read(from, rows * row_bytes);
  outputs_ = reinterpret_cast<const float*>(bytes.data());
  output_stride_ = output.rows.stride;
  if (plain && subject_.outputs_at.empty()) return;
  std::vector<float> numbers;
  if (!plain) {
    Operand host = output.operand;
    host.data = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(bytes.data()));
    host.rows = static_cast<uint32_t>(rows);
    numbers = HostNumbersOf(IsFake(memory_.device), host);
    outputs_ = numbers.data();
    output_stride_ = host.columns;
  }
  Reorder(rows);
}

// The subject's columns in its order.
void DeviceSuiteRun::Reorder(size_t rows) {
  const size_t columns = sizes_.output_columns;
  converted_.resize(rows * columns);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < columns; ++i) {
      const size_t at = subject_.outputs_at.empty() ? i : subject_.outputs_at[i];
      const bool there = at != DeviceSubject::kNoColumn;
      converted_[r * columns + i] = there ? outputs_[r * output_stride_ + at] : 0.0f;
    }
  }
  outputs_ = converted_.data();
  output_stride_ = columns;
}

std::string DeviceSuiteRun::BasePlanes(uint32_t slot) const {
  const std::string all = bases.Bytes(slot);
  std::string bytes;
  for (const StatePlane& plane : layout().planes()) {
    if (plane.part != StatePart::kBase) continue;
    size_t count = DTypeSize(plane.dtype);
    for (const size_t extent : plane.shape) count *= extent;
    bytes += all.substr(plane.offset, count);
  }
  return bytes;
}

}  // namespace rivulet
