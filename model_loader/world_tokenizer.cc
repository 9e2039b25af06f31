// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/world_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/hf_tokenizer/literal_matcher.h"
#include "model_loader/hf_tokenizer/prefix_trie.h"
#include "model_loader/hf_tokenizer/utf8_text.h"
#include "model_loader/json.h"
#include "model_loader/mapped_file.h"
#include "model_loader/text_check.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr const char* kFile = "/rwkv_vocab_v20230424.txt";
constexpr const char* kEndOfText = "<|rwkv_tokenizer_end_of_text|>";
constexpr size_t kLargestList = size_t{64} << 20;
constexpr size_t kLargestConfig = size_t{16} << 20;
// Encoding takes time linear in the text and in the longest token.
constexpr size_t kLongestToken = 1024;
constexpr uint32_t kMostIds = uint32_t{1} << 22;
constexpr uint32_t kEndOfTextId = 0;

struct Token {
  uint32_t id = 0;
  std::string bytes;
  std::string piece;  // as it is shown, which must be UTF-8
};

// --- a line of the list --------------------------------------------------------------------------

template <typename Number>
std::optional<Number> NumberOf(std::string_view digits, int base = 10) {
  Number number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// What a backslash and this character stand for, where that is one character.
std::optional<char> SimpleEscape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return std::nullopt;
  }
}

// The digits of \x, \u and \U.
size_t EscapeDigits(char c) {
  if (c == 'x') return 2;
  if (c == 'u') return 4;
  return c == 'U' ? 8 : 0;
}

// Appends what the escape at the start of `rest`, behind its backslash, stands for; its length, or
// 0 where it is none.
size_t AppendEscape(std::string_view rest, bool of_bytes, std::string& to) {
  if (rest.empty()) return 0;
  if (const auto simple = SimpleEscape(rest[0])) {
    to += *simple;
    return 1;
  }
  const size_t digits = EscapeDigits(rest[0]);
  if (digits == 0 || rest.size() <= digits || (of_bytes && digits != 2)) return 0;
  const auto code = NumberOf<uint32_t>(rest.substr(1, digits), 16);
  if (!code || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) return 0;
  if (of_bytes) {
    to += static_cast<char>(*code);
  } else {
    AppendUtf8(*code, &to);
  }
  return 1 + digits;
}

// The bytes of a Python literal '...', "...", b'...' or b"...".
std::optional<std::string> BytesOfLiteral(std::string_view literal) {
  const bool of_bytes = literal.starts_with('b');
  if (of_bytes) literal.remove_prefix(1);
  if (literal.size() < 2 || literal.front() != literal.back()) return std::nullopt;
  const char quote = literal.front();
  if (quote != '\'' && quote != '"') return std::nullopt;
  literal = literal.substr(1, literal.size() - 2);
  std::string bytes;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] == quote) return std::nullopt;
    if (literal[i] != '\\') {
      bytes += literal[i];
      continue;
    }
    const size_t length = AppendEscape(literal.substr(i + 1), of_bytes, bytes);
    if (length == 0) return std::nullopt;
    i += length;
  }
  return bytes;
}

std::optional<Token> TokenOfLine(std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  const std::string_view literal = line.substr(first + 1, last - first - 1);
  const auto id = NumberOf<uint32_t>(line.substr(0, first));
  const auto length = NumberOf<size_t>(line.substr(last + 1));
  std::optional<std::string> bytes = BytesOfLiteral(literal);
  if (!id || !length || !bytes || bytes->size() != *length) return std::nullopt;
  std::string piece(literal.starts_with('b') ? literal : std::string_view(*bytes));
  return Token{*id, *std::move(bytes), std::move(piece)};
}

std::string_view WhyNot(const Token& token) {
  if (token.id == kEndOfTextId) return "token 0 is the end of a text and has no bytes";
  if (token.id >= kMostIds) return "an id must be below 4194304";
  if (token.bytes.empty()) return "a token must have bytes";
  return token.bytes.size() > kLongestToken ? "a token has at most 1024 bytes" : "";
}

absl::StatusOr<std::vector<Token>> ReadList(std::string_view list) {
  std::vector<Token> tokens;
  for (size_t line = 1; !list.empty(); ++line) {
    const size_t end = std::min(list.find('\n'), list.size());
    std::string_view text = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty()) continue;
    std::optional<Token> token = TokenOfLine(text);
    const std::string_view why =
        token ? WhyNot(*token) : "it must be an id, a Python literal and the number of its bytes";
    if (!why.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", ToAbsl(why)));
    }
    tokens.push_back(*std::move(token));
  }
  return tokens;
}

// --- the tokenizer -------------------------------------------------------------------------------

// Each byte must be a token, so that every text has ids, and no two may be alike.
absl::Status CheckTokens(std::vector<Token>& tokens) {
  const auto by_bytes = [](const Token& a, const Token& b) { return a.bytes < b.bytes; };
  std::sort(tokens.begin(), tokens.end(), by_bytes);
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i].bytes != tokens[i - 1].bytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tokens ", tokens[i - 1].id, " and ", tokens[i].id, " are alike"));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const Token wanted{0, std::string(1, static_cast<char>(byte)), ""};
    if (std::binary_search(tokens.begin(), tokens.end(), wanted, by_bytes)) continue;
    return absl::InvalidArgumentError(absl::StrCat("byte ", byte, " has no token of its own"));
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const Token& a, const Token& b) { return a.id < b.id; });
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i].id != tokens[i - 1].id) continue;
    return absl::InvalidArgumentError(absl::StrCat("two tokens have the id ", tokens[i].id));
  }
  return absl::OkStatus();
}

std::vector<std::pair<std::string_view, uint32_t>> StringsOf(const std::vector<Token>& tokens) {
  std::vector<std::pair<std::string_view, uint32_t>> strings;
  strings.reserve(tokens.size());
  for (const Token& token : tokens) strings.emplace_back(token.bytes, token.id);
  return strings;
}

class WorldTokenizer : public Tokenizer {
 public:
  // `tokens` ascend by id.
  WorldTokenizer(std::vector<Token> tokens, const std::string& end_of_text)
      : trie_(StringsOf(tokens)), bytes_(tokens.back().id + 1), pieces_(bytes_.size()) {
    for (Token& token : tokens) {
      bytes_[token.id] = std::move(token.bytes);
      pieces_[token.id] = std::move(token.piece);
    }
    pieces_[kEndOfTextId] = end_of_text;
    special_.Add(end_of_text, kEndOfTextId);
  }

  void EndTurnsWith(std::string_view text) {
    const auto found = std::find(bytes_.begin(), bytes_.end(), text);
    if (!text.empty() && found != bytes_.end()) end_ = found - bytes_.begin();
  }

  absl::StatusOr<std::vector<uint32_t>> EncodeMarked(std::string_view text,
                                                     const PlainRanges& plain) const override {
    RIVULET_RETURN_IF_ERROR(CheckUtf8(text));
    const auto counts = [&](const LiteralMatcher::Match& match) {
      return !Overlaps(plain, match.begin, match.end);
    };
    std::vector<uint32_t> ids;
    size_t begin = 0;
    while (const auto match = special_.Find(text, begin, counts)) {
      Append(text.substr(begin, match->begin - begin), ids);
      ids.push_back(match->value);
      begin = match->end;
    }
    Append(text.substr(begin), ids);
    return ids;
  }

  std::string_view TokenBytes(uint32_t id) const override { return bytes_[id]; }
  std::string_view Piece(uint32_t id) const override { return pieces_[id]; }
  size_t vocab_size() const override { return bytes_.size(); }
  bool AddsDummyPrefix() const override { return false; }
  int64_t bos_id() const override { return kEndOfTextId; }
  int64_t eos_id() const override { return end_; }
  // Where a turn ends with another token, the end of a text ends it too.
  std::vector<int64_t> end_ids() const override { return {end_, kEndOfTextId}; }
  // config.json of published models names others, which are bytes here.
  const std::optional<std::vector<uint32_t>>& begin_ids() const override { return begin_; }

 private:
  void Append(std::string_view text, std::vector<uint32_t>& ids) const {
    for (size_t place = 0; place < text.size();) {
      uint32_t node = PrefixTrie::kRoot, id = PrefixTrie::kNone;
      size_t end = place;
      for (size_t i = place; i < text.size(); ++i) {
        node = trie_.Next(node, text[i]);
        if (node == PrefixTrie::kNone) break;
        if (trie_.Value(node) == PrefixTrie::kNone) continue;
        id = trie_.Value(node);
        end = i + 1;
      }
      ids.push_back(id);
      place = end;
    }
  }

  PrefixTrie trie_;
  std::vector<std::string> bytes_, pieces_;  // by id; empty where the list has none
  LiteralMatcher special_;
  int64_t end_ = kEndOfTextId;
  std::optional<std::vector<uint32_t>> begin_ = std::vector<uint32_t>();
};

// A token of tokenizer_config.json: its text, or an object with it. Empty: none.
std::string ContentOf(const nlohmann::json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (!token.is_object()) return "";
  const auto content = token.find("content");
  return content != token.end() && content->is_string() ? content->get<std::string>() : "";
}

const nlohmann::json& Member(const nlohmann::json& object, const char* key) {
  static const nlohmann::json none;
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeWorldTokenizer(std::string_view list,
                                                              const std::string& end_of_text,
                                                              std::string_view end_of_turn) {
  RIVULET_RETURN_IF_ERROR(CheckUtf8(list));
  RIVULET_ASSIGN_OR_RETURN(std::vector<Token> tokens, ReadList(list));
  RIVULET_RETURN_IF_ERROR(CheckTokens(tokens));
  auto tokenizer = std::make_unique<WorldTokenizer>(std::move(tokens), end_of_text);
  tokenizer->EndTurnsWith(end_of_turn);
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadWorldTokenizer(const std::string& directory) {
  const std::string path = directory + kFile;
  RIVULET_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  if (file->bytes().size() > kLargestList) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", file->bytes().size(), " bytes, the limit is ", kLargestList));
  }
  auto config = ReadJsonObject(directory + "/tokenizer_config.json", kLargestConfig);
  if (!config.ok() && !absl::IsNotFound(config.status())) return config.status();
  const nlohmann::json keys = config.ok() ? *std::move(config) : nlohmann::json::object();
  std::string end_of_text = ContentOf(Member(Member(keys, "added_tokens_decoder"), "0"));
  if (end_of_text.empty()) end_of_text = kEndOfText;
  const std::string_view list(reinterpret_cast<const char*>(file->bytes().data()),
                              file->bytes().size());
  auto made = MakeWorldTokenizer(list, end_of_text, ContentOf(Member(keys, "eos_token")));
  if (made.ok()) return made;
  return absl::Status(made.status().code(), absl::StrCat(path, ": ", made.status().message()));
}

}  // namespace rivulet
