// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Guesses of a device's engine. The first guess of each row is a pass of one token, and so is each
// that follows, with the token that was guessed last, which the host need not know. All passes of
// some rows are described by one copy to the device, and what they guessed comes back in one.
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

// The rows with the most guesses first, so that those of a pass lie side by side.
std::vector<size_t> ByCount(const GuessPlan& plan) {
  std::vector<size_t> rows(plan.rows.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  std::stable_sort(rows.begin(), rows.end(),
                   [&](size_t a, size_t b) { return plan.rows[a].count > plan.rows[b].count; });
  return rows;
}

// The rows of each pass: those that want so many guesses. `rows` is a part of ByCount.
std::vector<size_t> OpenRows(const GuessPlan& plan, std::span<const size_t> rows) {
  std::vector<size_t> open;
  for (uint32_t pass = 0; pass < plan.rows[rows[0]].count; ++pass) {
    open.push_back(static_cast<size_t>(std::count_if(
        rows.begin(), rows.end(), [&](size_t r) { return plan.rows[r].count > pass; })));
  }
  return open;
}

}  // namespace

GuessResult DeviceEngine::Guess(const GuessPlan& plan) {
  RIVULET_CHECK(launched_ - awaited_ < depth_,
                "a description is free while a step may be launched");
  const Clock::time_point start = Clock::now();
  GuessResult result;
  try {
    result.guesses.resize(plan.rows.size());
    const std::vector<size_t> rows = ByCount(plan);
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
  static_assert(kGuessRows * kFoldInterval <= kMostPlaces && kGuessRows <= kLogitRows);
  size_t fit = 0, page_slots = 0, edits = 0;
  for (; fit < std::min(rows.size(), kGuessRows); ++fit) {
    const GuessRow& row = plan.rows[rows[fit]];
    page_slots += PageSlots(row.segment);
    edits += EditWriter::Bound(*row.params, {}, 0);
    if (fit > 0 && (page_slots > page_slots_ || edits > kMostEdits)) break;
  }
  return fit;
}

absl::Status DeviceEngine::GuessTogether(const GuessPlan& plan, std::span<const size_t> rows,
                                         GuessResult& result) {
  Step& step = current();
  const std::vector<size_t> open = OpenRows(plan, rows);
  const size_t places = open.size() * rows.size();
  StepDescription here(step.description, ExtentsOf(places, places));
  DescribeGuesses(plan, rows, here);
  model_->Reset();
  device_->CopyToDevice(description_, step.description, here.bytes());
  RunGuesses({description_, ExtentsOf(places, places)}, rows.size(), open);
  RIVULET_RETURN_IF_ERROR(model_->status());
  device_->CopyToHost(step.results, results_, places * sizeof(SampleResult));
  device_->Record(step.end_event);
  failure_.Update(Failed(device_->Wait(step.end_event)));
  RIVULET_RETURN_IF_ERROR(failure_);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t pass = 0; pass < plan.rows[rows[r]].count; ++pass) {
      const SampleResult& answer = step.results[pass * rows.size() + r];
      if (answer.broken != kNoToken) break;
      result.guesses[rows[r]].push_back(answer.token);
    }
  }
  return absl::OkStatus();
}

// Pass after pass, each with room for all rows.
void DeviceEngine::DescribeGuesses(const GuessPlan& plan, std::span<const size_t> rows,
                                   StepDescription& here) {
  std::memset(current().description, 0, here.bytes());
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
      const size_t at = pass * rows.size() + r;
      here.segments()[at] = {
          static_cast<uint32_t>(r), 1, s.position + pass, s.base_in, s.base_out, s.tail, 0};
      here.segment_of()[at] = static_cast<uint32_t>(r);
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

// `open`: the rows of each pass, the first so many of `rows`.
void DeviceEngine::RunGuesses(const StepDescription& there, size_t rows,
                              std::span<const size_t> open) {
  DevicePredictor::Guesses guesses = predictor_->TakeGuesses(rows);
  std::array<DevicePages, kMaxPageKinds> pages = PagesOf(there);
  for (size_t pass = 0; pass < open.size(); ++pass) {
    const size_t first = pass * rows;
    const auto count = static_cast<uint32_t>(open[pass]);
    const DeviceRows of_pass{there.segments() + first, there.segment_of() + first, count, count,
                             /*single=*/true};
    const FloatMatrix logits{logits_, count, model_->vocab(), model_->vocab()};
    predictor_->Guess({there.ids() + first, of_pass, last_guesses_, pages}, pass > 0, *states_,
                      guesses, logits);
    device_->Sample({.logits = logits,
                     .rows = there.draws() + first,
                     .edits = there.edits(),
                     .masks = there.masks(),
                     .count = count,
                     .last_tokens = last_guesses_,
                     .results = results_ + first,
                     .logprobs = logprobs_ + first});
    for (DevicePages& kind : pages) kind.segments += rows;
  }
}

}  // namespace rivulet
