// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The methods of Python's str, on UTF-8 text.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/jinja/filters.h"
#include "model_loader/jinja/methods.h"
#include "model_loader/jinja/runtime.h"
#include "model_loader/jinja/unicode_text.h"

namespace rivulet::jinja {
namespace {

using Result = absl::StatusOr<Value>;

const Text& TextOf(const Value& subject) { return *subject.text(); }

template <std::string (*change)(std::string_view)>
Result Change(Runtime& runtime, const Value& subject, Arguments&) {
  return runtime.NewString(change(TextOf(subject).bytes), TextOf(subject).safe);
}

// A string argument, as str's methods demand it.
absl::StatusOr<std::string_view> TextArgument(const Arguments& arguments, size_t index) {
  RIVULET_ASSIGN_OR_RETURN(const Value value, arguments.Required(index));
  if (value.undefined() != nullptr) return UndefinedError(value);
  if (value.text() == nullptr) {
    return TypeError(
        absl::StrCat("a method of str needs a string, not ", ToAbsl(value.type_name())));
  }
  return std::string_view(arguments.Given(index)->text()->bytes);
}

enum class Side { kLeft, kRight, kBoth };

template <Side side>
Result Strip(Runtime& runtime, const Value& subject, Arguments& arguments) {
  std::string_view text = TextOf(subject).bytes;
  const bool spaces = arguments.Given(0) == nullptr || arguments.Given(0)->is_none();
  std::string_view set;
  if (!spaces) {
    RIVULET_ASSIGN_OR_RETURN(set, TextArgument(arguments, 0));
    RIVULET_RETURN_IF_ERROR(runtime.budget().Work(set.size() * 128));
  }
  if (side != Side::kRight) text = spaces ? StripLeft(text) : StripLeft(text, set);
  if (side != Side::kLeft) text = spaces ? StripRight(text) : StripRight(text, set);
  return runtime.NewText(TextOf(subject).Part(text), TextOf(subject).safe);
}

// Of parts of the subject.
Result ToList(Runtime& runtime, const std::vector<std::string_view>& parts, const Text& subject,
              SequenceKind kind = SequenceKind::kList) {
  RIVULET_RETURN_IF_ERROR(runtime.budget().CheckRoom(parts.size() * 200));
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    RIVULET_ASSIGN_OR_RETURN(Value item, runtime.NewText(subject.Part(part), subject.safe));
    items.push_back(std::move(item));
  }
  return runtime.NewSequence(std::move(items), kind);
}

// What stands between white space; behind `most` parts, all that is left.
std::vector<std::string_view> Words(std::string_view text, int64_t most) {
  std::vector<std::string_view> words;
  text = StripLeft(text);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(words.size()) == most) {
      words.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const std::string_view next = FirstCharacter(text.substr(end));
      if (StripLeft(next).empty()) break;
      end += next.size();
    }
    words.push_back(text.substr(0, end));
    text = StripLeft(text.substr(end));
  }
  return words;
}

std::vector<std::string_view> WordsFromRight(std::string_view text, int64_t most) {
  std::vector<std::string_view> words = Words(text, -1);
  if (most < 0 || static_cast<int64_t>(words.size()) <= most) return words;
  const size_t joined = words.size() - static_cast<size_t>(most);
  const std::string_view last = words[joined - 1];
  const char* const begin = text.data();
  std::vector<std::string_view> result = {
      {begin, static_cast<size_t>(last.data() + last.size() - begin)}};
  result.insert(result.end(), words.begin() + static_cast<int64_t>(joined), words.end());
  return result;
}

std::vector<std::string_view> SplitBy(std::string_view text, std::string_view separator,
                                      int64_t most) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t place = text.find(separator);
    if (place == std::string_view::npos) break;
    parts.push_back(text.substr(0, place));
    text.remove_prefix(place + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> SplitFromRight(std::string_view text, std::string_view separator,
                                             int64_t most) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t place = text.rfind(separator);
    if (place == std::string_view::npos) break;
    parts.push_back(text.substr(place + separator.size()));
    text = text.substr(0, place);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool from_right>
Result Split(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const std::string_view text = TextOf(subject).bytes;
  RIVULET_RETURN_IF_ERROR(runtime.budget().Work(text.size() * 8));
  RIVULET_ASSIGN_OR_RETURN(const int64_t most, arguments.Integer(1, -1));
  if (arguments.Given(0) == nullptr || arguments.Given(0)->is_none()) {
    return ToList(runtime, from_right ? WordsFromRight(text, most) : Words(text, most),
                  TextOf(subject));
  }
  RIVULET_ASSIGN_OR_RETURN(const std::string_view separator, TextArgument(arguments, 0));
  if (separator.empty()) return absl::InvalidArgumentError("empty separator");
  return ToList(runtime,
                from_right ? SplitFromRight(text, separator, most) : SplitBy(text, separator, most),
                TextOf(subject));
}

Result SplitIntoLines(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_RETURN_IF_ERROR(runtime.budget().Work(TextOf(subject).bytes.size() * 8));
  return ToList(runtime, SplitLines(TextOf(subject).bytes, arguments.Flag(0)), TextOf(subject));
}

template <bool from_right>
Result Partition(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const std::string_view text = TextOf(subject).bytes;
  RIVULET_ASSIGN_OR_RETURN(const std::string_view separator, TextArgument(arguments, 0));
  if (separator.empty()) return absl::InvalidArgumentError("empty separator");
  const size_t place = from_right ? text.rfind(separator) : text.find(separator);
  std::vector<std::string_view> parts;
  if (place != std::string_view::npos) {
    parts = {text.substr(0, place), text.substr(place, separator.size()),
             text.substr(place + separator.size())};
  } else {
    parts = from_right ? std::vector<std::string_view>{"", "", text}
                       : std::vector<std::string_view>{text, "", ""};
  }
  return ToList(runtime, parts, TextOf(subject), SequenceKind::kTuple);
}

// The part of the text that begin and end arguments name, and the character where it begins. None:
// it begins behind the text.
struct Window {
  std::string_view text;
  int64_t begin;
};

absl::StatusOr<std::optional<Window>> ReadWindow(Runtime& runtime, const Value& subject,
                                                 const Arguments& arguments) {
  const Text& text = TextOf(subject);
  RIVULET_RETURN_IF_ERROR(runtime.budget().Work(text.bytes.size()));
  const auto length = static_cast<int64_t>(text.characters);
  const auto given = [&](size_t index) {
    return arguments.Given(index) != nullptr && !arguments.Given(index)->is_none();
  };
  RIVULET_ASSIGN_OR_RETURN(int64_t begin, given(1) ? arguments.Integer(1, 0) : int64_t{0});
  RIVULET_ASSIGN_OR_RETURN(int64_t end, given(2) ? arguments.Integer(2, 0) : length);
  if (begin < 0) begin = std::max<int64_t>(0, begin + length);
  if (end < 0) end = std::max<int64_t>(0, end + length);
  end = std::min(end, length);
  if (begin > length || begin > end) return std::optional<Window>();
  const std::string_view from =
      std::string_view(text.bytes).substr(ByteOffset(text.bytes, static_cast<size_t>(begin)));
  return std::optional<Window>(
      {from.substr(0, ByteOffset(from, static_cast<size_t>(end - begin))), begin});
}

// Whether a prefix or suffix is one string or one of a tuple.
template <typename Matches>
Result MatchesAny(Runtime& runtime, const Value& subject, const Arguments& arguments,
                  const Matches& matches) {
  RIVULET_ASSIGN_OR_RETURN(const Value wanted, arguments.Required(0));
  RIVULET_ASSIGN_OR_RETURN(const std::optional<Window> window,
                           ReadWindow(runtime, subject, arguments));
  const bool tuple =
      wanted.sequence() != nullptr && wanted.sequence()->kind == SequenceKind::kTuple;
  std::vector<Value> choices = tuple ? wanted.sequence()->items : std::vector<Value>{wanted};
  for (const Value& choice : choices) {
    if (choice.undefined() != nullptr) return UndefinedError(choice);
    if (choice.text() == nullptr) {
      return TypeError("startswith and endswith need a string or a tuple of strings");
    }
    if (window.has_value() && matches(window->text, choice.text()->bytes)) return Value(true);
  }
  return Value(false);
}

Result StartsWith(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return MatchesAny(runtime, subject, arguments, [](std::string_view text, std::string_view part) {
    return text.starts_with(part);
  });
}
Result EndsWith(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return MatchesAny(runtime, subject, arguments, [](std::string_view text, std::string_view part) {
    return text.ends_with(part);
  });
}

absl::StatusOr<int64_t> Place(Runtime& runtime, const Value& subject, const Arguments& arguments,
                              bool from_right) {
  RIVULET_ASSIGN_OR_RETURN(const std::string_view part, TextArgument(arguments, 0));
  RIVULET_ASSIGN_OR_RETURN(const std::optional<Window> window,
                           ReadWindow(runtime, subject, arguments));
  if (!window.has_value()) return -1;
  const size_t place = from_right ? window->text.rfind(part) : window->text.find(part);
  if (place == std::string_view::npos) return -1;
  return window->begin + static_cast<int64_t>(CountCharacters(window->text.substr(0, place)));
}

template <bool from_right>
Result Find(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const int64_t place, Place(runtime, subject, arguments, from_right));
  return Value(place);
}

template <bool from_right>
Result Index(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const int64_t place, Place(runtime, subject, arguments, from_right));
  if (place < 0) return absl::InvalidArgumentError("substring not found");
  return Value(place);
}

Result Count(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const std::string_view part, TextArgument(arguments, 0));
  RIVULET_ASSIGN_OR_RETURN(const std::optional<Window> window,
                           ReadWindow(runtime, subject, arguments));
  if (!window.has_value()) return Value(int64_t{0});
  if (part.empty()) return Value(static_cast<int64_t>(CountCharacters(window->text)) + 1);
  return Value(static_cast<int64_t>(SplitBy(window->text, part, -1).size()) - 1);
}

Result Replace(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const std::string_view old_text, TextArgument(arguments, 0));
  RIVULET_RETURN_IF_ERROR(TextArgument(arguments, 1).status());
  RIVULET_ASSIGN_OR_RETURN(const int64_t most, arguments.Integer(2, -1));
  RIVULET_ASSIGN_OR_RETURN(MarkedText result, ReplaceText(runtime, TextOf(subject), old_text,
                                                          TextOf(*arguments.Given(1)), most));
  return runtime.NewText(std::move(result), TextOf(subject).safe);
}

template <bool prefix>
Result Remove(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const std::string_view part, TextArgument(arguments, 0));
  std::string_view text = TextOf(subject).bytes;
  if (prefix && text.starts_with(part)) text.remove_prefix(part.size());
  if (!prefix && text.ends_with(part)) text.remove_suffix(part.size());
  return runtime.NewText(TextOf(subject).Part(text), TextOf(subject).safe);
}

Result Join(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const Value parts, arguments.Required(0));
  RIVULET_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.Iterate(parts));
  MarkedText result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].text() == nullptr) {
      return TypeError(absl::StrCat("sequence item ", i, ": expected str instance, ",
                                    ToAbsl(items[i].type_name()), " found"));
    }
    if (i > 0) result.Append(TextOf(subject));
    RIVULET_RETURN_IF_ERROR(runtime.AppendMarked(items[i], result));
  }
  return runtime.NewText(std::move(result));
}

template <char align>
Result Justify(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const int64_t width, arguments.Integer(0, 0));
  RIVULET_ASSIGN_OR_RETURN(const std::string fill, arguments.String(1, " "));
  if (CountCharacters(fill) != 1)
    return TypeError("the fill character must be exactly one character long");
  RIVULET_ASSIGN_OR_RETURN(std::string result,
                           JustifyText(runtime, TextOf(subject).bytes, width, fill, align));
  return runtime.NewString(std::move(result), TextOf(subject).safe);
}

Result ZeroFill(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const int64_t width, arguments.Integer(0, 0));
  std::string text = TextOf(subject).bytes;
  const bool has_sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  const std::string sign = has_sign ? text.substr(0, 1) : "";
  RIVULET_ASSIGN_OR_RETURN(std::string digits,
                           JustifyText(runtime, text.substr(sign.size()),
                                       width - static_cast<int64_t>(sign.size()), "0", '>'));
  return runtime.NewString(sign + digits);
}

Result ExpandTabs(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const int64_t size, arguments.Integer(0, 8));
  if (size > 1000) return TypeError("expandtabs: at most 1000 columns");
  std::string result;
  int64_t column = 0;
  for (const char32_t code : Decode(TextOf(subject).bytes)) {
    if (code == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      result.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
      RIVULET_RETURN_IF_ERROR(runtime.budget().CheckRoom(result.size()));
    } else {
      AppendUtf8(code, result);
      column = code == '\n' || code == '\r' ? 0 : column + 1;
    }
  }
  return runtime.NewString(std::move(result));
}

Result Format(Runtime& runtime, const Value& subject, Arguments& arguments) {
  RIVULET_ASSIGN_OR_RETURN(MarkedText result,
                           FormatBraces(runtime, TextOf(subject), arguments.rest()));
  return runtime.NewText(std::move(result), TextOf(subject).safe);
}

// Whether there is a character, and all are of one kind.
template <bool (*is)(char32_t)>
Result AllAre(Runtime& runtime, const Value& subject, Arguments&) {
  RIVULET_RETURN_IF_ERROR(runtime.budget().Work(TextOf(subject).bytes.size()));
  const std::u32string characters = Decode(TextOf(subject).bytes);
  return Value(!characters.empty() && std::all_of(characters.begin(), characters.end(), is));
}

bool IsAlphanumeric(char32_t code) { return IsAlphabetic(code) || IsNumeric(code); }

Result IsAscii(Runtime&, const Value& subject, Arguments&) {
  const std::string& text = TextOf(subject).bytes;
  return Value(std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; }));
}
Result IsPrintableText(Runtime&, const Value& subject, Arguments&) {
  const std::u32string characters = Decode(TextOf(subject).bytes);
  return Value(std::all_of(characters.begin(), characters.end(), IsPrintable));
}
template <bool (*has)(char32_t), bool (*has_not)(char32_t)>
Result HasCase(Runtime&, const Value& subject, Arguments&) {
  const std::u32string characters = Decode(TextOf(subject).bytes);
  const auto other = [](char32_t code) { return has_not(code) || IsTitle(code); };
  return Value(std::any_of(characters.begin(), characters.end(), has) &&
               std::none_of(characters.begin(), characters.end(), other));
}
Result IsTitled(Runtime&, const Value& subject, Arguments&) {
  bool in_word = false, any = false;
  for (const char32_t code : Decode(TextOf(subject).bytes)) {
    if ((IsUpper(code) || IsTitle(code)) && in_word) return Value(false);
    if (IsLower(code) && !in_word) return Value(false);
    in_word = IsUpper(code) || IsTitle(code) || IsLower(code);
    any = any || in_word;
  }
  return Value(any);
}

Result NotProvided(Runtime&, const Value&, Arguments&) {
  return TypeError("this server does not provide that method of strings");
}

constexpr Builtin kMethods[] = {
    {"capitalize", "", Change<Capitalize>},
    {"casefold", "", NotProvided},
    {"center", "width fillchar", Justify<'^'>},
    {"count", "sub start end", Count},
    {"encode", "*", NotProvided},
    {"endswith", "suffix start end", EndsWith},
    {"expandtabs", "tabsize", ExpandTabs},
    {"find", "sub start end", Find<false>},
    {"format", "*", Format},
    {"format_map", "*", NotProvided},
    {"index", "sub start end", Index<false>},
    {"isalnum", "", AllAre<IsAlphanumeric>},
    {"isalpha", "", AllAre<IsAlphabetic>},
    {"isascii", "", IsAscii},
    {"isdecimal", "", AllAre<IsDecimal>},
    {"isdigit", "", AllAre<IsDigit>},
    {"isidentifier", "", NotProvided},
    {"islower", "", HasCase<IsLower, IsUpper>},
    {"isnumeric", "", AllAre<IsNumeric>},
    {"isprintable", "", IsPrintableText},
    {"isspace", "", AllAre<IsSpace>},
    {"istitle", "", IsTitled},
    {"isupper", "", HasCase<IsUpper, IsLower>},
    {"join", "iterable", Join},
    {"ljust", "width fillchar", Justify<'<'>},
    {"lower", "", Change<ToLower>},
    {"lstrip", "chars", Strip<Side::kLeft>},
    {"maketrans", "*", NotProvided},
    {"partition", "sep", Partition<false>},
    {"removeprefix", "prefix", Remove<true>},
    {"removesuffix", "suffix", Remove<false>},
    {"replace", "old new count", Replace},
    {"rfind", "sub start end", Find<true>},
    {"rindex", "sub start end", Index<true>},
    {"rjust", "width fillchar", Justify<'>'>},
    {"rpartition", "sep", Partition<true>},
    {"rsplit", "sep maxsplit", Split<true>},
    {"rstrip", "chars", Strip<Side::kRight>},
    {"split", "sep maxsplit", Split<false>},
    {"splitlines", "keepends", SplitIntoLines},
    {"startswith", "prefix start end", StartsWith},
    {"strip", "chars", Strip<Side::kBoth>},
    {"swapcase", "", Change<SwapCase>},
    {"title", "", Change<ToTitle>},
    {"translate", "*", NotProvided},
    {"upper", "", Change<ToUpper>},
    {"zfill", "width", ZeroFill},
};

}  // namespace

const Builtin* FindTextMethod(std::string_view name) { return FindIn(kMethods, name); }

absl::StatusOr<MarkedText> ReplaceText(Runtime& runtime, const MarkedText& marked,
                                       std::string_view old_text, const MarkedText& new_text,
                                       int64_t most) {
  std::string_view text = marked.bytes;
  RIVULET_RETURN_IF_ERROR(runtime.budget().Work(text.size()));
  MarkedText result;
  // An empty text is found before every character and at the end.
  while (most != 0) {
    size_t place = text.find(old_text);
    if (place == std::string_view::npos) break;
    const size_t added = new_text.bytes.size() + new_text.mark_bytes() + place;
    RIVULET_RETURN_IF_ERROR(runtime.budget().Work(added));
    RIVULET_RETURN_IF_ERROR(
        runtime.budget().CheckRoom(result.bytes.size() + result.mark_bytes() + added));
    result.Append(marked.Part(text.substr(0, place)));
    result.Append(new_text);
    text.remove_prefix(place + old_text.size());
    if (most > 0) --most;
    if (!old_text.empty()) continue;
    if (text.empty()) break;
    const std::string_view first = FirstCharacter(text);
    result.Append(marked.Part(first));
    text.remove_prefix(first.size());
  }
  result.Append(marked.Part(text));
  return result;
}

absl::StatusOr<std::string> JustifyText(Runtime& runtime, std::string_view text, int64_t width,
                                        std::string_view fill, char align) {
  const auto characters = static_cast<int64_t>(CountCharacters(text));
  if (width <= characters) return std::string(text);
  const auto missing = static_cast<size_t>(width - characters);
  if (missing > runtime.budget().limits().memory / 4) {
    return absl::InvalidArgumentError("a text is filled up to too many characters");
  }
  RIVULET_RETURN_IF_ERROR(runtime.budget().Work(missing * fill.size()));
  // str.center puts the odd one on the left if the width is odd.
  const size_t odd = missing & static_cast<size_t>(width) & 1;
  const size_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + odd;
  std::string result;
  for (size_t i = 0; i < left; ++i) result += fill;
  result += text;
  for (size_t i = left; i < missing; ++i) result += fill;
  return result;
}

}  // namespace rivulet::jinja
