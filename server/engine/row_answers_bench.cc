// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What structured output costs a step: 64 rows are sampled from random logits on one thread, from
// any text and from what a JSON schema takes, and the rows' grammars take what was drawn.
// vocab/grammar (0: none, 1: one schema for all rows, 2: a schema for each row, all of them new in
// each pass). us_row: microseconds a row and token. Masks: the host's part where a device draws.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/sampling_operations.h"
#include "server/engine/row_answers.h"
#include "server/grammar/grammar_store.h"
#include "server/grammar/letter_vocabulary_fixture.h"
#include "server/grammar/list_tokenizer_fixture.h"

namespace rivulet {
namespace {

constexpr size_t kRows = 64;
constexpr size_t kTokens = 100;  // of each text

std::string Schema(size_t number) {
  return R"({"type": "object", "properties": {"key)" + std::to_string(number) +
         R"(": {"type": "string"}, "count": {"type": "integer"}, "tags": {"type": "array",
         "items": {"type": "string"}}, "kind": {"enum": ["one", "two"]}}})";
}

struct Rows {
  Rows(size_t vocab, const SamplingParams& params) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    logits.resize(vocab);
    for (float& logit : logits) logit = normal(random);
    plan.tokens.assign(kRows, 0);
    plan.rows.resize(kRows);
    for (size_t r = 0; r < kRows; ++r) {
      plan.rows[r].segment.first_token = r;
      plan.rows[r].segment.tokens = plan.rows[r].samples = 1;
      plan.rows[r].spec = {.params = &params, .index = static_cast<uint32_t>(r)};
    }
    result.rows.resize(kRows);
    for (RowResult& row : result.rows) row.samples.resize(1);
  }
  StepPlan plan;
  StepResult result;
  std::vector<float> logits;
};

void Sampling(benchmark::State& state) {
  const auto vocab = static_cast<size_t>(state.range(0));
  const ListTokenizer tokenizer(LetterVocabulary(vocab));
  const SamplingParams params;
  GrammarStore grammars(tokenizer);
  Rows rows(vocab, params);
  std::vector<float> logits;
  size_t schema = 0, tokens = 0;
  for (auto _ : state) {
    std::vector<GrammarMatcher> matchers;
    for (size_t r = 0; r < kRows && state.range(1) > 0; ++r) {
      const std::string text = Schema(state.range(1) == 1 ? 0 : schema++);
      matchers.emplace_back(*grammars.Get(GrammarKind::kJsonSchema, text), false);
    }
    for (size_t token = 0; token < kTokens; ++token) {
      for (size_t r = 0; r < kRows; ++r) {
        if (!matchers.empty() && matchers[r].is_complete()) continue;
        StepRow& row = rows.plan.rows[r];
        row.spec.position = token;
        row.spec.grammar = matchers.empty() ? nullptr : &matchers[r];
        logits = rows.logits;
        RowResult& result = rows.result.rows[r];
        const absl::Status status =
            AnswerPlace(rows.plan, {.row = r, .token = r, .sample = 0}, logits, result);
        if (!status.ok()) return state.SkipWithError(status.ToString().c_str());
        if (!matchers.empty()) (void)matchers[r].Accept(result.samples[0].token);
        ++tokens;
      }
    }
  }
  state.counters["us_row"] =
      benchmark::Counter(static_cast<double>(tokens) * 1e-6,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(Sampling)
    ->ArgNames({"vocab", "grammar"})
    ->ArgsProduct({{4096, 151936}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond);

// A text for each row that the grammar takes.
std::vector<std::vector<uint32_t>> DrawTexts(std::shared_ptr<TokenGrammar> grammar, Rows& rows) {
  std::vector<std::vector<uint32_t>> texts(kRows);
  for (size_t r = 0; r < kRows; ++r) {
    GrammarMatcher matcher(grammar, false);
    rows.plan.rows[r].spec.grammar = &matcher;
    while (texts[r].size() < kTokens && !matcher.is_complete()) {
      rows.plan.rows[r].spec.position = texts[r].size();
      std::vector<float> logits = rows.logits;
      RowResult& result = rows.result.rows[r];
      (void)AnswerPlace(rows.plan, {.row = r, .token = r, .sample = 0}, logits, result);
      texts[r].push_back(result.samples[0].token);
      (void)matcher.Accept(texts[r].back());
    }
  }
  return texts;
}

// What the host does for rows whose tokens a device draws: it finds each row's mask, and the
// grammar takes the token. One schema confines all rows.
void Masks(benchmark::State& state) {
  const auto vocab = static_cast<size_t>(state.range(0));
  const ListTokenizer tokenizer(LetterVocabulary(vocab));
  const SamplingParams params;
  GrammarStore grammars(tokenizer);
  Rows rows(vocab, params);
  const auto grammar = *grammars.Get(GrammarKind::kJsonSchema, Schema(0));
  const std::vector<std::vector<uint32_t>> texts = DrawTexts(grammar, rows);
  const size_t words = MaskWords(vocab);
  std::vector<uint64_t> masks(kRows * words);
  size_t tokens = 0;
  for (auto _ : state) {
    std::vector<GrammarMatcher> matchers(kRows, GrammarMatcher(grammar, false));
    for (size_t token = 0; token < kTokens; ++token) {
      for (size_t r = 0; r < kRows; ++r) {
        if (token >= texts[r].size()) continue;
        rows.plan.rows[r].spec.grammar = &matchers[r];
        const Place place = {.row = r, .token = r, .sample = 0};
        (void)WriteMask(*FindMask(rows.plan, place), vocab, {masks.data() + r * words, words});
        (void)matchers[r].Accept(texts[r][token]);
        ++tokens;
      }
    }
  }
  state.counters["us_row"] =
      benchmark::Counter(static_cast<double>(tokens) * 1e-6,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(Masks)->ArgName("vocab")->Arg(4096)->Arg(50257)->Arg(151936);

// A token that may come, from a random place on: texts that differ, as temperature 1 draws them
// from a model that has learned nothing.
uint32_t AnyOf(std::span<const uint64_t> mask, std::mt19937& random) {
  size_t word = random() % mask.size();
  while (mask[word] == 0) word = (word + 1) % mask.size();
  const auto begin = static_cast<int>(random() % kMaskBits);
  const int bit = (begin + std::countr_zero(std::rotr(mask[word], begin))) % kMaskBits;
  return static_cast<uint32_t>(word * kMaskBits + bit);
}

// Of the processor, so that what else runs does not count.
double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The same from the first token of a new schema on, with texts that differ: most states are new.
// us_step: microseconds for the masks of 64 rows on one thread, us_worst: in the worst step of each
// text, us_schema: to make the grammar.
void NewMasks(benchmark::State& state) {
  const auto vocab = static_cast<size_t>(state.range(0));
  const ListTokenizer tokenizer(LetterVocabulary(vocab));
  const SamplingParams params;
  GrammarStore grammars(tokenizer);
  Rows rows(vocab, params);
  const size_t words = MaskWords(vocab);
  std::vector<uint64_t> masks(kRows * words);
  std::mt19937 random(3);
  (void)grammars.Get(GrammarKind::kJsonSchema, Schema(0));
  size_t schema = 0, steps = 0;
  double worst = 0, sum = 0, making = 0;
  for (auto _ : state) {
    const double begin = ThreadSeconds();
    const auto grammar = *grammars.Get(GrammarKind::kJsonSchema, Schema(++schema));
    making += ThreadSeconds() - begin;
    std::vector<GrammarMatcher> matchers(kRows, GrammarMatcher(grammar, false));
    double worst_here = 0;
    for (size_t step = 0; step < kTokens; ++step, ++steps) {
      const double start = ThreadSeconds();
      for (size_t r = 0; r < kRows; ++r) {
        rows.plan.rows[r].spec.grammar = &matchers[r];
        const Place place = {.row = r, .token = r, .sample = 0};
        (void)WriteMask(*FindMask(rows.plan, place), vocab, {masks.data() + r * words, words});
      }
      const double took = ThreadSeconds() - start;
      for (size_t r = 0; r < kRows; ++r) {
        (void)matchers[r].Accept(AnyOf({masks.data() + r * words, words}, random));
        if (matchers[r].is_complete()) matchers[r] = GrammarMatcher(grammar, false);
      }
      worst_here = std::max(worst_here, took);
      sum += took;
    }
    worst += worst_here;
  }
  state.counters["us_step"] = sum / static_cast<double>(steps) * 1e6;
  state.counters["us_worst"] = worst / static_cast<double>(state.iterations()) * 1e6;
  state.counters["us_schema"] = making / static_cast<double>(state.iterations()) * 1e6;
}
BENCHMARK(NewMasks)->ArgName("vocab")->Arg(4096)->Arg(50257)->Arg(151936)->Iterations(20)->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace rivulet
