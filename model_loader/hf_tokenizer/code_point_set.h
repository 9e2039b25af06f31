// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A set of code points, as sorted ranges that do not touch.
//
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_CODE_POINT_SET_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_CODE_POINT_SET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rivulet {

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

struct CodeRange {
  uint32_t first = 0;
  uint32_t last = 0;  // included
  bool operator==(const CodeRange&) const = default;
};

class CodePointSet {
 public:
  CodePointSet() = default;
  // `ranges` in any order; they may overlap.
  explicit CodePointSet(std::span<const CodeRange> ranges);
  static CodePointSet Of(uint32_t code) { return Range(code, code); }
  static CodePointSet Range(uint32_t first, uint32_t last);

  bool Contains(uint32_t code) const;
  bool empty() const { return ranges_.empty(); }
  std::span<const CodeRange> ranges() const { return ranges_; }

  CodePointSet Union(const CodePointSet& other) const;
  CodePointSet Intersection(const CodePointSet& other) const;
  CodePointSet Complement() const;

  bool operator==(const CodePointSet&) const = default;

 private:
  std::vector<CodeRange> ranges_;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_CODE_POINT_SET_H_
