// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What one rendering may use. A template comes with a checkpoint of any origin, and
// what it renders comes from a request, so every loop, string and call is paid from a Budget. A
// rendering that uses it up ends with INVALID_ARGUMENT, which names the limit.
//
// Threading: one thread at a time.
#ifndef RIVULET_MODEL_LOADER_JINJA_BUDGET_H_
#define RIVULET_MODEL_LOADER_JINJA_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rivulet::jinja {

struct Limits {
  uint64_t steps = 20'000'000;       // evaluated nodes, and what their operations read or write
  size_t memory = size_t{64} << 20;  // bytes of the strings, lists and mappings alive at once
  size_t output = size_t{16} << 20;  // bytes of the rendered text
  int depth = 700;                   // nested evaluations: expressions, statements, macro calls
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const Limits& limits() const { return limits_; }

  absl::Status Step(uint64_t steps = 1) {
    used_ += steps;
    if (used_ <= limits_.steps) [[likely]]
      return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("it takes more than ", limits_.steps, " steps"));
  }

  // An operation that reads or writes so many bytes.
  absl::Status Work(size_t bytes) { return Step(bytes / kBytesPerStep + 1); }

  // Whether so many further bytes may be alive.
  absl::Status CheckRoom(size_t bytes) const {
    if (bytes <= limits_.memory && held_ <= limits_.memory - bytes) [[likely]]
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("its values take more than ", limits_.memory, " bytes"));
  }

  absl::Status CheckOutput(size_t bytes) const {
    if (bytes <= limits_.output) [[likely]]
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("its text is longer than ", limits_.output, " bytes"));
  }

  void Hold(size_t bytes) { held_ += bytes; }
  void Release(size_t bytes) { held_ -= bytes; }

 private:
  friend class Level;
  static constexpr size_t kBytesPerStep = 128;

  const Limits limits_;
  uint64_t used_ = 0;
  size_t held_ = 0;
  int depth_ = 0;
};

// One nested evaluation, while it exists.
class Level {
 public:
  explicit Level(Budget& budget) : budget_(budget) { ++budget_.depth_; }
  ~Level() { --budget_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  absl::Status Check() const {
    if (budget_.depth_ <= budget_.limits_.depth) [[likely]]
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("it is nested deeper than ", budget_.limits_.depth, " levels"));
  }

 private:
  Budget& budget_;
};

// Bytes that a value holds of a budget while it exists. The budget outlives it.
class Charge {
 public:
  Charge() = default;
  Charge(Budget& budget, size_t bytes) : budget_(&budget), bytes_(bytes) { budget.Hold(bytes); }
  ~Charge() {
    if (budget_ != nullptr) budget_->Release(bytes_);
  }
  Charge(Charge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

 private:
  Budget* budget_ = nullptr;  // null: of no rendering
  size_t bytes_ = 0;
};

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_BUDGET_H_
