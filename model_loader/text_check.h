// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_MODEL_LOADER_TEXT_CHECK_H_
#define RIVULET_MODEL_LOADER_TEXT_CHECK_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"

namespace rivulet {

// INVALID_ARGUMENT naming the first byte that is not UTF-8.
inline absl::Status CheckUtf8(std::string_view text) {
  const size_t valid = ValidUtf8Length(text);
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the text is not valid UTF-8: byte 0x",
                   absl::Hex(static_cast<uint8_t>(text[valid]), absl::kZeroPad2), " at offset ",
                   valid, " does not belong to a character; send the text as UTF-8"));
}

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_TEXT_CHECK_H_
