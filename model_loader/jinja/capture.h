// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_MODEL_LOADER_JINJA_CAPTURE_H_
#define RIVULET_MODEL_LOADER_JINJA_CAPTURE_H_

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "model_loader/jinja/budget.h"
#include "model_loader/marked_text.h"

namespace rivulet::jinja {

// A text that statements write, paid from a budget while it exists.
class Capture {
 public:
  explicit Capture(Budget& budget) : budget_(budget) {}
  ~Capture() { Release(); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Only Append may write to it.
  MarkedText& text() { return text_; }
  MarkedText Take() {
    Release();
    return std::exchange(text_, {});
  }

 private:
  void Release() { budget_.Release(text_.bytes.size() + text_.mark_bytes()); }

  Budget& budget_;
  MarkedText text_;
};

inline absl::Status Append(Budget& budget, std::string_view text, MarkedText& captured) {
  RIVULET_RETURN_IF_ERROR(budget.Work(text.size()));
  RIVULET_RETURN_IF_ERROR(budget.CheckOutput(captured.bytes.size() + text.size()));
  RIVULET_RETURN_IF_ERROR(budget.CheckRoom(text.size()));
  budget.Hold(text.size());
  captured.Append(text);
  return absl::OkStatus();
}

inline absl::Status Append(Budget& budget, const MarkedText& text, MarkedText& captured) {
  const size_t bytes = text.bytes.size() + text.mark_bytes();
  RIVULET_RETURN_IF_ERROR(budget.Work(bytes));
  RIVULET_RETURN_IF_ERROR(budget.CheckOutput(captured.bytes.size() + text.bytes.size()));
  RIVULET_RETURN_IF_ERROR(budget.CheckRoom(bytes));
  const size_t marks = captured.mark_bytes();
  captured.Append(text);
  budget.Hold(text.bytes.size() + captured.mark_bytes() - marks);
  return absl::OkStatus();
}

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_CAPTURE_H_
