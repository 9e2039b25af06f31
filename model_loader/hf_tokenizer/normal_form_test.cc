// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/normal_form.h"

#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "model_loader/hf_tokenizer/unicode_data.h"
#include "model_loader/hf_tokenizer/utf8_text.h"

namespace rivulet {
namespace {

TEST(NormalFormTest, Composes) {
  EXPECT_EQ(ToNormalForm("e\u0301 \u1100\u1161\u11a8 \u212b", NormalForm::kNfc),
            "\u00e9 \uac01 \u00c5");
  EXPECT_EQ(ToNormalForm("\ufb01\u00bd", NormalForm::kNfkc), "fi1\u20442");
  EXPECT_EQ(ToNormalForm("\u0958", NormalForm::kNfc), "\u0915\u093c");  // never composes again
}

// It is not a tail of Hangul, though utf8proc 2.8 drops it as if it were an empty one.
TEST(NormalFormTest, KeepsTheCharacterBeforeHangulsTails) {
  EXPECT_EQ(ToNormalForm("\u110c\u1162\u11a7", NormalForm::kNfc), "\uc7ac\u11a7");
  EXPECT_EQ(ToNormalForm("\uc7ac\u11a7\u11a8", NormalForm::kNfkc), "\uc7ac\u11a7\u11a8");
}

TEST(NormalFormTest, SortsMarks) {
  EXPECT_EQ(ToNormalForm("a\u0308\u0323", NormalForm::kNfd), "a\u0323\u0308");
  EXPECT_EQ(ToNormalForm("a\u0308\u0323", NormalForm::kNfc), "\u1ea1\u0308");
}

// U+32FF came with Unicode 12.1, after the tables of the `tokenizers` package.
TEST(NormalFormTest, LeavesNewerCharacters) {
  EXPECT_EQ(ToNormalForm("\u32ff\u32fe", NormalForm::kNfkc), "\u32ff\u30f2");
}

// The library's own sorting would take minutes.
TEST(NormalFormTest, SortsManyMarksInTime) {
  std::string text = "e";
  for (int i = 0; i < 200000; ++i) text += "\u0301\u0323";
  EXPECT_EQ(ToNormalForm(text, NormalForm::kNfd).size(), text.size());
}

// Where both know all characters, this is utf8proc's normal form of the whole.
TEST(NormalFormTest, AgreesWithTheWholeTextsForm) {
  std::mt19937 random(TestSeed());
  const CodePointSet& newer = NewerThanNormalForms();
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t length = random() % 12; length-- > 0;) {
      const uint32_t limit =
          std::vector<uint32_t>{0x80, 0x400, 0x1200, 0x3000, 0x20000}[random() % 5];
      const auto code = static_cast<uint32_t>(random() % limit);
      const bool usable =
          code != 0 && code != 0x11A7 && (code < 0xD800 || code > 0xDFFF) && !newer.Contains(code);
      if (usable) AppendUtf8(code, &text);
    }
    auto* const whole = utf8proc_NFKC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    ASSERT_NE(whole, nullptr);
    EXPECT_EQ(ToNormalForm(text, NormalForm::kNfkc), reinterpret_cast<const char*>(whole));
    std::free(whole);
  }
}

}  // namespace
}  // namespace rivulet
