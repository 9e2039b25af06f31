// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/checkpoint_reader.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/parallel.h"
#include "kernels/base/widen.h"
#include "model_loader/finite_numbers.h"

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

// What one thread checks or copies at a time, and what all do before the pages of a large tensor
// are given up. The disk is kept at least one stretch ahead.
constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kStretch = 16 * kPiece;

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

std::optional<DType> CheckpointReader::Type(const std::string& name) const {
  const StoredTensor* tensor = Stored(name);
  return tensor == nullptr ? std::nullopt : WeightType(tensor->dtype);
}

TensorView CheckpointReader::Take(const std::string& name, const std::vector<size_t>& shape,
                                  TensorUse use) {
  const StoredTensor* tensor = Find(name, shape, use);
  if (tensor == nullptr) return Zeros(shape);
  return {BytesOf(*tensor), *WeightType(tensor->dtype)};
}

EmbeddingTable CheckpointReader::TakeTable(const std::string& name, size_t vocab, size_t width,
                                           AlignedBuffer<std::byte>& rows) {
  const StoredTensor* tensor = Find(name, {vocab, width}, TensorUse::kLinear);
  if (tensor == nullptr) return {};
  const DType dtype = *WeightType(tensor->dtype);
  rows = AlignedBuffer<std::byte>(vocab * width * DTypeSize(dtype));
  ForEachPiece(*tensor, [&](size_t first, size_t bytes) {
    std::memcpy(rows.data() + first, tensor->data + first, bytes);
  });
  DoneWith(tensor->data, tensor->bytes);
  return {rows.data(), dtype, vocab, width};
}

void CheckpointReader::DoneWith(const void* data, size_t bytes) {
  checkpoint_.GiveUp(static_cast<const uint8_t*>(data), bytes);
}

void CheckpointReader::Ignore(const std::string& name, const std::vector<size_t>& shape) {
  const StoredTensor* tensor = Stored(name);
  if (tensor != nullptr && tensor->shape == shape) taken_.emplace(InFile(name), Taken::kSound);
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

void CheckpointReader::ForEachPiece(const StoredTensor& tensor,
                                    absl::FunctionRef<void(size_t, size_t)> piece) {
  for (size_t from = 0; from < tensor.bytes; from += kStretch) {
    const size_t bytes = std::min(kStretch, tensor.bytes - from);
    ReadAhead(tensor.data + from, tensor.bytes - from);
    ForEachTask(pool_, (bytes + kPiece - 1) / kPiece,
                [&](size_t i) { piece(from + i * kPiece, std::min(kPiece, bytes - i * kPiece)); });
    if (tensor.bytes > kStretch) DoneWith(tensor.data + from, bytes);
  }
}

// Tensors that are asked for in the order of the file are read as one stream. After a jump only the
// tensor itself is read, since the tensor after it is not known.
void CheckpointReader::ReadAhead(const uint8_t* at, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  const bool goes_on = address >= ahead_from_ && address <= ahead_to_;
  if (goes_on && address + 2 * kStretch <= ahead_to_) return;
  const size_t length = goes_on ? 4 * kStretch : std::min(bytes, 4 * kStretch);
  checkpoint_.ReadAhead(at, length);
  ahead_from_ = address;
  ahead_to_ = address + length;
}

std::optional<size_t> CheckpointReader::FirstNotFinite(const StoredTensor& tensor, DType dtype) {
  const size_t size = DTypeSize(dtype);
  std::atomic<size_t> least = tensor.elements;
  ForEachPiece(tensor, [&](size_t first, size_t bytes) {
    const auto found = rivulet::FirstNotFinite(BytesOf(tensor) + first, dtype, bytes / size);
    if (!found.has_value()) return;
    const size_t index = first / size + *found;
    size_t known = least;
    while (index < known && !least.compare_exchange_weak(known, index)) continue;
  });
  if (least == tensor.elements) return std::nullopt;
  return least;
}

std::string CheckpointReader::ProblemWith(const StoredTensor* tensor,
                                          const std::vector<size_t>& shape, TensorUse use) {
  if (tensor == nullptr) return absl::StrCat("is missing, expected ", ShapeString(shape));
  if (tensor->shape != shape) {
    return absl::StrCat("has shape ", ShapeString(tensor->shape), ", expected ",
                        ShapeString(shape));
  }
  const std::optional<DType> dtype = WeightType(tensor->dtype);
  if (!dtype.has_value()) {
    return absl::StrCat("has dtype ", tensor->dtype, ", expected F32, F16 or BF16");
  }
  if (use == TensorUse::kPacked) return "";
  const auto wrong = FirstNotFinite(*tensor, *dtype);
  if (!wrong.has_value()) return "";
  const bool nan = std::isnan(NumberAt(BytesOf(*tensor), *dtype, *wrong));
  return absl::StrCat("is ", nan ? "NaN" : "infinite", " at ", PlaceOf(*wrong, shape),
                      ", expected finite numbers");
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
                                           const std::vector<size_t>& shape, TensorUse use) {
  const std::string name = InFile(asked);
  const StoredTensor* tensor = checkpoint_.Find(name);
  const auto [taken, first] = taken_.emplace(name, Taken::kWrong);
  const bool enough = taken->second == Taken::kSound ||
                      (taken->second == Taken::kUnread && use == TensorUse::kPacked);
  if (enough && tensor->shape == shape) return tensor;
  const std::string problem = ProblemWith(tensor, shape, use);
  if (!problem.empty()) {
    const bool tie = tensor == nullptr && name == "lm_head.weight";
    if (first || taken->second == Taken::kUnread) {
      AddProblem(name, problem + (tie ? " (or tie_word_embeddings: true)" : ""));
    }
    if (taken->second == Taken::kUnread) taken->second = Taken::kWrong;
    return nullptr;
  }
  if (taken->second == Taken::kWrong) {
    parameters_ += tensor->elements;
    bytes_taken_ += tensor->bytes;
  }
  taken->second = use == TensorUse::kPacked ? Taken::kUnread : Taken::kSound;
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
