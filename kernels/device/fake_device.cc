// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/fake_device.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/float8.h"
#include "kernels/base/status.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/fake_operations.h"

namespace rivulet {
namespace {

using namespace fake;

// --- row preparation ---------------------------------------------------------------------------

float* ConvolutionTail(const PrepareCall& call, const DeviceSegment& segment, uint64_t place) {
  const DeviceConvolution& c = call.convolution;
  auto* tail = reinterpret_cast<float*>(call.slots.tails + segment.tail * call.slots.tail_stride +
                                        c.tail_offset);
  return tail + place * c.weight_stride;
}

float* ConvolutionBefore(const PrepareCall& call, uint32_t slot) {
  return reinterpret_cast<float*>(call.slots.bases + slot * call.slots.base_stride +
                                  call.convolution.before_offset);
}

// result [channels] of one token, whose input is kept.
void Convolve(const PrepareCall& call, const DeviceSegment& segment, uint32_t token,
              uint64_t position, std::vector<float>& result) {
  const DeviceConvolution& c = call.convolution;
  const uint64_t place = position % kChunk;
  const float* before = ConvolutionBefore(call, BaseOf(call.rows, segment, position));
  float* row = ConvolutionTail(call, segment, place);
  std::copy_n(c.x + size_t{token} * c.x_stride, c.channels, row);
  for (uint32_t i = 0; call.factors != nullptr && i < c.channels; ++i) {
    row[i] *= call.factors[token];
  }
  for (uint32_t i = 0; c.gate != nullptr && i < c.channels; ++i) {
    row[i] *= c.gate[size_t{token} * c.gate_stride + i];
  }
  for (uint32_t channel = 0; channel < c.channels; ++channel) {
    float sum = c.bias[channel];
    for (uint32_t j = 0; j < c.window; ++j) {
      const uint32_t back = c.window - 1 - j;
      float x = 0.0f;
      if (back <= place) {
        x = ConvolutionTail(call, segment, place - back)[channel];
      } else if (position >= kChunk) {
        x = before[(c.window - 1 + place - back) * c.weight_stride + channel];
      }
      sum = std::fma(c.weight[j * c.weight_stride + channel], x, sum);
    }
    result[channel] = c.silu ? Function(Activation::kSilu, sum) : sum;
  }
  if (place + 1 != kChunk) return;
  float* const after = ConvolutionBefore(call, BaseAfter(call.rows, segment, token));
  for (uint32_t j = 0; j + 1 < c.window; ++j) {
    std::copy_n(ConvolutionTail(call, segment, kChunk - c.window + 1 + j), c.channels,
                after + j * c.weight_stride);
  }
}

void PreparePart(const PrepareCall& call, const PreparedPart& part, uint32_t token,
                 const std::vector<float>& convolved) {
  const float* x = part.x + size_t{token} * part.x_stride;
  const float factor = call.factors == nullptr || part.channel >= 0 ? 1.0f : call.factors[token];
  if (part.channel >= 0) x = convolved.data() + part.channel;
  const uint32_t stride = part.head_stride == 0 ? part.width : part.head_stride;
  for (uint32_t head = 0; head < part.heads; ++head) {
    float* y = part.y + size_t{token} * part.y_stride + head * part.padded;
    float sum = 0.0f;
    for (uint32_t i = 0; i < part.width; ++i) {
      const uint32_t column = head * part.width + i;
      float value = factor * x[head * stride + i] *
                    (part.multiplier == nullptr ? 1.0f : part.multiplier[column]);
      if (part.bias != nullptr) value += part.bias[column];
      value = Function(part.f, value) * (part.rate == nullptr ? 1.0f : part.rate[column]);
      y[i] = std::clamp(value, part.low, part.high);
      sum += AddsUp(part.norm) ? y[i] : y[i] * y[i];
    }
    float scale = part.scale;
    if (part.norm == DeviceHeadNorm::kL2) scale /= std::sqrt(sum + part.norm_eps);
    if (part.norm == DeviceHeadNorm::kSumOfPhi) scale /= sum + 1e-4f;
    if (part.norm == DeviceHeadNorm::kSum) scale = sum == 0.0f ? 0.0f : scale / sum;
    if (part.norm == DeviceHeadNorm::kRms) {
      scale /= std::sqrt(sum / static_cast<float>(part.width) + part.norm_eps);
    }
    for (uint32_t i = 0; i < part.width; ++i) {
      y[i] *= scale * (part.norm_weight == nullptr ? 1.0f : part.norm_weight[i]);
    }
    std::fill(y + part.width, y + part.padded, 0.0f);
  }
}

// --- recurrence --------------------------------------------------------------------------------

// One unit and one token of a sum, with its state in plain row-major order.
class UnitToken {
 public:
  UnitToken(const RecurCall& call, const DeviceSegment& segment, uint32_t unit, uint32_t token,
            uint64_t position)
      : c_(call), segment_(segment), unit_(unit), token_(token), position_(position) {}

  void Run() {
    AppendKeyAndDecay();
    const bool fresh = position_ < kChunk;
    state_.assign(size_t{c_.padded_value} * c_.padded_key, 0.0f);
    normaliser_.assign(c_.padded_key, 0.0f);
    if (!fresh) Load(BaseOf(c_.rows, segment_, position_));
    AppendValue();
    for (uint32_t head = 0; head < c_.unit_heads; ++head) Read(head);
    if (c_.gated.gate != nullptr) Gate();
    if (place() + 1 == kChunk) Fold();
  }

 private:
  uint64_t place() const { return position_ % kChunk; }
  float* Tail(size_t offset, size_t index) const {
    return reinterpret_cast<float*>(c_.slots.tails + segment_.tail * c_.slots.tail_stride +
                                    offset) +
           index;
  }
  float* Key(uint64_t s) const {
    return Tail(c_.key_offset, (unit_ / c_.units_per_key * kChunk + s) * c_.padded_key);
  }
  float* Value(uint64_t s) const {
    return Tail(c_.value_offset, (unit_ / c_.units_per_value * kChunk + s) * c_.padded_value);
  }
  // Where the log decays of row s are kept; one, or one for each key channel.
  float* KeptDecays(uint64_t s) const {
    if (c_.decay == Decay::kScalar) return Tail(c_.decay_offset, unit_ * kChunk + s);
    return Tail(c_.decay_offset, (unit_ / c_.units_per_decay * kChunk + s) * c_.padded_key);
  }
  // Cumulative, of key channel d.
  float DecayAt(uint64_t s, uint32_t d) const {
    if (c_.decay == Decay::kNone) return 0.0f;
    if (c_.constant != nullptr) return c_.constant[unit_ * kChunk + s];
    return KeptDecays(s)[c_.decay == Decay::kScalar ? 0 : d];
  }
  const float* InputKey() const {
    return c_.k + size_t{token_} * c_.k_stride + size_t{unit_ / c_.units_per_key} * c_.padded_key;
  }
  const float* InputValue() const {
    return c_.v + size_t{token_} * c_.v_stride +
           size_t{unit_ / c_.units_per_value} * c_.v_head_stride;
  }

  void AppendKeyAndDecay() {
    std::copy_n(InputKey(), c_.padded_key, Key(place()));
    if (c_.decay == Decay::kNone || c_.constant != nullptr) return;
    const bool channel = c_.decay == Decay::kChannel;
    const float* g = c_.g + size_t{token_} * c_.g_stride;
    for (uint32_t d = 0; d < (channel ? c_.padded_key : 1); ++d) {
      const float own = channel ? g[unit_ / c_.units_per_decay * c_.padded_key + d]
                                : g[unit_] * (c_.rate == nullptr ? 1.0f : c_.rate[unit_]);
      KeptDecays(place())[d] = own + (place() == 0 ? 0.0f : DecayAt(place() - 1, d));
    }
  }

  void AppendValue() {
    float* row = Value(place());
    for (uint32_t e = 0; e < c_.padded_value; ++e) {
      float v = e < c_.value_dim ? InputValue()[e] : 0.0f;
      if (c_.times_step) v *= c_.g[size_t{token_} * c_.g_stride + unit_];
      if (c_.delta) {
        if (e == 0) Score(Key(place()), place());
        v -= Answer(Key(place()), e);
        v *= c_.beta[size_t{token_} * c_.beta_stride + unit_];
      }
      row[e] = v;
    }
  }

  // Makes `scores_` of the query and the first `rows` rows of the tail, with their decays.
  void Score(const float* query, uint64_t rows) {
    scores_.assign(rows, 0.0f);
    for (uint64_t s = 0; s < rows; ++s) {
      for (uint32_t d = 0; d < c_.padded_key; ++d) {
        scores_[s] += query[d] * Key(s)[d] * std::exp(DecayAt(place(), d) - DecayAt(s, d));
      }
    }
  }

  // query · value column e of the sum over the base and the rows with scores.
  float Answer(const float* query, uint32_t e) const {
    float sum = FromBase(query, state_.data() + size_t{e} * c_.padded_key);
    for (uint64_t s = 0; s < scores_.size(); ++s) sum += scores_[s] * Value(s)[e];
    return sum;
  }

  float FromBase(const float* query, const float* column) const {
    float sum = 0.0f;
    for (uint32_t d = 0; d < c_.padded_key; ++d) {
      const float decay = c_.decay == Decay::kNone ? 1.0f : std::exp(DecayAt(place(), d));
      sum += query[d] * decay * column[d];
    }
    return sum;
  }

  float Denominator(const float* query) const {
    float n = FromBase(query, normaliser_.data()) + c_.denominator_eps;
    for (const float score : scores_) n += score;
    return n;
  }

  void Read(uint32_t head) {
    const uint32_t index =
        c_.query_per_head ? unit_ * c_.unit_heads + head : unit_ / c_.units_per_key;
    const float* query = c_.q + size_t{token_} * c_.q_stride + size_t{index} * c_.padded_key;
    float* out = c_.out.data + token_ * c_.out.stride +
                 size_t{unit_ * c_.unit_heads + head} * c_.padded_value;
    Score(query, place() + 1);
    const float n = c_.normaliser ? Denominator(query) : 1.0f;
    for (uint32_t e = 0; e < c_.padded_value; ++e) {
      out[e] = Answer(query, e);
      if (c_.normaliser) out[e] = c_.reciprocal ? out[e] * (1.0f / n) : out[e] / n;
      if (c_.skip != nullptr && e < c_.value_dim) {
        out[e] += c_.skip[unit_ * c_.value_dim + e] * InputValue()[e];
      }
    }
  }

  void Gate() const {
    const GatedOutputs& to = c_.gated;
    const size_t first = size_t{unit_} * c_.value_dim;
    const float* out = c_.out.data + token_ * c_.out.stride + first;
    const float* gate = to.gate + size_t{token_} * to.gate_stride + first;
    float* squares = to.squares + size_t{token_} * to.squares_stride + first / to.kSquares;
    const float factor = to.gate_factors == nullptr ? 1.0f : to.gate_factors[token_];
    for (uint32_t e = 0; e < c_.value_dim; ++e) {
      const float x = out[e] * Function(Activation::kSilu, factor * gate[e]);
      StoreOperand(to.y, token_, first + e, to.weight[first + e] * x);
      float& sum = squares[e / to.kSquares];
      sum = x * x + (e % to.kSquares == 0 ? 0.0f : sum);
    }
  }

  std::byte* Matrix(uint32_t slot) const {
    return c_.slots.bases + slot * c_.slots.base_stride + c_.state_offset +
           unit_ * state_.size() * (c_.bf16_state ? 2 : 4);
  }
  // The first of the unit's copies.
  float* Normaliser(uint32_t slot) const {
    return reinterpret_cast<float*>(c_.slots.bases + slot * c_.slots.base_stride +
                                    c_.normaliser_offset) +
           size_t{unit_} * NormaliserCopies(c_.padded_value) * c_.padded_key;
  }
  void Load(uint32_t slot) {
    const DType dtype = c_.bf16_state ? DType::kBFloat16 : DType::kFloat32;
    for (size_t i = 0; i < state_.size(); ++i) state_[i] = NumberAt(Matrix(slot), dtype, i);
    if (c_.normaliser) std::copy_n(Normaliser(slot), c_.padded_key, normaliser_.data());
  }

  void FoldNormaliser() {
    for (uint32_t d = 0; d < c_.padded_key; ++d) {
      const float end = DecayAt(kChunk - 1, d);
      float& z = normaliser_[d];
      z *= std::exp(end);
      for (uint64_t s = 0; s < kChunk; ++s) z += Key(s)[d] * std::exp(end - DecayAt(s, d));
    }
    std::copy_n(normaliser_.data(), c_.padded_key,
                Normaliser(BaseAfter(c_.rows, segment_, token_)));
  }

  void Fold() {
    if (c_.normaliser) FoldNormaliser();
    for (uint32_t e = 0; e < c_.padded_value; ++e) {
      for (uint32_t d = 0; d < c_.padded_key; ++d) {
        const float end = DecayAt(kChunk - 1, d);
        float& x = state_[e * c_.padded_key + d];
        x *= std::exp(end);
        for (uint64_t s = 0; s < kChunk; ++s) {
          x += Key(s)[d] * std::exp(end - DecayAt(s, d)) * Value(s)[e];
        }
      }
    }
    std::byte* const to = Matrix(BaseAfter(c_.rows, segment_, token_));
    const size_t bytes = c_.bf16_state ? 2 : 4;
    for (size_t i = 0; i < state_.size(); ++i) {
      fake::StoreNumber(c_.bf16_state, state_[i], to + bytes * i);
    }
  }

  const RecurCall& c_;
  const DeviceSegment& segment_;
  const uint32_t unit_, token_;
  const uint64_t position_;
  std::vector<float> state_;       // [Ep, Dp]
  std::vector<float> normaliser_;  // [Dp]
  std::vector<float> scores_;      // [rows]
};

}  // namespace

absl::StatusOr<void*> FakeDevice::Allocate(size_t bytes) {
  ++allocations_;
  if (bytes > free_bytes()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("fake has ", free_bytes(), " bytes free, ", bytes, " are needed"));
  }
  void* const memory = NewMemory(bytes);
  sizes_[memory] = bytes;
  allocated_ += bytes;
  return memory;
}

void FakeDevice::Free(void* memory) {
  RunUntil(called_);
  allocated_ -= sizes_[memory];
  sizes_.erase(memory);
  memory_.erase(memory);
}

void* FakeDevice::NewMemory(size_t bytes) {
  // calloc does not touch it: an engine has hundreds of megabytes, of which a test uses few.
  Memory memory(std::calloc(bytes + 1, 1));
  RIVULET_CHECK(memory != nullptr, "no memory for a fake device");
  void* const result = memory.get();
  memory_[result] = std::move(memory);
  return result;
}

void FakeDevice::FreePinned(void* memory) {
  RunUntil(called_);
  memory_.erase(memory);
}

absl::Status FakeDevice::Wait(size_t event) {
  if (on_wait && error_.ok()) error_ = on_wait();
  if (error_.ok()) RunUntil(events_[event]);
  return error_;
}

absl::Status FakeDevice::Synchronize() {
  if (error_.ok()) RunUntil(called_);
  return error_;
}

absl::Status FakeDevice::Upload(void* to, const void* from, size_t bytes) {
  RunUntil(called_);
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

void FakeDevice::Copy(void* to, const void* from, size_t bytes) {
  Do([=] { std::memcpy(to, from, bytes); });
}

void FakeDevice::CopyAhead(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void FakeDevice::Do(Work work) {
  if (recording_) {
    recorded_.push_back(std::move(work));
  } else if (late) {
    waiting_.push_back(std::move(work));
    ++called_;
  } else {
    work();
  }
}

void FakeDevice::RunUntil(uint64_t called) {
  while (called_ - waiting_.size() < called) {
    const Work work = std::move(waiting_.front());
    waiting_.pop_front();
    work();
  }
}

absl::StatusOr<size_t> FakeDevice::EndRecording() {
  recording_ = false;
  recordings_.push_back(std::exchange(recorded_, {}));
  return recordings_.size() - 1;
}

void FakeDevice::Replay(size_t recording) {
  ++replays_;
  for (const Work& work : recordings_[recording]) Do([&work] { work(); });
}

std::unique_ptr<FakeDevice> LateFakeDevice() {
  auto device = std::make_unique<FakeDevice>();
  device->late = true;
  return device;
}

absl::StatusOr<DeviceLinear> FakeDevice::Pack(const std::vector<LinearSource>& sources,
                                              size_t inputs) {
  DeviceLinear linear;
  linear.inputs = linear.stride = static_cast<uint32_t>(inputs);
  for (const LinearSource& source : sources) {
    linear.outputs += static_cast<uint32_t>(source.outputs);
  }
  const size_t numbers = size_t{linear.outputs} * inputs;
  RIVULET_ASSIGN_OR_RETURN(void* high_memory, Allocate(numbers * 2));
  RIVULET_ASSIGN_OR_RETURN(void* low_memory, Allocate(numbers * 2));
  RIVULET_ASSIGN_OR_RETURN(void* bias_memory, Allocate(linear.outputs * sizeof(float)));
  auto* high = static_cast<uint16_t*>(high_memory);
  auto* low = static_cast<uint16_t*>(low_memory);
  auto* bias = static_cast<float*>(bias_memory);
  const float* const first_bias = bias;
  linear.high = high, linear.low = low;
  for (const LinearSource& source : sources) {
    for (size_t i = 0; i < source.outputs * inputs; ++i) {
      const float x = NumberAt(static_cast<const std::byte*>(source.data), source.dtype, i);
      ToHalves(x, *high++, *low++);
    }
    if (source.bias != nullptr) linear.bias = first_bias;
    for (size_t i = 0; i < source.outputs; ++i) {
      *bias++ = source.bias == nullptr ? 0.0f : source.bias[i];
    }
  }
  return linear;
}

absl::StatusOr<DeviceLinear> FakeDevice::PackFloat8(const std::vector<LinearSource>& sources,
                                                    size_t inputs) {
  RIVULET_ASSIGN_OR_RETURN(DeviceLinear linear, Pack(sources, inputs));
  auto* high = const_cast<uint16_t*>(linear.high);
  auto* low = const_cast<uint16_t*>(linear.low);
  RIVULET_ASSIGN_OR_RETURN(void* scales, Allocate(linear.outputs * sizeof(float)));
  auto* scale = static_cast<float*>(scales);
  linear.scale = scale;
  std::vector<float> row(inputs);
  std::vector<uint8_t> codes(inputs);
  for (const LinearSource& source : sources) {
    for (size_t n = 0; n < source.outputs; ++n) {
      for (size_t i = 0; i < inputs; ++i) {
        row[i] = NumberAt(static_cast<const std::byte*>(source.data), source.dtype, n * inputs + i);
      }
      *scale++ = RoundToFloat8(row.data(), inputs, codes.data());
      for (const uint8_t code : codes) ToHalves(Float8ToFloat(code), *high++, *low++);
    }
  }
  return linear;
}

void FakeDevice::Embed(const DeviceTable& table, const uint32_t* ids, const DeviceRows& rows,
                       const uint32_t* last_tokens, FloatMatrix x) {
  if (rows.decodes != 0) ++steps_in_parts_;
  Do([=] {
    for (uint32_t token = 0; token < rows.tokens; ++token) {
      uint32_t id = ids[token];
      if (id == UINT32_MAX) id = last_tokens[rows.segments[rows.segment_of[token]].tail];
      for (uint32_t i = 0; i < table.width; ++i) {
        x.row(token)[i] = NumberAt(static_cast<const std::byte*>(table.data), table.dtype,
                                   size_t{id} * table.width + i) *
                          table.multiplier;
      }
    }
  });
}

namespace {

// The numbers of the map's rows from `first` on as a product reads them: [outputs, inputs].
std::vector<float> WeightsOf(const DeviceLinear& linear, uint32_t first, uint32_t outputs,
                             std::optional<ProductPrecision> rounding) {
  std::vector<float> weights(size_t{outputs} * linear.inputs);
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t at = (first + i / linear.inputs) * linear.stride + i % linear.inputs;
    weights[i] = Rounded(rounding, FromHalves(linear.high[at], linear.low[at]));
  }
  return weights;
}

// y [T, outputs] = the rows of the map from `first` on, of x's columns from `column` on.
void Multiply(const DeviceLinear& linear, uint32_t first, uint32_t outputs, const Operand& x,
              uint32_t column, std::optional<ProductPrecision> rounding, FloatMatrix y) {
  const std::vector<float> weights = WeightsOf(linear, first, outputs, rounding);
  std::vector<float> row(linear.inputs);
  for (uint32_t t = 0; t < x.rows; ++t) {
    for (uint32_t k = 0; k < linear.inputs; ++k) {
      row[k] = Rounded(rounding, OperandAt(x, t, column + k));
    }
    for (uint32_t n = 0; n < outputs; ++n) {
      const float* const of_output = weights.data() + size_t{n} * linear.inputs;
      float sum = 0.0f;
      for (uint32_t k = 0; k < linear.inputs; ++k) sum += of_output[k] * row[k];
      if (linear.scale != nullptr) sum *= linear.scale[first + n];
      y.row(t)[n] = linear.bias == nullptr ? sum : sum + linear.bias[first + n];
    }
  }
}

}  // namespace

void FakeDevice::Product(const DeviceLinear& linear, const Operand& x, FloatMatrix y) {
  Do([=, this] { Multiply(linear, 0, linear.outputs, x, 0, rounding, y); });
}

void FakeDevice::ProductByBlocks(const BlockProductCall& call) {
  Do([=, this] {
    const uint32_t outputs = call.linear.outputs / call.blocks;
    for (uint32_t b = 0; b < call.blocks; ++b) {
      Multiply(call.linear, b * outputs, outputs, call.x, b * call.x_step, rounding,
               call.y.Columns(size_t{b} * call.y_step, outputs));
    }
  });
}

void FakeDevice::Prepare(const PrepareCall& whole) {
  ByParts(whole, [this](const PrepareCall& call) {
    Do([=] {
      std::vector<float> convolved(call.convolution.channels);
      ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
        if (call.convolution.window != 0) Convolve(call, segment, token, position, convolved);
        for (uint32_t p = 0; p < call.part_count; ++p) {
          PreparePart(call, call.parts[p], token, convolved);
        }
      });
    });
  });
}

void FakeDevice::Rotate(const RotateCall& call) {
  Do([=] {
    ForEachToken(call.rows, [&](const DeviceSegment&, uint32_t token, uint64_t position) {
      for (uint32_t i = 0; i < call.heads * call.half; ++i) {
        const float angle = static_cast<float>(position) * call.frequencies[i % call.half];
        float* x = call.x.row(token) + i / call.half * call.head_stride + i % call.half;
        const float first = x[0], second = x[call.half];
        const float cosine = std::cos(angle) * call.amplitude;
        const float sine = std::sin(angle) * call.amplitude;
        x[0] = first * cosine - second * sine;
        x[call.half] = second * cosine + first * sine;
      }
    });
  });
}

void FakeDevice::Recur(const RecurCall& whole) {
  ByParts(whole, [this](const RecurCall& call) {
    Do([=] {
      // Units share rows of the tail, so all of them take a token before any takes the next.
      ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
        for (uint32_t unit = 0; unit < call.units; ++unit) {
          UnitToken(call, segment, unit, token, position).Run();
        }
      });
    });
  });
}

void FakeDevice::Finish(const FinishCall& call) {
  Do([=] {
    const uint32_t columns = call.heads * call.width;
    std::vector<float> row(columns), gates(columns, 1.0f);
    for (size_t t = 0; t < call.o.rows; ++t) {
      for (uint32_t i = 0; i < columns; ++i) {
        row[i] = Function(call.f, call.o.row(t)[i / call.width * call.padded + i % call.width]);
        if (call.gate.data != nullptr) {
          gates[i] = Function(call.gate_f, call.gate.row(t)[i]);
        }
        if (call.order != FinishOrder::kNormThenGate) row[i] *= gates[i];
      }
      for (uint32_t first = 0; first < columns; first += call.norm_width) {
        const uint32_t end = std::min(first + call.norm_width, columns);
        float squares = 0.0f, scale = 1.0f;
        for (uint32_t i = first; i < end; ++i) squares += row[i] * row[i];
        if (call.order != FinishOrder::kGateOnly) {
          scale = 1.0f / std::sqrt(squares / static_cast<float>(call.norm_width) + call.eps);
        }
        for (uint32_t i = first; i < end; ++i) {
          row[i] *= scale * (call.weight == nullptr ? 1.0f : call.weight[i % call.weight_period]);
          if (call.order == FinishOrder::kNormThenGate) row[i] *= gates[i];
        }
      }
      for (uint32_t i = 0; i < call.y.columns; ++i) {
        StoreOperand(call.y, t, i, i < columns ? row[i] : 0.0f);
      }
    }
  });
}

void FakeDevice::GatherRows(const GatherCall& call) {
  Do([=] {
    for (uint32_t i = 0; i < call.count; ++i) {
      std::copy_n(call.x.row(call.tokens[i]), call.y.columns, call.y.row(i));
    }
  });
}

}  // namespace rivulet
