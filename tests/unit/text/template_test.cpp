// SPDX-License-Identifier: Apache-2.0
#include "text/template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "tiny.h"

namespace sf::text {
namespace {

std::string render(const std::string& source, const Json& variables = Json::object()) {
  return Template::parse(source, "chat").render(variables);
}

struct Refusal {
  Exit code = Exit::kOk;
  std::string message;
};
Refusal refusal(const std::string& source, const Json& variables = Json::object()) {
  try {
    render(source, variables);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

void expect_refused(const std::string& source, Exit code, const std::string& place, const std::string& word) {
  Refusal found = refusal(source);
  EXPECT_EQ(found.code, code) << source << ": " << found.message;
  EXPECT_EQ(found.message.substr(0, place.size()), place) << source;
  EXPECT_NE(found.message.find(word), std::string::npos) << found.message;
}

TEST(TemplateSubset, WhatItLacksIsRefusedWithLineAndColumn) {
  expect_refused("a\n  {{ x | nosuch }}", Exit::kConfig, "chat:2:10: ", "filter 'nosuch'");
  expect_refused("{{ x is nosuch }}", Exit::kConfig, "chat:1:9: ", "test 'nosuch'");
  expect_refused("\u00e9\u00e9 {% include 'x' %}", Exit::kConfig, "chat:1:7: ", "tag 'include'");
  expect_refused("{% for x in y recursive %}{% endfor %}", Exit::kConfig, "chat:1:15: ", "recursive");
  expect_refused("{{ f(*x) }}", Exit::kConfig, "chat:1:6: ", "unpacked");
  expect_refused("{% macro m() %}{{ caller() }}{% endmacro %}", Exit::kConfig, "chat:1:19: ", "caller");
  expect_refused("{{ 'x'.zfill(3) }}", Exit::kConfig, "chat:1:7: ", "method 'zfill'");
  expect_refused("{{ [1].append(2) }}", Exit::kConfig, "chat:1:7: ", "method 'append'");
  expect_refused("{{ '%s' % 1 }}", Exit::kConfig, "chat:1:9: ", "formatting");
  expect_refused("{{ [1] | map('nosuch') | list }}", Exit::kConfig, "chat:1:10: ", "nosuch");
  expect_refused("{{ strftime_now('%q') }}", Exit::kConfig, "chat:1:16: ", "strftime");
  expect_refused("{{ {1: 2} }}", Exit::kConfig, "chat:1:5: ", "key of type int");
}

TEST(TemplateSubset, BrokenSyntaxIsRefusedWithLineAndColumn) {
  expect_refused("{% if x %}\n", Exit::kConfig, "chat:1:11: ", "endif");
  expect_refused("x\n{{ 1 + }}", Exit::kConfig, "chat:2:8: ", "wanted a value");
  expect_refused("{{ 'abc }}", Exit::kConfig, "chat:1:4: ", "not closed");
  expect_refused("{{ (1 }}", Exit::kConfig, "chat:1:7: ", "unexpected '}'");
  expect_refused("{# never", Exit::kConfig, "chat:1:1: ", "comment");
  expect_refused("{% endfor %}", Exit::kConfig, "chat:1:4: ", "endfor");
  expect_refused("{% break %}", Exit::kConfig, "chat:1:4: ", "break");
  expect_refused("{{ ? }}", Exit::kConfig, "chat:1:4: ", "'?'");
  expect_refused("{{ 99999999999999999999 }}", Exit::kConfig, "chat:1:4: ", "range");
}

TEST(TemplateErrors, AWrongValueIsBadDataWithItsPlace) {
  expect_refused("a\n{{ x.y }}", Exit::kData, "chat:2:5: ", "'x' is undefined");
  expect_refused("{{ 1 + 'a' }}", Exit::kData, "chat:1:6: ", "int and str");
  expect_refused("{{ 1 // 0 }}", Exit::kData, "chat:1:6: ", "zero");
  expect_refused("{% set a.b = 1 %}", Exit::kData, "chat:1:4: ", "namespace");
  expect_refused("{{ 9223372036854775807 + 1 }}", Exit::kData, "chat:1:24: ", "too large");
}

TEST(TemplateErrors, RaiseExceptionGivesTheTemplatesOwnWords) {
  Refusal found = refusal("{{ raise_exception('no tools, please') }}");
  EXPECT_EQ(found.code, Exit::kData);
  EXPECT_EQ(found.message, "no tools, please");
}

TEST(TemplateBounds, EndlessWorkStops) {
  const char* endless[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% for a in range(1000000000) %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{% if n %}{{ m(n) }}{{ m(n) }}{% endif %}{% endmacro %}{{ m(1) }}",
      "{{ 'a' * 100000000000 }}",
      "{{ [1] * 100000000000 }}",
      "{% set n = namespace(s='aaaaaaaaaa') %}{% for i in range(100) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
      "{% set n = namespace(l=[1]) %}{% for i in range(100) %}{% set n.l = n.l + n.l %}{% endfor %}",
      "{% set n = namespace(l=['aaaaaaaaaaaaaaaaaaaa']) %}{% for i in range(20) %}{% set n.l = [n.l, n.l] %}{% endfor "
      "%}{{ n.l }}",
      "{% set n = namespace(l=['aaaaaaaaaaaaaaaaaaaa']) %}{% for i in range(30) %}{% set n.l = [n.l, n.l] %}{% endfor "
      "%}{{ n.l | tojson }}",
      "{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = [n.l] %}{% endfor %}",
      "{{ 'ab'.replace('', 'x' * 10000000) }}",
      "{{ ('x' * 10000000) | indent(900, true) ~ ('\n' * 1000000) | indent(900, blank=true) }}",
      "{{ 2 ** 100000 }}",
      "{% for i in range(100000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' * 100 }}{% endfor "
      "%}",
  };
  for (const char* source : endless) EXPECT_EQ(refusal(source).code, Exit::kData) << source;
}

TEST(TemplateBounds, DeepNestingIsRefusedWhenItIsRead) {
  auto repeat = [](const char* text, size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += text;
    return out;
  };
  for (size_t n : {size_t{300}, size_t{100000}}) {
    EXPECT_EQ(refusal("{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}").code, Exit::kConfig);
    EXPECT_EQ(refusal("{{ " + repeat("-", n) + "1 }}").code, Exit::kConfig);
    EXPECT_EQ(refusal("{{ " + repeat("not ", n) + "1 }}").code, Exit::kConfig);
    EXPECT_EQ(refusal("{{ " + repeat("1 if 0 else ", n) + "1 }}").code, Exit::kConfig);
    EXPECT_EQ(refusal(repeat("{% if 1 %}", n)).code, Exit::kConfig);
  }
  EXPECT_EQ(refusal("{{ 1" + repeat(" if 1", 100000) + " }}").code, Exit::kConfig);
  EXPECT_EQ(refusal("{{ 1" + repeat(" ~ 1", 100000) + " }}").code, Exit::kConfig);
  EXPECT_EQ(refusal("{{ x" + repeat(".a", 100000) + " }}").code, Exit::kConfig);
  EXPECT_EQ(refusal("{{ x" + repeat(" | trim", 100000) + " }}").code, Exit::kConfig);
}

TEST(TemplateBounds, AChatOfAThousandMessagesIsNoEndlessWork) {
  Json messages = Json::array();
  for (int i = 0; i < 1000; ++i)
    messages.push(tiny::object({{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(200, 'x')}}));
  std::string text = render(tiny::chatml(), tiny::object({{"messages", messages}, {"add_generation_prompt", false}}));
  EXPECT_GT(text.size(), 200000u);
}

TEST(Template, ANamespaceThatHoldsItselfAndAMacroThatIsKeptDoNoHarm) {
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.me = n %}{% set n.l = [n] %}{% macro m() %}x{% endmacro %}{% set "
                   "n.m = m %}{{ n.m() }}{{ n.l }}"),
            "x[<Namespace>]");
  EXPECT_EQ(render("{% set n = namespace() %}{% for i in [1, 2] %}{% set q = i %}{% macro m() %}{{ q }}{% endmacro "
                   "%}{% set n.m = m %}{% endfor %}{{ n.m() }}"),
            "2");
}

TEST(Template, TheDayIsFixedUnlessItIsGiven) {
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y') }}"), "26 Jul 2024");
  EXPECT_EQ(Template::parse("{{ strftime_now('%A %H:%M') }}", "chat").render(Json::object(), {2026, 2, 3, 4, 5, 6}),
            "Tuesday 04:05");
}

TEST(Template, MessageTextIsNeverReadAsTemplate) {
  EXPECT_EQ(render("{{ x }}", tiny::object({{"x", "{{ raise_exception('no') }}{% if %}"}})),
            "{{ raise_exception('no') }}{% if %}");
}

TEST(Template, DamageAnywhereIsRefusedOrHarmlessNeverACrash) {
  const char* root = std::getenv("SF_GOLDEN_ROOT");
  ASSERT_NE(root, nullptr);
  Rng rng(6, "damage");
  const std::string marks = "{}%#'\"()[]|.~-+=:,\\ \nnifx0";
  const uint64_t rounds = std::getenv("SF_SOAK") ? 100'000 : 700;
  uint64_t refused = 0;
  for (const char* name : {"thinking", "header", "alternate"}) {
    std::filesystem::path file = std::filesystem::path(root) / "chat_template" / name / "case.json";
    Json json = Json::parse(read_file(file), "case");
    const std::string& source = json.at("template").as_string();
    Json variables = json.at("rows").as_array()[20].at("variables");
    variables.set("messages", json.at("rows").as_array()[20].at("messages"));
    for (uint64_t i = 0; i < rounds; ++i) {
      std::string damaged = source;
      for (uint64_t k = 0; k <= i % 3; ++k)
        damaged[rng.below(damaged.size(), i, 2 * k)] = marks[rng.below(marks.size(), i, 2 * k + 1)];
      Refusal found = refusal(damaged, variables);
      ASSERT_TRUE(found.code == Exit::kOk || found.code == Exit::kData || found.code == Exit::kConfig) << found.message;
      refused += found.code != Exit::kOk;
    }
  }
  EXPECT_GT(refused, rounds / 2);
}

}  // namespace
}  // namespace sf::text
