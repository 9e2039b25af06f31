// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/pattern_reader.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/hf_tokenizer/code_point_set.h"
#include "model_loader/hf_tokenizer/utf8_text.h"
#include "server/grammar/expression.h"

namespace rivulet {

uint32_t PatternReader::Peek() const {
  size_t place = place_;
  return at_end() ? kEnd : NextCodePoint(text_, &place);
}

uint32_t PatternReader::Take() { return at_end() ? kEnd : NextCodePoint(text_, &place_); }

bool PatternReader::TakeIf(std::string_view expected) {
  if (!rest().starts_with(expected)) return false;
  place_ += expected.size();
  return true;
}

absl::StatusOr<uint32_t> PatternReader::TakeNumber() {
  uint32_t number = 0;
  if (!absl::ascii_isdigit(static_cast<unsigned char>(Peek() < 0x80 ? Peek() : 0))) {
    return Wrong("a number is missing in a repeat");
  }
  while (Peek() >= '0' && Peek() <= '9') {
    number = 10 * number + (Take() - '0');
    if (number > kMostRepeats) {
      return Wrong(absl::StrCat("a repeat of more than ", kMostRepeats));
    }
  }
  return number;
}

absl::StatusOr<RepeatBounds> PatternReader::TakeRepeat() {
  if (TakeIf("?")) return RepeatBounds{0, 1};
  if (TakeIf("*")) return RepeatBounds{0, Expression::kUnbounded};
  if (TakeIf("+")) return RepeatBounds{1, Expression::kUnbounded};
  if (!TakeIf("{")) return RepeatBounds{};
  RepeatBounds bounds;
  RIVULET_ASSIGN_OR_RETURN(bounds.least, TakeNumber());
  bounds.most = bounds.least;
  if (TakeIf(",")) {
    bounds.most = Expression::kUnbounded;
    if (Peek() != '}') {
      RIVULET_ASSIGN_OR_RETURN(bounds.most, TakeNumber());
    }
  }
  if (!TakeIf("}")) return Wrong("a } is missing");
  if (bounds.least > bounds.most) return Wrong("a repeat whose least is more than its most");
  return bounds;
}

absl::StatusOr<uint32_t> PatternReader::TakeHexadecimal(size_t digits) {
  const absl::string_view written(rest().data(), std::min(digits, rest().size()));
  uint32_t code = 0;
  for (const char c : written) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
      return Wrong("a hexadecimal digit is missing");
    }
  }
  if (written.size() != digits || !absl::SimpleHexAtoi(written, &code)) {
    return Wrong("a hexadecimal digit is missing");
  }
  place_ += digits;
  if (!AllCharacters().Contains(code)) return Wrong("this is no character");
  return code;
}

absl::Status PatternReader::Wrong(std::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(absl::string_view(what.data(), what.size()), ", at byte ", place_));
}

absl::Status PatternReader::NotServed(std::string_view what) const {
  return absl::UnimplementedError(absl::StrCat(absl::string_view(what.data(), what.size()),
                                               " (at byte ", place_, ") is not served"));
}

}  // namespace rivulet
