// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// rivulet-engine-bench: how fast the bare engine is, without scheduler, server or network.
//
//   rivulet-engine-bench --model models/tales --streams 1,8,64 --contexts 1000,10000 --json
//   out.json
//
// Decode: every stream samples one token a step, all in one step. Prefill: one prompt, in steps of
// --prefill-step tokens. Beside each stand the bytes that a step must move at least (weights once;
// of each stream's state the base and its pages once and half a tail a token, and once in
// kFoldInterval tokens a base and what a fold reads and writes of pages) and their share of
// what this machine's memory gives, measured in the same run by reading 1 GiB with the same number
// of threads. A model that fits the caches can pass 100 %. Exit codes: 0, 2 for wrong flags, 1 for
// other errors.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/machine.h"
#include "kernels/base/status.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/version.h"
#include "kernels/ops/linear/machine_limits.h"
#include "kernels/recurrence/pages.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/json.h"
#include "model_loader/loaded_model.h"
#include "nlohmann/json.hpp"
#include "server/engine/cpu_engine.h"
#include "server/engine/random_model.h"

ABSL_FLAG(std::string, model, "", "checkpoint directory");
ABSL_FLAG(std::string, random_config, "",
          "instead of --model: a config.json whose shape gets random weights");
ABSL_FLAG(uint32_t, threads, 0, "threads; 0: one for each core");
ABSL_FLAG(uint64_t, state_memory, uint64_t{4} << 30, "bytes for all state slots");
ABSL_FLAG(std::string, packed_cache, "", "where packed weights are kept, as rivulet-server does");
ABSL_FLAG(std::string, dtype, "auto", "weights: auto, fp32 or bf16");
ABSL_FLAG(std::string, state_dtype, "fp32", "bases: fp32 or bf16");
ABSL_FLAG(std::string, level_overflow, "error",
          "log-linear models beyond their levels: error, or clamp as rivulet-server does");
ABSL_FLAG(std::string, streams, "1,8,64", "numbers of streams to decode at once; empty: none");
ABSL_FLAG(std::string, contexts, "", "contexts (tokens) at which to time decode; ascending");
ABSL_FLAG(uint32_t, tokens, 128, "decode steps to time at each point");
ABSL_FLAG(uint32_t, prefill, 2048, "tokens of the prompt that is timed; 0: none");
ABSL_FLAG(uint32_t, prefill_step, 512, "prompt tokens a step");
ABSL_FLAG(std::string, json, "", "also write the results to this file");
ABSL_FLAG(bool, help, false, "print this, then exit");

namespace rivulet {
namespace {

using Json = nlohmann::json;
using BenchClock = std::chrono::steady_clock;

double SecondsSince(BenchClock::time_point start) {
  return std::chrono::duration<double>(BenchClock::now() - start).count();
}

struct Spread {
  double p10 = 0, median = 0, p90 = 0;
};

Spread SpreadOf(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](size_t percent) { return seconds[percent * (seconds.size() - 1) / 100]; };
  return {at(10), at(50), at(90)};
}

// One session on bare slots; always alone, so it folds in place.
struct Stream {
  uint32_t base = 0;
  uint32_t tail = 0;
  std::vector<PageTable> tables;  // of each kind that the model has
  std::vector<SegmentPages> planned;
  uint64_t position = 0;
  uint32_t last_token = 0;
};

class Bench {
 public:
  Bench(std::shared_ptr<const LoadedModel> model, size_t threads);

  // Every stream holds at most `longest` tokens.
  absl::Status Start(uint64_t longest);
  absl::Status RunDecode(size_t streams);
  absl::Status RunPrefill(size_t tokens);
  absl::Status RunContexts(const std::vector<size_t>& contexts);
  void Print() const;
  const Json& results() const { return results_; }

 private:
  absl::StatusOr<Stream> NewStream();
  void End(Stream& stream);
  absl::Status Feed(Stream& stream, size_t tokens);
  absl::Status DecodeOnce(std::vector<Stream>& streams);
  absl::StatusOr<std::vector<double>> TimeDecode(std::vector<Stream>& streams, size_t steps);
  Json Profile(size_t steps) const;
  double WeightBytes() const;
  uint64_t StateBytes(const Stream& stream) const;
  double StateBytesPerToken(const Stream& stream) const;

  std::shared_ptr<const LoadedModel> model_;
  size_t threads_;
  StepProfile profile_;
  std::unique_ptr<Engine> engine_;
  SamplingParams sampling_;  // the defaults: temperature 1 over the whole vocabulary
  double bandwidth_ = 0;
  Json results_;
};

// Streams of several contexts are timed this often, so many steps at a time.
constexpr size_t kTurns = 16;
size_t StepsOfTurn() { return std::max<size_t>(kTurns, absl::GetFlag(FLAGS_tokens) / kTurns); }

// The most tokens that a stream of this command comes to hold.
uint64_t LongestStream(const std::vector<size_t>& contexts) {
  uint64_t longest = kFoldInterval + kFoldInterval + absl::GetFlag(FLAGS_tokens);
  longest = std::max<uint64_t>(
      longest, uint64_t{absl::GetFlag(FLAGS_prefill_step)} + absl::GetFlag(FLAGS_prefill));
  for (const size_t context : contexts) {
    longest = std::max<uint64_t>(longest, context + kTurns * (kFoldInterval + StepsOfTurn()));
  }
  return longest;
}

constexpr const char* kFlagNames[] = {
    "model",  "random-config", "threads",        "packed-cache", "state-memory",
    "dtype",  "state-dtype",   "level-overflow", "streams",      "contexts",
    "tokens", "prefill",       "prefill-step",   "json",         "help"};

// A name may have dashes or underscores. Null: no such flag; the libraries we link define some too.
absl::CommandLineFlag* FindFlag(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  const auto same = [&](const char* known) { return name == known; };
  if (std::none_of(std::begin(kFlagNames), std::end(kFlagNames), same)) return nullptr;
  std::replace(name.begin(), name.end(), '-', '_');
  return absl::FindCommandLineFlag(name);
}

std::string Help() {
  std::string help =
      "rivulet-engine-bench: times the bare engine, without scheduler, server or network.\n"
      "Flags, written --name=value or --name value:\n";
  for (const char* name : kFlagNames) {
    const absl::CommandLineFlag* const flag = FindFlag(name);
    absl::StrAppend(&help, "  --", name, "  ", flag->Help());
    if (!flag->DefaultValue().empty() && std::string(name) != "help") {
      absl::StrAppend(&help, " (default ", flag->DefaultValue(), ")");
    }
    help += '\n';
  }
  return help;
}

absl::Status SetFlag(const std::string& name, const std::string& value) {
  std::string error;
  absl::CommandLineFlag* const flag = FindFlag(name);
  if (flag->ParseFrom(value, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, "=\"", value, "\" is not a valid value (", flag->Help(), ")"));
}

absl::Status ReadCommandLine(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(std::min<size_t>(2, argument.size()), equals - 2);
    if (argument.rfind("--", 0) != 0 || FindFlag(name) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown argument \"", argument, "\"; --help lists the flags"));
    }
    std::string value = "true";
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (name != "help") {
      if (++i == arguments.size()) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
      }
      value = arguments[i];
    }
    RIVULET_RETURN_IF_ERROR(SetFlag(name, value));
  }
  return absl::OkStatus();
}

std::string Command(int argc, char** argv) {
  return absl::StrJoin(std::vector<std::string>(argv, argv + argc), " ");
}

Bench::Bench(std::shared_ptr<const LoadedModel> model, size_t threads)
    : model_(std::move(model)), threads_(threads) {}

absl::Status CheckLength(const LoadedModel& model, uint64_t longest) {
  if (longest <= model.max_tokens()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the levels of ", model.name, " reach ",
                                                 model.max_tokens(),
                                                 " tokens and streams would hold ", longest,
                                                 ": ask for less, or give --level-overflow clamp"));
}

absl::Status Bench::Start(uint64_t longest) {
  RIVULET_RETURN_IF_ERROR(CheckLength(*model_, longest));
  EngineOptions options;
  options.state_context = longest;
  options.threads = threads_;
  options.state_memory = absl::GetFlag(FLAGS_state_memory);
  ThreadPool pool(threads_);
  bandwidth_ = ReadBandwidth(pool);
  RIVULET_ASSIGN_OR_RETURN(engine_, MakeCpuEngine(model_, options, &profile_));
  results_["model"] = {{"name", model_->name},
                       {"parameters", model_->parameters},
                       {"weight_dtype", DTypeName(model_->weight_dtype)},
                       {"state_dtype", DTypeName(model_->state_dtype)},
                       {"weight_bytes_per_step", WeightBytes()},
                       {"base_bytes", engine_->capacity().base_bytes},
                       {"tail_bytes", engine_->capacity().tail_bytes}};
  for (const PageCapacity& pages : engine_->capacity().pages) {
    results_["model"]["page_bytes"].push_back(pages.page_bytes);
  }
  results_["machine"] = {{"processor", ProcessorName()},
                         {"threads", threads_},
                         {"simd", RecurrenceTarget()},
                         {"read_bytes_per_second", bandwidth_}};
  return absl::OkStatus();
}

// Every trained number once, but of an untied embedding table only a row a token.
double Bench::WeightBytes() const {
  const bool tied = model_->spec.embeddings == model_->spec.lm_head;
  const double table = tied ? 0.0 : static_cast<double>(model_->spec.vocab * model_->spec.hidden);
  return (static_cast<double>(model_->parameters) - table) * DTypeSize(model_->weight_dtype);
}

uint64_t Bench::StateBytes(const Stream& stream) const {
  const StateCapacity& capacity = engine_->capacity();
  uint64_t bytes = capacity.base_bytes;
  for (size_t kind = 0; kind < capacity.pages.size(); ++kind) {
    bytes += stream.tables[kind].pages() * capacity.pages[kind].page_bytes;
  }
  return bytes;
}

double Bench::StateBytesPerToken(const Stream& stream) const {
  const StateCapacity& capacity = engine_->capacity();
  uint64_t folded = 2 * capacity.base_bytes;
  for (const PageCapacity& pages : capacity.pages) {
    folded += pages.page_bytes * PagesMovedByFold(pages.kind, stream.position / kFoldInterval);
  }
  return static_cast<double>(StateBytes(stream)) + static_cast<double>(folded) / kFoldInterval +
         static_cast<double>(capacity.tail_bytes) / 2.0;
}

absl::StatusOr<Stream> Bench::NewStream() {
  Stream stream;
  RIVULET_ASSIGN_OR_RETURN(stream.base, engine_->states().bases().Acquire());
  RIVULET_ASSIGN_OR_RETURN(stream.tail, engine_->states().tails().Acquire());
  for (size_t kind = 0; kind < engine_->capacity().pages.size(); ++kind) {
    stream.tables.emplace_back(engine_->capacity().pages[kind].kind, engine_->states().pages(kind));
  }
  stream.planned.resize(stream.tables.size());
  return stream;
}

void Bench::End(Stream& stream) {
  engine_->states().bases().Release(stream.base);
  engine_->states().tails().Release(stream.tail);
  stream.tables.clear();
}

// Holds until Advance.
absl::StatusOr<Segment> PlanSegment(Stream& stream, size_t first_token, size_t tokens) {
  for (size_t kind = 0; kind < stream.tables.size(); ++kind) {
    RIVULET_ASSIGN_OR_RETURN(stream.planned[kind],
                             stream.tables[kind].Plan(stream.position, tokens));
  }
  return Segment{first_token, tokens,      stream.position,      stream.base,
                 stream.base, stream.tail, stream.planned.data()};
}

void Advance(Stream& stream, size_t tokens) {
  for (PageTable& table : stream.tables) table.Commit();
  stream.position += tokens;
}

// A prompt of arbitrary tokens, in steps of --prefill-step.
absl::Status Bench::Feed(Stream& stream, size_t tokens) {
  while (tokens > 0) {
    const size_t count = std::min<size_t>(tokens, absl::GetFlag(FLAGS_prefill_step));
    StepPlan plan;
    for (size_t i = 0; i < count; ++i) {
      plan.tokens.push_back((stream.position + i) * 7919 % engine_->vocab_size());
    }
    RIVULET_ASSIGN_OR_RETURN(plan.rows.emplace_back().segment, PlanSegment(stream, 0, count));
    RIVULET_RETURN_IF_ERROR(engine_->Step(plan).rows[0].status);
    Advance(stream, count);
    tokens -= count;
  }
  return absl::OkStatus();
}

absl::Status Bench::DecodeOnce(std::vector<Stream>& streams) {
  StepPlan plan;
  for (size_t s = 0; s < streams.size(); ++s) {
    plan.tokens.push_back(streams[s].last_token);
    StepRow& row = plan.rows.emplace_back();
    RIVULET_ASSIGN_OR_RETURN(row.segment, PlanSegment(streams[s], s, 1));
    row.samples = 1;
    row.spec.params = &sampling_;
    row.spec.index = s;
    row.spec.position = streams[s].position + 1;
  }
  const StepResult result = engine_->Step(plan);
  for (size_t s = 0; s < streams.size(); ++s) {
    RIVULET_RETURN_IF_ERROR(result.rows[s].status);
    streams[s].last_token = result.rows[s].samples[0].token;
    Advance(streams[s], 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> Bench::TimeDecode(std::vector<Stream>& streams, size_t steps) {
  for (size_t i = 0; i < kFoldInterval; ++i) RIVULET_RETURN_IF_ERROR(DecodeOnce(streams));
  profile_.Reset();
  std::vector<double> seconds;
  for (size_t i = 0; i < steps; ++i) {
    const auto start = BenchClock::now();
    RIVULET_RETURN_IF_ERROR(DecodeOnce(streams));
    seconds.push_back(SecondsSince(start));
  }
  return seconds;
}

Json Bench::Profile(size_t steps) const {
  const char* names[StepProfile::kParts] = {"embedding", "norm_and_add", "mixer",
                                            "mlp",       "head",         "sampling"};
  Json parts;
  for (int part = 0; part < StepProfile::kParts; ++part) {
    parts[names[part]] = profile_.seconds(StepProfile::Part(part)) / steps;
  }
  return parts;
}

absl::Status Bench::RunDecode(size_t count) {
  std::vector<Stream> streams;
  for (size_t s = 0; s < count; ++s) {
    RIVULET_ASSIGN_OR_RETURN(Stream stream, NewStream());
    // Streams fold at different steps, as in a server.
    RIVULET_RETURN_IF_ERROR(Feed(stream, 1 + s % kFoldInterval));
    streams.push_back(std::move(stream));
  }
  const size_t steps = absl::GetFlag(FLAGS_tokens);
  RIVULET_ASSIGN_OR_RETURN(const std::vector<double> seconds, TimeDecode(streams, steps));
  const Spread step = SpreadOf(seconds);
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  double bytes = WeightBytes();
  for (const Stream& stream : streams) bytes += StateBytesPerToken(stream);
  results_["decode"].push_back({{"streams", count},
                                {"tokens_per_second", count * steps / total},
                                {"step_seconds", {step.p10, step.median, step.p90}},
                                {"bytes_per_step", bytes},
                                {"bandwidth_share", bytes / (total / steps) / bandwidth_},
                                {"parts_seconds", Profile(steps)}});
  for (Stream& stream : streams) End(stream);
  return absl::OkStatus();
}

absl::Status Bench::RunPrefill(size_t tokens) {
  RIVULET_ASSIGN_OR_RETURN(Stream stream, NewStream());
  RIVULET_RETURN_IF_ERROR(Feed(stream, absl::GetFlag(FLAGS_prefill_step)));
  profile_.Reset();
  const auto start = BenchClock::now();
  RIVULET_RETURN_IF_ERROR(Feed(stream, tokens));
  const double seconds = SecondsSince(start);
  End(stream);
  const double flops = 2.0 * WeightBytes() / DTypeSize(model_->weight_dtype) * tokens / seconds;
  results_["prefill"] = {{"tokens", tokens},
                         {"tokens_per_second", tokens / seconds},
                         {"weight_flops_per_second", flops},
                         {"parts_seconds", Profile(1)}};
  return absl::OkStatus();
}

// A stream for each context. They are timed in turns, so that other load of the machine falls on
// all of them.
absl::Status Bench::RunContexts(const std::vector<size_t>& contexts) {
  const size_t steps = StepsOfTurn();
  std::vector<std::vector<Stream>> streams(contexts.size());
  std::vector<std::vector<double>> seconds(contexts.size());
  for (size_t i = 0; i < contexts.size(); ++i) {
    RIVULET_ASSIGN_OR_RETURN(Stream stream, NewStream());
    RIVULET_RETURN_IF_ERROR(Feed(stream, contexts[i]));
    streams[i].push_back(std::move(stream));
  }
  for (size_t turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < contexts.size(); ++i) {
      RIVULET_ASSIGN_OR_RETURN(const auto times, TimeDecode(streams[i], steps));
      seconds[i].insert(seconds[i].end(), times.begin(), times.end());
    }
  }
  for (size_t i = 0; i < contexts.size(); ++i) {
    const Spread step = SpreadOf(seconds[i]);
    results_["contexts"].push_back({{"context", contexts[i]},
                                    {"state_bytes", StateBytes(streams[i][0])},
                                    {"token_seconds", {step.p10, step.median, step.p90}}});
    End(streams[i][0]);
  }
  return absl::OkStatus();
}

void PrintParts(const Json& parts) {
  for (const auto& [name, seconds] : parts.items()) {
    std::printf("  %s %.3f ms", name.c_str(), 1e3 * seconds.get<double>());
  }
  std::printf("\n");
}

void Bench::Print() const {
  std::printf("%s, %.1f M parameters, weights %s, state %s: %.1f MB of weights a step, ",
              model_->name.c_str(), model_->parameters / 1e6, DTypeName(model_->weight_dtype),
              DTypeName(model_->state_dtype), WeightBytes() / 1e6);
  std::printf("base %.3f MB, tail %.3f MB\n", engine_->capacity().base_bytes / 1e6,
              engine_->capacity().tail_bytes / 1e6);
  std::printf("%s, %zu threads, %s, memory reads %.1f GB/s\n", ProcessorName().c_str(), threads_,
              RecurrenceTarget(), bandwidth_ / 1e9);
  for (const Json& row : results_.value("decode", Json::array())) {
    const Json& step = row["step_seconds"];
    std::printf(
        "decode  %3d streams %9.1f tokens/s  step %.3f ms (%.3f to %.3f)  %.1f MB, %.0f %%\n",
        row["streams"].get<int>(), row["tokens_per_second"].get<double>(),
        1e3 * step[1].get<double>(), 1e3 * step[0].get<double>(), 1e3 * step[2].get<double>(),
        row["bytes_per_step"].get<double>() / 1e6, 100 * row["bandwidth_share"].get<double>());
    PrintParts(row["parts_seconds"]);
  }
  if (results_.contains("prefill")) {
    const Json& row = results_["prefill"];
    std::printf("prefill %d tokens %9.1f tokens/s  %.1f GFLOP/s in maps\n",
                row["tokens"].get<int>(), row["tokens_per_second"].get<double>(),
                row["weight_flops_per_second"].get<double>() / 1e9);
    PrintParts(row["parts_seconds"]);
  }
  for (const Json& row : results_.value("contexts", Json::array())) {
    const Json& token = row["token_seconds"];
    std::printf("context %8d  %.3f ms a token (%.3f to %.3f)  state %.3f MB\n",
                row["context"].get<int>(), 1e3 * token[1].get<double>(),
                1e3 * token[0].get<double>(), 1e3 * token[2].get<double>(),
                row["state_bytes"].get<double>() / 1e6);
  }
}

absl::StatusOr<std::vector<size_t>> ParseNumbers(const std::string& text) {
  std::vector<size_t> numbers;
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(part, &number) || number == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' is not a number above 0: write 1,8,64"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<DType> ParseDType(const std::string& name) {
  if (name == "fp32") return DType::kFloat32;
  if (name == "bf16") return DType::kBFloat16;
  return absl::InvalidArgumentError(absl::StrCat("dtype '", name, "' is neither fp32 nor bf16"));
}

size_t Threads() {
  const size_t threads = absl::GetFlag(FLAGS_threads);
  return threads != 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadFlaggedModel() {
  LoadOptions options;
  options.threads = Threads();
  options.packed_cache = absl::GetFlag(FLAGS_packed_cache);
  if (absl::GetFlag(FLAGS_dtype) != "auto") {
    RIVULET_ASSIGN_OR_RETURN(options.weight_dtype, ParseDType(absl::GetFlag(FLAGS_dtype)));
  }
  RIVULET_ASSIGN_OR_RETURN(options.mixer.state_dtype, ParseDType(absl::GetFlag(FLAGS_state_dtype)));
  if (absl::GetFlag(FLAGS_level_overflow) == "clamp") {
    options.mixer.level_overflow = LevelOverflow::kClamp;
  }
  const std::string config_file = absl::GetFlag(FLAGS_random_config);
  if (!config_file.empty()) {
    RIVULET_ASSIGN_OR_RETURN(const Json config, ReadJsonObject(config_file, 1 << 20));
    return MakeRandomModel(config, 1, options);
  }
  RIVULET_ASSIGN_OR_RETURN(std::shared_ptr<const LoadedModel> model,
                           LoadModel(absl::GetFlag(FLAGS_model), options));
  return model;
}

// Wrong flags that show before anything is loaded.
absl::Status CheckFlags() {
  RIVULET_RETURN_IF_ERROR(ParseNumbers(absl::GetFlag(FLAGS_streams)).status());
  RIVULET_RETURN_IF_ERROR(ParseNumbers(absl::GetFlag(FLAGS_contexts)).status());
  RIVULET_RETURN_IF_ERROR(ParseDType(absl::GetFlag(FLAGS_state_dtype)).status());
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  if (dtype != "auto") RIVULET_RETURN_IF_ERROR(ParseDType(dtype).status());
  const uint32_t step = absl::GetFlag(FLAGS_prefill_step);
  if (absl::GetFlag(FLAGS_tokens) == 0 || step == 0 || step > kLongestSegment) {
    return absl::InvalidArgumentError(absl::StrCat("--tokens must be at least 1, --prefill-step ",
                                                   step, " from 1 to ", kLongestSegment));
  }
  const std::string overflow = absl::GetFlag(FLAGS_level_overflow);
  if (overflow != "error" && overflow != "clamp") {
    return absl::InvalidArgumentError(
        absl::StrCat("--level-overflow '", overflow, "' is neither error nor clamp"));
  }
  if (absl::GetFlag(FLAGS_model).empty() == absl::GetFlag(FLAGS_random_config).empty()) {
    return absl::InvalidArgumentError("give --model DIRECTORY or --random-config FILE");
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& command) {
  RIVULET_ASSIGN_OR_RETURN(const auto streams, ParseNumbers(absl::GetFlag(FLAGS_streams)));
  RIVULET_ASSIGN_OR_RETURN(const auto contexts, ParseNumbers(absl::GetFlag(FLAGS_contexts)));
  RIVULET_ASSIGN_OR_RETURN(auto model, LoadFlaggedModel());
  Bench bench(std::move(model), Threads());
  RIVULET_RETURN_IF_ERROR(bench.Start(LongestStream(contexts)));
  for (size_t count : streams) RIVULET_RETURN_IF_ERROR(bench.RunDecode(count));
  if (absl::GetFlag(FLAGS_prefill) > 0) {
    RIVULET_RETURN_IF_ERROR(bench.RunPrefill(absl::GetFlag(FLAGS_prefill)));
  }
  RIVULET_RETURN_IF_ERROR(bench.RunContexts(contexts));
  std::printf("%s\n%s, rivulet %s, commit %s\n", command.c_str(), UtcNow().c_str(),
              std::string(Version()).c_str(), std::string(Commit()).c_str());
  bench.Print();
  if (absl::GetFlag(FLAGS_json).empty()) return absl::OkStatus();
  Json results = bench.results();
  results["command"] = command;
  results["date"] = UtcNow();
  results["commit"] = std::string(Commit());
  std::ofstream file(absl::GetFlag(FLAGS_json));
  file << results.dump(2) << "\n";
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write --json ", absl::GetFlag(FLAGS_json)));
}

}  // namespace
}  // namespace rivulet

// NOLINTNEXTLINE(bugprone-exception-escape): without memory a benchmark may end.
int main(int argc, char** argv) {
  const auto fail = [](int code, const absl::Status& status) {
    std::fprintf(stderr, "rivulet-engine-bench: error: %s\n",
                 std::string(status.message()).c_str());
    return code;
  };
  absl::Status status = rivulet::ReadCommandLine({argv + 1, argv + argc});
  if (status.ok() && absl::GetFlag(FLAGS_help)) {
    std::fputs(rivulet::Help().c_str(), stdout);
    return 0;
  }
  if (status.ok()) status = rivulet::CheckFlags();
  if (!status.ok()) return fail(2, status);
  status = rivulet::Run(rivulet::Command(argc, argv));
  return status.ok() ? 0 : fail(1, status);
}
