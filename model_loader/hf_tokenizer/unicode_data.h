// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a character is, to the `tokenizers` package. Its parts know different versions of Unicode,
// and ids depend on them, so these are its own tables (make_unicode_tables.py) and not those of
// the distribution's Unicode library, which differ from one distribution to the next.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_UNICODE_DATA_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_UNICODE_DATA_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "model_loader/hf_tokenizer/code_point_set.h"

namespace rivulet {

// \p{name} of a regular expression: a general category ("L", "Lu"), its long name ("Letter"), a
// script ("Han") or Any. Upper and lower case, spaces, - and _ do not matter. Nothing for an
// unknown name.
std::optional<CodePointSet> UnicodeProperty(std::string_view name);

const CodePointSet& RegexWordCharacters();  // \w of a regular expression of the model's
const CodePointSet& RustWordCharacters();   // \w of the package's own expressions
const CodePointSet& WhitespaceCharacters();
const CodePointSet& NumericCharacters();      // Digits
const CodePointSet& PunctuationCharacters();  // Punctuation and BertPreTokenizer
const CodePointSet& ControlCharacters();      // what BertNormalizer's clean_text removes
const CodePointSet& NonspacingCharacters();   // what BertNormalizer's strip_accents removes
const CodePointSet& AccentCharacters();       // what StripAccents removes
const CodePointSet& NewerThanNormalForms();   // what normal forms leave alone

// The simple lower case; U+0130, whose lower case is two characters, stays.
uint32_t LowerCase(uint32_t code);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_UNICODE_DATA_H_
