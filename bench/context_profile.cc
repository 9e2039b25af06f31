// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "bench/context_profile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Json = nlohmann::json;

struct NamedStage {
  const char* name;
  Stage stage;
};
constexpr NamedStage kTimedStages[] = {{"projection", Stage::kProjection},
                                       {"convolution", Stage::kConvolution},
                                       {"norm", Stage::kNorm},
                                       {"output", Stage::kOutput}};

double Microseconds(double seconds, size_t layers) {
  return seconds * 1e6 / static_cast<double>(layers);
}

double Rate(double bytes, double seconds) { return seconds == 0 ? 0.0 : bytes / seconds * 1e-9; }

// Of loops that each follow `pause` after the one before.
double MedianLoop(ThreadPool& pool, std::chrono::microseconds pause, size_t loops) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (size_t i = 0; i < loops; ++i) {
    if (pause.count() != 0) std::this_thread::sleep_for(pause);
    const Clock::time_point start = Clock::now();
    pool.ParallelFor(pool.threads(), [](size_t) {});
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[loops / 2] * 1e6;
}

std::string Cell(const Json& profile, const char* name) {
  char text[64];
  const double microseconds = profile[name].get<double>();
  const std::string rate = std::string(name) + "_gb_per_second";
  if (profile.contains(rate)) {
    std::snprintf(text, sizeof(text), "%.1f (%.0f)", microseconds, profile[rate].get<double>());
  } else {
    std::snprintf(text, sizeof(text), "%.1f", microseconds);
  }
  return text;
}

}  // namespace

Json ProfileOf(ProfiledSteps reading, ProfiledSteps folding, size_t fold_interval,
               double read_bytes) {
  const size_t layers = reading.layers + folding.layers;
  const double seconds = reading.seconds + folding.seconds;
  Json profile = {{"total", Microseconds(seconds, layers)}};
  const double recurrence =
      reading.times[Stage::kRecurrence].seconds + folding.times[Stage::kRecurrence].seconds;
  double elsewhere = recurrence;
  for (const auto& [name, stage] : kTimedStages) {
    const double stage_seconds = reading.times[stage].seconds + folding.times[stage].seconds;
    const size_t bytes = reading.times[stage].weight_bytes + folding.times[stage].weight_bytes;
    profile[name] = Microseconds(stage_seconds, layers);
    if (bytes != 0) {
      profile[std::string(name) + "_gb_per_second"] =
          Rate(static_cast<double>(bytes), stage_seconds);
    }
    elsewhere += stage_seconds;
  }
  profile["preparation"] = Microseconds(seconds - elsewhere, layers);
  const double read = Microseconds(reading.times[Stage::kRecurrence].seconds, reading.layers);
  const double fold = Microseconds(folding.times[Stage::kRecurrence].seconds, folding.layers);
  profile["read"] = read;
  profile["read_gb_per_second"] = Rate(read_bytes, read * 1e-6);
  profile["fold"] = (fold - read) / static_cast<double>(fold_interval);
  return profile;
}

Json MeasureHandoff(ThreadPool& pool) {
  using std::chrono::microseconds;
  MedianLoop(pool, microseconds(0), 1000);
  return {{"hot", MedianLoop(pool, microseconds(0), 10000)},
          {"cold", MedianLoop(pool, microseconds(1000), 200)}};
}

void PrintProfileHead(const Json& handoff) {
  std::printf(
      "An empty parallel loop takes %.1f us, after a pause of 1 ms %.1f us.\n"
      "us a step and layer (GB/s of the stage's weights, or of its bases and pages):\n\n"
      "| mixer | sessions x layers | total | projection | convolution | preparation | read | fold "
      "| norm | output |\n|---|---|---|---|---|---|---|---|---|---|\n",
      handoff["hot"].get<double>(), handoff["cold"].get<double>());
}

void PrintProfile(const Json& row) {
  const Json& profile = row["profile"];
  std::printf("| %s | %s x %s |", row["mixer"].get_ref<const std::string&>().c_str(),
              row["sessions"].dump().c_str(), row["layers"].dump().c_str());
  for (const char* name :
       {"total", "projection", "convolution", "preparation", "read", "fold", "norm", "output"}) {
    std::printf(" %s |", Cell(profile, name).c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace rivulet
