// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine against what transformers and jinja2 rendered (make_vectors.py).
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "model_loader/jinja/json_text.h"
#include "model_loader/jinja/template.h"

namespace rivulet::jinja {
namespace {

const std::string kFolder = "model_loader/jinja/";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string TextOf(const Value* value) {
  return value == nullptr || value->text() == nullptr ? "" : value->text()->bytes;
}

// What `refusal` says behind "TemplateError: ", which raise_exception wrote; empty for other
// errors.
std::string OwnMessage(const std::string& refusal) {
  constexpr std::string_view kRaised = "TemplateError: ";
  return refusal.starts_with(kRaised) ? refusal.substr(kRaised.size()) : "";
}

void Check(const Mapping& one, const Value& snippet_input, const RenderOptions& options) {
  const std::string file = TextOf(FindEntry(one, "file"));
  const std::string source = file.empty() ? TextOf(FindEntry(one, "template"))
                                          : ReadFile(kFolder + "test_templates/" + file);
  const Value* const input = FindEntry(one, "input");
  SCOPED_TRACE(file.empty() ? source : file);
  const auto parsed = Template::Parse(source);
  const absl::StatusOr<MarkedText> text =
      parsed.ok() ? parsed->Render(input == nullptr ? snippet_input : *input, options)
                  : absl::StatusOr<MarkedText>(parsed.status());
  if (const Value* const wanted = FindEntry(one, "text")) {
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->bytes, TextOf(wanted));
    return;
  }
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << text->bytes;
  const std::string message = OwnMessage(TextOf(FindEntry(one, "error")));
  EXPECT_TRUE(std::string(text.status().message()).ends_with(message)) << text.status() << message;
}

TEST(JinjaVectorsTest, EqualWhatTransformersRendered) {
  const auto vectors = ParseJsonValue(ReadFile(kFolder + "vectors.json"), "vectors.json");
  ASSERT_TRUE(vectors.ok()) << vectors.status();
  const Mapping& all = *vectors->mapping();
  RenderOptions options;
  options.now.unix_seconds = *FindEntry(all, "now")->integer();
  const auto& cases = FindEntry(all, "cases")->sequence()->items;
  EXPECT_GT(cases.size(), 200u);
  for (const Value& one : cases) {
    Check(*one.mapping(), *FindEntry(all, "snippet_input"), options);
  }
}

}  // namespace
}  // namespace rivulet::jinja
