// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Tokens a second with drafts and without, through the scheduler and the engine, without network:
//
//   rivulet-speculation-bench --model models/tales --device cpu
//
// Each text is generated in turns without drafts and with them, so that a busy machine disturbs
// both alike. The tokens must be the same; if not, the program says so and fails. Texts:
//
//   new      every stream samples at temperature 1; its own tokens are looked up
//   repeats  the same, and a shared text is what the streams will say, with every tenth token
//            replaced: a file that is edited, a source that is quoted
//   loops    greedy: small models then repeat themselves
//   half     temperature 1; each draft is right with a chance of one half
//   most     the same with a chance of nine tenths, so that of 15 drafts about half are accepted
//
// --steps instead measures what a step of one stream with 0 to 15 drafts takes, and where its time
// goes; on the CPU.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/device/device.h"
#include "nlohmann/json.hpp"
#include "server/drafts/lookup_drafter.h"
#include "server/engine/cpu_engine.h"
#include "server/engine/device_engine.h"
#include "server/engine/random_model.h"
#include "server/scheduler/scheduler.h"

ABSL_FLAG(std::string, model, "", "checkpoint directory");
ABSL_FLAG(std::string, random_config, "", "instead: a config.json whose shape gets random weights");
ABSL_FLAG(bool, bf16, false, "weights in bf16, as on a device always");
ABSL_FLAG(std::string, device, "cpu", "cpu or cuda");
ABSL_FLAG(std::string, streams, "1,8,64", "numbers of streams");
ABSL_FLAG(std::string, texts, "new,repeats,loops,half", "which texts");
ABSL_FLAG(uint32_t, tokens, 256, "tokens of each stream");
ABSL_FLAG(uint32_t, rounds, 5, "runs without drafts and as many with them");
ABSL_FLAG(uint32_t, threads, 2, "compute threads");
ABSL_FLAG(bool, steps, false, "what steps with drafts take");

namespace rivulet {
namespace {

constexpr size_t kPromptTokens = 24;
using Texts = std::vector<std::vector<uint32_t>>;  // of each stream

// Drafts what a stream will say, each token with a certain chance and otherwise a wrong one.
class OracleSource final : public DrafterSource {
 public:
  // `texts`: with the prompts; streams are told apart by their seed.
  OracleSource(const Texts& texts, uint32_t vocab, float chance)
      : texts_(texts), vocab_(vocab), chance_(chance) {}
  std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& completion) override {
    return std::make_unique<Oracle>(texts_[completion.sampling->seed], vocab_, chance_);
  }

 private:
  class Oracle final : public Drafter {
   public:
    Oracle(const std::vector<uint32_t>& text, uint32_t vocab, float chance)
        : text_(text), vocab_(vocab), chance_(chance) {}
    DraftSource source() const override { return DraftSource::kModel; }
    size_t Outlook(const TokenSequence& tokens, std::span<float> chances) override {
      std::fill(chances.begin(), chances.end(), chance_);
      return std::min(chances.size(), text_.size() - tokens.size());
    }
    void Draft(const TokenSequence& tokens, size_t count, std::vector<uint32_t>& drafts) override {
      for (size_t i = 0; i < count; ++i) {
        const uint32_t right = text_[tokens.size() + i];
        const bool is_right = std::bernoulli_distribution(chance_)(random_);
        drafts.push_back(is_right ? right : (right + 1) % vocab_);
      }
    }
    double hit_rate() const override { return chance_; }

   private:
    const std::vector<uint32_t>& text_;
    const uint32_t vocab_;
    const float chance_;
    std::mt19937 random_{1};
  };

  const Texts& texts_;
  const uint32_t vocab_;
  const float chance_;
};

struct Measured {
  Texts said;
  double tokens_a_second = 0, tokens_a_cpu_second = 0;
  uint64_t drafts = 0, accepted = 0;
};

// Of all threads: what other programs do disturbs it less than the clock.
double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// One run of the scheduler with all streams, timed from when every prompt is processed.
class Run {
 public:
  Run(Engine& engine, size_t streams, float temperature, DrafterSource* drafts) : engine_(engine) {
    SchedulerOptions options;
    options.drafts.source = drafts;
    scheduler_ =
        std::make_unique<Scheduler>(engine, sessions_, dispatcher_, metrics_, std::move(options));
    for (size_t i = 0; i < streams; ++i) Submit(i, temperature);
  }

  Measured ToTheEnd() {
    while (!outboxes_.empty() && Step() && metrics_.requests_waiting.value() > 0) continue;
    const uint64_t before = metrics_.generation_tokens.value();
    const TimePoint start = Clock::now();
    const double cpu_start = CpuSeconds();
    while (Step()) continue;
    const double seconds = Seconds(Clock::now() - start), cpu = CpuSeconds() - cpu_start;
    Measured measured;
    measured.said = said_;
    const auto tokens = static_cast<double>(metrics_.generation_tokens.value() - before);
    measured.tokens_a_second = tokens / seconds;
    measured.tokens_a_cpu_second = tokens / cpu;
    for (const Counter& counter : metrics_.draft_tokens) measured.drafts += counter.value();
    for (const Counter& counter : metrics_.accepted_draft_tokens) {
      measured.accepted += counter.value();
    }
    return measured;
  }

 private:
  void Submit(size_t stream, float temperature) {
    auto request = std::make_unique<Request>();
    request->id = Scheduler::NewId();
    std::mt19937 random(static_cast<uint32_t>(stream + 1));
    for (size_t i = 0; i < kPromptTokens; ++i) {
      request->prompt.push_back(static_cast<uint32_t>(random() % engine_.vocab_size()));
    }
    request->max_tokens = absl::GetFlag(FLAGS_tokens);
    request->sampling.seed = stream;
    request->sampling.temperature = temperature;
    request->stop.ignore_eos = true;
    request->outbox = std::make_shared<Outbox>(std::weak_ptr<StreamSink>(), 1 << 20);
    said_.push_back(request->prompt);
    outboxes_.push_back(request->outbox);
    RIVULET_CHECK(scheduler_->Submit(request).ok(), "the request does not fit");
  }

  bool Step() {
    const StepPlan& plan = scheduler_->Plan(Clock::now());
    if (plan.empty()) return false;
    scheduler_->Commit(engine_.Step(plan), Clock::now());
    for (size_t i = 0; i < outboxes_.size(); ++i) {
      const Outbox::Taken taken = outboxes_[i]->Take();
      if (!taken.message) continue;
      said_[i].insert(said_[i].end(), taken.message->tokens.begin(), taken.message->tokens.end());
    }
    return true;
  }

  Engine& engine_;
  Metrics metrics_;
  SessionTable sessions_{{}, metrics_};
  Dispatcher dispatcher_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::shared_ptr<Outbox>> outboxes_;
  Texts said_;
};

// What all streams will say, with every tenth token replaced.
std::vector<uint32_t> Edited(const Texts& texts, uint32_t vocab) {
  std::mt19937 random(1);
  std::vector<uint32_t> edited;
  for (const auto& text : texts) {
    for (const uint32_t token : text) {
      edited.push_back(random() % 10 == 0 ? static_cast<uint32_t>(random() % vocab) : token);
    }
  }
  return edited;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  // False if a token differed.
  bool Measure(const std::string& text, size_t streams) {
    const float temperature = text == "loops" ? 0.0f : 1.0f;
    const Texts expected = Run(*engine_, streams, temperature, nullptr).ToTheEnd().said;
    const auto source = SourceFor(text, expected);
    std::vector<double> without, with, ratios, cpu_ratios;
    Measured last;
    for (uint32_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      const Measured plain = Run(*engine_, streams, temperature, nullptr).ToTheEnd();
      without.push_back(plain.tokens_a_second);
      last = Run(*engine_, streams, temperature, source.get()).ToTheEnd();
      with.push_back(last.tokens_a_second);
      ratios.push_back(with.back() / without.back());
      cpu_ratios.push_back(last.tokens_a_cpu_second / plain.tokens_a_cpu_second);
      if (last.said != expected) {
        std::fprintf(stderr, "%s, %zu streams: drafts have changed a token\n", text.c_str(),
                     streams);
        return false;
      }
    }
    const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
    std::printf("| %s | %zu | %.1f | %.1f | %.2f (%.2f to %.2f) | %.2f | %lu | %.0f %% |\n",
                text.c_str(), streams, Median(without), Median(with), Median(ratios), *least, *most,
                Median(cpu_ratios), static_cast<unsigned long>(last.drafts),
                last.drafts == 0 ? 0.0
                                 : 100.0 * static_cast<double>(last.accepted) /
                                       static_cast<double>(last.drafts));
    std::fflush(stdout);
    return true;
  }

 private:
  std::unique_ptr<DrafterSource> SourceFor(const std::string& text, const Texts& texts) {
    const uint32_t vocab = engine_->vocab_size();
    if (text == "half") return std::make_unique<OracleSource>(texts, vocab, 0.5f);
    if (text == "most") return std::make_unique<OracleSource>(texts, vocab, 0.9f);
    std::vector<uint32_t> shared;
    if (text == "repeats") shared = Edited(texts, vocab);
    return std::make_unique<LookupSource>(std::move(shared), metrics_);
  }

  std::unique_ptr<Engine> engine_;
  Metrics metrics_;
};

// `device`: null is the CPU.
absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(Device* device) {
  const std::string config = absl::GetFlag(FLAGS_random_config);
  LoadOptions options;
  options.threads = absl::GetFlag(FLAGS_threads);
  options.mixer.drafts = true;
  options.mixer.device = device;
  if (absl::GetFlag(FLAGS_bf16) || device != nullptr) options.weight_dtype = DType::kBFloat16;
  if (config.empty()) return LoadModel(absl::GetFlag(FLAGS_model), options);
  std::ifstream file(config);
  return MakeRandomModel(nlohmann::json::parse(file), 1, options);
}

absl::StatusOr<DeviceAndModel> OpenDevice() {
  DeviceAndModel opened;
  RIVULET_ASSIGN_OR_RETURN(opened.device, OpenCudaDevice(ProductPrecision::kBFloat16));
  RIVULET_ASSIGN_OR_RETURN(opened.model, Load(opened.device.get()));
  return opened;
}

absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(StepProfile* profile) {
  EngineOptions options;
  options.threads = absl::GetFlag(FLAGS_threads);
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device == "cuda" && profile == nullptr) return MakeDeviceEngine(OpenDevice, options);
  if (device != "cpu") return absl::InvalidArgumentError("--device: cpu, or cuda without --steps");
  RIVULET_ASSIGN_OR_RETURN(auto model, Load(nullptr));
  return MakeCpuEngine(std::move(model), options, profile);
}

// Steps of one stream with 0 to 15 drafts, in turns.
class StepCosts {
 public:
  StepCosts(Engine& engine, StepProfile& profile) : engine_(engine), profile_(profile) {
    session_ = *Session::Create(engine.states());
    params_.seed = 1;
  }

  void Print() {
    Feed(kContext);
    std::printf(
        "| drafts | ms | times that of one token | the same of CPU time | embedding, norms | "
        "mixers | "
        "feed-forward | head | sampling |\n|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      for (Cost& cost : costs_) Measure(cost);
    }
    for (const Cost& cost : costs_) PrintOne(cost);
  }

 private:
  static constexpr size_t kContext = 64;
  struct Cost {
    size_t drafts;
    std::vector<double> seconds = {}, cpu_seconds = {};
    std::array<std::vector<double>, StepProfile::kParts> parts = {};
  };

  void Feed(size_t count) {
    StepPlan plan;
    plan.tokens.assign(count, 1);
    session_->Append(plan.tokens);
    plan.rows.emplace_back().segment = *session_->PlanSegment(0, count);
    RIVULET_CHECK(engine_.Step(plan).rows[0].status.ok(), "the context does not run");
    session_->CommitSegment();
    session_->Append(1);
  }

  void Measure(Cost& cost) {
    StepPlan plan;
    for (size_t i = 0; i <= cost.drafts; ++i) plan.tokens.push_back(static_cast<uint32_t>(i + 2));
    StepRow& row = plan.rows.emplace_back();
    row.segment = *session_->PlanDrafts(0, cost.drafts);
    row.samples = static_cast<uint32_t>(plan.tokens.size());
    row.spec.params = &params_;
    row.spec.position = kContext + 1;
    engine_.Step(plan);  // what another program has taken of the caches comes back
    profile_.Reset();
    const double cpu = CpuSeconds();
    cost.seconds.push_back(engine_.Step(plan).device_seconds);
    cost.cpu_seconds.push_back(CpuSeconds() - cpu);
    for (size_t part = 0; part < StepProfile::kParts; ++part) {
      cost.parts[part].push_back(profile_.seconds(static_cast<StepProfile::Part>(part)));
    }
    session_->CancelSegment();
  }

  void PrintOne(const Cost& cost) const {
    const auto part = [&](StepProfile::Part which) { return 1e3 * Median(cost.parts[which]); };
    const double seconds = Median(cost.seconds);
    std::printf("| %zu | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", cost.drafts,
                1e3 * seconds, seconds / Median(costs_[0].seconds),
                Median(cost.cpu_seconds) / Median(costs_[0].cpu_seconds),
                part(StepProfile::kEmbedding) + part(StepProfile::kNormAndAdd),
                part(StepProfile::kMixer), part(StepProfile::kFeedForward),
                part(StepProfile::kHead), part(StepProfile::kSampling));
  }

  Engine& engine_;
  StepProfile& profile_;
  std::unique_ptr<Session> session_;
  SamplingParams params_;
  std::vector<Cost> costs_ = {{0}, {1}, {2}, {3}, {4}, {5}, {7}, {9}, {11}, {14}};
};

int Main() {
  StepProfile profile;
  const bool steps = absl::GetFlag(FLAGS_steps);
  auto engine = MakeEngine(steps ? &profile : nullptr);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    return 1;
  }
  if (steps) {
    StepCosts(**engine, profile).Print();
    return 0;
  }
  Bench bench(*std::move(engine));
  std::printf(
      "| text | streams | tok/s without | with | ratio (least to most) | by CPU time | drafts | "
      "right |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_texts), ',')) {
    for (const absl::string_view number : absl::StrSplit(absl::GetFlag(FLAGS_streams), ',')) {
      size_t streams = 0;
      if (!absl::SimpleAtoi(number, &streams) || streams == 0) return 1;
      if (!bench.Measure(std::string(text), streams)) return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Measures tokens a second with drafts and without.");
  absl::ParseCommandLine(argc, argv);
  return rivulet::Main();
}
