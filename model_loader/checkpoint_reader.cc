// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/checkpoint_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/widen.h"

namespace rivulet {
namespace {

constexpr size_t kMostProblems = 20;
// Zeros replace what is missing. A config that asks for more of them than this ends the load as
// running out of memory does, with the problems found so far.
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

constexpr size_t kPiece = 1024;

// In all three formats a number is NaN or infinite when every bit of its exponent is set.
template <typename Bits>
bool HasNotFinite(const Bits* bits, size_t count, Bits exponent) {
  Bits found = 0;
  for (size_t i = 0; i < count; ++i) found |= (bits[i] & exponent) == exponent;
  return found != 0;
}

template <typename Bits>
std::optional<size_t> FirstWithFullExponent(const std::byte* data, size_t count, Bits exponent) {
  Bits piece[kPiece];
  for (size_t start = 0; start < count; start += kPiece) {
    const size_t size = std::min(kPiece, count - start);
    std::memcpy(piece, data + start * sizeof(Bits), size * sizeof(Bits));
    if (!HasNotFinite(piece, size, exponent)) continue;
    size_t i = 0;
    while ((piece[i] & exponent) != exponent) ++i;
    return start + i;
  }
  return std::nullopt;
}

// The index of the first NaN or infinity of data [count], in one pass at the speed of memory.
std::optional<size_t> FirstNotFinite(const std::byte* data, DType dtype, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return FirstWithFullExponent<uint32_t>(data, count, 0x7f800000u);
    case DType::kBFloat16:
      return FirstWithFullExponent<uint16_t>(data, count, 0x7f80u);
    case DType::kFloat16:
      return FirstWithFullExponent<uint16_t>(data, count, 0x7c00u);
    case DType::kFloat8:
      break;  // no file has it
  }
  return std::nullopt;
}

size_t Count(const std::vector<size_t>& shape) {
  size_t count = 1;
  for (const size_t size : shape) {
    if (__builtin_mul_overflow(count, size, &count)) throw std::bad_alloc();
  }
  return count;
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

const std::byte* BytesOf(const StoredTensor& tensor) {
  return reinterpret_cast<const std::byte*>(tensor.data);
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
  const auto wrong = FirstNotFinite(BytesOf(*tensor), *dtype, tensor->elements);
  if (!wrong.has_value()) return "";
  const bool nan = std::isnan(NumberAt(BytesOf(*tensor), *dtype, *wrong));
  return absl::StrCat("is ", nan ? "NaN" : "infinite", " at ", PlaceOf(*wrong, shape),
                      ", expected finite numbers");
}

}  // namespace

void CheckpointReader::Rename(const std::string& from, const std::string& to) {
  renamed_from_ = from;
  renamed_to_ = to;
}

std::string CheckpointReader::InFile(const std::string& name) const {
  if (renamed_from_.empty() || !name.starts_with(renamed_from_)) return name;
  return renamed_to_ + name.substr(renamed_from_.size());
}

size_t CheckpointReader::CountBeginning(const std::string& prefix) const {
  size_t count = 0;
  for (const auto& [name, tensor] : checkpoint_.tensors())
    count += name.starts_with(prefix) ? 1 : 0;
  return count;
}

std::vector<size_t> CheckpointReader::Shape(const std::string& name) const {
  const StoredTensor* tensor = Stored(name);
  return tensor == nullptr ? std::vector<size_t>() : tensor->shape;
}

TensorView CheckpointReader::Take(const std::string& name, const std::vector<size_t>& shape,
                                  TensorUse /*use*/) {
  const StoredTensor* tensor = Find(name, shape);
  if (tensor == nullptr) return Zeros(shape);
  return {BytesOf(*tensor), *WeightType(tensor->dtype)};
}

EmbeddingTable CheckpointReader::TakeTable(const std::string& name, size_t vocab, size_t width,
                                           AlignedBuffer<std::byte>& rows) {
  const StoredTensor* tensor = Find(name, {vocab, width});
  if (tensor == nullptr) return {};
  const DType dtype = *WeightType(tensor->dtype);
  rows = AlignedBuffer<std::byte>(vocab * width * DTypeSize(dtype));
  std::memcpy(rows.data(), tensor->data, rows.size());
  return {rows.data(), dtype, vocab, width};
}

void CheckpointReader::Ignore(const std::string& name, const std::vector<size_t>& shape) {
  const StoredTensor* tensor = Stored(name);
  if (tensor != nullptr && tensor->shape == shape) taken_.emplace(InFile(name), true);
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

const StoredTensor* CheckpointReader::Find(const std::string& asked,
                                           const std::vector<size_t>& shape) {
  const std::string name = InFile(asked);
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

TensorView CheckpointReader::Zeros(const std::vector<size_t>& shape) {
  const size_t count = Count(shape);
  if (count > kMostZeros - zero_count_) throw std::bad_alloc();
  zero_count_ += count;
  zeros_.emplace_back(count);
  return {reinterpret_cast<const std::byte*>(zeros_.back().data()), DType::kFloat32};
}

void CheckpointReader::AddProblem(const std::string& name, const std::string& problem) {
  ++problem_count_;
  if (problems_.size() < kMostProblems) problems_.push_back(absl::StrCat(name, " ", problem));
}

}  // namespace rivulet
