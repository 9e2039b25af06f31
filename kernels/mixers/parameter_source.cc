// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/parameter_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/widen.h"
#include "kernels/device/device.h"

namespace rivulet {
namespace {

size_t Count(const std::vector<size_t>& shape) {
  size_t count = 1;
  for (const size_t extent : shape) count *= extent;
  return count;
}

std::vector<size_t> ShapeOf(const LinearPart& part, size_t inputs) {
  if (part.rows.tensor_rows != 0) return {part.rows.tensor_rows, inputs};
  if (part.stacked != 0) return {part.stacked, part.outputs, inputs};
  return {part.outputs, inputs};
}

// The rows of `part` in order, as runs of rows that lie one behind the other.
void AppendSources(const LinearPart& part, TensorView tensor, size_t inputs, const float* bias,
                   std::vector<LinearSource>& sources) {
  const size_t row_bytes = inputs * DTypeSize(tensor.dtype);
  const RowBlocks& rows = part.rows;
  const size_t block = rows.tensor_rows == 0 ? part.outputs : rows.block;
  RIVULET_CHECK(part.outputs % block == 0, "the blocks of rows must make up the outputs");
  for (size_t i = 0; i < part.outputs / block; ++i) {
    const size_t first = part.index * part.outputs + rows.first + i * rows.stride;
    sources.push_back({tensor.data + first * row_bytes, tensor.dtype, block,
                       bias == nullptr ? nullptr : bias + i * block});
  }
}

}  // namespace

Linear WeightPacker::Pack(const std::vector<LinearSource>& sources, size_t inputs,
                          const std::string& name) {
  const bool bf16 = std::all_of(sources.begin(), sources.end(), [](const LinearSource& source) {
    return source.dtype == DType::kBFloat16;
  });
  const DType dtype = dtype_.value_or(bf16 ? DType::kBFloat16 : DType::kFloat32);
  all_bf16_ = all_bf16_ && dtype == DType::kBFloat16;
  any_float8_ = any_float8_ || dtype == DType::kFloat8;
  Linear linear = device_ == nullptr ? PackOnCpu(sources, inputs, dtype, name)
                                     : PackOnDevice(sources, inputs, dtype);
  bytes_ += linear.weight_bytes();
  return linear;
}

Linear WeightPacker::PackOnCpu(const std::vector<LinearSource>& sources, size_t inputs, DType dtype,
                               const std::string& name) {
  if (store_ == nullptr || name.empty()) return Linear::Pack(sources, inputs, dtype, pool_);
  size_t outputs = 0;
  for (const LinearSource& source : sources) outputs += source.outputs;
  const auto stored = store_->Find(name, outputs, inputs);
  if (stored.has_value() && stored->dtype == dtype) return Linear::FromPacked(*stored);
  Linear linear = Linear::Pack(sources, inputs, dtype, pool_);
  store_->Add(name, linear.packed());
  return linear;
}

Linear WeightPacker::PackRows(const std::vector<LinearSource>& sources, size_t inputs) {
  if (device_ == nullptr) return Linear::Pack(sources, inputs, DType::kFloat32, pool_);
  return PackOnDevice(sources, inputs, DType::kBFloat16);
}

Linear WeightPacker::PackOnDevice(const std::vector<LinearSource>& sources, size_t inputs,
                                  DType dtype) {
  const absl::StatusOr<DeviceLinear> packed = dtype == DType::kFloat8
                                                  ? device_->PackFloat8(sources, inputs)
                                                  : device_->Pack(sources, inputs);
  if (packed.ok()) return Linear::OnDevice(*packed, dtype);
  status_.Update(packed.status());
  // Of the right size, so that what is built of it before the status is looked at fits together.
  DeviceLinear empty{.inputs = static_cast<uint32_t>(inputs)};
  for (const LinearSource& source : sources) empty.outputs += static_cast<uint32_t>(source.outputs);
  return Linear::OnDevice(empty, dtype);
}

AlignedBuffer<float> ParameterSource::TakeVector(std::string_view name,
                                                 const std::vector<size_t>& shape) {
  return Take(name, shape, TensorUse::kVector);
}

AlignedBuffer<float> ParameterSource::Take(std::string_view name, const std::vector<size_t>& shape,
                                           TensorUse use) {
  const TensorView tensor = tensors_->Take(Full(name), shape, use);
  AlignedBuffer<float> values(Count(shape));
  WidenToFloat(tensor.data, tensor.dtype, values.size(), values.data());
  tensors_->DoneWith(tensor.data, values.size() * DTypeSize(tensor.dtype));
  return values;
}

const Linear* WeightPacker::Kept(const std::string& name) const {
  const auto found = kept_.find(name);
  return found == kept_.end() ? nullptr : &found->second;
}

// Of all that decides which numbers are where in the map.
std::string ParameterSource::NameOf(const std::vector<LinearPart>& parts) const {
  std::string name;
  for (const LinearPart& part : parts) {
    absl::StrAppend(&name, Full(part.name), " ", part.outputs);
    if (!part.bias.empty()) absl::StrAppend(&name, " + ", Full(part.bias));
    if (part.stacked != 0) absl::StrAppend(&name, " ", part.index, " of ", part.stacked);
    const RowBlocks& rows = part.rows;
    if (rows.tensor_rows != 0) {
      absl::StrAppend(&name, " rows ", rows.first, " ", rows.block, " ", rows.stride, " of ",
                      rows.tensor_rows);
    }
    name += "\n";
  }
  return name;
}

Linear ParameterSource::TakeLinear(const std::vector<LinearPart>& parts, size_t inputs) {
  if (!shares_) return PackLinear(parts, inputs);
  const std::string name = NameOf(parts);
  if (const Linear* kept = packer_->Kept(name)) return *kept;
  Linear map = PackLinear(parts, inputs);
  packer_->Keep(name, map);
  return map;
}

Linear ParameterSource::TakeRouter(const std::vector<LinearPart>& parts, size_t inputs) {
  const std::optional<DType> others = packer_->set_to();
  if (others == DType::kFloat8) packer_->set_dtype(DType::kBFloat16);
  Linear map = TakeLinear(parts, inputs);
  packer_->set_dtype(others);
  return map;
}

Linear ParameterSource::PackLinear(const std::vector<LinearPart>& parts, size_t inputs) {
  const std::string name = NameOf(parts);
  size_t outputs = 0;
  for (const LinearPart& part : parts) outputs += part.outputs;
  const TensorUse use =
      packer_->Stores(name, outputs, inputs) ? TensorUse::kPacked : TensorUse::kLinear;
  std::vector<LinearSource> sources;
  std::vector<AlignedBuffer<float>> biases;
  for (const LinearPart& part : parts) {
    const TensorView tensor = tensors_->Take(Full(part.name), ShapeOf(part, inputs), use);
    if (!part.bias.empty())
      biases.push_back(Take(part.bias, {part.outputs}, TensorUse::kLinearBias));
    AppendSources(part, tensor, inputs, part.bias.empty() ? nullptr : biases.back().data(),
                  sources);
  }
  Linear map = packer_->Pack(sources, inputs, name);
  for (const LinearSource& source : sources) {
    tensors_->DoneWith(source.data, source.outputs * inputs * DTypeSize(source.dtype));
  }
  return map;
}

}  // namespace rivulet
