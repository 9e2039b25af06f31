// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/template.h"

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/utf8.h"
#include "model_loader/jinja/json_text.h"

namespace rivulet::jinja {
namespace {

using testing::HasSubstr;

Value Input(const std::string& json = "{}") {
  auto value = ParseJsonValue(json, "input");
  EXPECT_TRUE(value.ok()) << value.status();
  return *value;
}

absl::StatusOr<std::string> Render(const std::string& source, const std::string& input = "{}",
                                   const RenderOptions& options = {}) {
  auto parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  auto text = parsed->Render(Input(input), options);
  if (!text.ok()) return text.status();
  return std::move(text->bytes);
}

std::string Refusal(const std::string& source, const std::string& input = "{}",
                    const RenderOptions& options = {}) {
  const auto text = Render(source, input, options);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << source.substr(0, 200);
  return std::string(text.status().message());
}

std::string Repeat(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(JinjaTemplateTest, RendersTheInput) {
  EXPECT_EQ(*Render("{% for m in messages %}<{{ m.role }}>{% endfor %}",
                    R"({"messages": [{"role": "a"}, {"role": "b"}]})"),
            "<a><b>");
}

TEST(JinjaTemplateTest, SaysWhyItRefusesAnInput) {
  EXPECT_EQ(Refusal("{{ raise_exception('No ' ~ role ~ ' here') }}", R"({"role": "critic"})"),
            "the template refuses the input: No critic here");
}

TEST(JinjaTemplateTest, NamesTheLineOfAnError) {
  EXPECT_EQ(Refusal("a\nb {{ x.y }}\n"), "the template fails in line 2: 'x' is undefined");
  EXPECT_EQ(Refusal("{% for i in [1] %}\n\n{{ 1 + 'a' }}{% endfor %}"),
            "the template fails in line 3: unsupported operand types for +: 'int' and 'str'");
  EXPECT_EQ(Refusal("\n\n{% if %}"),
            "the template is not valid: line 3: expected an expression, got '%}'");
}

TEST(JinjaTemplateTest, NamesWhatIsNotProvided) {
  EXPECT_THAT(Refusal("{% include 'x' %}"), HasSubstr("'include' is not available"));
  EXPECT_THAT(Refusal("{{ 'a' | urlize }}"), HasSubstr("does not provide the filter 'urlize'"));
  EXPECT_THAT(Refusal("{{ lipsum() }}"), HasSubstr("does not provide"));
  EXPECT_THAT(Refusal("{{ open('/etc/passwd') }}"), HasSubstr("'open' is undefined"));
  EXPECT_THAT(Refusal("{{ ''.__class__.__base__ }}"), HasSubstr("no attribute '__class__'"));
}

TEST(JinjaTemplateTest, ShowsTheGivenTime) {
  RenderOptions options;
  options.now = {.unix_seconds = 86400 * 365, .microseconds = 42};
  EXPECT_EQ(*Render("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}", "{}", options),
            "1971-01-01 00:00:00.000042");
}

// ---- Templates that mean harm. Each must end soon, with an error that names the limit.

TEST(JinjaTemplateTest, EndsLoopsThatTakeTooLong) {
  const std::string nested = Repeat("{% for i in range(100000) %}", 4) + Repeat("{% endfor %}", 4);
  EXPECT_THAT(Refusal(nested), HasSubstr("more than 20000000 steps"));
  RenderOptions few;
  few.limits.steps = 1000;
  EXPECT_THAT(Refusal("{% for i in range(2000) %}{% endfor %}", "{}", few),
              HasSubstr("more than 1000 steps"));
}

TEST(JinjaTemplateTest, EndsRecursion) {
  EXPECT_THAT(Refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("nested deeper than"));
  EXPECT_THAT(Refusal("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("nested deeper than"));
  EXPECT_THAT(
      Refusal("{% macro f(x) %}{{ caller() }}{% endmacro %}"
              "{% macro g() %}{% call f(1) %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}"),
      HasSubstr("nested deeper than"));
}

TEST(JinjaTemplateTest, RefusesDeepSource) {
  for (const auto& [open, close] : std::vector<std::pair<std::string, std::string>>{{"(", ")"},
                                                                                    {"[", "]"},
                                                                                    {"{1:", "}"},
                                                                                    {"not ", ""},
                                                                                    {"-", ""},
                                                                                    {"1+(", ")"},
                                                                                    {"f(", ")"}}) {
    const std::string deep = "{{ " + Repeat(open, 5000) + "1" + Repeat(close, 5000) + " }}";
    EXPECT_THAT(Refusal(deep), HasSubstr("nested deeper than")) << open;
  }
  for (const std::string& chain :
       {"a" + Repeat(".b", 5000), "1" + Repeat("+1", 5000), "a" + Repeat("|trim", 5000),
        "a" + Repeat("[0]", 5000), "1" + Repeat(" and 1", 5000), "a" + Repeat("()", 5000)}) {
    EXPECT_THAT(Refusal("{{ " + chain + " }}"), HasSubstr("nested deeper than"));
  }
  EXPECT_THAT(Refusal(Repeat("{% if 1 %}", 5000) + Repeat("{% endif %}", 5000)),
              HasSubstr("nested deeper than"));
  EXPECT_THAT(Refusal("{% set " + Repeat("(", 5000) + "a" + Repeat(")", 5000) + " = 1 %}"),
              HasSubstr("nested deeper than"));
}

TEST(JinjaTemplateTest, RefusesValuesThatTakeTooMuchMemory) {
  for (const std::string& source : std::vector<std::string>{
           "{{ 'a' * 1000000000000 }}", "{{ [1] * 1000000000000 }}",
           "{{ 'a'.center(10000000000) }}", "{{ 'a' | indent(10000000000) }}",
           "{{ ('a' * 10000000).replace('', 'b' * 10000000) }}",
           "{{ ['a' * 30000000] * 10 | join }}", "{{ (['a' * 30000000] * 10) | join }}",
           "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}"
           "{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}"
           "{% endfor %}",
           "{{ '%1000000000d' % 1 }}", "{{ '{:1000000000}'.format(1) }}",
           "{{ [1] | tojson(indent=100000000000) }}"}) {
    EXPECT_FALSE(Refusal(source).empty());
  }
}

TEST(JinjaTemplateTest, RefusesLongOutput) {
  RenderOptions options;
  options.limits.output = 1000;
  EXPECT_THAT(Refusal("{% for i in range(1000) %}abc{% endfor %}", "{}", options),
              HasSubstr("its text is longer than 1000 bytes"));
  EXPECT_EQ(Render("{{ 'a' * 1000 }}", "{}", options)->size(), 1000u);
}

TEST(JinjaTemplateTest, RefusesDeepValues) {
  const std::string wrap =
      "{% set ns = namespace(v=1) %}{% for i in range(1000) %}"
      "{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v }}";
  EXPECT_THAT(Refusal(wrap), HasSubstr("deeper than 100 levels"));
  const auto deep = ParseJsonValue(Repeat("[", 101) + Repeat("]", 101), "input");
  EXPECT_THAT(std::string(deep.status().message()), HasSubstr("deeper than 100 levels"));
}

// A value that holds itself twice at every level is small, but its text is not.
TEST(JinjaTemplateTest, BoundsTheTextOfSharedValues) {
  const std::string twice =
      "{% set ns = namespace(v=1) %}{% for i in range(90) %}"
      "{% set ns.v = [ns.v, ns.v] %}{% endfor %}";
  EXPECT_FALSE(Refusal(twice + "{{ ns.v }}").empty());
  EXPECT_FALSE(Refusal(twice + "{{ ns.v | tojson }}").empty());
  const std::string again =
      "{% set other = namespace(v=1) %}{% for i in range(90) %}"
      "{% set other.v = [other.v, other.v] %}{% endfor %}";
  EXPECT_THAT(Refusal(twice + again + "{{ ns.v == other.v }}"), HasSubstr("steps"));
}

TEST(JinjaTemplateTest, FreesANamespaceThatHoldsItself) {
  EXPECT_EQ(*Render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.all = [ns] %}"
                    "{{ ns.me.me.all[0].me is defined }}"),
            "True");
  EXPECT_THAT(*Render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"),
              HasSubstr("Namespace ..."));
}

TEST(JinjaTemplateTest, RefusesAMacroWhoseScopeIsGone) {
  EXPECT_THAT(Refusal("{% set ns = namespace() %}{% for i in [1] %}{% macro f() %}x{% endmacro %}"
                      "{% set ns.f = f %}{% endfor %}{{ ns.f() }}"),
              HasSubstr("outside of the block"));
}

TEST(JinjaTemplateTest, MayRenderInManyThreadsAtOnce) {
  const auto parsed =
      Template::Parse("{% for x in list %}{{ x | tojson }}{{ ['c', x] }}{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  const Value input = Input(R"({"list": ["a", {"b": [1, 2.5]}]})");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 200; ++turn) {
        EXPECT_EQ(parsed->Render(input, {})->bytes,
                  R"("a"['c', 'a']{"b": [1, 2.5]}['c', {'b': [1, 2.5]}])");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Pieces of templates in random order: never a crash, never text that is not UTF-8.
TEST(JinjaTemplateTest, SurvivesRandomTemplates) {
  const std::vector<std::string> pieces = {
      "{{",      "}}",      "{%",     "%}",       "{#",    "#}",      "-",      "+",
      " ",       "\n",      "if",     "else",     "endif", "for",     "in",     "endfor",
      "set",     "endset",  "x",      "messages", "loop",  ".",       "[",      "]",
      "(",       ")",       "|",      "trim",     "'a'",   "\"é\"",   "1",      "2.5",
      "~",       "*",       "**",     "//",       "%",     "==",      "<",      "not",
      "is",      "defined", "macro",  "endmacro", "call",  "endcall", "caller", "namespace",
      "=",       ",",       ":",      "{",        "}",     "tojson",  "join",   "map",
      "'upper'", "raw",     "endraw", "range",    "世界",  "\\",      "'",      "\"",
      "and",     "or",      "none",   "true"};
  std::mt19937_64 random(TestSeed());
  const Value input =
      Input(R"({"messages": [{"role": "user", "content": "héllo"}], "x": [1, "a"]})");
  RenderOptions options;
  options.limits.steps = 20000;
  int rendered = 0;
  for (int turn = 0; turn < 60000; ++turn) {
    std::string source = random() % 2 == 0 ? "{{ " : "";
    for (uint64_t i = random() % 16; i > 0; --i)
      source += pieces[random() % pieces.size()] + (random() % 3 == 0 ? "" : " ");
    if (random() % 2 == 0) source += " }}";
    const auto parsed = Template::Parse(source);
    if (!parsed.ok()) continue;
    const auto text = parsed->Render(input, options);
    if (!text.ok()) continue;
    ++rendered;
    EXPECT_EQ(ValidUtf8Length(text->bytes), text->bytes.size()) << source;
  }
  EXPECT_GT(rendered, 1000);
}

}  // namespace
}  // namespace rivulet::jinja
