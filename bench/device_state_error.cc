// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What bases in bf16 cost on the GPU: outputs of a sum, and of the delta rule, after many tokens,
// beside the recurrence in fp64 on the host.
//
//   rivulet-device-state-error --tokens 4096,65536,1048576
//
// Prints the error of the last 64 outputs, as a share of their size (root mean squares), for bases
// in fp32 and bf16 and for both kinds of products. One session, one head of 32 x 32, normal inputs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/device/device_step.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/recurrence/sum_recurrence.h"

ABSL_FLAG(std::string, tokens, "4096,65536,1048576", "after how many tokens");

namespace rivulet {
namespace {

constexpr size_t kWidth = 32, kChecked = 64, kPiece = 1024;
constexpr size_t kColumns = 3 * kWidth;  // q, k, v

RecurrenceDeclaration Declaration(bool delta, DType state) {
  const HeadShape shape{1, 1, kWidth, kWidth, state};
  if (delta) return DeltaRuleDeclaration(shape, true);
  return {.shape = shape,
          .decay = {.kind = Decay::kScalar},
          .rows = {{"k", kWidth, {"k"}}, {"v", kWidth, {"v"}}},
          .sums = {{.name = "S", .key = "k", .value = "v"}},
          .reads = {{"o", "S", "q"}}};
}

// [tokens, q k v]: normal, keys and queries of length one.
std::vector<float> Inputs(size_t tokens) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> rows(tokens * kColumns);
  for (float& x : rows) x = normal(random);
  for (size_t i = 0; i < tokens * 3; ++i) {
    if (i % 3 == 2) continue;
    float* x = rows.data() + i * kWidth;
    float squares = 0;
    for (size_t d = 0; d < kWidth; ++d) squares += x[d] * x[d];
    for (size_t d = 0; d < kWidth; ++d) x[d] /= std::sqrt(squares);
  }
  return rows;
}

// In fp64: S = γ S + kᵀ u, u = v, or with the delta rule v - k γ S.
class Reference {
 public:
  Reference(double gamma, bool delta) : gamma_(gamma), delta_(delta) {}

  void Append(const float* row, std::vector<double>& outputs) {
    const float *q = row, *k = row + kWidth, *v = k + kWidth;
    for (size_t e = 0; e < kWidth; ++e) {
      double read = 0, o = 0;
      for (size_t d = 0; d < kWidth; ++d) read += k[d] * (state_[d][e] *= gamma_);
      const double u = delta_ ? v[e] - read : v[e];
      for (size_t d = 0; d < kWidth; ++d) o += q[d] * (state_[d][e] += k[d] * u);
      outputs.push_back(o);
    }
  }

 private:
  const double gamma_;
  const bool delta_;
  double state_[kWidth][kWidth] = {};
};

// The recurrence on the device, one piece of the session after the other.
class Runner {
 public:
  Runner(Device& device, const RecurrenceDeclaration& declaration, double gamma)
      : device_(device),
        workspace_(&device),
        layout_(kFoldInterval, device.precision() == ProductPrecision::kFloat32 ? DType::kFloat32
                                                                                : DType::kBFloat16),
        recurrence_(declaration, layout_),
        log_gamma_(static_cast<float>(std::log(gamma))),
        pinned_(static_cast<float*>(device.AllocatePinned(kPiece * kWidth * sizeof(float)))) {
    slots_ = {.bases = Memory(layout_.base_bytes()),
              .base_stride = layout_.base_bytes(),
              .tails = Memory(layout_.tail_bytes()),
              .tail_stride = layout_.tail_bytes()};
  }
  ~Runner() { device_.FreePinned(pinned_); }

  // The outputs [tokens, kWidth], valid until the next call.
  const float* Append(const float* rows, uint32_t tokens) {
    workspace_.Reset();
    const DeviceSegment segment{0, tokens, position_, 0, 0, 0, 0};
    const std::vector<uint32_t> owners(tokens);
    const DeviceRows step_rows{Copied(&segment, 1), Copied(owners.data(), tokens), 1, tokens,
                               false};
    const DeviceStep step{&device_, &workspace_, step_rows, slots_};
    const TokenInputs inputs{.q = Part(rows, 0, tokens),
                             .k = Part(rows, 1, tokens),
                             .v = Part(rows, 2, tokens),
                             .decay = Same(log_gamma_, tokens),
                             .beta = Same(1.0f, tokens)};
    const FloatMatrix out = workspace_.Take(tokens, kWidth);
    recurrence_.Enqueue(step, inputs, out);
    device_.CopyToHost(pinned_, out.data, tokens * kWidth * sizeof(float));
    RIVULET_CHECK(device_.Synchronize().ok(), "the device failed");
    position_ += tokens;
    return pinned_;
  }

 private:
  std::byte* Memory(size_t bytes) { return static_cast<std::byte*>(*device_.Allocate(bytes)); }
  template <typename T>
  T* Copied(const T* data, size_t count) {
    void* to = workspace_.TakeBytes(count * sizeof(T));
    RIVULET_CHECK(device_.Upload(to, data, count * sizeof(T)).ok(), "an upload");
    return static_cast<T*>(to);
  }
  ConstFloatMatrix Part(const float* rows, size_t part, uint32_t tokens) {
    std::vector<float> x(tokens * kWidth);
    for (size_t t = 0; t < tokens; ++t) {
      std::copy_n(rows + t * kColumns + part * kWidth, kWidth, x.data() + t * kWidth);
    }
    return {Copied(x.data(), x.size()), tokens, kWidth, kWidth};
  }
  ConstFloatMatrix Same(float x, uint32_t tokens) {
    const std::vector<float> numbers(tokens * kBlock, x);
    return {Copied(numbers.data(), numbers.size()), tokens, 1, kBlock};
  }

  static constexpr size_t kBlock = 16;

  Device& device_;
  DeviceWorkspace workspace_;
  StateLayout layout_;
  SumRecurrence recurrence_;
  const float log_gamma_;
  float* const pinned_;
  DeviceSlots slots_;
  uint64_t position_ = 0;
};

struct Case {
  bool delta;
  double gamma;
};

// The outputs [tokens, kWidth] in fp64.
std::vector<double> Expected(const Case& c, const std::vector<float>& inputs) {
  Reference reference(c.gamma, c.delta);
  std::vector<double> outputs;
  for (size_t at = 0; at < inputs.size(); at += kColumns) {
    reference.Append(inputs.data() + at, outputs);
  }
  return outputs;
}

double Error(const float* got, const double* expected) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < kChecked * kWidth; ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

// A line of the table for each of `after`.
void Measure(Device& device, const Case& c, DType state, const std::vector<size_t>& after,
             const std::vector<float>& inputs, const std::vector<double>& expected) {
  Runner runner(device, Declaration(c.delta, state), c.gamma);
  for (size_t done = 0; done < after.back(); done += kPiece) {
    const float* out = runner.Append(inputs.data() + done * kColumns, kPiece);
    const size_t end = done + kPiece;
    if (std::find(after.begin(), after.end(), end) == after.end()) continue;
    const double error =
        Error(out + (kPiece - kChecked) * kWidth, expected.data() + (end - kChecked) * kWidth);
    std::printf("| %s, γ = %.2f | %s | %s | %zu | %.2g |\n", c.delta ? "delta rule" : "sum",
                c.gamma, device.precision() == ProductPrecision::kFloat32 ? "fp32" : "bf16",
                DTypeName(state), end, error);
  }
}

absl::StatusOr<std::vector<size_t>> Checkpoints() {
  std::vector<size_t> after;
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_tokens), ',')) {
    size_t tokens = 0;
    if (!absl::SimpleAtoi(text, &tokens) || tokens == 0 || tokens % kPiece != 0) {
      return absl::InvalidArgumentError("--tokens: multiples of 1024");
    }
    after.push_back(tokens);
  }
  std::sort(after.begin(), after.end());
  return after;
}

absl::Status Run() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  RIVULET_ASSIGN_OR_RETURN(const std::vector<size_t> after, Checkpoints());
  RIVULET_ASSIGN_OR_RETURN(const auto exact, OpenCudaDevice(ProductPrecision::kFloat32));
  RIVULET_ASSIGN_OR_RETURN(const auto rounded, OpenCudaDevice(ProductPrecision::kBFloat16));
  std::printf("%s\n\n| recurrence | products | bases | tokens | error |\n|---|---|---|---|---|\n",
              exact->name().c_str());
  const std::vector<float> inputs = Inputs(after.back());
  for (const Case& c : {Case{false, 1}, Case{false, 0.97}, Case{true, 1}, Case{true, 0.97}}) {
    const std::vector<double> expected = Expected(c, inputs);
    for (Device* device : {exact.get(), rounded.get()}) {
      for (const DType state : {DType::kFloat32, DType::kBFloat16}) {
        Measure(*device, c, state, after, inputs, expected);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("what bases in bf16 cost on the GPU");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = rivulet::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "rivulet-device-state-error: %s\n", status.ToString().c_str());
  return 1;
}
