// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/status.h"
#include "kernels/base/thread_pool.h"
#include "model_loader/checkpoint_reader.h"
#include "model_loader/formats.h"
#include "model_loader/json.h"
#include "model_loader/layer_loader.h"
#include "model_loader/model_folder.h"
#include "model_loader/packed_cache.h"
#include "model_loader/safetensors.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// Real ones are a few kB.
constexpr size_t kLargestConfig = size_t{128} << 10;
constexpr size_t kLargestFile = 16 << 20;  // a tokenizer_config.json lists thousands of tokens
constexpr double kLargestFloat = std::numeric_limits<float>::max();
constexpr size_t kLargestCount = std::numeric_limits<uint32_t>::max();

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A number in [low, high], or in (low, high] when `open`.
void ReadNumber(ConfigReader& config, const char* key, double low, bool open, double high,
                std::optional<float>& value) {
  if (!config.Has(key)) return;
  const double number = config.Number(key);
  // As a float, which a request has: 1e-320 is zero there.
  const bool above = open ? static_cast<float>(number) > low : number >= low;
  config.Require(above && number <= high, key,
                 absl::StrCat("it must be ", open ? "greater than " : "at least ", low,
                              " and at most ", high));
  value = static_cast<float>(number);
}

void ReadCount(ConfigReader& config, const char* key, std::optional<uint32_t>& value) {
  if (!config.Has(key)) return;
  value = static_cast<uint32_t>(config.Size(key, std::nullopt, 0, kLargestCount));
}

GenerationDefaults ReadDefaults(ConfigReader& config) {
  GenerationDefaults defaults;
  ReadNumber(config, "temperature", 0, false, kLargestFloat, defaults.temperature);
  ReadNumber(config, "top_p", 0, true, 1, defaults.top_p);
  ReadNumber(config, "min_p", 0, false, 0.999, defaults.min_p);
  ReadNumber(config, "repetition_penalty", 0, true, kLargestFloat, defaults.repetition_penalty);
  ReadCount(config, "top_k", defaults.top_k);
  ReadCount(config, "max_new_tokens", defaults.max_tokens);
  return defaults;
}

// Those that are not there yet; -1 is none.
void AddEosIds(const std::vector<int64_t>& ids, ModelSpec& spec) {
  for (const int64_t id : ids) {
    const auto end = spec.eos_ids.end();
    const bool known = std::find(spec.eos_ids.begin(), end, id) != end;
    if (id >= 0 && !known) spec.eos_ids.push_back(static_cast<uint32_t>(id));
  }
}

// generation_config.json of `directory`; all unset when there is none. Values that a request may
// not have either are refused. do_sample is ignored: a model's temperature counts whether its
// library samples by default or not. Its eos_token_id joins spec.eos_ids, as chat models list more
// there.
absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& directory,
                                                          ModelSpec& spec) {
  const std::string path = directory + "/generation_config.json";
  if (!Exists(path)) return GenerationDefaults();
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonObject(path, kLargestFile));
  ConfigReader config(json);
  const GenerationDefaults defaults = ReadDefaults(config);
  const auto eos_ids = ParseEosIds(config, spec.vocab);
  AddEosIds({eos_ids.begin(), eos_ids.end()}, spec);
  if (config.ok()) return defaults;
  return absl::Status(config.status().code(), absl::StrCat(path, ": ", config.status().message()));
}

// A directory without a tokenizer is served with token ids.
absl::Status AddTokenizer(const std::string& directory, LoadedModel& model) {
  auto tokenizer = LoadTokenizer(directory);
  if (absl::IsNotFound(tokenizer.status())) return absl::OkStatus();
  RIVULET_RETURN_IF_ERROR(tokenizer.status());
  if ((*tokenizer)->vocab_size() > model.spec.vocab) {
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer of ", directory, " has ",
                                                   (*tokenizer)->vocab_size(),
                                                   " pieces, but vocab_size is ", model.spec.vocab,
                                                   ": the tokenizer belongs to another model"));
  }
  model.tokenizer = *std::move(tokenizer);
  // The EOS of tokenizer_config.json ends a chat even where config.json names another.
  const bool files_say = model.tokenizer->begin_ids().has_value();
  if (files_say) AddEosIds(model.tokenizer->end_ids(), model.spec);
  return absl::OkStatus();
}

// A template may write BOS and EOS by name. Where the checkpoint does not say what they are, the
// tokenizer does.
absl::Status AddChatTemplate(const std::string& directory, LoadedModel& model) {
  RIVULET_ASSIGN_OR_RETURN(model.chat_template, ChatTemplate::Load(directory));
  if (model.chat_template == nullptr || model.tokenizer == nullptr) return absl::OkStatus();
  const auto add = [&](const char* name, int64_t id) {
    if (id < 0) return;
    const std::string_view piece = model.tokenizer->Piece(static_cast<uint32_t>(id));
    model.chat_template->AddSpecialToken(name, std::string(piece));
  };
  add("bos_token", model.tokenizer->bos_id());
  add("eos_token", model.tokenizer->eos_id());
  return absl::OkStatus();
}

// `added`: the keys that `config` did not have.
absl::Status Override(const std::string& text, nlohmann::json& config,
                      std::vector<std::string>& added) {
  if (text.empty()) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json keys, ParseJson(text, "the config override"));
  if (!keys.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the config override ", text, " must be a JSON object {...}"));
  }
  for (const auto& [key, value] : keys.items()) {
    if (!config.contains(key)) added.push_back(key);
  }
  config.update(keys);
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> ReadConfig(const std::string& directory, const LoadOptions& options,
                                          std::vector<std::string>& added_keys) {
  RIVULET_ASSIGN_OR_RETURN(nlohmann::json config,
                           ReadJsonObject(directory + "/config.json", kLargestConfig));
  RIVULET_RETURN_IF_ERROR(CheckNotQuantised(config));
  RIVULET_RETURN_IF_ERROR(Override(options.config_override, config, added_keys));
  return config;
}

// Everything but the weights. It is cheap, and it is wrong more often.
absl::Status ReadDescription(const std::string& directory, const nlohmann::json& config,
                             LoadedModel& model) {
  RIVULET_ASSIGN_OR_RETURN(model.spec, ParseModelSpec(config));
  RIVULET_ASSIGN_OR_RETURN(model.defaults, ReadGenerationDefaults(directory, model.spec));
  RIVULET_RETURN_IF_ERROR(AddTokenizer(directory, model));
  return AddChatTemplate(directory, model);
}

absl::StatusOr<std::unique_ptr<Mixer>> LoadMixer(ParameterSource parameters,
                                                 const MixerConfig& config,
                                                 const std::string& prefix, const std::string& type,
                                                 size_t hidden, const MixerOptions& options) {
  auto mixer = MakeMixer(config, {hidden, parameters, options});
  if (mixer.ok() && options.device != nullptr && !(*mixer)->runs_on_device()) {
    mixer = absl::UnimplementedError("it has no CUDA kernels yet; use --device cpu");
  }
  if (mixer.ok()) return mixer;
  return absl::Status(mixer.status().code(),
                      absl::StrCat("mixer ", type, " at ", prefix, ": ", mixer.status().message()));
}

// The same for the same keys and values; never throws.
std::string TextOf(const nlohmann::json& config) {
  return config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class WeightLoader {
 public:
  // `config`: the text of config.json as it counts.
  WeightLoader(LoadedModel& model, const SafetensorsCheckpoint& files, const LoadOptions& options,
               const std::string& config)
      : model_(model),
        files_(files),
        options_(options),
        pool_(options.threads),
        reader_(files, &pool_),
        packer_(EndsDType(options), options.mixer.device, &pool_),
        parameters_(reader_, packer_) {
    if (options.packed_cache.empty() || options.mixer.device != nullptr) return;
    const char* dtype =
        options.weight_dtype.has_value() ? DTypeName(*options.weight_dtype) : "auto";
    cache_.emplace(options.packed_cache, PackedCacheKey(files, absl::StrCat(dtype, "\n", config)));
    packer_.set_store(&*cache_);
  }

  absl::Status Load() {
    // The one place where memory may run out because of what a file says.
    try {
      return LoadAll();
    } catch (const std::bad_alloc&) {
      RIVULET_RETURN_IF_ERROR(reader_.Problems());
      return absl::ResourceExhaustedError(
          absl::StrCat("not enough memory for the weights of ", model_.name, " (", files_.bytes(),
                       " bytes in its files); use --dtype bf16 or a machine with more"));
    }
  }

 private:
  // How the output map rests: it is read for every token, and rounding it to fp8 costs the most.
  static std::optional<DType> EndsDType(const LoadOptions& options) {
    if (options.weight_dtype == DType::kFloat8) return DType::kBFloat16;
    return options.weight_dtype;
  }

  absl::Status DeviceHasRoom() const {
    if (!absl::IsResourceExhausted(packer_.status())) return packer_.status();
    return absl::ResourceExhaustedError(absl::StrCat(
        "the weights of ", model_.name, " (", files_.bytes(), " bytes in its files) do not fit: ",
        packer_.status().message(), "; use --dtype fp8, a smaller model or a larger GPU"));
  }

  absl::Status LoadAll() {
    ReadCache();
    RIVULET_RETURN_IF_ERROR(LoadEnds());
    packer_.set_dtype(options_.weight_dtype);
    for (size_t i = 0; i < model_.spec.layers.size(); ++i) {
      Report(absl::StrCat("layer ", i + 1, " of ", model_.spec.layers.size()));
      RIVULET_ASSIGN_OR_RETURN(LoadedLayer layer, LoadLayer(model_.spec.layers[i]));
      model_.layers.push_back(std::move(layer));
      RIVULET_RETURN_IF_ERROR(DeviceHasRoom());
    }
    if (options_.predictor) RIVULET_RETURN_IF_ERROR(LoadPredictor());
    RIVULET_RETURN_IF_ERROR(DeviceHasRoom());
    RIVULET_RETURN_IF_ERROR(FinishReading());
    RIVULET_RETURN_IF_ERROR(files_.CheckUnchanged());
    model_.weight_dtype = packer_.dtype();
    model_.parameters = reader_.parameters();
    WriteCache();
    Report("ready");
    return absl::OkStatus();
  }

  void ReadCache() {
    if (!cache_.has_value()) return;
    Report("packed weights on disk");
    PackedCacheUse& use = model_.packed_cache;
    use.path = cache_->path();
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = cache_->Read(pool_);
    use.seconds = SecondsSince(start);
    use.read = status.ok();
    use.bytes = cache_->file_bytes();
    if (!absl::IsNotFound(status)) use.unused = status;
  }

  // Also where the file lacked something, which a new version may have asked for.
  void WriteCache() {
    if (!cache_.has_value() || !cache_->changed()) return;
    Report("writing packed weights to disk");
    PackedCacheUse& use = model_.packed_cache;
    const auto start = std::chrono::steady_clock::now();
    try {
      use.failed = cache_->Write();
    } catch (const std::bad_alloc&) {
      use.failed = absl::ResourceExhaustedError("no memory to write packed weights");
    }
    use.seconds = SecondsSince(start);
    use.written = use.failed.ok();
  }

  absl::StatusOr<LoadedLayer> LoadLayer(const LayerSpec& spec) {
    const auto make = [&](const MixerConfig& config, const std::string& prefix) {
      return LoadMixer({reader_, packer_, prefix}, config, prefix, spec.mixer_type,
                       model_.spec.hidden, options_.mixer);
    };
    return TakeLayer(spec, model_.spec, options_.mixer, parameters_, make);
  }

  absl::Status LoadPredictor() {
    const auto& spec = model_.spec.predictor;
    if (!spec.has_value() || reader_.CountBeginning(kMultiTokenPrediction.prefix) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          model_.name, " has no head that predicts further tokens (", kMultiTokenPrediction.prefix,
          "*), or one that is not served (of several "
          "steps, or with layers other than attention); --speculate mtp needs one"));
    }
    Report("predictor");
    model_.predictor = std::make_unique<LoadedPredictor>();
    LoadedPredictor& predictor = *model_.predictor;
    const size_t hidden = model_.spec.hidden;
    const float eps = model_.spec.norm_eps;
    predictor.embedding_norm = TakeNorm(spec->embedding_norm, hidden, eps, parameters_);
    predictor.hidden_norm = TakeNorm(spec->hidden_norm, hidden, eps, parameters_);
    predictor.fusion = parameters_.TakeLinear({{spec->fusion, hidden, ""}}, 2 * hidden);
    for (const LayerSpec& layer : spec->layers) {
      RIVULET_ASSIGN_OR_RETURN(LoadedLayer loaded, LoadLayer(layer));
      predictor.layers.push_back(std::move(loaded));
    }
    predictor.final_norm = TakeNorm(spec->final_norm, hidden, eps, parameters_);
    return absl::OkStatus();
  }

  absl::Status FinishReading() {
    std::vector<std::string> ignored;
    for (const IgnoredPart& part : model_.spec.ignored) {
      if (model_.predictor && part.prefix == kMultiTokenPrediction.prefix) continue;
      ignored.push_back(part.prefix);
      const size_t tensors = reader_.CountBeginning(part.prefix);
      if (tensors == 0 || part.what.empty()) continue;
      model_.left_out.push_back(
          absl::StrCat(part.what, " (", tensors, " tensors ", part.prefix, "*)"));
    }
    return reader_.Finish(ignored);
  }

  // The first way to begin names for which there are embeddings.
  void FindRoot() {
    const ModelSpec& spec = model_.spec;
    if (reader_.Has(spec.embeddings)) return;
    for (const std::string& root : spec.other_roots) {
      reader_.Rename("model.", root);
      if (reader_.Has(spec.embeddings)) return;
    }
    reader_.Rename("", "");
  }

  // Embeddings, final norm and output map. Their shapes confirm vocab_size and hidden_size: a
  // mismatch ends the load before the rest of the config is believed.
  absl::Status LoadEnds() {
    ModelSpec& spec = model_.spec;
    FindRoot();
    if (!reader_.Has(spec.embeddings) && reader_.Has(spec.embeddings_older_name)) {
      if (spec.tied()) spec.lm_head = spec.embeddings_older_name;
      spec.embeddings = spec.embeddings_older_name;
    }
    Report("embeddings");
    const bool once = HoldsTiedOnce();
    if (!once) TakeRows();
    RIVULET_RETURN_IF_ERROR(reader_.Problems());
    if (!spec.embedding_norm.empty()) {
      model_.embedding_norm =
          TakeNorm(spec.embedding_norm, spec.hidden, spec.norm_eps, parameters_);
    }
    model_.last_connection = TakeConnection(spec.last_connection, spec.hidden, parameters_);
    if (!spec.final_norm.empty()) {
      model_.final_norm = TakeNorm(spec.final_norm, spec.hidden, spec.norm_eps, parameters_,
                                   spec.logits_multiplier);
    }
    model_.lm_head = parameters_.TakeLinear({{spec.lm_head, spec.vocab, ""}}, spec.hidden);
    if (spec.tied()) reader_.Ignore("lm_head.weight", {spec.vocab, spec.hidden});
    if (once) ReadEmbeddingsFrom(model_.lm_head);
    model_.embeddings.multiplier = spec.embedding_multiplier;
    return absl::OkStatus();
  }

  // Whether tied embeddings can be read from the panels of the output map: on the CPU, where these
  // hold the file's numbers, not rounded. (A device reads rows.)
  bool HoldsTiedOnce() const {
    const ModelSpec& spec = model_.spec;
    if (!spec.tied() || packer_.on_device()) return false;
    if (reader_.Shape(spec.embeddings) != std::vector<size_t>{spec.vocab, spec.hidden}) {
      return false;
    }
    const std::optional<DType> in_file = reader_.Type(spec.embeddings);
    const bool rounds = packer_.set_to() == DType::kBFloat16 && in_file != DType::kBFloat16;
    return in_file.has_value() && !rounds;
  }

  void ReadEmbeddingsFrom(const Linear& map) {
    model_.embeddings = {.data = map.packed().panels.data(),
                         .dtype = map.dtype(),
                         .vocab = map.outputs(),
                         .width = map.inputs(),
                         .in_panels = true};
  }

  void TakeRows() {
    const ModelSpec& spec = model_.spec;
    if (cache_.has_value()) {
      const auto rows = cache_->FindRows(spec.embeddings, spec.vocab, spec.hidden);
      if (rows.has_value()) return UseRows(*rows);
    }
    auto rows = std::make_shared<AlignedBuffer<std::byte>>();
    model_.embeddings = reader_.TakeTable(spec.embeddings, spec.vocab, spec.hidden, *rows);
    model_.embedding_rows = rows;
    if (!cache_.has_value()) return;
    cache_->AddRows(spec.embeddings, {.inputs = spec.hidden,
                                      .outputs = spec.vocab,
                                      .dtype = model_.embeddings.dtype,
                                      .panels = {rows->data(), rows->size()},
                                      .bias = {},
                                      .owner = rows});
  }

  void UseRows(const PackedLinear& rows) {
    reader_.Take(model_.spec.embeddings, {rows.outputs, rows.inputs}, TensorUse::kPacked);
    model_.embeddings = {rows.panels.data(), rows.dtype, rows.outputs, rows.inputs};
    model_.embedding_rows = rows.owner;
  }

  void Report(const std::string& what) const {
    if (!options_.progress) return;
    const auto all = static_cast<double>(std::max<size_t>(1, files_.bytes()));
    options_.progress(static_cast<double>(reader_.bytes_taken()) / all, what);
  }

  LoadedModel& model_;
  const SafetensorsCheckpoint& files_;
  const LoadOptions& options_;
  ThreadPool pool_;
  CheckpointReader reader_;
  WeightPacker packer_;
  ParameterSource parameters_;
  std::optional<PackedCache> cache_;
};

}  // namespace

TrainedNorm TakeNorm(const NormSpec& spec, size_t hidden, float eps, ParameterSource& parameters,
                     float multiplier) {
  const float plus = spec.kind == NormSpec::Kind::kRmsOnePlus ? 1.0f : 0.0f;
  const bool other = !parameters.Has(spec.weight) && parameters.Has(spec.other_weight);
  AlignedBuffer<float> weight =
      parameters.TakeVector(other ? spec.other_weight : spec.weight, {hidden});
  for (size_t i = 0; i < hidden; ++i) weight[i] = (weight[i] + plus) * multiplier;
  if (spec.kind != NormSpec::Kind::kLayer) return TrainedNorm::Rms(std::move(weight), eps);
  AlignedBuffer<float> bias(hidden);
  if (!spec.bias.empty()) bias = parameters.TakeVector(spec.bias, {hidden});
  for (size_t i = 0; i < hidden; ++i) bias[i] *= multiplier;
  return TrainedNorm::Layer(std::move(weight), std::move(bias), eps);
}

LoadedModel::LoadedModel() = default;
LoadedModel::~LoadedModel() = default;

uint64_t LoadedModel::max_tokens() const {
  uint64_t tokens = UINT64_MAX;
  for (const LoadedLayer& layer : layers) {
    if (layer.mixer != nullptr) tokens = std::min(tokens, layer.mixer->max_tokens());
  }
  return tokens;
}

size_t LoadedModel::handed_on_columns() const {
  size_t columns = 0;
  for (const LoadedLayer& layer : layers) {
    if (layer.mixer != nullptr) columns = std::max(columns, layer.mixer->handed_on_columns());
  }
  return columns;
}

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const std::string& path,
                                                       const LoadOptions& options) {
  if (options.weight_dtype == DType::kFloat8 && options.mixer.device == nullptr) {
    return absl::InvalidArgumentError("fp8 weights need --device cuda; use --dtype bf16");
  }
  const auto start = std::chrono::steady_clock::now();
  RIVULET_ASSIGN_OR_RETURN(const ModelFolder folder, FindModelFolder(path));
  const std::string& directory = folder.directory;
  auto model = std::make_unique<LoadedModel>();
  model->name = folder.name;
  model->commit = folder.commit;
  model->state_dtype = options.mixer.state_dtype;
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json config,
                           ReadConfig(directory, options, model->added_keys));
  RIVULET_RETURN_IF_ERROR(ReadDescription(directory, config, *model));
  RIVULET_ASSIGN_OR_RETURN(const auto files, SafetensorsCheckpoint::Open(directory));
  if (options.mixer.device != nullptr) model->files_key = PackedCacheKey(*files, TextOf(config));
  RIVULET_RETURN_IF_ERROR(WeightLoader(*model, *files, options, TextOf(config)).Load());
  model->checkpoint_bytes = files->bytes();
  model->load_seconds = SecondsSince(start);
  return model;
}

}  // namespace rivulet
