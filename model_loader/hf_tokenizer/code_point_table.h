// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A set of code points that answers quickly.
//
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_CODE_POINT_TABLE_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_CODE_POINT_TABLE_H_

#include <cstdint>
#include <span>

#include "kernels/base/check.h"
#include "model_loader/hf_tokenizer/code_point_classes.h"
#include "model_loader/hf_tokenizer/code_point_set.h"

namespace rivulet {

class CodePointTable {
 public:
  explicit CodePointTable(const CodePointSet& set) : classes_(MakeClasses(set)) {
    for (const uint8_t member : classes_.OfSet(0)) member_[member] = true;
  }
  bool Contains(uint32_t code) const { return member_[classes_.Of(code)]; }

 private:
  static CodePointClasses MakeClasses(const CodePointSet& set) {
    auto classes = CodePointClasses::Make(std::span(&set, 1));
    RIVULET_CHECK(classes.ok(), "one set makes two classes");
    return *std::move(classes);
  }

  CodePointClasses classes_;
  bool member_[2] = {};
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_CODE_POINT_TABLE_H_
