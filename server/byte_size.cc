// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/byte_size.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace rivulet {
namespace {

constexpr std::pair<const char*, uint64_t> kSuffixes[] = {{"TiB", uint64_t{1} << 40},
                                                          {"GiB", uint64_t{1} << 30},
                                                          {"MiB", uint64_t{1} << 20},
                                                          {"KiB", 1024}};

}  // namespace

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error) {
  uint64_t unit = 1;
  for (const auto& [suffix, bytes] : kSuffixes) {
    if (absl::ConsumeSuffix(&text, suffix)) {
      unit = bytes;
      break;
    }
  }
  double number = 0;
  // Beyond 2^63 the product would not fit; no machine has it.
  if (!absl::SimpleAtod(text, &number) || !(number > 0) ||
      number * static_cast<double>(unit) >= 9.2e18) {
    *error = "give bytes, or a number with KiB, MiB, GiB or TiB, above 0";
    return false;
  }
  size->bytes = static_cast<uint64_t>(number * static_cast<double>(unit));
  return true;
}

std::string AbslUnparseFlag(ByteSize size) {
  for (const auto& [suffix, bytes] : kSuffixes) {
    if (size.bytes != 0 && size.bytes % bytes == 0) return absl::StrCat(size.bytes / bytes, suffix);
  }
  return absl::StrCat(size.bytes);
}

}  // namespace rivulet
