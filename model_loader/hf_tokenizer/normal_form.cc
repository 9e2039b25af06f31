// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/base/check.h"
#include "model_loader/hf_tokenizer/code_point_table.h"
#include "model_loader/hf_tokenizer/unicode_data.h"
#include "model_loader/hf_tokenizer/utf8_text.h"

namespace rivulet {
namespace {

using CodePoints = std::vector<utf8proc_int32_t>;

bool Composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }
bool IsCompatible(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

int CombiningClass(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

void AppendDecomposition(uint32_t code, bool compatible, CodePoints* out) {
  constexpr utf8proc_ssize_t kLongest = 32;  // U+FDFA has 18
  utf8proc_int32_t buffer[kLongest];
  int boundary = 0;
  const int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t size =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), buffer, kLongest,
                              static_cast<utf8proc_option_t>(options), &boundary);
  RIVULET_CHECK(size > 0 && size <= kLongest, "a character does not decompose");
  out->insert(out->end(), buffer, buffer + size);
}

// The library's own sorting takes quadratic time.
void SortMarks(CodePoints* codes) {
  const auto is_mark = [](utf8proc_int32_t code) { return CombiningClass(code) != 0; };
  for (auto begin = codes->begin(); begin != codes->end();) {
    begin = std::find_if(begin, codes->end(), is_mark);
    const auto end = std::find_if_not(begin, codes->end(), is_mark);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    begin = end;
  }
}

void Compose(CodePoints* codes) {
  if (codes->empty()) return;
  const utf8proc_ssize_t size =
      utf8proc_normalize_utf32(codes->data(), static_cast<utf8proc_ssize_t>(codes->size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  RIVULET_CHECK(size >= 0, "characters do not compose");
  codes->resize(static_cast<size_t>(size));
}

// Replaces *codes with the normal form of `text`.
void NormalizeCodes(const std::vector<uint32_t>& text, NormalForm form, CodePoints* codes) {
  codes->clear();
  for (const uint32_t code : text) AppendDecomposition(code, IsCompatible(form), codes);
  SortMarks(codes);
  if (Composes(form)) Compose(codes);
}

bool ChangesAlone(uint32_t code, NormalForm form) {
  CodePoints codes;
  NormalizeCodes({code}, form, &codes);
  return codes.size() != 1 || static_cast<uint32_t>(codes[0]) != code;
}

// What may compose with the character before it. Not U+11A7, just before Hangul's tails: utf8proc
// takes it for the tail that is none and drops it behind a syllable, so it must begin a segment.
CodePointSet Followers() {
  std::vector<CodeRange> followers = {{0x1161, 0x1175},
                                      {0x11A8, 0x11C2}};  // Hangul's vowels, tails
  CodePoints parts;
  for (uint32_t code = 0; code <= kLastCodePoint; ++code) {
    parts.clear();
    AppendDecomposition(code, false, &parts);
    for (size_t i = 1; i < parts.size(); ++i) {
      const auto part = static_cast<uint32_t>(parts[i]);
      followers.push_back({part, part});
    }
  }
  return CodePointSet(followers);
}

// What is not in the form, or may change its place or its neighbour.
CodePointSet Unstable(NormalForm form) {
  std::vector<CodeRange> ranges;
  for (uint32_t code = 0; code <= kLastCodePoint; ++code) {
    const bool mark = CombiningClass(static_cast<utf8proc_int32_t>(code)) != 0;
    if (mark || ChangesAlone(code, form)) ranges.push_back({code, code});
  }
  const CodePointSet unstable(ranges);
  const CodePointSet all = Composes(form) ? unstable.Union(Followers()) : unstable;
  return all.Intersection(NewerThanNormalForms().Complement());
}

const CodePointTable& UnstableTable(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc: {
      static const auto* const table = new CodePointTable(Unstable(NormalForm::kNfc));
      return *table;
    }
    case NormalForm::kNfd: {
      static const auto* const table = new CodePointTable(Unstable(NormalForm::kNfd));
      return *table;
    }
    case NormalForm::kNfkc: {
      static const auto* const table = new CodePointTable(Unstable(NormalForm::kNfkc));
      return *table;
    }
    default: {
      static const auto* const table = new CodePointTable(Unstable(NormalForm::kNfkd));
      return *table;
    }
  }
}

const CodePointTable& NewerTable() {
  static const auto* const table = new CodePointTable(NewerThanNormalForms());
  return *table;
}

}  // namespace

std::string ToNormalForm(std::string_view text, NormalForm form) {
  const CodePointTable& unstable = UnstableTable(form);
  std::string result;
  size_t copied = 0;    // of text
  size_t previous = 0;  // where the character before `i` begins
  std::vector<uint32_t> segment;
  CodePoints normal;
  for (size_t i = 0; i < text.size();) {
    size_t next = i;
    uint32_t code = NextCodePoint(text, &next);
    if (code < 0x80 || !unstable.Contains(code)) {
      previous = std::exchange(i, next);
      continue;
    }
    // The stable character before it, and all unstable ones from here, are one segment.
    size_t begin = i, place = previous;
    segment.clear();
    if (i > copied) {
      const uint32_t before = NextCodePoint(text, &place);
      if (!NewerTable().Contains(before)) {
        segment.push_back(before);
        begin = previous;
      }
    }
    for (place = i; place < text.size(); place = next) {
      next = place;
      code = NextCodePoint(text, &next);
      if (!unstable.Contains(code)) break;
      segment.push_back(code);
    }
    result += text.substr(copied, begin - copied);
    NormalizeCodes(segment, form, &normal);
    for (const auto n : normal) AppendUtf8(static_cast<uint32_t>(n), &result);
    copied = previous = i = place;
  }
  return result += text.substr(copied);
}

}  // namespace rivulet
