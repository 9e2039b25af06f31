// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/decoder.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/config_reader.h"
#include "model_loader/hf_tokenizer/byte_characters.h"
#include "model_loader/hf_tokenizer/text_pattern.h"
#include "model_loader/hf_tokenizer/utf8_text.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Step = Decoder::Step;

class Words : public Step {
 public:
  absl::Status Apply(bool first, PatternScratch&, DecodedToken* token) const override {
    if (!first) token->bytes = absl::StrCat(" ", token->bytes);
    return absl::OkStatus();
  }
};

class ByteLevel : public Step {
 public:
  absl::Status Apply(bool, PatternScratch&, DecodedToken* token) const override {
    if (auto bytes = BytesOfCharacters(token->bytes)) token->bytes = *std::move(bytes);
    return absl::OkStatus();
  }
};

class ByteFallback : public Step {
 public:
  absl::Status Apply(bool, PatternScratch&, DecodedToken* token) const override {
    const absl::string_view text = token->bytes;
    const bool is_byte = text.size() == 6 && text.substr(0, 3) == "<0x" && text[5] == '>' &&
                         absl::ascii_isxdigit(static_cast<unsigned char>(text[3])) &&
                         absl::ascii_isxdigit(static_cast<unsigned char>(text[4]));
    if (!is_byte) return absl::OkStatus();
    token->bytes = absl::HexStringToBytes(text.substr(3, 2));
    token->is_byte = true;
    return absl::OkStatus();
  }
};

class Replace : public Step {
 public:
  Replace(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::Status Apply(bool, PatternScratch& scratch, DecodedToken* token) const override {
    std::vector<TextRange> matches;
    RIVULET_RETURN_IF_ERROR(pattern_.FindAll(token->bytes, scratch, &matches));
    std::string result;
    size_t copied = 0;
    for (const TextRange& match : matches) {
      result.append(token->bytes, copied, match.begin - copied);
      result += content_;
      copied = match.end;
    }
    token->bytes = result.append(token->bytes, copied);
    return absl::OkStatus();
  }

 private:
  const TextPattern pattern_;
  const std::string content_;
};

class Metaspace : public Step {
 public:
  Metaspace(std::string replacement, bool prepends)
      : replacement_(std::move(replacement)), prepends_(prepends) {}
  absl::Status Apply(bool first, PatternScratch&, DecodedToken* token) const override {
    const char* const space = first && prepends_ ? "" : " ";
    token->bytes = absl::StrReplaceAll(token->bytes, {{replacement_, space}});
    return absl::OkStatus();
  }

 private:
  const std::string replacement_;
  const bool prepends_;
};

// Up to `start` and `stop` times the character, at the ends of each token.
class Strip : public Step {
 public:
  Strip(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  absl::Status Apply(bool, PatternScratch&, DecodedToken* token) const override {
    std::string_view text = token->bytes;
    for (size_t i = 0; i < start_ && text.starts_with(content_); ++i) {
      text.remove_prefix(content_.size());
    }
    for (size_t i = 0; i < stop_ && text.ends_with(content_); ++i) {
      text.remove_suffix(content_.size());
    }
    token->bytes = std::string(text);
    return absl::OkStatus();
  }

 private:
  const std::string content_;
  const size_t start_, stop_;
};

// The same once, at the start of the whole text. What a byte token begins is decided by its run
// (server/text/detokenizer.h).
class StripStart : public Step {
 public:
  explicit StripStart(std::string content) : content_(std::move(content)) {}
  absl::Status Apply(bool first, PatternScratch&, DecodedToken* token) const override {
    if (!first || token->is_byte) return absl::OkStatus();
    if (token->bytes.starts_with(content_)) token->bytes.erase(0, content_.size());
    return absl::OkStatus();
  }

 private:
  const std::string content_;
};

class WordPieces : public Step {
 public:
  WordPieces(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  absl::Status Apply(bool first, PatternScratch&, DecodedToken* token) const override {
    if (!first && token->bytes.starts_with(prefix_)) {
      token->bytes.erase(0, prefix_.size());
    } else if (!first) {
      token->bytes = absl::StrCat(" ", token->bytes);
    }
    if (cleanup_) CleanUp(&token->bytes);
    return absl::OkStatus();
  }

 private:
  // One after the other, as each may make room for the next.
  static void CleanUp(std::string* text) {
    static constexpr std::pair<const char*, const char*> kRules[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kRules) *text = absl::StrReplaceAll(*text, {{from, to}});
  }

  const std::string prefix_;
  const bool cleanup_;
};

absl::Status NotAfter(const std::string& type, const char* before) {
  return absl::UnimplementedError(
      absl::StrCat("the decoder ", type, " after ", before, " is not supported"));
}

}  // namespace

absl::Status Decoder::AddStrip(const nlohmann::json& json) {
  ConfigReader reader(json);
  const std::string content = reader.String("content", " ");
  const size_t start = reader.Size("start", 0, 0), stop = reader.Size("stop", 0, 0);
  reader.Require(!content.empty() && content.size() == Utf8Length(content[0]), "content",
                 "it must be one character");
  RIVULET_RETURN_IF_ERROR(reader.status());
  if (!fused_ && !bytes_joined_) {
    steps_.push_back(std::make_shared<Strip>(content, start, stop));
    return absl::OkStatus();
  }
  if (!fused_) return NotAfter("Strip", "ByteFallback without Fuse");
  if (start > 1 || stop > 0) return NotAfter("Strip of more than one character", "Fuse");
  if (start == 1) steps_.push_back(std::make_shared<StripStart>(content));
  return absl::OkStatus();
}

absl::Status Decoder::Add(const nlohmann::json& json) {
  ConfigReader reader(json);
  const std::string type = reader.String("type");
  if (type == "Sequence") {
    const nlohmann::json* const parts = reader.Find("decoders");
    if (parts == nullptr || !parts->is_array()) {
      return absl::InvalidArgumentError("Sequence without a list \"decoders\"");
    }
    for (const nlohmann::json& part : *parts) RIVULET_RETURN_IF_ERROR(Add(part));
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Strip") {
    RIVULET_RETURN_IF_ERROR(AddStrip(json));
  } else if (fused_ || bytes_joined_) {
    return NotAfter(type, fused_ ? "Fuse or ByteLevel" : "ByteFallback");
  } else if (type == "ByteLevel") {
    steps_.push_back(std::make_shared<ByteLevel>());
    fused_ = true;
  } else if (type == "ByteFallback") {
    steps_.push_back(std::make_shared<ByteFallback>());
    bytes_joined_ = true;
  } else if (type == "Replace") {
    const nlohmann::json* const pattern = reader.Find("pattern");
    if (pattern == nullptr) return absl::InvalidArgumentError("Replace without \"pattern\"");
    RIVULET_ASSIGN_OR_RETURN(TextPattern parsed, TextPattern::Parse(*pattern));
    steps_.push_back(std::make_shared<Replace>(std::move(parsed), reader.String("content")));
  } else if (type == "Metaspace") {
    const bool prefix = reader.Bool("add_prefix_space", true);
    const bool prepends = reader.String("prepend_scheme", prefix ? "always" : "never") != "never";
    const std::string replacement = reader.String("replacement", "\u2581");
    reader.Require(!replacement.empty(), "replacement", "it must be one character");
    steps_.push_back(std::make_shared<Metaspace>(replacement, prepends));
  } else if (type == "WordPiece") {
    steps_.push_back(
        std::make_shared<WordPieces>(reader.String("prefix", "##"), reader.Bool("cleanup", true)));
  } else if (type == "BPEDecoder") {
    const std::string suffix = reader.String("suffix", "</w>");
    reader.Require(!suffix.empty(), "suffix", "it must not be empty");
    steps_.push_back(std::make_shared<Replace>(TextPattern(suffix), " "));
    drops_last_space_ = fused_ = true;
  } else {
    return absl::UnimplementedError(absl::StrCat("the decoder ", type, " is not supported"));
  }
  return reader.status();
}

absl::StatusOr<Decoder> Decoder::Parse(const nlohmann::json& json) {
  Decoder decoder;
  if (json.is_null()) {
    decoder.steps_.push_back(std::make_shared<Words>());
    return decoder;
  }
  RIVULET_RETURN_IF_ERROR(decoder.Add(json));
  return decoder;
}

absl::StatusOr<DecodedToken> Decoder::Decode(std::string_view token, bool first,
                                             PatternScratch& scratch) const {
  DecodedToken decoded = {std::string(token), false};
  for (const auto& step : steps_) {
    RIVULET_RETURN_IF_ERROR(step->Apply(first, scratch, &decoded));
  }
  return decoded;
}

}  // namespace rivulet
