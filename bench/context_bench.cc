// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// rivulet-context-bench: what every mixer keeps, and what a token costs, against the tokens that a
// session already holds.
//
//   rivulet-context-bench --threads 16 --json contexts.json
//   rivulet-context-bench --mixers mamba2,log_linear_mamba2 --contexts 1024,16384
//
// One whole layer at a time: projections, convolutions, recurrence, norm, output. Sessions are put
// at their positions with random states (bench_sessions.h), so a context of a million tokens need
// not be computed first.
//
// Decode: a step is a token of each of --sessions sessions through as many copies of the layer,
// with weights and states of their own, as take --working_set bytes together: as in a model, what a
// layer reads has left the caches since the last step. A sample is a step; times are microseconds
// for a token and a layer. All sessions start at the end of a chunk and fold in the 16th step; then
// they go back. `mean` has its share of folds, `fold` is the step that folds.
//
// MB a token: the state once, a sixteenth of a fold's reads and writes, half a tail, and the step's
// share of the weights. `share`: that over the mean time, of the bandwidth with which the same
// threads read memory in the same run.
//
// --profile shows the stages of a decode step instead (context_profile.h).
//
// Prefill: one session's segments of 512 tokens from the position on, through one layer.
//
// Exit codes: 0, 2 for wrong flags, 1 for other errors.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/context_cases.h"
#include "bench/context_profile.h"
#include "kernels/base/machine.h"
#include "kernels/base/status.h"
#include "kernels/base/version.h"
#include "kernels/mixers/bench_sessions.h"
#include "kernels/ops/linear/machine_limits.h"
#include "kernels/recurrence/recurrence.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(uint32_t, threads, 0, "threads; 0: one for each core");
ABSL_FLAG(std::vector<std::string>, mixers, {}, "types, as in layer_types; empty: all");
ABSL_FLAG(std::vector<std::string>, contexts,
          std::vector<std::string>({"1024", "16384", "262144", "1048576"}),
          "tokens that a session holds");
ABSL_FLAG(uint32_t, sessions, 8, "sessions of a decode step; fewer where they do not fit");
ABSL_FLAG(uint32_t, steps, 64, "decode steps to time, rounded up to a multiple of 16");
ABSL_FLAG(uint32_t, prefill, 4, "segments of 512 tokens to time; 0: none");
ABSL_FLAG(uint64_t, working_set, uint64_t{512} << 20, "bytes of weights and states of a step");
ABSL_FLAG(uint64_t, state_memory, uint64_t{24} << 30, "most bytes of states at once");
ABSL_FLAG(std::string, dtype, "fp32", "weights: fp32 or bf16");
ABSL_FLAG(std::string, state_dtype, "fp32", "bases and pages: fp32 or bf16");
ABSL_FLAG(bool, profile, false, "show where the time of a decode step goes, stage by stage");
ABSL_FLAG(std::string, json, "", "also write the results to this file");

namespace rivulet {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kSegment = 512;
constexpr uint64_t kLeastContext = 256;
constexpr size_t kMostLayers = 64;

struct Settings {
  size_t threads = 1;
  std::vector<uint64_t> contexts;
  DType dtype = DType::kFloat32;
  MixerOptions options;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double At(std::vector<double> numbers, size_t percent) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[percent * (numbers.size() - 1) / 100];
}

// Rows of uniform noise; more than a step takes, so that steps differ.
class Rows {
 public:
  explicit Rows(size_t rows)
      : rows_(rows),
        numbers_(RandomParameters(1, "", DType::kFloat32, {{"x", {-1.0f, 1.0f}}})
                     .TakeVector("x", {rows, kContextHidden})) {}
  FloatMatrix Take(size_t first, size_t count) {
    return {numbers_.data() + first % (rows_ - count + 1) * kContextHidden, count, kContextHidden,
            kContextHidden};
  }

 private:
  size_t rows_;
  AlignedBuffer<float> numbers_;
};

class Bench {
 public:
  explicit Bench(const Settings& settings);

  absl::Status RunCase(const ContextCase& one);
  // Once more at the end: a machine that others use too reads less now than it did.
  void MeasureBandwidthAgain();
  const Json& results() const { return results_; }

 private:
  struct Layer {
    std::unique_ptr<Mixer> mixer;
    std::unique_ptr<BenchSessions> sessions;  // null: this layer takes no part
  };

  absl::Status RunPlace(const ContextCase& one, uint64_t context, const ContextPlace& place,
                        std::vector<Layer>& layers);
  absl::Status PlaceSessions(const ContextCase& one, uint64_t position, std::vector<Layer>& layers);
  absl::Status MeasureDecode(std::vector<Layer>& layers, Json& row);
  absl::Status AddLayers(const ContextCase& one, size_t count, std::vector<Layer>& layers);
  size_t SessionsThatFit(const StateLayout& layout, uint64_t position) const;
  size_t LayersToFill(size_t bytes_of_one) const;
  absl::StatusOr<Json> Decode(std::vector<Layer>& layers, size_t sessions);
  absl::StatusOr<Json> Profile(std::vector<Layer>& layers, size_t sessions);
  absl::StatusOr<double> DecodeStep(std::vector<Layer>& layers, size_t sessions, size_t step);
  absl::StatusOr<double> Prefill(const Mixer& mixer, uint64_t position);
  absl::StatusOr<double> Forward(const Mixer& mixer, BenchSessions& sessions, ConstFloatMatrix x);

  Settings settings_;
  ThreadPool pool_;
  Workspace workspace_;
  Rows rows_, out_;
  size_t weight_bytes_ = 0;  // of a layer of the case that runs
  double bandwidth_ = 0;
  StageTimes* times_ = nullptr;  // where the next steps count
  Json results_;
};

Bench::Bench(const Settings& settings)
    : settings_(settings), pool_(settings.threads), rows_(4 * kSegment), out_(kSegment) {
  bandwidth_ = ReadBandwidth(pool_);
  results_["machine"] = {{"processor", ProcessorName()},
                         {"threads", settings.threads},
                         {"simd", RecurrenceTarget()},
                         {"read_bytes_per_second", bandwidth_}};
  if (absl::GetFlag(FLAGS_profile)) results_["machine"]["handoff_us"] = MeasureHandoff(pool_);
  results_["weight_dtype"] = DTypeName(settings.dtype);
  results_["state_dtype"] = DTypeName(settings.options.state_dtype);
  results_["rows"] = Json::array();
}

void Bench::MeasureBandwidthAgain() {
  results_["machine"]["read_bytes_per_second_after"] = ReadBandwidth(pool_);
}

absl::Status Bench::AddLayers(const ContextCase& one, size_t count, std::vector<Layer>& layers) {
  while (layers.size() < count) {
    RIVULET_ASSIGN_OR_RETURN(auto mixer, MakeContextLayer(one, layers.size(), settings_.dtype,
                                                          settings_.options, &weight_bytes_));
    layers.push_back({std::move(mixer), nullptr});
  }
  return absl::OkStatus();
}

absl::Status Bench::RunCase(const ContextCase& one) {
  std::vector<Layer> layers;
  RIVULET_RETURN_IF_ERROR(AddLayers(one, 1, layers));
  for (const uint64_t context : settings_.contexts) {
    const PageKind& kind = layers[0].mixer->state_layout().page_kind();
    for (const ContextPlace& place : ContextPlaces(kind, context)) {
      RIVULET_RETURN_IF_ERROR(RunPlace(one, context, place, layers));
    }
  }
  return absl::OkStatus();
}

// Counts the room that sessions need to go on.
size_t Bench::SessionsThatFit(const StateLayout& layout, uint64_t position) const {
  const uint64_t pages =
      MostPages(layout.page_kind(), position + BenchSessions::kRoom + kSegment, kSegment);
  const uint64_t bytes = layout.base_bytes() + layout.tail_bytes() + pages * layout.page_bytes();
  const uint64_t fit = absl::GetFlag(FLAGS_state_memory) / std::max<uint64_t>(1, bytes);
  return std::clamp<uint64_t>(fit, 1, absl::GetFlag(FLAGS_sessions));
}

size_t Bench::LayersToFill(size_t bytes_of_one) const {
  const uint64_t wanted = absl::GetFlag(FLAGS_working_set);
  return std::clamp<uint64_t>((wanted + bytes_of_one - 1) / bytes_of_one, 1, kMostLayers);
}

const char* Text(const Json& text) { return text.get_ref<const std::string&>().c_str(); }

std::string Decimals(const Json& number, const char* format) {
  char text[32];
  std::snprintf(text, sizeof(text), format, number.get<double>());
  return text;
}

void PrintRow(const Json& row) {
  const Json& us = row["decode_us"];
  const auto number = [](const Json& json) { return json.get<double>(); };
  const char* speed = "prefill_tokens_per_second";
  std::printf("| %s | %s | %s %s | %.3f | %.3f | %s x %s | ", Text(row["mixer"]),
              row["context"].dump().c_str(), row["pages"].dump().c_str(), Text(row["place"]),
              number(row["state_bytes"]) * 1e-6, number(row["tail_bytes"]) * 1e-6,
              row["sessions"].dump().c_str(), row["layers"].dump().c_str());
  std::printf("%.1f (%.1f to %.1f) | %.1f | %.1f | %.3f | %.0f %% | %s |\n", number(us["median"]),
              number(us["p10"]), number(us["p90"]), number(us["mean"]), number(us["fold"]),
              number(row["bytes_a_token"]) * 1e-6, 100 * number(row["bandwidth_share"]),
              row.contains(speed) ? Decimals(row[speed], "%.0f").c_str() : "");
  std::fflush(stdout);
}

absl::Status Bench::RunPlace(const ContextCase& one, uint64_t context, const ContextPlace& place,
                             std::vector<Layer>& layers) {
  RIVULET_RETURN_IF_ERROR(PlaceSessions(one, place.position, layers));
  Json row = {{"mixer", one.name},
              {"context", context},
              {"place", place.pages},
              {"position", place.position}};
  RIVULET_RETURN_IF_ERROR(MeasureDecode(layers, row));
  for (Layer& layer : layers) layer.sessions.reset();
  const bool prefill = place.pages.empty() || place.pages == "typical";
  if (prefill && absl::GetFlag(FLAGS_prefill) > 0) {
    RIVULET_ASSIGN_OR_RETURN(const double seconds, Prefill(*layers[0].mixer, place.position));
    row["prefill_tokens_per_second"] = kSegment / seconds;
  }
  absl::GetFlag(FLAGS_profile) ? PrintProfile(row) : PrintRow(row);
  results_["rows"].push_back(std::move(row));
  return absl::OkStatus();
}

// Sessions at `position` in as many layers as a step has; makes those that are missing.
absl::Status Bench::PlaceSessions(const ContextCase& one, uint64_t position,
                                  std::vector<Layer>& layers) {
  const StateLayout& layout = layers[0].mixer->state_layout();
  const std::vector<uint64_t> positions(SessionsThatFit(layout, position), position);
  auto first = std::make_unique<BenchSessions>(layout, positions);
  const size_t state = first->state_bytes() + layout.tail_bytes();
  const size_t used = LayersToFill(weight_bytes_ + positions.size() * state);
  RIVULET_RETURN_IF_ERROR(AddLayers(one, used, layers));
  layers[0].sessions = std::move(first);
  for (size_t i = 1; i < used; ++i) {
    layers[i].sessions =
        std::make_unique<BenchSessions>(layers[i].mixer->state_layout(), positions);
  }
  return absl::OkStatus();
}

absl::Status Bench::MeasureDecode(std::vector<Layer>& layers, Json& row) {
  const BenchSessions& first = *layers[0].sessions;
  const size_t count = first.segments.size();
  const double bytes =
      first.bytes_a_token() + static_cast<double>(weight_bytes_) / static_cast<double>(count);
  row["pages"] = first.pages();
  row["state_bytes"] = first.state_bytes();
  row["tail_bytes"] = layers[0].mixer->state_layout().tail_bytes();
  row["weight_bytes"] = weight_bytes_;
  row["sessions"] = count;
  row["layers"] = std::count_if(layers.begin(), layers.end(),
                                [](const Layer& layer) { return layer.sessions != nullptr; });
  RIVULET_ASSIGN_OR_RETURN(row["decode_us"], Decode(layers, count));
  if (absl::GetFlag(FLAGS_profile)) {
    RIVULET_ASSIGN_OR_RETURN(row["profile"], Profile(layers, count));
  }
  row["bytes_a_token"] = bytes;
  row["bandwidth_share"] = bytes / (row["decode_us"]["mean"].get<double>() * 1e-6) / bandwidth_;
  return absl::OkStatus();
}

absl::StatusOr<double> Bench::Forward(const Mixer& mixer, BenchSessions& sessions,
                                      ConstFloatMatrix x) {
  sessions.Plan();
  const Clock::time_point start = Clock::now();
  LayerStep step{sessions.segments, sessions.state(), &workspace_, &pool_, times_};
  step.handed_on = workspace_.Take(x.rows, mixer.handed_on_columns());
  RIVULET_RETURN_IF_ERROR(mixer.Forward(step, x, out_.Take(0, x.rows)));
  const double seconds = SecondsSince(start);
  workspace_.Reset();
  sessions.Commit();
  return seconds;
}

// Seconds for a token and a layer.
absl::StatusOr<double> Bench::DecodeStep(std::vector<Layer>& layers, size_t sessions, size_t step) {
  double total = 0;
  size_t used = 0;
  for (Layer& layer : layers) {
    if (layer.sessions == nullptr) continue;
    const FloatMatrix x = rows_.Take((step * layers.size() + used++) * sessions, sessions);
    RIVULET_ASSIGN_OR_RETURN(const double seconds, Forward(*layer.mixer, *layer.sessions, x));
    total += seconds;
  }
  return total / static_cast<double>(used * sessions);
}

absl::StatusOr<Json> Bench::Decode(std::vector<Layer>& layers, size_t sessions) {
  RIVULET_RETURN_IF_ERROR(DecodeStep(layers, sessions, 0).status());
  std::vector<double> steps, folds;
  const size_t rounds = (absl::GetFlag(FLAGS_steps) + kFoldInterval - 1) / kFoldInterval;
  for (size_t round = 0; round < rounds; ++round) {
    for (Layer& layer : layers) {
      if (layer.sessions != nullptr) layer.sessions->Return();
    }
    for (size_t i = 0; i < kFoldInterval; ++i) {
      RIVULET_ASSIGN_OR_RETURN(const double seconds,
                               DecodeStep(layers, sessions, steps.size() + 1));
      steps.push_back(seconds * 1e6);
    }
    folds.push_back(steps.back());
  }
  const double total = std::accumulate(steps.begin(), steps.end(), 0.0);
  return Json{{"p10", At(steps, 10)},
              {"median", At(steps, 50)},
              {"p90", At(steps, 90)},
              {"mean", total / static_cast<double>(steps.size())},
              {"fold", At(folds, 50)}};
}

absl::StatusOr<Json> Bench::Profile(std::vector<Layer>& layers, size_t sessions) {
  ProfiledSteps reading, folding;
  const auto used = static_cast<size_t>(std::count_if(
      layers.begin(), layers.end(), [](const Layer& layer) { return layer.sessions != nullptr; }));
  for (size_t step = 0; step < RoundUp(absl::GetFlag(FLAGS_steps), kFoldInterval); ++step) {
    if (step % kFoldInterval == 0) {
      for (size_t i = 0; i < used; ++i) layers[i].sessions->Return();
    }
    ProfiledSteps& steps = (step + 1) % kFoldInterval == 0 ? folding : reading;
    times_ = &steps.times;
    RIVULET_ASSIGN_OR_RETURN(const double seconds, DecodeStep(layers, sessions, step));
    steps.seconds += seconds * static_cast<double>(used * sessions);
    steps.layers += used;
  }
  times_ = nullptr;
  const double state = static_cast<double>(sessions * layers[0].sessions->state_bytes());
  return ProfileOf(reading, folding, kFoldInterval, state);
}

// The median segment. A first one, untimed, grows the workspace, unless it takes long: then what
// that costs does not matter.
absl::StatusOr<double> Bench::Prefill(const Mixer& mixer, uint64_t position) {
  constexpr double kLong = 2.0;
  BenchSessions sessions(mixer.state_layout(), std::vector<uint64_t>{position}, kSegment);
  std::vector<double> seconds;
  double total = 0;
  for (size_t i = 0; i <= absl::GetFlag(FLAGS_prefill); ++i) {
    RIVULET_ASSIGN_OR_RETURN(const double took,
                             Forward(mixer, sessions, rows_.Take(i * kSegment, kSegment)));
    total += took;
    if (i > 0 || took > kLong) seconds.push_back(took);
    if (total > 4 * kLong && !seconds.empty()) break;
  }
  return At(seconds, 50);
}

const Json* FindRow(const Json& rows, const std::string& mixer, uint64_t context) {
  for (const Json& row : rows) {
    if (row["mixer"] == mixer && row["context"] == context) return &row;
  }
  return nullptr;
}

Json RatioOf(const Json& row, const Json& base) {
  const auto over = [&](const char* key) {
    return row["decode_us"][key].get<double>() / base["decode_us"][key].get<double>();
  };
  Json ratio = {{"mixer", row["mixer"]},       {"linear", base["mixer"]},
                {"context", row["context"]},   {"place", row["place"]},
                {"decode_mean", over("mean")}, {"decode_median", over("median")},
                {"decode_fold", over("fold")}};
  const char* speed = "prefill_tokens_per_second";
  if (row.contains(speed) && base.contains(speed)) {
    ratio["prefill"] = base[speed].get<double>() / row[speed].get<double>();
  }
  return ratio;
}

// What a log-linear mixer takes, relative to the mixer that it extends, at equal shapes.
Json Ratios(const Json& rows) {
  constexpr const char* kPairs[][2] = {{"log_linear_mamba2", "mamba2"},
                                       {"h_gated_deltanet", "gated_deltanet"}};
  Json ratios = Json::array();
  for (const auto& [name, linear] : kPairs) {
    for (const Json& row : rows) {
      const Json* base = FindRow(rows, linear, row["context"].get<uint64_t>());
      if (row["mixer"] == name && base != nullptr) ratios.push_back(RatioOf(row, *base));
    }
  }
  return ratios;
}

void PrintRatios(const Json& ratios) {
  if (ratios.empty()) return;
  std::printf(
      "\nTime of a log-linear mixer over that of the one that it extends:\n\n"
      "| mixer | over | context | pages | decode, mean | median | fold | prefill |\n"
      "|---|---|---|---|---|---|---|---|\n");
  for (const Json& ratio : ratios) {
    std::printf("| %s | %s | %s | %s | %.2f | %.2f | %.2f | %s |\n", Text(ratio["mixer"]),
                Text(ratio["linear"]), ratio["context"].dump().c_str(), Text(ratio["place"]),
                ratio["decode_mean"].get<double>(), ratio["decode_median"].get<double>(),
                ratio["decode_fold"].get<double>(),
                ratio.contains("prefill") ? Decimals(ratio["prefill"], "%.2f").c_str() : "");
  }
}

absl::StatusOr<DType> ParseDType(const std::string& name) {
  if (name == "fp32") return DType::kFloat32;
  if (name == "bf16") return DType::kBFloat16;
  return absl::InvalidArgumentError(absl::StrCat("dtype '", name, "' is neither fp32 nor bf16"));
}

absl::StatusOr<Settings> ReadSettings() {
  Settings settings;
  settings.threads = absl::GetFlag(FLAGS_threads);
  if (settings.threads == 0) settings.threads = std::max(1u, std::thread::hardware_concurrency());
  for (const std::string& text : absl::GetFlag(FLAGS_contexts)) {
    uint64_t context = 0;
    if (!absl::SimpleAtoi(text, &context) || context < kLeastContext || context > 1u << 30) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--contexts: '", text, "' is not a number from ", kLeastContext, " to 2^30"));
    }
    settings.contexts.push_back(context);
  }
  if (absl::GetFlag(FLAGS_sessions) == 0 || absl::GetFlag(FLAGS_steps) == 0) {
    return absl::InvalidArgumentError("--sessions and --steps must be at least 1");
  }
  if (absl::GetFlag(FLAGS_sessions) > kSegment) {
    return absl::InvalidArgumentError(absl::StrCat("--sessions must be at most ", kSegment));
  }
  RIVULET_ASSIGN_OR_RETURN(settings.dtype, ParseDType(absl::GetFlag(FLAGS_dtype)));
  RIVULET_ASSIGN_OR_RETURN(settings.options.state_dtype,
                           ParseDType(absl::GetFlag(FLAGS_state_dtype)));
  settings.options.kv_dtype = settings.options.state_dtype;
  settings.options.level_overflow = LevelOverflow::kClamp;
  return settings;
}

bool Named(const ContextCase& one, const std::string& name) {
  return name == one.type || name == one.name;
}

absl::Status CheckName(const std::string& name, const std::vector<ContextCase>& cases) {
  std::vector<std::string> names;
  for (const ContextCase& one : cases) {
    if (Named(one, name)) return absl::OkStatus();
    names.push_back(one.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--mixers: '", name, "' is none of ", absl::StrJoin(names, ", ")));
}

// Those that --mixers names, by type or by name; all without it.
absl::StatusOr<std::vector<ContextCase>> ChosenCases() {
  const std::vector<std::string> chosen = absl::GetFlag(FLAGS_mixers);
  std::vector<ContextCase> cases = ContextCases();
  for (const std::string& name : chosen) RIVULET_RETURN_IF_ERROR(CheckName(name, cases));
  if (chosen.empty()) return cases;
  std::erase_if(cases, [&](const ContextCase& one) {
    return std::none_of(chosen.begin(), chosen.end(),
                        [&](const std::string& name) { return Named(one, name); });
  });
  return cases;
}

absl::Status WriteJson(const Json& results) {
  if (absl::GetFlag(FLAGS_json).empty()) return absl::OkStatus();
  std::ofstream file(absl::GetFlag(FLAGS_json));
  file << results.dump(2) << "\n";
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write --json ", absl::GetFlag(FLAGS_json)));
}

void PrintHead(const Json& about, const Json& machine) {
  std::printf("%s\n%s, rivulet %s, commit %s\n%s, %s threads, %s, memory reads %.1f GB/s\n\n",
              Text(about["command"]), Text(about["date"]), std::string(Version()).c_str(),
              Text(about["commit"]), Text(machine["processor"]), machine["threads"].dump().c_str(),
              Text(machine["simd"]), machine["read_bytes_per_second"].get<double>() * 1e-9);
  if (absl::GetFlag(FLAGS_profile)) return PrintProfileHead(machine["handoff_us"]);
  std::printf(
      "| mixer | context | pages | state MB | tail MB | sessions x layers | decode us, median (p10 "
      "to p90) | mean | fold | MB a token | share | prefill tokens/s |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
}

absl::Status WriteResults(const Bench& bench, const Json& about) {
  Json results = bench.results();
  results.update(about);
  results["ratios"] = Ratios(results["rows"]);
  return WriteJson(results);
}

// The file is written after each mixer, so that an interrupted run keeps its results.
absl::Status Run(const std::string& command) {
  RIVULET_ASSIGN_OR_RETURN(const Settings settings, ReadSettings());
  RIVULET_ASSIGN_OR_RETURN(const std::vector<ContextCase> cases, ChosenCases());
  Bench bench(settings);
  const Json about = {{"command", command}, {"date", UtcNow()}, {"commit", std::string(Commit())}};
  PrintHead(about, bench.results()["machine"]);
  for (const ContextCase& one : cases) {
    const absl::Status status = bench.RunCase(one);
    if (!status.ok()) {
      std::printf("| %s | %s |\n", one.name.c_str(), std::string(status.message()).c_str());
    }
    RIVULET_RETURN_IF_ERROR(WriteResults(bench, about));
  }
  bench.MeasureBandwidthAgain();
  const double after = bench.results()["machine"]["read_bytes_per_second_after"];
  std::printf("\nMemory reads at the end: %.1f GB/s\n", after * 1e-9);
  PrintRatios(Ratios(bench.results()["rows"]));
  return WriteResults(bench, about);
}

}  // namespace
}  // namespace rivulet

// NOLINTNEXTLINE(bugprone-exception-escape): without memory a benchmark may end.
int main(int argc, char** argv) {
  const std::string command = absl::StrJoin(std::vector<std::string>(argv, argv + argc), " ");
  absl::FlagsUsageConfig usage;  // else --help looks for flags in a file of the program's name
  usage.contains_help_flags = [](absl::string_view file) {
    return absl::StrContains(file, "context_bench");
  };
  absl::SetFlagsUsageConfig(usage);
  absl::SetProgramUsageMessage("state and time a token of every mixer against context");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = rivulet::Run(command);
  if (status.ok()) return 0;
  std::fprintf(stderr, "rivulet-context-bench: error: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}
