// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/checkpoint_reader.h"

#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model_loader/tensor_data.h"

namespace rivulet {
namespace {

constexpr size_t kMostProblems = 20;
// Zeros stand in for what is missing. A config that asks for more of them than this is not worth
// the memory: the load ends as it does when memory runs out, with the problems found so far.
constexpr size_t kMostZeros = size_t{1} << 26;

constexpr std::string_view kIgnoredEndings[] = {".rotary_emb.inv_freq", ".rotary.inv_freq",
                                                ".attn.D"};

bool IsIgnored(std::string_view name, const std::vector<std::string>& beginnings) {
  for (const std::string_view ending : kIgnoredEndings) {
    if (name.ends_with(ending)) return true;
  }
  for (const std::string& beginning : beginnings) {
    if (name.starts_with(beginning)) return true;
  }
  return false;
}

size_t Count(const std::vector<size_t>& shape) {
  size_t count = 1;
  for (const size_t size : shape) {
    if (__builtin_mul_overflow(count, size, &count)) throw std::bad_alloc();
  }
  return count;
}

std::vector<size_t> ShapeOf(const LinearPart& part, size_t inputs) {
  if (part.stacked == 0) return {part.outputs, inputs};
  return {part.stacked, part.outputs, inputs};
}

// "[3, 5]" of element `index`.
std::string PlaceOf(size_t index, const std::vector<size_t>& shape) {
  std::vector<size_t> place(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    place[i] = index % shape[i];
    index /= shape[i];
  }
  return ShapeString(place);
}

// Empty when all is well.
std::string ProblemWith(const StoredTensor* tensor, const std::vector<size_t>& shape) {
  if (tensor == nullptr) return absl::StrCat("is missing, expected ", ShapeString(shape));
  if (tensor->shape != shape) {
    return absl::StrCat("has shape ", ShapeString(tensor->shape), ", expected ",
                        ShapeString(shape));
  }
  const std::optional<DType> dtype = WeightType(tensor->dtype);
  if (!dtype.has_value()) {
    return absl::StrCat("has dtype ", tensor->dtype, ", expected F32, F16 or BF16");
  }
  const auto wrong = FirstNotFinite(tensor->data, *dtype, tensor->elements);
  if (!wrong.has_value()) return "";
  const bool nan = std::isnan(NumberAt(tensor->data, *dtype, *wrong));
  return absl::StrCat("is ", nan ? "NaN" : "infinite", " at ", PlaceOf(*wrong, shape),
                      ", expected finite numbers");
}

}  // namespace

std::vector<size_t> CheckpointReader::Shape(std::string_view name) const {
  const StoredTensor* tensor = checkpoint_.Find(name);
  return tensor == nullptr ? std::vector<size_t>() : tensor->shape;
}

AlignedBuffer<float> CheckpointReader::TakeVector(const std::string& name,
                                                  const std::vector<size_t>& shape) {
  const StoredTensor* tensor = Take(name, shape);
  if (tensor == nullptr) return Zeros(Count(shape));
  AlignedBuffer<float> values(tensor->elements);
  WidenToFloat(tensor->data, *WeightType(tensor->dtype), tensor->elements, values.data());
  return values;
}

Linear CheckpointReader::TakeLinear(const std::vector<LinearPart>& parts, size_t inputs) {
  std::vector<LinearSource> sources;
  std::vector<const StoredTensor*> tensors;
  std::vector<AlignedBuffer<float>> kept;  // zeros and biases, until they are packed
  for (const LinearPart& part : parts) {
    const StoredTensor* tensor = Take(part.name, ShapeOf(part, inputs));
    LinearSource source;
    source.outputs = part.outputs;
    if (tensor != nullptr) {
      source.dtype = *WeightType(tensor->dtype);
      source.data = tensor->data + part.index * part.outputs * inputs * DTypeSize(source.dtype);
    } else {
      kept.push_back(Zeros(Count({part.outputs, inputs})));
      source.data = kept.back().data();
    }
    if (!part.bias.empty()) {
      kept.push_back(TakeVector(part.bias, {part.outputs}));
      source.bias = kept.back().data();
    }
    tensors.push_back(tensor);
    sources.push_back(source);
  }
  const DType as_stored = AllBFloat16(tensors) ? DType::kBFloat16 : DType::kFloat32;
  const DType dtype = weight_dtype_.value_or(as_stored);
  all_bf16_ = all_bf16_ && dtype == DType::kBFloat16;
  return Linear::Pack(sources, inputs, dtype);
}

EmbeddingTable CheckpointReader::TakeTable(const std::string& name, size_t vocab, size_t width,
                                           AlignedBuffer<std::byte>& rows) {
  const StoredTensor* tensor = Take(name, {vocab, width});
  if (tensor == nullptr) return {};
  const DType dtype = *WeightType(tensor->dtype);
  rows = AlignedBuffer<std::byte>(vocab * width * DTypeSize(dtype));
  std::memcpy(rows.data(), tensor->data, rows.size());
  return {rows.data(), dtype, vocab, width};
}

void CheckpointReader::Ignore(const std::string& name, const std::vector<size_t>& shape) {
  const StoredTensor* tensor = checkpoint_.Find(name);
  if (tensor != nullptr && tensor->shape == shape) taken_.emplace(name, true);
}

absl::Status CheckpointReader::Finish(const std::vector<std::string>& ignored) {
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    if (taken_.contains(name) || IsIgnored(name, ignored)) continue;
    AddProblem(name, absl::StrCat("is extra: the model that config.json describes has no such "
                                  "tensor ",
                                  tensor.dtype, " ", ShapeString(tensor.shape)));
  }
  return Problems();
}

absl::Status CheckpointReader::Problems() const {
  if (problem_count_ == 0) return absl::OkStatus();
  std::string message =
      absl::StrCat("the weights do not fit config.json: ", absl::StrJoin(problems_, "; "));
  if (problem_count_ > problems_.size()) {
    absl::StrAppend(&message, "; and ", problem_count_ - problems_.size(), " more");
  }
  return absl::InvalidArgumentError(message);
}

const StoredTensor* CheckpointReader::Take(const std::string& name,
                                           const std::vector<size_t>& shape) {
  const StoredTensor* tensor = checkpoint_.Find(name);
  const auto [taken, first] = taken_.emplace(name, false);
  if (taken->second && tensor->shape == shape) return tensor;
  const std::string problem = ProblemWith(tensor, shape);
  if (!problem.empty()) {
    const bool tie = tensor == nullptr && name == "lm_head.weight";
    if (first) AddProblem(name, problem + (tie ? " (or tie_word_embeddings: true)" : ""));
    return nullptr;
  }
  taken->second = true;
  parameters_ += tensor->elements;
  bytes_taken_ += tensor->bytes;
  return tensor;
}

bool CheckpointReader::AllBFloat16(const std::vector<const StoredTensor*>& tensors) const {
  for (const StoredTensor* tensor : tensors) {
    if (tensor == nullptr || tensor->dtype != "BF16") return false;
  }
  return true;
}

AlignedBuffer<float> CheckpointReader::Zeros(size_t count) {
  if (count > kMostZeros - zeros_) throw std::bad_alloc();
  zeros_ += count;
  return AlignedBuffer<float>(count);
}

void CheckpointReader::AddProblem(const std::string& name, const std::string& problem) {
  ++problem_count_;
  if (problems_.size() < kMostProblems) problems_.push_back(absl::StrCat(name, " ", problem));
}

Linear PrefixedParameters::TakeLinear(const std::vector<LinearPart>& parts, size_t inputs) {
  std::vector<LinearPart> full = parts;
  for (LinearPart& part : full) {
    part.name = Full(part.name);
    if (!part.bias.empty()) part.bias = Full(part.bias);
  }
  return reader_.TakeLinear(full, inputs);
}

}  // namespace rivulet
