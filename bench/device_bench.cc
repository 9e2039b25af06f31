// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Decode on the GPU beside the ceilings of its memory, measured in the same run.
//
//   rivulet-device-bench --config bench/results/device/m2_2.7b_config.json --rows 1,32,256
//
// For each number of rows: the time of a step on the device, tokens/s, the bytes that a step must
// move (weights once; each row's base once, its tail, a C-th of two bases), and the share of the
// measured read rate that this makes. Prints a table; --out writes JSON as well. With --json_schema
// each row is measured a second time, writing JSON that a schema accepts. With --beside N each
// number of rows is measured again in steps that also have N tokens of a prompt. With --depth 2 a
// step is launched before the one before it has ended, as the server does it.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status.h"
#include "kernels/device/device.h"
#include "kernels/recurrence/pages.h"
#include "nlohmann/json.hpp"
#include "server/engine/device_engine.h"
#include "server/engine/random_model.h"
#include "server/engine/state_pool.h"
#include "server/grammar/grammar_store.h"
#include "server/grammar/letter_vocabulary_fixture.h"
#include "server/grammar/list_tokenizer_fixture.h"

ABSL_FLAG(std::string, config, "", "config.json of a model; its weights are random");
ABSL_FLAG(std::string, rows, "1,8,32,128,256", "streams that decode together");
ABSL_FLAG(std::string, state_dtype, "fp32", "fp32 or bf16 bases");
ABSL_FLAG(std::string, dtype, "bf16", "bf16 or fp8 weights of the layers");
ABSL_FLAG(int, steps, 48, "steps that are timed; every 16 each row folds once");
ABSL_FLAG(int, depth, 1, "steps in flight: 1 or 2");
ABSL_FLAG(uint64_t, context, 64, "tokens that a stream has before the first step");
ABSL_FLAG(bool, same_place, false, "all rows fold in the same step, the worst case");
ABSL_FLAG(size_t, beside, 0,
          "also time steps that have so many tokens of a prompt beside the rows");
ABSL_FLAG(int, prompt, 0, "also time prompts of this many tokens");
ABSL_FLAG(double, temperature, 0, "of the draws");
ABSL_FLAG(int, threads, 1, "of the host");
ABSL_FLAG(bool, json_schema, false, "also time rows that a JSON schema confines");
ABSL_FLAG(bool, profile, false, "let a profiler that waits for it begin at the first timed step");
ABSL_FLAG(
    std::string, sampler, "",
    "library with StartSampling and StopSampling, called around the timed steps (memory_rate.cc)");
ABSL_FLAG(std::string, out, "", "file for the results as JSON");

namespace rivulet {
namespace {

// Calls a function of a library, if both are there; an error that it returns changes nothing.
void CallIn(void* library, const char* function) {
  if (library == nullptr) return;
  using Function = int (*)();
  if (const auto call = reinterpret_cast<Function>(dlsym(library, function))) call();
}

// What `ncu --profile-from-start off` waits for; a symbol of the driver, which a build does not
// link.
void BeginProfile() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CallIn(driver, "cuProfilerStart");
}

// Calls a function of the library that --sampler names, if there is one.
void CallSampler(const char* function) {
  static void* const library = [] {
    const std::string name = absl::GetFlag(FLAGS_sampler);
    void* const opened = name.empty() ? nullptr : dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!name.empty() && opened == nullptr) std::fprintf(stderr, "%s\n", dlerror());
    return opened;
  }();
  CallIn(library, function);
}

struct Stream {
  uint32_t base, tail;
  uint64_t position;
  std::vector<PageTable> pages;  // of each kind
  std::vector<SegmentPages> planned;
  std::optional<GrammarMatcher> matcher;

  // Pages for the tokens up to `end`.
  absl::Status Plan(uint64_t end) {
    planned.clear();
    for (PageTable& table : pages) {
      table.Commit();
      RIVULET_ASSIGN_OR_RETURN(SegmentPages next, table.Plan(position, end - position));
      planned.push_back(next);
    }
    return absl::OkStatus();
  }
};

// Texts have some 10 tokens.
constexpr char kSchema[] = R"({"type": "object", "properties": {"key": {"type": "string"},
    "count": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}},
    "kind": {"enum": ["one", "two"]}}})";

struct Times {
  double median, p99, wall;
};

// Of the steps that count: those on the device, and all of them by the host's clock.
struct Seconds {
  std::vector<double> steps;
  double wall = 0;

  Times Summarise() {
    std::sort(steps.begin(), steps.end());
    return {steps[steps.size() / 2], steps[steps.size() * 99 / 100],
            wall / static_cast<double>(steps.size())};
  }
};
constexpr size_t kWarmUpSteps = 16;  // do not count

class Bench {
 public:
  absl::Status Run();

 private:
  // A table's line. `beside`: tokens of a prompt in each step, 0: none.
  absl::Status Decode(size_t rows, bool confined, size_t beside);
  absl::Status RunSteps(std::vector<Stream>& streams, Stream& prompt, size_t beside,
                        Seconds& seconds);
  absl::Status RunAhead(std::vector<Stream>& streams, Seconds& seconds);
  absl::Status AddPiece(Stream& stream, size_t tokens, StepPlan& plan) const;
  absl::StatusOr<std::vector<Stream>> NewStreams(size_t rows) const;
  absl::Status Follow(Stream& stream, uint32_t token) const;
  absl::Status MakeGrammar();
  absl::Status Prefill(size_t tokens);
  // A stream with pages for what it has seen, whose contents are as they come.
  absl::StatusOr<Stream> NewStream(uint64_t position) const;
  absl::StatusOr<StepPlan> PlanFor(std::vector<Stream>& streams) const;
  double PageBytes(uint64_t context) const;
  double WeightBytes() const;

  std::unique_ptr<Device> device_;
  std::shared_ptr<const LoadedModel> model_;
  std::unique_ptr<Engine> engine_;
  SamplingParams params_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::shared_ptr<TokenGrammar> grammar_;
  DeviceLimits limits_;
  nlohmann::json results_;
};

absl::Status SetDTypes(LoadOptions& options) {
  const std::string weights = absl::GetFlag(FLAGS_dtype), states = absl::GetFlag(FLAGS_state_dtype);
  if (weights != "bf16" && weights != "fp8") {
    return absl::InvalidArgumentError("--dtype: bf16 or fp8");
  }
  if (states != "fp32" && states != "bf16") {
    return absl::InvalidArgumentError("--state_dtype: fp32 or bf16");
  }
  options.weight_dtype = weights == "fp8" ? DType::kFloat8 : DType::kBFloat16;
  options.mixer.state_dtype = states == "bf16" ? DType::kBFloat16 : DType::kFloat32;
  return absl::OkStatus();
}

absl::Status Bench::Run() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int depth = absl::GetFlag(FLAGS_depth);
  const bool plain = !absl::GetFlag(FLAGS_json_schema) && absl::GetFlag(FLAGS_beside) == 0 &&
                     !absl::GetFlag(FLAGS_profile) && absl::GetFlag(FLAGS_sampler).empty();
  if (depth != 1 && (depth != 2 || !plain)) {
    return absl::InvalidArgumentError(
        "--depth: 1; 2 without --json_schema, --beside, --profile and --sampler");
  }
  RIVULET_ASSIGN_OR_RETURN(device_, OpenCudaDevice(ProductPrecision::kBFloat16));
  limits_ = device_->MeasureLimits();
  std::printf("%s: read %.0f, in place %.0f, copy %.0f GB/s\n", device_->name().c_str(),
              limits_.read * 1e-9, limits_.in_place * 1e-9, limits_.copy * 1e-9);
  std::ifstream file(absl::GetFlag(FLAGS_config));
  if (!file) return absl::NotFoundError("--config: no such file");
  const nlohmann::json config = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError("--config: it has no JSON object");
  LoadOptions options;
  options.mixer.device = device_.get();
  RIVULET_RETURN_IF_ERROR(SetDTypes(options));
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  RIVULET_ASSIGN_OR_RETURN(model_, MakeRandomModel(config, 1, options));
  std::printf("weights made after %.1f s\n", seconds());
  constexpr uint64_t kForTheRest = uint64_t{8} << 30;
  if (device_->free_bytes() <= kForTheRest) {
    return absl::ResourceExhaustedError("less than 8 GiB of the GPU are free beside the weights");
  }
  const uint64_t memory = device_->free_bytes() - kForTheRest;
  const auto threads = static_cast<size_t>(absl::GetFlag(FLAGS_threads));
  RIVULET_ASSIGN_OR_RETURN(
      engine_, MakeDeviceEngine(model_, device_.get(), {.threads = threads, .state_memory = memory},
                                static_cast<size_t>(depth)));
  std::printf("engine ready after %.1f s\n\n", seconds());
  params_.temperature = static_cast<float>(absl::GetFlag(FLAGS_temperature));
  if (absl::GetFlag(FLAGS_json_schema)) RIVULET_RETURN_IF_ERROR(MakeGrammar());
  std::printf(
      "| rows | step ms, median | p99 | wall | tokens/s | GB a step | floor ms | share of the "
      "floor |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_rows), ',')) {
    uint32_t rows = 0;
    if (!absl::SimpleAtoi(text, &rows)) return absl::InvalidArgumentError("--rows: 1,2,3");
    RIVULET_RETURN_IF_ERROR(Decode(rows, false, 0));
    if (grammar_ != nullptr) RIVULET_RETURN_IF_ERROR(Decode(rows, true, 0));
    const size_t beside = absl::GetFlag(FLAGS_beside);
    if (beside != 0) RIVULET_RETURN_IF_ERROR(Decode(rows, false, beside));
  }
  if (absl::GetFlag(FLAGS_prompt) != 0) {
    RIVULET_RETURN_IF_ERROR(Prefill(static_cast<size_t>(absl::GetFlag(FLAGS_prompt))));
  }
  const std::string out = absl::GetFlag(FLAGS_out);
  if (!out.empty()) std::ofstream(out) << results_.dump(1) << "\n";
  return absl::OkStatus();
}

// Every trained number once, but of an untied table only a row a token.
double Bench::WeightBytes() const {
  const bool tied = model_->spec.tied();
  const double table = tied ? 0.0 : static_cast<double>(model_->spec.vocab * model_->spec.hidden);
  const double all = static_cast<double>(model_->parameters) - table;
  if (model_->weight_dtype != DType::kFloat8) return all * 2;
  const auto ends = static_cast<double>(model_->spec.vocab * model_->spec.hidden);  // in bf16
  return all + ends;
}

absl::StatusOr<Stream> Bench::NewStream(uint64_t position) const {
  Stream stream{};
  RIVULET_ASSIGN_OR_RETURN(stream.base, engine_->states().bases().Acquire());
  RIVULET_ASSIGN_OR_RETURN(stream.tail, engine_->states().tails().Acquire());
  const std::vector<PageCapacity>& kinds = engine_->states().capacity().pages;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    stream.pages.emplace_back(kinds[kind].kind, engine_->states().pages(kind));
  }
  RIVULET_RETURN_IF_ERROR(stream.Plan(position));
  stream.position = position;
  return stream;
}

// Keys and values that a token of a row reads.
double Bench::PageBytes(uint64_t context) const {
  double bytes = 0;
  for (const PageCapacity& pages : engine_->states().capacity().pages) {
    if (pages.kind.rule != PageRule::kAppended) continue;
    const uint64_t seen =
        pages.kind.window == 0 ? context : std::min<uint64_t>(context, pages.kind.window);
    bytes += static_cast<double>(pages.page_bytes) * static_cast<double>(seen) /
             pages.kind.fold_interval;
  }
  return bytes;
}

absl::StatusOr<StepPlan> Bench::PlanFor(std::vector<Stream>& streams) const {
  StepPlan plan;
  for (Stream& stream : streams) {
    RIVULET_RETURN_IF_ERROR(stream.Plan(stream.position + 1));
    StepRow& row = plan.rows.emplace_back();
    row.segment = {plan.tokens.size(), 1,           stream.position,      stream.base,
                   stream.base,        stream.tail, stream.planned.data()};
    plan.tokens.push_back(static_cast<uint32_t>(7 + stream.position * 31 + stream.tail) % 97);
    row.samples = 1;
    row.spec.params = &params_;
    row.spec.index = stream.tail;
    row.spec.position = stream.position + 1;
    if (stream.matcher.has_value()) row.spec.grammar = &*stream.matcher;
  }
  return plan;
}

// The next tokens of a prompt, with a sample after the last.
absl::Status Bench::AddPiece(Stream& stream, size_t tokens, StepPlan& plan) const {
  RIVULET_RETURN_IF_ERROR(stream.Plan(stream.position + tokens));
  StepRow& row = plan.rows.emplace_back();
  row.segment = {plan.tokens.size(), tokens,      stream.position,      stream.base,
                 stream.base,        stream.tail, stream.planned.data()};
  for (size_t i = 0; i < tokens; ++i) plan.tokens.push_back(static_cast<uint32_t>(i) % 97);
  row.samples = 1;
  row.spec.params = &params_;
  row.spec.position = stream.position + tokens;
  stream.position += tokens;
  return absl::OkStatus();
}

absl::Status Bench::MakeGrammar() {
  tokenizer_ = std::make_unique<ListTokenizer>(LetterVocabulary(engine_->vocab_size()));
  GrammarStore grammars(*tokenizer_);
  RIVULET_ASSIGN_OR_RETURN(grammar_, grammars.Get(GrammarKind::kJsonSchema, kSchema));
  return absl::OkStatus();
}

// A text that is complete begins anew.
absl::Status Bench::Follow(Stream& stream, uint32_t token) const {
  ++stream.position;
  if (!stream.matcher.has_value()) return absl::OkStatus();
  RIVULET_RETURN_IF_ERROR(stream.matcher->Accept(token));
  if (stream.matcher->is_complete()) stream.matcher.emplace(grammar_, false);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Stream>> Bench::NewStreams(size_t rows) const {
  std::vector<Stream> streams;
  for (size_t i = 0; i < rows; ++i) {
    const uint64_t place = absl::GetFlag(FLAGS_same_place) ? 0 : i % 16;
    RIVULET_ASSIGN_OR_RETURN(Stream stream, NewStream(absl::GetFlag(FLAGS_context) + place));
    streams.push_back(std::move(stream));
  }
  return streams;
}

absl::Status Bench::RunSteps(std::vector<Stream>& streams, Stream& prompt, size_t beside,
                             Seconds& seconds) {
  const auto steps = static_cast<size_t>(absl::GetFlag(FLAGS_steps));
  for (size_t step = 0; step < steps + kWarmUpSteps; ++step) {
    RIVULET_ASSIGN_OR_RETURN(StepPlan plan, PlanFor(streams));
    if (beside != 0) RIVULET_RETURN_IF_ERROR(AddPiece(prompt, beside, plan));
    if (step == kWarmUpSteps && absl::GetFlag(FLAGS_profile)) BeginProfile();
    if (step == kWarmUpSteps) CallSampler("StartSampling");
    const auto start = std::chrono::steady_clock::now();
    const StepResult result = engine_->Step(plan);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    for (const RowResult& row : result.rows) RIVULET_RETURN_IF_ERROR(row.status);
    for (size_t i = 0; i < streams.size(); ++i) {
      RIVULET_RETURN_IF_ERROR(Follow(streams[i], result.rows[i].samples[0].token));
    }
    if (step < kWarmUpSteps) continue;
    seconds.steps.push_back(result.device_seconds);
    seconds.wall += took.count();
  }
  CallSampler("StopSampling");
  return absl::OkStatus();
}

// Rows feed what the step in flight samples. The host's clock runs from the end of the last step
// that does not count, with all that the host does meanwhile.
absl::Status Bench::RunAhead(std::vector<Stream>& streams, Seconds& seconds) {
  const auto steps = static_cast<size_t>(absl::GetFlag(FLAGS_steps));
  std::chrono::steady_clock::time_point start;
  StepTicket awaited = 0;
  for (size_t step = 0; step < steps + kWarmUpSteps + 1; ++step) {
    RIVULET_ASSIGN_OR_RETURN(StepPlan plan, PlanFor(streams));
    if (step != 0) std::fill(plan.tokens.begin(), plan.tokens.end(), kLastSampled);
    for (Stream& stream : streams) ++stream.position;
    const StepTicket launched = engine_->Launch(plan);
    if (step != 0) {
      const StepResult result = engine_->Await(awaited);
      for (const RowResult& row : result.rows) RIVULET_RETURN_IF_ERROR(row.status);
      if (step == kWarmUpSteps) start = std::chrono::steady_clock::now();
      if (step > kWarmUpSteps) seconds.steps.push_back(result.device_seconds);
    }
    awaited = launched;
  }
  seconds.wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  engine_->Await(awaited);
  return absl::OkStatus();
}

absl::Status Bench::Decode(size_t rows, bool confined, size_t beside) {
  const uint64_t context = absl::GetFlag(FLAGS_context);
  RIVULET_ASSIGN_OR_RETURN(std::vector<Stream> streams, NewStreams(rows));
  for (Stream& stream : streams) {
    if (confined) stream.matcher.emplace(grammar_, false);
  }
  RIVULET_ASSIGN_OR_RETURN(Stream prompt, NewStream(0));
  Seconds seconds;
  const bool ahead = absl::GetFlag(FLAGS_depth) > 1;
  RIVULET_RETURN_IF_ERROR(ahead ? RunAhead(streams, seconds)
                                : RunSteps(streams, prompt, beside, seconds));
  streams.push_back(std::move(prompt));
  for (const Stream& stream : streams) {
    engine_->states().bases().Release(stream.base);
    engine_->states().tails().Release(stream.tail);
  }
  const StateCapacity& capacity = engine_->capacity();
  const double row_bytes =
      static_cast<double>(capacity.base_bytes) * (1 + 2.0 / capacity.fold_interval) +
      static_cast<double>(capacity.tail_bytes) * 0.5 + PageBytes(context);
  const double bytes = WeightBytes() + row_bytes * static_cast<double>(rows);
  const double floor = bytes / limits_.read;
  const Times times = seconds.Summarise();
  const std::string more = beside == 0 ? "" : absl::StrCat(" and ", beside, " of a prompt");
  std::printf("| %zu%s%s | %.3f | %.3f | %.3f | %.0f | %.2f | %.3f | %.1f %% |\n", rows,
              confined ? " confined" : "", more.c_str(), times.median * 1e3, times.p99 * 1e3,
              times.wall * 1e3, static_cast<double>(rows) / times.wall, bytes * 1e-9, floor * 1e3,
              100 * floor / times.median);
  std::fflush(stdout);
  results_.push_back({{"rows", rows},
                      {"confined", confined},
                      {"beside", beside},
                      {"median_seconds", times.median},
                      {"p99_seconds", times.p99},
                      {"wall_seconds", times.wall},
                      {"bytes", bytes},
                      {"floor_seconds", floor}});
  return absl::OkStatus();
}

absl::Status Bench::Prefill(size_t tokens) {
  for (int repeat = 0; repeat < 2; ++repeat) {
    RIVULET_ASSIGN_OR_RETURN(Stream stream, NewStream(0));
    double seconds = 0;
    for (size_t done = 0; done < tokens;) {
      StepPlan plan;
      StepRow& row = plan.rows.emplace_back();
      const size_t count = std::min<size_t>(512, tokens - done);
      RIVULET_RETURN_IF_ERROR(stream.Plan(done + count));
      row.segment = {0, count, done, stream.base, stream.base, stream.tail, stream.planned.data()};
      for (size_t i = 0; i < count; ++i)
        plan.tokens.push_back(static_cast<uint32_t>(done + i) % 97);
      const StepResult result = engine_->Step(plan);
      RIVULET_RETURN_IF_ERROR(result.rows[0].status);
      seconds += result.device_seconds;
      stream.position = done += count;
    }
    std::printf("prefill of %zu tokens in steps of 512: %.1f ms, %.0f tokens/s\n", tokens,
                seconds * 1e3, static_cast<double>(tokens) / seconds);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("decode on the GPU beside its memory's ceilings");
  absl::ParseCommandLine(argc, argv);
  rivulet::Bench bench;
  const absl::Status status = bench.Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "rivulet-device-bench: %s\n", status.ToString().c_str());
  return 1;
}
