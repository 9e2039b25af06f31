// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target of tokenizer.json and of texts: a line is the file, the rest a text. Built with
// -DRIVULET_FUZZ=ON by clang; tests/tokenizers/fixtures/*/tokenizer.json are seeds. A middle part
// of the text is plain:
//   build/<preset>/test/hf_tokenizer_fuzz -max_len=16384 -timeout=20 -max_total_time=60 CORPUS
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "model_loader/hf_tokenizer/hf_tokenizer.h"
#include "model_loader/json.h"
#include "nlohmann/json.hpp"

// Where the character that has this byte begins.
static size_t Border(const std::string& text, size_t place) {
  while (place > 0 && place < text.size() && (static_cast<uint8_t>(text[place]) & 0xC0) == 0x80) {
    --place;
  }
  return place;
}

// The file with one more special token, of the id that comes next: no model has it.
static std::unique_ptr<rivulet::Tokenizer> WithToken(nlohmann::json json, const char* content,
                                                     size_t id) {
  nlohmann::json& added = json["added_tokens"];
  if (!added.is_null() && !added.is_array()) return nullptr;
  added.push_back(
      {{"id", id}, {"content", content}, {"special", true}, {"normalized", id % 2 == 0}});
  const auto none = nlohmann::json::object();
  auto tokenizer = rivulet::MakeHfTokenizer(json, none, none);
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

// A special token that a client wrote, in whole or in part, stays text.
static void CheckPlain(const rivulet::Tokenizer& tokenizer, const std::string& text,
                       const std::string& content, uint32_t id) {
  const size_t place = Border(text, text.size() / 2);
  const std::string joined = text.substr(0, place) + content + text.substr(place);
  const size_t end = place + content.size();
  const rivulet::PlainRanges marks[] = {
      {{0, joined.size()}}, {{place, end}}, {{place, place + 2}}, {{end - 1, end}}};
  for (const rivulet::PlainRanges& plain : marks) {
    const auto ids = tokenizer.EncodeMarked(joined, plain);
    if (ids.ok() && std::find(ids->begin(), ids->end(), id) != ids->end()) __builtin_trap();
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\n');
  const auto json = rivulet::ParseJson(input.substr(0, end), "fuzz");
  if (!json.ok() || !json->is_object()) return 0;
  const auto none = nlohmann::json::object();
  const auto tokenizer = rivulet::MakeHfTokenizer(*json, none, none);
  if (!tokenizer.ok()) return 0;
  const std::string text = end == std::string::npos ? "a B\u00e9 1" : input.substr(end + 1);
  rivulet::PlainRanges middle = {{Border(text, text.size() / 3), Border(text, text.size() / 2)}};
  if (middle[0].begin == middle[0].end) middle.clear();
  for (const auto& ids : {(*tokenizer)->Encode(text), (*tokenizer)->EncodeRendered(text),
                          (*tokenizer)->EncodeMarked(text, middle)}) {
    for (size_t i = 0; ids.ok() && i < ids->size(); ++i) {
      if ((*ids)[i] >= (*tokenizer)->vocab_size()) __builtin_trap();
    }
  }
  constexpr char kContent[] = "<|fuzz|>";
  const auto id = static_cast<uint32_t>((*tokenizer)->vocab_size());
  const auto more = WithToken(*json, kContent, id);
  if (more != nullptr && input.find_first_of("zZ") == std::string::npos)
    CheckPlain(*more, text, kContent, id);
  return 0;
}
