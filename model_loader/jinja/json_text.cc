// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/json_text.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "kernels/base/utf8.h"
#include "model_loader/jinja/unicode_text.h"
#include "nlohmann/json.hpp"

namespace rivulet::jinja {
namespace {

using Events = nlohmann::json_sax<nlohmann::json>;

// Builds values from the parser's events. The parser does not recurse, so the depth is ours to
// limit.
class Builder final : public Events {
 public:
  explicit Builder(bool plain) : plain_(plain) {}

  bool null() override { return Add(Value(None())); }
  bool boolean(bool value) override { return Add(Value(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return Add(Value(static_cast<int64_t>(value)));
    return AddBig(std::to_string(value));
  }
  // The parser calls an integer beyond 64 bits a float.
  bool number_float(number_float_t value, const string_t& written) override {
    if (written.find_first_not_of("-0123456789") == std::string::npos) return AddBig(written);
    return Add(Value(double{value}));
  }
  bool string(string_t& value) override { return Add(NewText(std::move(value))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return Open(true); }
  bool key(string_t& value) override {
    open_.back().key = std::move(value);
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(false); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t place, const std::string&, const nlohmann::json::exception&) override {
    problem_ = absl::StrCat("it is not valid JSON at byte ", place);
    return false;
  }

  const std::string& problem() const { return problem_; }
  Value TakeResult() { return std::move(result_); }

 private:
  struct Container {
    bool object;
    std::string key;
    std::shared_ptr<Mapping> mapping;
    std::shared_ptr<Sequence> sequence;
  };

  Value NewText(std::string text) const {
    return Value::Marked(MarkedText::Of(std::move(text), plain_));
  }

  bool AddBig(std::string digits) {
    constexpr size_t kMostDigits = 4300;  // as Python
    if (digits.size() > kMostDigits) {
      problem_ = absl::StrCat("an integer has more than ", kMostDigits, " digits");
      return false;
    }
    auto text = std::make_shared<Text>();
    text->bytes = std::move(digits);
    return Add(Value(BigInteger{std::move(text)}));
  }

  bool Add(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().object) {
      SetEntry(*open_.back().mapping, NewText(std::move(open_.back().key)), std::move(value));
    } else {
      open_.back().sequence->items.push_back(std::move(value));
    }
    return true;
  }

  bool Open(bool object) {
    if (open_.size() == static_cast<size_t>(kDeepestValue)) {
      problem_ = absl::StrCat("it is nested deeper than ", kDeepestValue, " levels");
      return false;
    }
    open_.push_back({object, "", nullptr, nullptr});
    if (object) open_.back().mapping = std::make_shared<Mapping>();
    if (!object) open_.back().sequence = std::make_shared<Sequence>();
    return true;
  }

  bool Close() {
    Container closed = std::move(open_.back());
    open_.pop_back();
    if (closed.object) {
      Measure(*closed.mapping);
      return Add(Value(Value::MappingPointer(std::move(closed.mapping))));
    }
    Measure(*closed.sequence);
    return Add(Value(std::move(closed.sequence)));
  }

  const bool plain_;
  std::vector<Container> open_;
  Value result_;
  std::string problem_;
};

// Writes values as json.dumps does.
class Writer {
 public:
  Writer(const JsonStyle& style, size_t most, std::string& text)
      : style_(style), most_(text.size() + most), text_(text) {}

  absl::Status Write(const Value& value) {
    RIVULET_RETURN_IF_ERROR(CheckSize());
    if (const Text* const held = value.text()) {
      WriteString(held->bytes);
    } else if (const Mapping* const mapping = value.mapping()) {
      return WriteMapping(*mapping);
    } else if (IsArray(value)) {
      return WriteSequence(*value.sequence());
    } else {
      return WriteScalar(value);
    }
    return absl::OkStatus();
  }

 private:
  static bool IsArray(const Value& value) {
    return value.is_indexed() && value.sequence()->kind != SequenceKind::kRange;
  }

  absl::Status CheckSize() const {
    if (text_.size() <= most_) return absl::OkStatus();
    return absl::InvalidArgumentError("the text of tojson is too long");
  }

  absl::Status WriteScalar(const Value& value) {
    if (value.is_none()) {
      text_ += "null";
    } else if (value.boolean() != nullptr) {
      text_ += *value.boolean() ? "true" : "false";
    } else if (value.real() != nullptr && !std::isfinite(*value.real())) {
      text_ += std::isnan(*value.real()) ? "NaN" : *value.real() > 0 ? "Infinity" : "-Infinity";
    } else if (value.is_number()) {
      AppendRepresentation(value, most_, text_);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "an object of type ", ToAbsl(value.type_name()), " cannot be written as JSON"));
    }
    return absl::OkStatus();
  }

  void WriteEscape(char32_t code) {
    if (code >= 0x10000) {
      absl::StrAppendFormat(&text_, "\\u%04x",
                            0xD800 + ((static_cast<uint32_t>(code) - 0x10000) >> 10));
      code = 0xDC00 + ((code - 0x10000) & 0x3FF);
    }
    absl::StrAppendFormat(&text_, "\\u%04x", static_cast<uint32_t>(code));
  }

  void WriteCharacter(char32_t code) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
    const size_t place =
        code < 0x80 ? kEscaped.find(static_cast<char>(code)) : std::string_view::npos;
    if (place != std::string_view::npos) {
      text_ += '\\';
      text_ += kNames[place];
    } else if (code < 0x20 || (style_.only_ascii && code > 0x7E)) {
      WriteEscape(code);
    } else {
      AppendUtf8(code, text_);
    }
  }

  void WriteString(std::string_view bytes) {
    text_ += '"';
    while (!bytes.empty() && text_.size() <= most_) {
      const Utf8Character first = FirstUtf8Character(bytes);
      WriteCharacter(first.code);
      bytes.remove_prefix(first.bytes);
    }
    text_ += '"';
  }

  void NewLine() {
    if (!style_.indent.has_value()) return;
    text_ += '\n';
    for (int i = 0; i < level_; ++i) text_ += *style_.indent;
  }

  absl::Status WriteSequence(const Sequence& sequence) {
    text_ += '[';
    ++level_;
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) text_ += style_.between_items;
      NewLine();
      RIVULET_RETURN_IF_ERROR(Write(sequence.items[i]));
    }
    --level_;
    if (!sequence.items.empty()) NewLine();
    text_ += ']';
    return absl::OkStatus();
  }

  // Keys become strings; a string key keeps its bytes.
  absl::StatusOr<std::string> KeyText(const Value& key) {
    if (key.text() != nullptr) return key.text()->bytes;
    std::string written;
    RIVULET_RETURN_IF_ERROR(Writer(style_, most_, written).Write(key));
    return written;
  }

  absl::Status WriteMapping(const Mapping& mapping) {
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, value] : mapping.entries) {
      RIVULET_ASSIGN_OR_RETURN(std::string name, KeyText(key));
      entries.emplace_back(std::move(name), &value);
    }
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    text_ += '{';
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) text_ += style_.between_items;
      NewLine();
      WriteString(entries[i].first);
      text_ += style_.after_key;
      RIVULET_RETURN_IF_ERROR(Write(*entries[i].second));
    }
    --level_;
    if (!mapping.entries.empty()) NewLine();
    text_ += '}';
    return absl::OkStatus();
  }

  const JsonStyle& style_;
  const size_t most_;
  std::string& text_;
  int level_ = 0;
};

}  // namespace

absl::StatusOr<Value> ParseJsonValue(std::string_view text, std::string_view what, bool plain) {
  Builder builder(plain);
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), ": ", ToAbsl(why)));
  };
  if (ValidUtf8Length(text) != text.size()) return refuse("it is not valid UTF-8");
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return builder.TakeResult();
  return refuse(builder.problem());
}

absl::Status AppendJson(const Value& value, const JsonStyle& style, size_t most,
                        std::string& text) {
  Writer writer(style, most, text);
  RIVULET_RETURN_IF_ERROR(writer.Write(value));
  if (text.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError("the text of tojson is too long");
}

}  // namespace rivulet::jinja
