// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_MODEL_LOADER_UTF8_H_
#define RIVULET_MODEL_LOADER_UTF8_H_

#include <cstddef>
#include <string_view>

namespace rivulet {

// The length of the longest prefix of `text` that is valid UTF-8 (Unicode 15, table 3-7: no
// overlong forms, no surrogates, nothing above U+10FFFF): text.size() when all of it is.
size_t ValidUtf8Length(std::string_view text);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_UTF8_H_
