// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Unicode's normal forms, by utf8proc, as the `tokenizers` package knows them: characters that are
// newer than its tables (NewerThanNormalForms) stay as they are and keep apart what they separate.
//
// Cost: linear, but for a run of n combining marks in a row, which is sorted. Text that is in the
// form already, up to a few characters, is only looked at.
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_NORMAL_FORM_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_NORMAL_FORM_H_

#include <string>
#include <string_view>

namespace rivulet {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` is valid UTF-8.
std::string ToNormalForm(std::string_view text, NormalForm form);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_NORMAL_FORM_H_
