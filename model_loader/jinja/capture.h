// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_MODEL_LOADER_JINJA_CAPTURE_H_
#define RIVULET_MODEL_LOADER_JINJA_CAPTURE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "model_loader/jinja/budget.h"

namespace rivulet::jinja {

// A text that statements write, paid from a budget while it exists.
class Capture {
 public:
  explicit Capture(Budget& budget) : budget_(budget) {}
  ~Capture() { budget_.Release(text_.size()); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Only Append may write to it.
  std::string& text() { return text_; }
  std::string Take() {
    budget_.Release(text_.size());
    std::string text;
    text.swap(text_);
    return text;
  }

 private:
  Budget& budget_;
  std::string text_;
};

inline absl::Status Append(Budget& budget, std::string_view text, std::string& captured) {
  RIVULET_RETURN_IF_ERROR(budget.Work(text.size()));
  RIVULET_RETURN_IF_ERROR(budget.CheckOutput(captured.size() + text.size()));
  RIVULET_RETURN_IF_ERROR(budget.CheckRoom(text.size()));
  budget.Hold(text.size());
  captured += text;
  return absl::OkStatus();
}

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_CAPTURE_H_
