// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Guesses of a device's engine. The first guess of each row is a pass of one token, and so is each
// that follows, with the token that was guessed last, which the host need not know. All passes of
// some rows are described by one copy to the device.
//
// Each pass is the replay of a recording, one for each number of passes before it, since a
// recording finds its rows at one place of the description.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <new>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/device/device_operations.h"
#include "server/engine/device_engine_class.h"

namespace rivulet {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// Those of which the head knows all tokens, with the most guesses first, so that those of a pass
// lie side by side.
std::vector<size_t> DeviceEngine::RowsToGuess(const GuessPlan& plan) const {
  std::vector<size_t> rows(plan.rows.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  std::erase_if(rows, [&](size_t row) {
    return !states_->head_marks().KnowsAllBefore(plan.rows[row].segment);
  });
  std::stable_sort(rows.begin(), rows.end(),
                   [&](size_t a, size_t b) { return plan.rows[a].count > plan.rows[b].count; });
  return rows;
}

GuessResult DeviceEngine::Guess(const GuessPlan& plan) {
  RIVULET_CHECK(launched_ - awaited_ < depth_, "an event is free while a step may be launched");
  const Clock::time_point start = Clock::now();
  GuessResult result;
  try {
    result.guesses.resize(plan.rows.size());
    const std::vector<size_t> rows = RowsToGuess(plan);
    for (std::span<const size_t> left = rows; !left.empty() && result.status.ok();) {
      const size_t count = GuessRowsThatFit(plan, left);
      result.status = GuessTogether(plan, left.first(count), result);
      left = left.subspan(count);
    }
  } catch (const std::bad_alloc&) {
    result.status = NoMemory("while guessing tokens");
  }
  result.seconds = SecondsSince(start);
  return result;
}

// How many of the rows one description takes: at least one.
size_t DeviceEngine::GuessRowsThatFit(const GuessPlan& plan, std::span<const size_t> rows) const {
  static_assert(kGuessRows.back() * kMostGuesses <= kMostPlaces && kGuessRows.back() <= kLogitRows);
  size_t fit = 0, page_slots = 0, edits = 0;
  for (; fit < std::min<size_t>(rows.size(), kGuessRows.back()); ++fit) {
    const GuessRow& row = plan.rows[rows[fit]];
    page_slots += PageSlots(row.segment);
    edits += EditWriter::Bound(*row.params, {}, 0);
    if (fit > 0 && (page_slots > page_slots_ || edits > kMostEdits)) break;
  }
  return fit;
}

// The smallest that has room for so many rows.
const DeviceEngine::GuessRecording& DeviceEngine::GuessRecordingFor(size_t rows) const {
  const auto found =
      std::find_if(guess_recordings_.begin(), guess_recordings_.end(),
                   [&](const GuessRecording& recording) { return rows <= recording.rows; });
  RIVULET_CHECK(found != guess_recordings_.end(), "more rows than guess together");
  return *found;
}

absl::Status DeviceEngine::GuessTogether(const GuessPlan& plan, std::span<const size_t> rows,
                                         GuessResult& result) {
  const GuessRecording& recording = GuessRecordingFor(rows.size());
  const uint32_t passes = plan.rows[rows[0]].count;
  RIVULET_CHECK(passes <= kMostGuesses, "more guesses than are recorded");
  const Buffers& buffers = guess_buffers_;
  StepDescription here(buffers.here, GuessExtents(recording.rows));
  DescribeGuesses(plan, rows, recording.rows, here);
  device_->CopyToDevice(buffers.there, buffers.here, here.bytes());
  for (uint32_t pass = 0; pass < passes; ++pass) device_->Replay(recording.passes[pass]);
  const size_t end_event = current().end_event;
  device_->Record(end_event);
  failure_.Update(Failed(device_->Wait(end_event)));
  RIVULET_RETURN_IF_ERROR(failure_);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t pass = 0; pass < plan.rows[rows[r]].count; ++pass) {
      const SampleResult& answer = buffers.results[pass * recording.rows + r];
      if (answer.broken != kNoToken) break;
      result.guesses[rows[r]].push_back(answer.token);
    }
  }
  return absl::OkStatus();
}

// Pass after pass, each with room for `room` rows, as many as the first of `rows` wants. Rows that
// a pass does not have are without tokens.
void DeviceEngine::DescribeGuesses(const GuessPlan& plan, std::span<const size_t> rows, size_t room,
                                   StepDescription& here) {
  ClearRows(here, room, room * plan.rows[rows[0]].count);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t kind = 0; kind < capacity().pages.size(); ++kind) {
      here.AddPages(r, plan.rows[rows[r]].segment, kind, capacity().pages[kind]);
    }
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    const GuessRow& row = plan.rows[rows[r]];
    const Segment& s = row.segment;
    SampleRow edited;
    here.AddEdits(edited,
                  [&](LogitEdit* to) { return edit_writer_.Write(*row.params, {}, {}, to); });
    for (uint32_t pass = 0; pass < row.count; ++pass) {
      const size_t at = pass * room + r;
      here.segments()[at] = {
          static_cast<uint32_t>(r), 1, s.position + pass, s.base_in, s.base_out, s.tail, 0};
      here.ids()[at] = pass == 0 ? plan.tokens[s.first_token] : kLastSampled;
      for (size_t kind = 0; kind < capacity().pages.size(); ++kind) {
        here.segment_pages(kind)[at] = here.segment_pages(kind)[r];
      }
      SampleRow& draw = here.draws()[at];
      draw = DescribeDraw(*row.params, {row.place.index, row.place.position + pass});
      draw.slot = s.tail;
      draw.first_edit = edited.first_edit;
      draw.edits = edited.edits;
    }
  }
}

// Pass number `pass` for `rows` rows.
void DeviceEngine::EnqueueGuesses(const StepDescription& there, uint32_t rows, size_t pass) {
  model_->Reset();  // so that each pass has its temporaries where the one before it had them
  const DevicePredictor::Guesses guesses = predictor_->TakeGuesses(rows);
  const size_t first = pass * rows;
  std::array<DevicePages, kMaxPageKinds> pages = PagesOf(there);
  for (DevicePages& kind : pages) kind.segments += first;
  const DeviceRows of_pass{there.segments() + first, there.segment_of() + first, rows, rows,
                           /*single=*/true};
  const FloatMatrix logits{logits_, rows, model_->vocab(), model_->vocab()};
  predictor_->Guess({there.ids() + first, of_pass, last_guesses_, pages}, pass > 0, *states_,
                    guesses, logits);
  device_->Sample({.logits = logits,
                   .rows = there.draws() + first,
                   .edits = there.edits(),
                   .masks = there.masks(),
                   .count = rows,
                   .last_tokens = last_guesses_,
                   .results = guess_buffers_.results + first,
                   .logprobs = guess_buffers_.logprobs + first});
}

absl::Status DeviceEngine::RecordGuesses(uint32_t rows) {
  const StepDescription there = DescribeEmptyRows(rows, kMostGuesses, guess_buffers_);
  RIVULET_RETURN_IF_ERROR(device_->Synchronize());
  GuessRecording recording{.rows = rows};
  for (size_t pass = 0; pass < kMostGuesses; ++pass) {
    device_->BeginRecording();
    EnqueueGuesses(there, rows, pass);
    RIVULET_ASSIGN_OR_RETURN(recording.passes[pass], device_->EndRecording());
    RIVULET_RETURN_IF_ERROR(model_->status());
  }
  guess_recordings_.push_back(recording);
  return absl::OkStatus();
}

// The first pass and those behind it differ.
absl::Status DeviceEngine::WarmUpGuesses(uint32_t rows) {
  const StepDescription there = DescribeEmptyRows(rows, kMostGuesses, guess_buffers_);
  for (size_t pass = 0; pass < 2; ++pass) EnqueueGuesses(there, rows, pass);
  return AwaitWarmUp();
}

}  // namespace rivulet
