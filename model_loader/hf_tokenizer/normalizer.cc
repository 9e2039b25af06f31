// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/normalizer.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/config_reader.h"
#include "model_loader/hf_tokenizer/byte_characters.h"
#include "model_loader/hf_tokenizer/code_point_table.h"
#include "model_loader/hf_tokenizer/normal_form.h"
#include "model_loader/hf_tokenizer/precompiled_charsmap.h"
#include "model_loader/hf_tokenizer/text_pattern.h"
#include "model_loader/hf_tokenizer/unicode_data.h"
#include "model_loader/hf_tokenizer/utf8_text.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Result = absl::StatusOr<std::unique_ptr<const Normalizer>>;

absl::Status CheckLength(size_t bytes, const NormalText& text) {
  if (bytes <= text.most_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the tokenizer's normalizer makes more than ",
                                                 text.most_bytes,
                                                 " bytes of this text; shorten it"));
}

// Calls put(code, &result) for each character.
template <typename Put>
void MapCharacters(std::string* text, Put put) {
  std::string result;
  result.reserve(text->size());
  for (size_t i = 0; i < text->size();) put(NextCodePoint(*text, &i), &result);
  *text = std::move(result);
}

const CodePointTable& Whitespace() {
  static const auto* const table = new CodePointTable(WhitespaceCharacters());
  return *table;
}

// Removes the characters of a set.
class RemoveCharacters : public Normalizer {
 public:
  explicit RemoveCharacters(const CodePointSet& set) : set_(set) {}
  absl::Status Apply(PatternScratch&, NormalText* text) const override {
    size_t second = 0;
    if (!text->text.empty() && set_.Contains(NextCodePoint(text->text, &second))) {
      text->from_start = false;
    }
    MapCharacters(&text->text, [this](uint32_t code, std::string* result) {
      if (!set_.Contains(code)) AppendUtf8(code, result);
    });
    return absl::OkStatus();
  }

 private:
  const CodePointTable set_;
};

class NormalFormOf : public Normalizer {
 public:
  explicit NormalFormOf(NormalForm form) : form_(form) { ToNormalForm("\u0301", form); }
  absl::Status Apply(PatternScratch&, NormalText* text) const override {
    text->text = ToNormalForm(text->text, form_);
    return absl::OkStatus();
  }

 private:
  const NormalForm form_;
};

class Lowercase : public Normalizer {
 public:
  absl::Status Apply(PatternScratch&, NormalText* text) const override {
    MapCharacters(&text->text, [](uint32_t code, std::string* result) {
      if (code < 0x80) {
        *result += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
      } else if (code == 0x130) {
        *result += "i\u0307";
      } else {
        AppendUtf8(LowerCase(code), result);
      }
    });
    return absl::OkStatus();
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  absl::Status Apply(PatternScratch&, NormalText* text) const override {
    const std::string& whole = text->text;
    size_t begin = whole.size(), end = 0;  // of what is no whitespace
    for (size_t i = 0; i < whole.size();) {
      const size_t place = i;
      if (Whitespace().Contains(NextCodePoint(whole, &i))) continue;
      begin = std::min(begin, place);
      end = i;
    }
    end = right_ && !text->has_behind ? end : whole.size();
    begin = std::min(left_ && !text->has_before ? begin : 0, end);
    if (begin > 0) text->from_start = false;
    text->text = whole.substr(begin, end - begin);
    return absl::OkStatus();
  }

 private:
  const bool left_, right_;
};

class Replace : public Normalizer {
 public:
  Replace(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::Status Apply(PatternScratch& scratch, NormalText* text) const override {
    std::vector<TextRange> matches;
    RIVULET_RETURN_IF_ERROR(pattern_.FindAll(text->text, scratch, &matches));
    if (matches.empty()) return absl::OkStatus();
    RIVULET_RETURN_IF_ERROR(
        CheckLength(text->text.size() + matches.size() * content_.size(), *text));
    std::string result;
    size_t copied = 0;
    for (const TextRange& match : matches) {
      result.append(text->text, copied, match.begin - copied);
      result += content_;
      copied = match.end;
    }
    const bool removes_start = matches[0].begin == 0 && matches[0].end > 0 && content_.empty();
    if (removes_start) text->from_start = false;
    text->text = result.append(text->text, copied);
    return absl::OkStatus();
  }

 private:
  const TextPattern pattern_;
  const std::string content_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string content) : content_(std::move(content)) {}
  absl::Status Apply(PatternScratch&, NormalText* text) const override {
    if (text->text.empty() || text->has_before) return absl::OkStatus();
    RIVULET_RETURN_IF_ERROR(CheckLength(text->text.size() + content_.size(), *text));
    text->text.insert(0, content_);
    return absl::OkStatus();
  }

 private:
  const std::string content_;
};

// Each byte as the character that GPT-2 writes for it.
class ByteLevel : public Normalizer {
 public:
  absl::Status Apply(PatternScratch&, NormalText* text) const override {
    std::string result;
    for (const char byte : text->text) result += ByteCharacter(static_cast<uint8_t>(byte));
    text->text = std::move(result);
    return absl::OkStatus();
  }
};

// SentencePiece's rules "nmt": no control characters, one kind of space.
class Nmt : public Normalizer {
 public:
  absl::Status Apply(PatternScratch&, NormalText* text) const override {
    MapCharacters(&text->text, [](uint32_t code, std::string* result) {
      if (IsSpace(code)) {
        *result += ' ';
      } else if (!IsControl(code)) {
        AppendUtf8(code, result);
      }
    });
    return absl::OkStatus();
  }

 private:
  static bool IsControl(uint32_t code) {
    return (code >= 0x01 && code <= 0x08) || code == 0x0B || (code >= 0x0E && code <= 0x1F) ||
           code == 0x7F || code == 0x8F || code == 0x9F;
  }
  static bool IsSpace(uint32_t code) {
    return code == 0x09 || code == 0x0A || code == 0x0C || code == 0x0D || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
           code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
  }
};

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(PrecompiledCharsmap map) : map_(std::move(map)) {}
  absl::Status Apply(PatternScratch&, NormalText* text) const override {
    text->text = map_.Apply(text->text);
    return CheckLength(text->text.size(), *text);
  }

 private:
  const PrecompiledCharsmap map_;
};

class SpaceToBlank : public Normalizer {
 public:
  absl::Status Apply(PatternScratch&, NormalText* text) const override {
    MapCharacters(&text->text, [](uint32_t code, std::string* result) {
      AppendUtf8(Whitespace().Contains(code) ? ' ' : code, result);
    });
    return absl::OkStatus();
  }
};

// Blanks around the ideographs that BERT splits at.
class SpaceIdeographs : public Normalizer {
 public:
  absl::Status Apply(PatternScratch&, NormalText* text) const override {
    MapCharacters(&text->text, [](uint32_t code, std::string* result) {
      const bool ideograph = IsIdeograph(code);
      if (ideograph) *result += ' ';
      AppendUtf8(code, result);
      if (ideograph) *result += ' ';
    });
    return absl::OkStatus();
  }

 private:
  static bool IsIdeograph(uint32_t code) {
    static constexpr CodeRange kRanges[] = {
        {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
        {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (const CodeRange& range : kRanges) {
      if (code >= range.first && code <= range.last) return true;
    }
    return false;
  }
};

class Sequence : public Normalizer {
 public:
  void Add(std::unique_ptr<const Normalizer> part) { parts_.push_back(std::move(part)); }
  absl::Status Apply(PatternScratch& scratch, NormalText* text) const override {
    for (const auto& part : parts_) {
      RIVULET_RETURN_IF_ERROR(part->Apply(scratch, text));
      RIVULET_RETURN_IF_ERROR(CheckLength(text->text.size(), *text));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};

std::unique_ptr<const Normalizer> MakeBert(ConfigReader& reader) {
  auto sequence = std::make_unique<Sequence>();
  const bool lowercase = reader.Bool("lowercase", true);
  if (reader.Bool("clean_text", true)) {
    sequence->Add(std::make_unique<RemoveCharacters>(ControlCharacters()));
    sequence->Add(std::make_unique<SpaceToBlank>());
  }
  if (reader.Bool("handle_chinese_chars", true)) sequence->Add(std::make_unique<SpaceIdeographs>());
  if (reader.Bool("strip_accents", lowercase)) {
    sequence->Add(std::make_unique<NormalFormOf>(NormalForm::kNfd));
    sequence->Add(std::make_unique<RemoveCharacters>(NonspacingCharacters()));
  }
  if (lowercase) sequence->Add(std::make_unique<Lowercase>());
  return sequence;
}

Result MakeSequence(ConfigReader& reader) {
  const nlohmann::json* const parts = reader.Find("normalizers");
  if (parts == nullptr || !parts->is_array()) {
    return absl::InvalidArgumentError("Sequence without a list \"normalizers\"");
  }
  auto sequence = std::make_unique<Sequence>();
  for (const nlohmann::json& part : *parts) {
    RIVULET_ASSIGN_OR_RETURN(auto normalizer, ParseNormalizer(part));
    if (normalizer != nullptr) sequence->Add(std::move(normalizer));
  }
  return sequence;
}

Result MakeReplace(ConfigReader& reader) {
  const nlohmann::json* const pattern = reader.Find("pattern");
  if (pattern == nullptr) return absl::InvalidArgumentError("Replace without \"pattern\"");
  RIVULET_ASSIGN_OR_RETURN(TextPattern parsed, TextPattern::Parse(*pattern));
  return std::make_unique<Replace>(std::move(parsed), reader.String("content"));
}

Result MakePrecompiled(ConfigReader& reader) {
  RIVULET_ASSIGN_OR_RETURN(PrecompiledCharsmap map,
                           PrecompiledCharsmap::Parse(reader.String("precompiled_charsmap")));
  return std::make_unique<Precompiled>(std::move(map));
}

Result MakeSimple(const std::string& type) {
  if (type == "NFC") return std::make_unique<NormalFormOf>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<NormalFormOf>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<NormalFormOf>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<NormalFormOf>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<RemoveCharacters>(AccentCharacters());
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  return absl::UnimplementedError(absl::StrCat("the normalizer ", type, " is not supported"));
}

Result Make(ConfigReader& reader) {
  const std::string type = reader.String("type");
  if (type == "Sequence") return MakeSequence(reader);
  if (type == "Replace") return MakeReplace(reader);
  if (type == "Precompiled") return MakePrecompiled(reader);
  if (type == "BertNormalizer") return MakeBert(reader);
  if (type == "Prepend") return std::make_unique<Prepend>(reader.String("prepend"));
  if (type == "Strip") {
    const bool left = reader.Bool("strip_left", true);
    return std::make_unique<Strip>(left, reader.Bool("strip_right", true));
  }
  return MakeSimple(type);
}

}  // namespace

Result ParseNormalizer(const nlohmann::json& json) {
  if (json.is_null()) return std::unique_ptr<const Normalizer>();
  ConfigReader reader(json);
  Result result = Make(reader);
  if (result.ok() && !reader.ok()) return reader.status();
  return result;
}

}  // namespace rivulet
