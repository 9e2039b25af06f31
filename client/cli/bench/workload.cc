// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/workload.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace rivulet::cli::bench {
namespace {

// Separate the streams of random numbers.
constexpr uint64_t kArrivals = 0x61727269;
constexpr uint64_t kInterfering = 0x696e7466;

uint64_t Mix(uint64_t a, uint64_t b) { return Random(a ^ Random(b).Next()).Next(); }

absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> prompts;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) prompts.push_back(std::move(line));
  }
  if (prompts.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "--prompt-file ", path, " cannot be read or is empty; it needs one prompt per line"));
  }
  return prompts;
}

void FillOutput(uint32_t tokens, v1::GenerateRequest& request) {
  request.set_max_tokens(tokens);
  request.mutable_stop()->set_min_tokens(tokens);
  request.mutable_stop()->set_ignore_eos(true);
}

}  // namespace

uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint32_t Random::Between(uint32_t low, uint32_t high) {
  const uint64_t span = uint64_t{high} - low + 1;
  return low + static_cast<uint32_t>(((Next() >> 32) * span) >> 32);
}

double Random::Fraction() { return std::ldexp(static_cast<double>(Next() >> 11), -53); }

ArrivalProcess::ArrivalProcess(Arrival arrival, double rate, uint64_t seed)
    : arrival_(arrival), rate_(rate), random_(Mix(seed, kArrivals)) {}

std::chrono::nanoseconds ArrivalProcess::NextGap() {
  const double gaps = arrival_ == Arrival::kConstant ? 1.0 : -std::log1p(-random_.Fraction());
  return std::chrono::nanoseconds(std::llround(1e9 * std::min(gaps / rate_, 1e9)));
}

absl::StatusOr<Workload> Workload::Make(const BenchOptions& options, uint32_t vocabulary) {
  Workload workload;
  workload.seed_ = options.seed;
  workload.turns_ = std::max(options.turns, 1U);
  workload.vocabulary_ = vocabulary;
  workload.prompt_tokens_ = options.prompt_tokens;
  workload.output_tokens_ = OutputTokens(options);
  workload.temperature_ = options.temperature;
  if (!options.prompt_file.empty()) {
    RIVULET_ASSIGN_OR_RETURN(workload.prompts_, ReadPrompts(options.prompt_file));
  }
  if (vocabulary == 0 && (workload.prompts_.empty() || options.interfere_prompt > 0)) {
    return absl::FailedPreconditionError(
        "the server's model has no vocabulary to draw prompts from; give --prompt-file");
  }
  return workload;
}

v1::GenerateRequest Workload::MakeRequest(uint64_t job, uint32_t turn) const {
  const uint64_t number = job * turns_ + turn;
  Random random(Mix(seed_, number));
  v1::GenerateRequest request;
  FillOutput(random.Between(output_tokens_.low, output_tokens_.high), request);
  request.mutable_sampling()->set_seed(random.Next());
  if (temperature_) request.mutable_sampling()->set_temperature(*temperature_);
  if (prompts_.empty()) {
    FillRandomPrompt(random.Between(prompt_tokens_.low, prompt_tokens_.high), random, request);
  } else {
    request.set_prompt(prompts_[number % prompts_.size()]);
  }
  return request;
}

v1::GenerateRequest Workload::MakeInterferingRequest(uint64_t number, uint32_t length) const {
  Random random(Mix(seed_ ^ kInterfering, number));
  v1::GenerateRequest request;
  FillOutput(1, request);
  FillRandomPrompt(length, random, request);
  return request;
}

void Workload::FillRandomPrompt(uint32_t length, Random& random,
                                v1::GenerateRequest& request) const {
  auto& ids = *request.mutable_token_ids()->mutable_ids();
  ids.Reserve(static_cast<int>(length));
  for (uint32_t i = 0; i < length; ++i) ids.Add(random.Between(0, vocabulary_ - 1));
}

}  // namespace rivulet::cli::bench
