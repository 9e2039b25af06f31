// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_BASE_UTF8_H_
#define RIVULET_KERNELS_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

namespace rivulet {

struct Utf8Character {
  char32_t code = 0xFFFD;
  size_t bytes = 1;
  bool valid = false;
};

// The first character of `text`, which is not empty. A byte that begins no valid character (Unicode
// 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF) counts as U+FFFD, not
// valid.
Utf8Character FirstUtf8Character(std::string_view text);

// The length of the longest prefix of `text` that is valid UTF-8: text.size() when all of it is.
size_t ValidUtf8Length(std::string_view text);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_UTF8_H_
