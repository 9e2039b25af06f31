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

constexpr std::string_view kInput = R"({"messages": [{"role": "system", "content": "Be brief."},
  {"role": "user", "content": "Grüße <think>a</think> b"}, {"role": "assistant", "content": "",
  "tool_calls": [{"id": "abcdefghi", "function": {"name": "f", "arguments": {"a": 1, "b": [2.5, null]}}}]},
  {"role": "tool", "content": "x", "tool_call_id": "abcdefghi"}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}],
  "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "x": 5, "l": [3, 1, 2]})";

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
  return 0;
}
