// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Tokens a second with drafts and without, through the scheduler and the engine, without network:
//
//   rivulet-speculation-bench --model models/tales --device cpu
//
// Each text is generated in turns without drafts and with them, so that a busy machine disturbs
// both alike, by two servers' schedulers, which go on learning from run to run. The first run with
// drafts, in which what they cost is not known, stands apart ("first run": its ratio). The tokens
// must be the same; if not, the program says so and fails. Texts:
//
//   new      every stream samples at temperature 1; its own tokens are looked up
//   repeats  the same, and a shared text is what the streams will say, with every tenth token
//            replaced: a file that is edited, a source that is quoted
//   loops    greedy: small models then repeat themselves
//   half     temperature 1; each draft is right with a chance of one half
//   most     the same with a chance of nine tenths, so that of 15 drafts about half are accepted
//
// With --drafts model (--draft_model DIR) or mtp, the texts new and loops are drafted by that model
// or by the model's own head, and each round has other prompts and seeds.
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
#include "server/drafts/model_drafter.h"
#include "server/drafts/mtp_drafter.h"
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
ABSL_FLAG(std::string, drafts, "lookup", "whose: lookup, model or mtp");
ABSL_FLAG(std::string, draft_model, "", "checkpoint directory, for --drafts model");
ABSL_FLAG(uint32_t, draft_tokens, 15, "the most drafts of a stream in a step");
ABSL_FLAG(bool, always, false,
          "check as many drafts as there may be, without regard to their cost");
ABSL_FLAG(float, temperature, 1.0f, "of all texts but loops");
ABSL_FLAG(uint32_t, tokens, 256, "tokens of each stream");
ABSL_FLAG(uint32_t, rounds, 5, "runs without drafts and as many with them");
ABSL_FLAG(uint32_t, threads, 2, "compute threads");
ABSL_FLAG(bool, steps, false, "what steps with drafts take");

namespace rivulet {
namespace {

constexpr size_t kPromptTokens = 24;
constexpr const char* kOpenings[] = {"Once upon a time",
                                     "The king said to",
                                     "A fox and a wolf",
                                     "There was a poor woman who",
                                     "In the middle of the forest",
                                     "The youngest of the three brothers",
                                     "\"Come in,\" said the witch,",
                                     "Far away, where the sea"};
using Texts = std::vector<std::vector<uint32_t>>;  // of each stream

// Drafts what a stream will say, each token with a certain chance and otherwise a wrong one.
class OracleSource final : public DrafterSource {
 public:
  // `texts`: with the prompts; streams are told apart by their seed.
  OracleSource(const Texts& texts, uint32_t vocab, float chance)
      : texts_(texts), vocab_(vocab), chance_(chance) {}
  std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& completion) override {
    const uint64_t stream = completion.sampling->seed;
    return std::make_unique<Oracle>(texts_[stream], vocab_, chance_, stream);
  }

 private:
  class Oracle final : public Drafter {
   public:
    Oracle(const std::vector<uint32_t>& text, uint32_t vocab, float chance, uint64_t seed)
        : text_(text), vocab_(vocab), chance_(chance), random_(seed) {}
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
    std::mt19937 random_;  // streams are not wrong at the same time
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

struct Workload {
  size_t streams;
  float temperature;
  const Texts& prompts;  // empty: random ones
  size_t first = 0;      // stream i has seed, and prompt, first + i
};

// A scheduler that serves one run of all streams after the other, as a server does: what it learns
// of its steps in one run it knows in the next.
class Server {
 public:
  Server(Engine& engine, DrafterSource* drafts) : engine_(engine) {
    SchedulerOptions options;
    options.drafts = {.source = drafts,
                      .most = absl::GetFlag(FLAGS_draft_tokens),
                      .always = absl::GetFlag(FLAGS_always)};
    scheduler_ =
        std::make_unique<Scheduler>(engine, sessions_, dispatcher_, metrics_, std::move(options));
  }

  // Timed from when every prompt is processed.
  Measured Run(const Workload& workload) {
    outboxes_.clear();
    said_.clear();
    const uint64_t drafts = Sum(metrics_.draft_tokens);
    const uint64_t accepted = Sum(metrics_.accepted_draft_tokens);
    for (size_t i = 0; i < workload.streams; ++i) Submit(workload.first + i, workload);
    while (Step() && metrics_.requests_waiting.value() > 0) continue;
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
    measured.drafts = Sum(metrics_.draft_tokens) - drafts;
    measured.accepted = Sum(metrics_.accepted_draft_tokens) - accepted;
    return measured;
  }

 private:
  template <typename Counters>
  static uint64_t Sum(const Counters& counters) {
    uint64_t sum = 0;
    for (const Counter& counter : counters) sum += counter.value();
    return sum;
  }

  std::vector<uint32_t> Prompt(size_t seed, const Texts& prompts) const {
    if (!prompts.empty()) return prompts[seed % prompts.size()];
    std::mt19937 random(static_cast<uint32_t>(seed + 1));
    std::vector<uint32_t> prompt(kPromptTokens);
    for (uint32_t& token : prompt) token = static_cast<uint32_t>(random() % engine_.vocab_size());
    return prompt;
  }

  void Submit(size_t seed, const Workload& workload) {
    auto request = std::make_unique<Request>();
    request->id = Scheduler::NewId();
    request->prompt = Prompt(seed, workload.prompts);
    request->max_tokens = absl::GetFlag(FLAGS_tokens);
    request->sampling.seed = seed;
    request->sampling.temperature = workload.temperature;
    request->stop.ignore_eos = true;
    request->outbox = std::make_shared<Outbox>(std::weak_ptr<StreamSink>(), 1 << 20);
    said_.push_back(request->prompt);
    outboxes_.push_back(request->outbox);
    RIVULET_CHECK(scheduler_->Submit(request).ok(), "the request does not fit");
  }

  bool Step() {
    const StepPlan& plan = scheduler_->Plan(Clock::now());
    if (plan.empty()) return false;
    const StepTicket ticket = engine_.Launch(plan);
    scheduler_->FollowDrafts();
    scheduler_->Commit(engine_.Await(ticket), Clock::now());
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

// What several pairs of runs gave.
class Pairs {
 public:
  void Add(const Measured& plain, const Measured& drafted) {
    without_.push_back(plain.tokens_a_second);
    with_.push_back(drafted.tokens_a_second);
    ratios_.push_back(with_.back() / without_.back());
    cpu_ratios_.push_back(drafted.tokens_a_cpu_second / plain.tokens_a_cpu_second);
    drafts_ += drafted.drafts;
    accepted_ += drafted.accepted;
  }
  // `first`: tokens a second of the run before them, in which the server learned what drafts cost.
  void Print(const std::string& text, size_t streams, double first) const {
    const auto [least, most] = std::minmax_element(ratios_.begin(), ratios_.end());
    const double right =
        drafts_ == 0 ? 0 : static_cast<double>(accepted_) / static_cast<double>(drafts_);
    std::printf("| %s | %zu | %.1f | %.1f | %.2f (%.2f to %.2f) | %.2f | %.2f | %lu | %.0f %% |\n",
                text.c_str(), streams, Median(without_), Median(with_), Median(ratios_), *least,
                *most, Median(cpu_ratios_), first / Median(without_),
                static_cast<unsigned long>(drafts_), 100 * right);
    std::fflush(stdout);
  }

 private:
  std::vector<double> without_, with_, ratios_, cpu_ratios_;
  uint64_t drafts_ = 0, accepted_ = 0;
};

// `plain` serves without drafts and `drafted` with them; they may be one.
class Bench {
 public:
  Bench(Engine& plain, Engine& drafted, Texts prompts)
      : plain_(plain), drafted_(drafted), prompts_(std::move(prompts)) {}

  // False if a token differed.
  bool Measure(const std::string& text, size_t streams, DrafterSource* source) {
    if (drafted_.capacity().tail_slots < streams) {
      std::fprintf(stderr, "there are states for %u streams\n", drafted_.capacity().tail_slots);
      return false;
    }
    const float temperature = text == "loops" ? 0.0f : absl::GetFlag(FLAGS_temperature);
    Workload workload{streams, temperature, prompts_};
    std::unique_ptr<DrafterSource> own;
    Server plain_server(plain_, nullptr);
    const Texts said = plain_server.Run(workload).said;
    if (source == nullptr) own = SourceFor(text, said);
    Server drafted_server(drafted_, own == nullptr ? source : own.get());
    const Measured first = drafted_server.Run(workload);
    if (first.said != said) return Differs(text, streams);
    Pairs pairs;
    for (uint32_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      if (own == nullptr) workload.first = round * streams;
      const Measured plain = plain_server.Run(workload);
      const Measured drafted = drafted_server.Run(workload);
      if (drafted.said != plain.said) return Differs(text, streams);
      pairs.Add(plain, drafted);
    }
    pairs.Print(text, streams, first.tokens_a_second);
    return true;
  }

 private:
  static bool Differs(const std::string& text, size_t streams) {
    std::fprintf(stderr, "%s, %zu streams: drafts have changed a token\n", text.c_str(), streams);
    return false;
  }
  std::unique_ptr<DrafterSource> SourceFor(const std::string& text, const Texts& texts) {
    const uint32_t vocab = plain_.vocab_size();
    if (text == "half") return std::make_unique<OracleSource>(texts, vocab, 0.5f);
    if (text == "most") return std::make_unique<OracleSource>(texts, vocab, 0.9f);
    std::vector<uint32_t> shared;
    if (text == "repeats") shared = Edited(texts, vocab);
    return std::make_unique<LookupSource>(std::move(shared), metrics_);
  }

  Engine& plain_;
  Engine& drafted_;
  const Texts prompts_;
  Metrics metrics_;
};

// `device`: null is the CPU.
absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(Device* device, bool predictor) {
  const std::string config = absl::GetFlag(FLAGS_random_config);
  LoadOptions options;
  options.threads = absl::GetFlag(FLAGS_threads);
  options.mixer.drafts = true;
  options.mixer.device = device;
  options.predictor = predictor;
  if (absl::GetFlag(FLAGS_bf16) || device != nullptr) options.weight_dtype = DType::kBFloat16;
  if (config.empty()) return LoadModel(absl::GetFlag(FLAGS_model), options);
  std::ifstream file(config);
  return MakeRandomModel(nlohmann::json::parse(file), 1, options);
}

absl::StatusOr<DeviceAndModel> OpenDevice(bool predictor) {
  DeviceAndModel opened;
  RIVULET_ASSIGN_OR_RETURN(opened.device, OpenCudaDevice(ProductPrecision::kBFloat16));
  RIVULET_ASSIGN_OR_RETURN(opened.model, Load(opened.device.get(), predictor));
  return opened;
}

// On a device, with states for 64 streams of any of these models.
EngineOptions Sizes() {
  const bool device = absl::GetFlag(FLAGS_device) == "cuda";
  return {.threads = absl::GetFlag(FLAGS_threads),
          .state_memory = uint64_t{1} << (device ? 33 : 30)};
}

absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(bool predictor, StepProfile* profile) {
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device == "cuda" && profile == nullptr) {
    return MakeDeviceEngine([predictor] { return OpenDevice(predictor); }, Sizes());
  }
  if (device != "cpu") return absl::InvalidArgumentError("--device: cpu, or cuda without --steps");
  RIVULET_ASSIGN_OR_RETURN(auto model, Load(nullptr, predictor));
  return MakeCpuEngine(std::move(model), Sizes(), profile);
}

// As the server has it: on the CPU.
absl::StatusOr<std::unique_ptr<DrafterSource>> MakeModelSource(Metrics& metrics) {
  LoadOptions options;
  options.threads = absl::GetFlag(FLAGS_threads);
  options.mixer.drafts = true;
  RIVULET_ASSIGN_OR_RETURN(auto model, LoadModel(absl::GetFlag(FLAGS_draft_model), options));
  RIVULET_ASSIGN_OR_RETURN(auto engine, MakeCpuEngine(std::move(model), Sizes()));
  return ModelSource::Make(std::move(engine), Sizes().state_context, metrics);
}

// Where the model has a tokenizer, openings of tales; none for random weights.
absl::StatusOr<Texts> Prompts() {
  Texts prompts;
  if (!absl::GetFlag(FLAGS_random_config).empty()) return prompts;
  RIVULET_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(absl::GetFlag(FLAGS_model)));
  if (tokenizer == nullptr) return prompts;
  for (const char* opening : kOpenings) {
    RIVULET_ASSIGN_OR_RETURN(std::vector<uint32_t> prompt, tokenizer->Encode(opening));
    if (tokenizer->bos_id() >= 0) {
      prompt.insert(prompt.begin(), static_cast<uint32_t>(tokenizer->bos_id()));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
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

absl::Status MeasureSteps() {
  StepProfile profile;
  RIVULET_ASSIGN_OR_RETURN(const auto engine, MakeEngine(/*predictor=*/false, &profile));
  StepCosts(*engine, profile).Print();
  return absl::OkStatus();
}

// All texts with all numbers of streams. `source`: null where each text has its own.
absl::Status MeasureTexts(Bench& bench, DrafterSource* source) {
  std::printf(
      "| text | streams | tok/s without | with | ratio (least to most) | by CPU time | first run | "
      "drafts | right |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|\n");
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_texts), ',')) {
    for (const absl::string_view number : absl::StrSplit(absl::GetFlag(FLAGS_streams), ',')) {
      size_t streams = 0;
      if (!absl::SimpleAtoi(number, &streams) || streams == 0) {
        return absl::InvalidArgumentError("--streams: 1,8,64");
      }
      if (!bench.Measure(std::string(text), streams, source)) {
        return absl::InternalError("the tokens differ");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Main() {
  if (absl::GetFlag(FLAGS_steps)) return MeasureSteps();
  const std::string drafts = absl::GetFlag(FLAGS_drafts);
  Metrics metrics;
  std::unique_ptr<Engine> guessing;  // its head costs time in steps without drafts too
  std::unique_ptr<DrafterSource> source;
  RIVULET_ASSIGN_OR_RETURN(const auto engine, MakeEngine(/*predictor=*/false, nullptr));
  if (drafts == "model") {
    RIVULET_ASSIGN_OR_RETURN(source, MakeModelSource(metrics));
  } else if (drafts == "mtp") {
    RIVULET_ASSIGN_OR_RETURN(guessing, MakeEngine(/*predictor=*/true, nullptr));
    RIVULET_ASSIGN_OR_RETURN(source, MtpSource::Make(*guessing));
  } else if (drafts != "lookup") {
    return absl::InvalidArgumentError("--drafts: lookup, model or mtp");
  }
  RIVULET_ASSIGN_OR_RETURN(Texts prompts, Prompts());
  Bench bench(*engine, guessing == nullptr ? *engine : *guessing, std::move(prompts));
  return MeasureTexts(bench, source.get());
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Measures tokens a second with drafts and without.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = rivulet::Main();
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
