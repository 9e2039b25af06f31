// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target of the template engine. Built with -DRIVULET_FUZZ=ON by clang; the test
// templates are a good corpus to begin with:
//   build/<preset>/test/jinja_fuzz -max_len=4096 -max_total_time=60 CORPUS
//   model_loader/jinja/test_templates
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kernels/base/utf8.h"
#include "model_loader/jinja/json_text.h"
#include "model_loader/jinja/template.h"

namespace {

// In what a client sends; no template has it.
constexpr std::string_view kMark = "\uE000";

constexpr std::string_view kInput =
    R"({"messages": [{"role": "system", "content": "Be \uE000brief."},
  {"role": "user", "content": "Grüße <think>a</think> b\uE000"}, {"role": "assistant", "content": "",
  "tool_calls": [{"id": "abcdefghi", "function": {"name": "f", "arguments": {"a": 1, "b": [2.5, null]}}}]},
  {"role": "tool", "content": "\uE000x", "tool_call_id": "abcdefghi"}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}],
  "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "x": 5, "l": [3, 1, 2]})";

// Whether a template can write kMark itself: as it is, by an escape, or by its number.
bool WritesMark(std::string_view source) {
  for (const std::string_view way : {"\xEE", "\\u", "\\U", "\\x", "\\N", "%", ":c"}) {
    if (source.find(way) != std::string_view::npos) return true;
  }
  return false;
}

// What a client sent is plain in every place.
bool AllMarksArePlain(const rivulet::MarkedText& text) {
  for (size_t i = text.bytes.find(kMark); i != std::string::npos;
       i = text.bytes.find(kMark, i + 1)) {
    if (!rivulet::Covers(text.plain, i, i + kMark.size())) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const rivulet::jinja::Value input =
      *rivulet::jinja::ParseJsonValue(kInput, "input", /*plain=*/true);
  const auto parsed = rivulet::jinja::Template::Parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return 0;
  rivulet::jinja::RenderOptions options;
  options.limits.steps = 100'000;
  options.limits.memory = size_t{8} << 20;
  const auto text = parsed->Render(input, options);
  if (!text.ok()) return 0;
  if (rivulet::ValidUtf8Length(text->bytes) != text->bytes.size()) std::abort();
  if (!rivulet::IsSound(*text)) std::abort();
  if (!WritesMark({reinterpret_cast<const char*>(data), size}) && !AllMarksArePlain(*text)) {
    std::abort();
  }
  return 0;
}
