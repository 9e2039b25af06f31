// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The tables that make_unicode_tables.py writes. Only unicode_data.cc reads them.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_UNICODE_TABLES_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_UNICODE_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "model_loader/hf_tokenizer/code_point_set.h"

namespace rivulet::unicode_tables {

// Each code point from `first` to `last` by `step` has its lower case `difference` further on.
struct LowerRun {
  uint32_t first, last, step;
  int32_t difference;
};

struct ScriptTable {
  const char* name;
  const CodeRange* ranges;
  size_t size;
};

// first code point << 5 | category, up to the next one's first.
extern const uint32_t kCategoryRuns[];
extern const size_t kCategoryRunsSize;

extern const CodeRange kRegexWord[], kRustWord[], kNumeric[], kPunctuation[], kControl[],
    kNonspacing[], kAccents[], kNewerThanNormalForms[];
extern const size_t kRegexWordSize, kRustWordSize, kNumericSize, kPunctuationSize, kControlSize,
    kNonspacingSize, kAccentsSize, kNewerThanNormalFormsSize;

extern const LowerRun kLowerRuns[];
extern const size_t kLowerRunsSize;

extern const ScriptTable kScripts[];
extern const size_t kScriptsSize;

}  // namespace rivulet::unicode_tables

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_UNICODE_TABLES_H_
