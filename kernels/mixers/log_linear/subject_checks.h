// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Checks of a log-linear recurrence that the suite, whose sessions are short, does not make. For
// tests only: fails through googletest.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_SUBJECT_CHECKS_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_SUBJECT_CHECKS_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/suite_slots.h"
#include "kernels/recurrence/fenwick.h"

namespace rivulet {

// Rows of generated inputs or of outputs.
struct SubjectRows {
  SubjectRows(size_t rows, size_t columns)
      : buffer(rows * PaddedColumns(columns)),
        view{buffer.data(), rows, columns, PaddedColumns(columns)} {}
  AlignedBuffer<float> buffer;
  FloatMatrix view;
};

// Outputs of the first inputs.rows tokens of a session.
inline SubjectRows RunSubject(SuiteSubject& subject, ConstFloatMatrix inputs) {
  SubjectRows outputs(inputs.rows, subject.output_columns());
  ThreadPool pool(1);
  SuiteSlots slots(subject.layout(), 1);
  SuiteSession session(slots, 0, 0);
  const Segment segment = session.Plan(0, inputs.rows);
  subject.Run(std::span(&segment, 1), slots.state(), inputs, outputs.view, pool);
  return outputs;
}

// The level weights of `subject` being one, it computes what `plain` does: columns of the inputs
// that `plain` has come first, and are drawn alike.
inline void CheckSameAsPlain(SuiteSubject& subject, SuiteSubject& plain) {
  constexpr size_t kTokens = 130;
  SubjectRows inputs(kTokens, subject.input_columns());
  FillInputs(subject, 1, inputs.view);
  const SubjectRows ours = RunSubject(subject, inputs.view);
  const SubjectRows theirs =
      RunSubject(plain, ConstFloatMatrix(inputs.view).Columns(0, plain.input_columns()));
  double scale = 0, error = 0;
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t i = 0; i < theirs.view.columns; ++i) {
      const double expected = theirs.view.row(t)[i];
      scale = std::max(scale, std::abs(expected));
      error = std::max(error, std::abs(ours.view.row(t)[i] - expected));
    }
  }
  EXPECT_GT(scale, 0);
  EXPECT_LE(error, 1e-5 * scale);
}

// A session of so many tokens that only its pages remember the first ones: they are as many as its
// position asks for, and outputs are those of reference(inputs, t) for inputs that repeat, so that
// they fit.
template <typename Reference>
void CheckFar(SuiteSubject& subject, uint32_t levels, uint64_t tokens, double tolerance,
              Reference&& reference) {
  constexpr size_t kRows = 4096 + 48;  // not a power of two: repeats meet other pages
  SubjectRows inputs(kRows, subject.input_columns()), outputs(kRows, subject.output_columns());
  FillInputs(subject, 1, inputs.view);
  ThreadPool pool(1);
  SuiteSlots slots(subject.layout(), 1);
  SuiteSession session(slots, 0, 0);
  double scale = 0, error = 0;
  for (uint64_t step = 1; session.position < tokens; ++step) {
    const uint64_t count = std::min<uint64_t>(kRows, tokens - session.position);
    const Segment segment = session.Plan(0, count);
    subject.Run(std::span(&segment, 1), slots.state(), inputs.view.Rows(0, count),
                outputs.view.Rows(0, count), pool);
    session.Commit();
    const size_t chunk = subject.layout().fold_interval();
    const uint64_t chunks = session.position / chunk;
    const uint64_t last = uint64_t{1} << (FenwickPageCount(levels, chunk) - 1);
    const size_t pages = std::popcount(chunks & (last - 1)) + (chunks >= last ? 1 : 0);
    ASSERT_EQ(session.pages.pages(), pages) << "at " << session.position;
    if (step % 64 != 0 && session.position != tokens) continue;
    const std::vector<double> expected = reference(inputs.view, session.position - 1);
    for (size_t i = 0; i < expected.size(); ++i) {
      error = std::max(error, std::abs(outputs.view.row(count - 1)[i] - expected[i]));
      scale = std::max(scale, std::abs(expected[i]));
    }
  }
  testing::Test::RecordProperty("relative_error", std::to_string(error / scale));
  EXPECT_LE(error, tolerance * scale);
}

// A session that is told its pages, for what SuiteSession does not do: forks.
struct ForkedSession {
  // A fork of itself that goes on in other slots.
  ForkedSession Fork(SuiteSlots& slots, uint32_t other) const {
    const LayerState state = slots.state();
    std::memcpy(state.Tail<std::byte>(other, 0), state.Tail<std::byte>(slot, 0),
                slots.layout().tail_bytes());
    std::memcpy(state.Base<std::byte>(other, 0), state.Base<std::byte>(slot, 0),
                slots.layout().base_bytes());
    return {pages.Fork(), other, position};
  }
  // Its next inputs.rows tokens.
  void Run(SuiteSubject& subject, SuiteSlots& slots, ConstFloatMatrix inputs, FloatMatrix outputs) {
    ThreadPool pool(1);
    const SegmentPages planned = *pages.Plan(position, inputs.rows);
    const Segment segment{.tokens = inputs.rows,
                          .position = position,
                          .base_in = slot,
                          .base_out = slot,
                          .tail = slot,
                          .pages = &planned};
    subject.Run(std::span(&segment, 1), slots.state(), inputs, outputs, pool);
    pages.Commit();
    position += inputs.rows;
  }

  PageTable pages;
  uint32_t slot;
  uint64_t position = 0;
};

// Two forks go on from shared pages with tokens of their own, in turns, and each computes what it
// would alone: a page that both hold has decayed differently for each.
inline void CheckForks(SuiteSubject& subject) {
  constexpr size_t kShared = 100, kTokens = 260;
  SubjectRows inputs[2] = {{kTokens, subject.input_columns()}, {kTokens, subject.input_columns()}};
  for (size_t fork = 0; fork < 2; ++fork) {
    FillInputs(subject, 1 + fork, inputs[fork].view);
    FillInputs(subject, 1, inputs[fork].view.Rows(0, kShared));
  }
  SubjectRows outputs(kTokens, subject.output_columns());
  SuiteSlots slots(subject.layout(), 2);
  ForkedSession first{PageTable(subject.layout().page_kind(), slots), 0};
  first.Run(subject, slots, inputs[0].view.Rows(0, kShared), outputs.view.Rows(0, kShared));
  ForkedSession forks[2] = {first.Fork(slots, 1), std::move(first)};
  const SubjectRows alone[2] = {RunSubject(subject, inputs[0].view),
                                RunSubject(subject, inputs[1].view)};
  for (size_t done = kShared; done < kTokens; done += 20) {
    for (size_t fork = 0; fork < 2; ++fork) {
      forks[fork].Run(subject, slots, inputs[fork].view.Rows(done, 20), outputs.view.Rows(0, 20));
      for (size_t t = 0; t < 20; ++t) {
        EXPECT_EQ(std::memcmp(outputs.view.row(t), alone[fork].view.row(done + t),
                              outputs.view.columns * sizeof(float)),
                  0)
            << "fork " << fork << ", token " << done + t;
      }
    }
  }
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_SUBJECT_CHECKS_H_
