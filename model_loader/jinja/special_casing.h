// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_MODEL_LOADER_JINJA_SPECIAL_CASING_H_
#define RIVULET_MODEL_LOADER_JINJA_SPECIAL_CASING_H_

#include <string_view>

namespace rivulet::jinja {

struct SpecialCasing {
  char32_t code;
  std::u32string_view upper;
  std::u32string_view title;
};

// Null for a character whose mappings are single characters.
const SpecialCasing* FindSpecialCasing(char32_t code);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_SPECIAL_CASING_H_
