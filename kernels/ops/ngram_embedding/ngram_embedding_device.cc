// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/check.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/ngram_operations.h"
#include "kernels/ops/ngram_embedding/ngram_embedding.h"

namespace rivulet {
namespace {

static_assert(kMostNgram <= kMostDeviceNgram);

// The convolution of x with SiLU, [T, channels].
FloatMatrix Convolved(const DeviceStep& step, const ShortConvolution& convolution, FloatMatrix x) {
  const FloatMatrix y = step.workspace->Take(x.rows, x.columns);
  const auto columns = static_cast<uint32_t>(x.columns);
  PrepareCall call;
  call.rows = step.rows;
  call.slots = step.slots;
  call.convolution = convolution.OnDevice(*step.device, x);
  call.parts[0] = {.x = x.data,
                   .x_stride = static_cast<uint32_t>(x.stride),
                   .y = y.data,
                   .y_stride = static_cast<uint32_t>(y.stride),
                   .width = columns,
                   .padded = columns,
                   .channel = 0};
  call.part_count = 1;
  step.device->Prepare(call);
  return y;
}

}  // namespace

// On a device the ids are stored as words, also where its rows are bf16.
void NgramEmbedding::AddDevicePlanes() {
  hash_numbers_ = hash_.Numbers();
  device_before_ =
      layout_.Add(StatePart::kBase, "ids.before", DType::kFloat32, {hash_.ngram() - 1});
  device_tail_ =
      layout_.Add(StatePart::kTail, "ids.tail", DType::kFloat32, {layout_.fold_interval()});
}

Operand NgramEmbedding::EnqueueRows(const DeviceStep& step, const uint32_t* ids,
                                    const uint32_t* last_tokens) const {
  const Operand y = step.workspace->TakeOperand(step.rows.tokens, form_.inputs());
  const auto* const words = reinterpret_cast<const float*>(hash_numbers_.data());
  const float* const hash = step.device->Constant({words, 2 * hash_numbers_.size()});
  step.device->NgramRows({.rows = step.rows,
                          .slots = step.slots,
                          .ids = ids,
                          .last_tokens = last_tokens,
                          .ngram = static_cast<uint32_t>(hash_.ngram()),
                          .heads = static_cast<uint32_t>(hash_.heads()),
                          .hash = reinterpret_cast<const uint64_t*>(hash),
                          .end_of_text = form_.end_of_text,
                          .table = parts_.table.on_device(),
                          .before_offset = device_before_,
                          .tail_offset = device_tail_,
                          .y = y});
  return y;
}

void NgramEmbedding::Enqueue(const DeviceStep& step, const uint32_t* ids,
                             const uint32_t* last_tokens, FloatMatrix streams) const {
  const auto take = [&](size_t columns) { return step.workspace->Take(streams.rows, columns); };
  const auto constant = [&](const AlignedBuffer<float>& numbers) {
    return step.device->Constant({numbers.data(), numbers.size()});
  };
  const size_t all = streams.columns;
  const FloatMatrix both = take(all + hidden_), gated = take(all), normed = take(all);
  parts_.keys.Enqueue(*step.device, EnqueueRows(step, ids, last_tokens), both);
  step.device->NgramGate({.streams = static_cast<uint32_t>(form_.streams),
                          .keys = both.Columns(0, all),
                          .value = both.Columns(all, hidden_),
                          .x = streams,
                          .key_weight = constant(parts_.key_norm),
                          .query_weight = constant(parts_.query_norm),
                          .weight = constant(parts_.convolution_norm),
                          .eps = form_.norm_eps,
                          .gated = gated,
                          .normed = normed});
  const FloatMatrix convolved = Convolved(step, convolution_, normed);
  for (size_t first = 0; first < all; first += hidden_) {
    for (const FloatMatrix& update : {gated, convolved}) {
      step.device->AddNorm(
          {.x = streams.Columns(first, hidden_), .update = update.Columns(first, hidden_)});
    }
  }
}

}  // namespace rivulet
