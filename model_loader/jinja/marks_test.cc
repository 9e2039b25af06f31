// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a template copies from a client stays marked as plain, and what the template writes itself
// does not become it.
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "model_loader/jinja/json_text.h"
#include "model_loader/jinja/template.h"

namespace rivulet::jinja {
namespace {

MarkedText Render(const std::string& source, const std::string& input) {
  const auto parsed = Template::Parse(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const auto marked = parsed->Render(*ParseJsonValue(input, "input", /*plain=*/true), {});
  EXPECT_TRUE(marked.ok()) << source << ": " << marked.status();
  if (!marked.ok()) return {};
  EXPECT_TRUE(IsSound(*marked)) << source;
  const auto unmarked = parsed->Render(*ParseJsonValue(input, "input"), {});
  EXPECT_EQ(unmarked->bytes, marked->bytes) << "marks change no text";
  EXPECT_TRUE(unmarked->plain.empty());
  return *marked;
}

// With "{" and "}" around what is plain.
std::string Shown(const MarkedText& text) {
  std::string shown;
  for (const auto& [range, plain] : Runs(text)) {
    const std::string part = text.bytes.substr(range.begin, range.end - range.begin);
    shown += plain ? "{" + part + "}" : part;
  }
  return shown;
}

// The input has x: " a<b>c ", y: "a-b", l: ["p", "q"], m: {"k": "v", "n": 1}.
std::string ShownOf(const std::string& source) {
  return Shown(
      Render(source, R"({"x": " a<b>c ", "y": "a-b", "l": ["p", "q"], "m": {"k": "v", "n": 1}})"));
}

TEST(JinjaMarksTest, FollowWhatIsCopied) {
  EXPECT_EQ(ShownOf("<{{ y }}>{{ 'b' }}"), "<{a-b}>b");
  EXPECT_EQ(ShownOf("{{ '<' ~ y ~ '>' }}{{ '<' + y + '>' }}"), "<{a-b}><{a-b}>");
  EXPECT_EQ(ShownOf("{{ ('<' ~ y) * 2 }}"), "<{a-b}<{a-b}") << "each copy has its own";
  EXPECT_EQ(ShownOf("{{ x | trim }}{{ x.strip() }}{{ x.rstrip() }}"), "{a<b>ca<b>c a<b>c}");
  EXPECT_EQ(ShownOf("{{ y[0] }}.{{ y[1:] }}.{{ (y ~ '!')[2:] }}"), "{a}.{-b}.{b}!");
  EXPECT_EQ(ShownOf("{{ y | first }}.{{ y | last }}"), "{a}.{b}");
  EXPECT_EQ(ShownOf("{% for c in y %}{{ c }},{% endfor %}"), "{a},{-},{b},");
  EXPECT_EQ(ShownOf("{{ l | join(',') }}{{ ','.join(l) }}"), "{p},{qp},{q}");
  EXPECT_EQ(ShownOf("{{ ['a', 'b'] | join(y) }}"), "a{a-b}b");
  EXPECT_EQ(ShownOf("{% set z %}<{{ y }}>{% endset %}{{ z }}"), "<{a-b}>");
  EXPECT_EQ(ShownOf("{% macro f(t) %}<{{ t }}>{% endmacro %}{{ f(y) | trim }}"), "<{a-b}>");
  EXPECT_EQ(
      ShownOf("{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}{{ y }}!{% endcall %}"),
      "<{a-b}!>");
  EXPECT_EQ(ShownOf("{% filter trim %} <{{ y }}> {% endfilter %}"), "<{a-b}>");
  EXPECT_EQ(ShownOf("{% set n = namespace(t='<') %}{% set n.t = n.t ~ y %}{{ n.t }}"), "<{a-b}");
  EXPECT_EQ(ShownOf("{{ y if true else 'b' }}{{ z | default(y) }}"), "{a-ba-b}");
}

TEST(JinjaMarksTest, FollowThePartsOfATextThatIsCut) {
  EXPECT_EQ(ShownOf("{{ ('A<' ~ y).split('<')[1] }}.{{ ('A<' ~ y).split('-')[0] }}"),
            "{a-b}.A<{a}");
  EXPECT_EQ(ShownOf("{{ (y ~ '-c').rsplit('-', 1) | join('|') }}"), "{a-b}|c");
  EXPECT_EQ(ShownOf("{{ y.partition('-')[1] }}{{ 'a-b'.partition('-')[1] }}"), "{-}-");
  EXPECT_EQ(ShownOf("{{ (y ~ '\n' ~ 'b').splitlines() | join('|') }}"), "{a-b}|b");
  EXPECT_EQ(ShownOf("{{ y.replace('-', '+') }}.{{ '1-2'.replace('-', y) }}"), "{a}+{b}.1{a-b}2");
  EXPECT_EQ(ShownOf("{{ y | replace('-', '+') }}.{{ '1-2' | replace('-', y) }}"),
            "{a}+{b}.1{a-b}2");
  EXPECT_EQ(ShownOf("{{ y.removeprefix('a') }}{{ ('<' ~ y).removesuffix('b') }}"), "{-b}<{a-}");
  EXPECT_EQ(ShownOf("{{ ('<\n' ~ y) | indent(2) }}"), "<\n  {a-b}");
  EXPECT_EQ(ShownOf("{{ ('<' ~ y ~ '>>>>>>>>') | truncate(6, true, '..', 0) }}"), "<{a-b}..");
}

TEST(JinjaMarksTest, FollowWhatIsFormatted) {
  EXPECT_EQ(ShownOf("{{ '<%s|%d>' % (y, 3) }}{{ '%s%%' | format(y) }}"), "<{a-b}|3>{a-b}%");
  EXPECT_EQ(ShownOf("{{ '<{}|{}>'.format(y, 3) }}{{ '{{{0}}}'.format(y) }}"), "<{a-b}|3>{{a-b}}");
  EXPECT_EQ(ShownOf("{{ '%5s' % y }}"), "{  a-b}") << "as a whole where it is not copied as it is";
  EXPECT_EQ(ShownOf("{{ (y ~ '%s') % 'c' }}"), "{a-b}c");
  EXPECT_EQ(ShownOf("{{ '%s' % ('<' ~ y) }}"), "<{a-b}");
}

// What makes another text of its input marks all of it.
TEST(JinjaMarksTest, CoverWhatIsMadeOfAClientsText) {
  EXPECT_EQ(ShownOf("{{ y | upper }}.{{ y.title() }}.{{ 'b' | upper }}"), "{A-B}.{A-B}.B");
  EXPECT_EQ(ShownOf("<{{ m | tojson }}>{{ {'a': 1} | tojson }}"),
            "<{{\"k\": \"v\", \"n\": 1}}>{\"a\": 1}");
  EXPECT_EQ(ShownOf("<{{ m }}>{{ l }}{{ [1, 'a'] }}"),
            "<{{'k': 'v', 'n': 1}}>{['p', 'q']}[1, 'a']");
  EXPECT_EQ(ShownOf("{{ x | e }}"), "{ a&lt;b&gt;c }");
  EXPECT_EQ(ShownOf("{{ y | reverse }}{{ y[::-1] }}"), "{b-ab-a}");
  EXPECT_EQ(ShownOf("{{ [[m]] | string }}"), "{[[{'k': 'v', 'n': 1}]]}");
  EXPECT_EQ(ShownOf("{{ l | map('upper') | join }}"), "{PQ}");
}

TEST(JinjaMarksTest, FollowTheKeysOfMappings) {
  EXPECT_EQ(ShownOf("{% for k, v in m.items() %}<{{ k }}={{ v }}>{% endfor %}"),
            "<{k}={v}><{n}=1>");
  EXPECT_EQ(ShownOf("{% for k in m %}<{{ k }}>{% endfor %}"), "<{k}><{n}>");
  EXPECT_EQ(ShownOf("{% macro f() %}{{ kwargs | list | join('|') }}{% endmacro %}{{ f(**m) }}"),
            "{k}|{n}");
  EXPECT_EQ(ShownOf("{{ dict(**m) | list | join('|') }}"), "{k}|{n}");
  EXPECT_EQ(ShownOf("{% set n = namespace(**m) %}{{ n | string | length > 0 }}"), "True");
}

TEST(JinjaMarksTest, DoNotChangeWhatATemplateSees) {
  EXPECT_EQ(ShownOf("{{ '<b>' in x }}{{ x.split('<b>') | length }}{{ y == 'a-b' }}{{ {'a-b': 1}[y] "
                    "}}{{ x.startswith(' a') }}{{ y | length }}{{ [y, 'a-b'] | unique | list | "
                    "length }}"),
            "True2True1True31");
}

// ---- The templates of test_templates, with inputs whose letters are Cyrillic: each of those in
// the rendered text came from the client, so it must be plain.

const std::string kFolder = "model_loader/jinja/";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Letters to Cyrillic ones: U+0430 and on, whose upper case is Cyrillic too.
std::string Cyrillic(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c >= 'a' && c <= 'o') {
      result += {'\xD0', static_cast<char>(0xB0 + (c - 'a'))};
    } else {
      result += c;
    }
  }
  return result;
}

// Roles and types are the template's words.
Value Translate(const Value& value) {
  if (value.text() != nullptr) {
    return Value::Marked(MarkedText::Of(Cyrillic(value.text()->bytes), true));
  }
  if (value.sequence() != nullptr) {
    auto list = std::make_shared<Sequence>();
    for (const Value& item : value.sequence()->items) list->items.push_back(Translate(item));
    Measure(*list);
    return Value(std::move(list));
  }
  if (value.mapping() == nullptr) return value;
  auto mapping = std::make_shared<Mapping>();
  for (const auto& [key, item] : value.mapping()->entries) {
    const std::string& name = key.text()->bytes;
    const bool own = name == "role" || name == "type" || name.ends_with("_token");
    SetEntry(*mapping, key, own ? item : Translate(item));
  }
  Measure(*mapping);
  return Value(Value::MappingPointer(std::move(mapping)));
}

size_t CountUnmarkedCyrillic(const MarkedText& text) {
  size_t count = 0;
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    const bool cyrillic = text.bytes[i] == '\xD0' || text.bytes[i] == '\xD1';
    count += cyrillic && !Overlaps(text.plain, i, i + 1) ? 1 : 0;
  }
  return count;
}

TEST(JinjaMarksTest, NoTemplateLosesThem) {
  const auto vectors = ParseJsonValue(ReadFile(kFolder + "vectors.json"), "vectors.json");
  ASSERT_TRUE(vectors.ok()) << vectors.status();
  const Mapping& all = *vectors->mapping();
  const Value& snippet_input = *FindEntry(all, "snippet_input");
  size_t rendered = 0, plain_bytes = 0;
  for (const Value& one : FindEntry(all, "cases")->sequence()->items) {
    const Value* const file = FindEntry(*one.mapping(), "file");
    const Value* const input = FindEntry(*one.mapping(), "input");
    const std::string source = file == nullptr
                                   ? FindEntry(*one.mapping(), "template")->text()->bytes
                                   : ReadFile(kFolder + "test_templates/" + file->text()->bytes);
    const auto parsed = Template::Parse(source);
    if (!parsed.ok()) continue;
    const auto text = parsed->Render(Translate(input == nullptr ? snippet_input : *input), {});
    if (!text.ok()) continue;
    ++rendered;
    EXPECT_TRUE(IsSound(*text)) << source;
    EXPECT_EQ(CountUnmarkedCyrillic(*text), 0u) << source << "\n" << Shown(*text);
    for (const TextRange& range : text->plain) plain_bytes += range.end - range.begin;
  }
  EXPECT_GT(rendered, 150u);
  EXPECT_GT(plain_bytes, 5000u);
}

// Marks are paid from the budget.
TEST(JinjaMarksTest, AreBounded) {
  const auto parsed = Template::Parse(
      "{% set n = namespace(t='') %}{% for i in range(100000) %}{% set n.t = n.t ~ 'a' ~ x %}"
      "{% endfor %}{{ n.t | length }}");
  RenderOptions options;
  options.limits.memory = size_t{1} << 20;
  const auto text = parsed->Render(*ParseJsonValue(R"({"x": "b"})", "input", true), options);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace rivulet::jinja
