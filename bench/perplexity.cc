// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a way of storing weights costs: the perplexity of a text with each of several --dtypes.
//
//   rivulet-perplexity --model DIR --text FILE --device cuda --dtypes fp32,bf16,fp8
//
// The text is cut into blocks of --block tokens; every token of a block but the first is predicted
// from those before it in the block. Prints nats a token, perplexity, the mean and the largest
// difference of a token's log-probability from that of the first dtype.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status.h"
#include "kernels/device/device.h"
#include "kernels/device/fake_device.h"
#include "model_loader/loaded_model.h"
#include "server/engine/cpu_engine.h"
#include "server/engine/device_engine.h"

ABSL_FLAG(std::string, model, "", "checkpoint");
ABSL_FLAG(std::string, text, "", "file with a text; needs the checkpoint's tokenizer");
ABSL_FLAG(std::string, ids, "", "file with token ids instead, separated by white space");
ABSL_FLAG(std::string, device, "cuda", "cpu, cuda, or fake: its definition on the host, slow");
ABSL_FLAG(std::string, dtypes, "bf16,fp8", "fp32, bf16, fp8");
ABSL_FLAG(uint32_t, block, 512, "tokens of a block, at most 1024");
ABSL_FLAG(uint32_t, blocks, 0, "at most this many blocks; 0: all");
ABSL_FLAG(uint32_t, threads, 4, "of the CPU");

namespace rivulet {
namespace {

absl::StatusOr<DType> ParseDType(const std::string& name) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat8}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat("--dtypes: '", name, "' is not fp32, bf16, fp8"));
}

absl::StatusOr<std::vector<uint32_t>> ReadTokens(const Tokenizer* tokenizer) {
  const std::string ids = absl::GetFlag(FLAGS_ids);
  std::ifstream file(ids.empty() ? absl::GetFlag(FLAGS_text) : ids, std::ios::binary);
  if (!file) return absl::NotFoundError("give --text FILE or --ids FILE");
  if (!ids.empty()) {
    return std::vector<uint32_t>{std::istream_iterator<uint32_t>(file),
                                 std::istream_iterator<uint32_t>()};
  }
  if (tokenizer == nullptr) {
    return absl::FailedPreconditionError("the checkpoint has no tokenizer: give --ids FILE");
  }
  std::stringstream text;
  text << file.rdbuf();
  return tokenizer->Encode(text.str());
}

// A checkpoint on a device, with the weights of one dtype.
struct Loaded {
  std::unique_ptr<Device> device;  // null: the CPU
  std::shared_ptr<const LoadedModel> model;
  std::unique_ptr<Engine> engine;
};

absl::StatusOr<Loaded> Load(DType dtype) {
  Loaded loaded;
  LoadOptions options;
  options.weight_dtype = dtype;
  if (absl::GetFlag(FLAGS_device) == "cuda") {
    RIVULET_ASSIGN_OR_RETURN(
        loaded.device, OpenCudaDevice(dtype == DType::kFloat32 ? ProductPrecision::kFloat32
                                                               : ProductPrecision::kBFloat16));
  } else if (absl::GetFlag(FLAGS_device) == "fake") {
    loaded.device = std::make_unique<FakeDevice>();
  }
  options.mixer.device = loaded.device.get();
  RIVULET_ASSIGN_OR_RETURN(loaded.model, LoadModel(absl::GetFlag(FLAGS_model), options));
  const EngineOptions engine{.threads = absl::GetFlag(FLAGS_threads)};
  RIVULET_ASSIGN_OR_RETURN(loaded.engine,
                           loaded.device == nullptr
                               ? MakeCpuEngine(loaded.model, engine)
                               : MakeDeviceEngine(loaded.model, loaded.device.get(), engine));
  if (!loaded.engine->capacity().pages.empty()) {
    return absl::UnimplementedError("the model's state has pages; use `rivulet score`");
  }
  return loaded;
}

// Appends the log-probabilities of all tokens of a block but the first.
absl::Status ScoreBlock(Engine& engine, const std::vector<uint32_t>& tokens,
                        std::vector<double>& scores) {
  RIVULET_ASSIGN_OR_RETURN(const uint32_t base, engine.states().bases().Acquire());
  RIVULET_ASSIGN_OR_RETURN(const uint32_t tail, engine.states().tails().Acquire());
  StepPlan plan;
  plan.tokens = tokens;
  StepRow& row = plan.rows.emplace_back();
  row.segment = {0, tokens.size(), 0, base, base, tail, nullptr};
  row.score_targets.assign(tokens.begin() + 1, tokens.end());
  const StepResult result = engine.Step(plan);
  engine.states().bases().Release(base);
  engine.states().tails().Release(tail);
  RIVULET_RETURN_IF_ERROR(result.rows[0].status);
  for (const Logprobs& score : result.rows[0].scores) scores.push_back(score.chosen.logprob);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> Score(const Loaded& loaded) {
  RIVULET_ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens,
                           ReadTokens(loaded.model->tokenizer.get()));
  const size_t block = std::clamp<size_t>(absl::GetFlag(FLAGS_block), 2, kLongestSegment);
  const size_t most = absl::GetFlag(FLAGS_blocks);
  std::vector<double> scores;
  for (size_t first = 0; first + 1 < tokens.size(); first += block) {
    if (most != 0 && first >= most * block) break;
    const size_t last = std::min(first + block, tokens.size());
    RIVULET_RETURN_IF_ERROR(
        ScoreBlock(*loaded.engine, {tokens.begin() + first, tokens.begin() + last}, scores));
  }
  if (scores.empty()) return absl::InvalidArgumentError("the text has fewer than two tokens");
  return scores;
}

void Print(const std::string& name, const std::vector<double>& scores,
           const std::vector<double>& first) {
  double nats = 0, difference = 0, largest = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    nats -= scores[i];
    difference += std::abs(scores[i] - first[i]);
    largest = std::max(largest, std::abs(scores[i] - first[i]));
  }
  const auto count = static_cast<double>(scores.size());
  std::printf("| %s | %zu | %.5f | %.4f | %.5f | %.4f |\n", name.c_str(), scores.size(),
              nats / count, std::exp(nats / count), difference / count, largest);
}

absl::Status Run() {
  std::vector<double> first;
  std::printf(
      "| dtype | tokens | nats a token | perplexity | mean difference of a log-probability | "
      "largest |\n|---|---|---|---|---|---|\n");
  const std::string dtypes = absl::GetFlag(FLAGS_dtypes);
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(dtypes, ','))) {
    RIVULET_ASSIGN_OR_RETURN(const DType dtype, ParseDType(name));
    RIVULET_ASSIGN_OR_RETURN(const Loaded loaded, Load(dtype));
    RIVULET_ASSIGN_OR_RETURN(const std::vector<double> scores, Score(loaded));
    if (first.empty()) first = scores;
    Print(name, scores, first);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("the perplexity of a text with weights of several types");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = rivulet::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "rivulet-perplexity: %s\n", status.ToString().c_str());
  return 1;
}
