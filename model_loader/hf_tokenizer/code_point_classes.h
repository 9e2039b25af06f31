// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Code points, put into as few classes as some sets allow: two code points are in one class if
// every set has both or neither. A regular expression over these sets can then be matched on one
// byte per character by any engine, independent of the version of Unicode that it knows.
//
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_CODE_POINT_CLASSES_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_CODE_POINT_CLASSES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/hf_tokenizer/code_point_set.h"

namespace rivulet {

class CodePointClasses {
 public:
  static constexpr size_t kMost = 256;

  // UNIMPLEMENTED if the sets make more than kMost classes.
  static absl::StatusOr<CodePointClasses> Make(std::span<const CodePointSet> sets);

  uint8_t Of(uint32_t code) const { return table_[(blocks_[code >> 8] << 8) + (code & 0xFF)]; }

  // The classes that make up the set of this index.
  const std::vector<uint8_t>& OfSet(size_t set) const { return of_set_[set]; }

  // Replaces *classes with one byte for each character of `text`, which is valid UTF-8.
  void Map(std::string_view text, std::string* classes) const;

 private:
  struct Interval {
    uint32_t first;
    uint8_t of;
  };
  absl::Status Divide(std::span<const CodePointSet> sets, std::vector<Interval>* intervals);
  void FillTable(const std::vector<Interval>& intervals);

  std::vector<std::vector<uint8_t>> of_set_;
  std::vector<uint32_t> blocks_;  // of 256 code points each: where in table_, in blocks
  std::vector<uint8_t> table_;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_CODE_POINT_CLASSES_H_
