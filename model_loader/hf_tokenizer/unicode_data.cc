// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/unicode_data.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "model_loader/hf_tokenizer/unicode_tables.h"

namespace rivulet {
namespace {

using unicode_tables::LowerRun;

// In the order of the numbers in the table.
constexpr std::string_view kCategories[] = {
    "cn", "lu", "ll", "lt", "lm", "lo", "mn", "mc", "me", "nd", "nl", "no", "pc", "pd", "ps",
    "pe", "pi", "pf", "po", "sm", "sc", "sk", "so", "zs", "zl", "zp", "cc", "cf", "co", "cs"};

struct LongName {
  std::string_view name;
  std::string_view category;
};
constexpr LongName kLongNames[] = {{"letter", "l"},
                                   {"uppercaseletter", "lu"},
                                   {"lowercaseletter", "ll"},
                                   {"titlecaseletter", "lt"},
                                   {"modifierletter", "lm"},
                                   {"otherletter", "lo"},
                                   {"mark", "m"},
                                   {"nonspacingmark", "mn"},
                                   {"spacingmark", "mc"},
                                   {"enclosingmark", "me"},
                                   {"number", "n"},
                                   {"decimalnumber", "nd"},
                                   {"letternumber", "nl"},
                                   {"othernumber", "no"},
                                   {"punctuation", "p"},
                                   {"dashpunctuation", "pd"},
                                   {"symbol", "s"},
                                   {"mathsymbol", "sm"},
                                   {"currencysymbol", "sc"},
                                   {"separator", "z"},
                                   {"spaceseparator", "zs"},
                                   {"other", "c"},
                                   {"control", "cc"},
                                   {"format", "cf"},
                                   {"unassigned", "cn"},
                                   {"privateuse", "co"},
                                   {"surrogate", "cs"}};

std::string PlainName(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return plain;
}

// Of one category ("lu"), or of all whose names begin so ("l").
CodePointSet CategorySet(std::string_view prefix) {
  const std::span<const uint32_t> runs(unicode_tables::kCategoryRuns,
                                       unicode_tables::kCategoryRunsSize);
  std::vector<CodeRange> ranges;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!kCategories[runs[i] & 31].starts_with(prefix)) continue;
    const uint32_t last = i + 1 < runs.size() ? (runs[i + 1] >> 5) - 1 : kLastCodePoint;
    ranges.push_back({runs[i] >> 5, last});
  }
  return CodePointSet(ranges);
}

const CodePointSet* MakeSet(const CodeRange* ranges, size_t size) {
  return new CodePointSet(std::span(ranges, size));
}

bool RunEndsBefore(const LowerRun& run, uint32_t code) { return run.last < code; }

}  // namespace

std::optional<CodePointSet> UnicodeProperty(std::string_view name) {
  std::string plain = PlainName(name);
  if (plain == "any") return CodePointSet::Range(0, kLastCodePoint);
  for (const LongName& other : kLongNames) {
    if (plain == other.name) plain = other.category;
  }
  for (size_t i = 0; i < unicode_tables::kScriptsSize; ++i) {
    const unicode_tables::ScriptTable& script = unicode_tables::kScripts[i];
    if (plain == PlainName(script.name)) return CodePointSet(std::span(script.ranges, script.size));
  }
  CodePointSet set = plain.empty() || plain.size() > 2 ? CodePointSet() : CategorySet(plain);
  if (set.empty()) return std::nullopt;
  return set;
}

#define RIVULET_TABLE_SET(function, table)                           \
  const CodePointSet& function() {                                   \
    static const CodePointSet* const set =                           \
        MakeSet(unicode_tables::table, unicode_tables::table##Size); \
    return *set;                                                     \
  }
RIVULET_TABLE_SET(RegexWordCharacters, kRegexWord)
RIVULET_TABLE_SET(RustWordCharacters, kRustWord)
RIVULET_TABLE_SET(NumericCharacters, kNumeric)
RIVULET_TABLE_SET(PunctuationCharacters, kPunctuation)
RIVULET_TABLE_SET(ControlCharacters, kControl)
RIVULET_TABLE_SET(NonspacingCharacters, kNonspacing)
RIVULET_TABLE_SET(AccentCharacters, kAccents)
RIVULET_TABLE_SET(NewerThanNormalForms, kNewerThanNormalForms)
#undef RIVULET_TABLE_SET

const CodePointSet& WhitespaceCharacters() {
  static constexpr CodeRange kRanges[] = {
      {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
  static const CodePointSet* const set = MakeSet(kRanges, std::size(kRanges));
  return *set;
}

uint32_t LowerCase(uint32_t code) {
  const std::span<const LowerRun> runs(unicode_tables::kLowerRuns, unicode_tables::kLowerRunsSize);
  const auto run = std::lower_bound(runs.begin(), runs.end(), code, RunEndsBefore);
  if (run == runs.end() || code < run->first || (code - run->first) % run->step != 0) return code;
  return code + static_cast<uint32_t>(run->difference);
}

}  // namespace rivulet
