// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Qwen3.5 and 3.6 in transformers: qwen3_5 and qwen3_5_moe, whose config.json holds the text model
// in text_config, and the text models alone (qwen3_5_text, qwen3_5_moe_text). A hybrid as
// Qwen3-Next is (qwen3_next_format.cc), with Gated DeltaNet's projections in tensors of their own,
// and in every layer an MLP, or experts whose weights sum to one beside a shared expert behind a
// gate.
//
// Published files begin the text model's names with "model.language_model.". Their vision encoder
// (model.visual.*) is left out: text in, text out. The rotary positions of text are the usual ones:
// what mrope_section interleaves are three positions of a picture, which are one number for a token
// of text.
#include <string>
#include <string_view>

#include "model_loader/formats.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

FeedForwardSpec ParseFeedForward(ConfigReader& config, const std::string& prefix, bool experts) {
  if (experts) {
    return ParseQwenExperts(config, prefix, {.experts = 256, .experts_per_token = 8});
  }
  return NameGatedMlp(prefix + "mlp.", config.Size("intermediate_size", 12288));
}

void SetFeedForwards(ConfigReader& config, bool experts, ModelSpec& spec) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].feed_forward = ParseFeedForward(config, HfName(i, ""), experts);
  }
  if (!spec.predictor.has_value()) return;
  spec.predictor->layers[0].feed_forward = ParseFeedForward(config, PredictorPrefix(0), experts);
}

}  // namespace

ModelSpec ParseQwen35Spec(ConfigReader& config) {
  const bool experts = config.String("model_type").starts_with("qwen3_5_moe");
  const json text = TextConfig(config);
  ConfigReader reader(text);
  ModelSpec spec = ParseQwenHybrid(
      reader, {.tensors = DeltaRuleTensors::kQwen35, .kv_heads = experts ? size_t{2} : size_t{4}});
  SetFeedForwards(reader, experts, spec);
  spec.other_roots = {"model.language_model.", "language_model.model."};
  spec.ignored.push_back({"model.visual.", "the vision encoder"});
  spec.ignored.push_back({"visual.", "the vision encoder"});
  config.Fail(reader.status());
  return spec;
}

}  // namespace rivulet
