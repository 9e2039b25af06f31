// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention on the GPU beside the read rate of its memory, measured in the same run.
//
//   rivulet-device-attention-bench --heads 32 --kv_heads 8 --width 128 --rows 1,8,64
//
// For each number of rows and each context: the time of one layer's attention (append, read, join)
// in a decode step, the bytes of keys and values that it must read, and the share of the read rate
// that this makes; and the time of a prompt's tokens after such a context. Pages hold zeros.
//
// --shared_tokens N: the first N tokens of all rows' contexts, rounded down to whole pages, lie in
// the same pages, as those of sessions with a common beginning do. The bytes are then those of a
// step that reads each shared page from memory once.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/status.h"
#include "kernels/device/device.h"
#include "kernels/device/softmax_operations.h"

ABSL_FLAG(uint32_t, heads, 32, "query heads");
ABSL_FLAG(uint32_t, kv_heads, 8, "kv heads");
ABSL_FLAG(uint32_t, width, 128, "numbers of a head");
ABSL_FLAG(uint64_t, window, 0, "tokens that a token sees; 0: all");
ABSL_FLAG(std::string, kv_dtype, "bf16", "fp32 or bf16 pages");
ABSL_FLAG(std::string, rows, "1,8,32,128", "decode rows");
ABSL_FLAG(std::string, contexts, "256,1024,4096,16384,65536", "tokens before the step");
ABSL_FLAG(uint32_t, prompt, 1024, "tokens of a prompt; 0: none");
ABSL_FLAG(uint64_t, shared_tokens, 0, "tokens of a context whose pages all rows share");
ABSL_FLAG(int, repeats, 20, "steps that are timed");

namespace rivulet {
namespace {

constexpr uint32_t kChunk = 16;
constexpr size_t kMostBytes = size_t{60} << 30;  // of pages

class Bench {
 public:
  absl::Status Run();

 private:
  absl::StatusOr<double> Seconds(uint32_t segments, uint32_t tokens, uint64_t context);
  absl::StatusOr<AttendCall> CallFor(uint32_t segments, uint32_t tokens, uint64_t context);
  static std::vector<uint32_t> Slots(uint32_t segments, uint32_t pages, uint32_t shared);
  absl::StatusOr<std::byte*> ZeroPages(size_t count, size_t bytes);
  absl::StatusOr<void*> Take(size_t bytes);
  template <typename T>
  absl::StatusOr<T*> Copy(const std::vector<T>& data);
  double TokenBytes() const { return 2.0 * kv_heads_ * padded_ * (bf16_ ? 2 : 4); }
  // The pages of a context that all rows share. None of them is written by the step.
  uint32_t SharedPages(uint64_t context) const {
    return static_cast<uint32_t>(std::min(shared_tokens_, context) / kChunk);
  }
  // Of the tokens from `first` to `end` of so many rows, shared ones once.
  double Bytes(uint32_t rows, uint64_t context, uint64_t first, uint64_t end) const {
    const uint64_t shared = std::max(first, uint64_t{SharedPages(context)} * kChunk) - first;
    return TokenBytes() * static_cast<double>(shared + rows * (end - first - shared));
  }

  const uint32_t heads_ = absl::GetFlag(FLAGS_heads), kv_heads_ = absl::GetFlag(FLAGS_kv_heads);
  const uint32_t padded_ = static_cast<uint32_t>(PaddedColumns(absl::GetFlag(FLAGS_width)));
  const uint64_t window_ = absl::GetFlag(FLAGS_window);
  const uint64_t shared_tokens_ = absl::GetFlag(FLAGS_shared_tokens);
  const bool bf16_ = absl::GetFlag(FLAGS_kv_dtype) == "bf16";
  std::unique_ptr<Device> device_;
  DeviceLimits limits_;
  std::vector<void*> taken_;
};

absl::StatusOr<void*> Bench::Take(size_t bytes) {
  RIVULET_ASSIGN_OR_RETURN(void* memory, device_->Allocate(bytes));
  taken_.push_back(memory);
  return memory;
}

template <typename T>
absl::StatusOr<T*> Bench::Copy(const std::vector<T>& data) {
  RIVULET_ASSIGN_OR_RETURN(void* memory, Take(data.size() * sizeof(T)));
  RIVULET_RETURN_IF_ERROR(device_->Upload(memory, data.data(), data.size() * sizeof(T)));
  return static_cast<T*>(memory);
}

// Of each segment's pages: `shared` that all have, then those of its own, which lie apart.
std::vector<uint32_t> Bench::Slots(uint32_t segments, uint32_t pages, uint32_t shared) {
  std::vector<uint32_t> slots;
  for (uint32_t s = 0; s < segments; ++s) {
    for (uint32_t p = 0; p < pages; ++p) {
      slots.push_back(p < shared ? p : shared + (p - shared) * segments + s);
    }
  }
  slots.push_back(0);
  return slots;
}

absl::StatusOr<std::byte*> Bench::ZeroPages(size_t count, size_t bytes) {
  RIVULET_ASSIGN_OR_RETURN(void* memory, Take(count * bytes));
  auto* const pages = static_cast<std::byte*>(memory);
  const std::vector<std::byte> page(bytes);
  RIVULET_RETURN_IF_ERROR(device_->Upload(pages, page.data(), bytes));
  for (size_t i = 1; i < count; ++i) device_->CopyOnDevice(pages + i * bytes, pages, bytes);
  return pages;
}

// `segments` sessions of `context` tokens, each with `tokens` more.
absl::StatusOr<AttendCall> Bench::CallFor(uint32_t segments, uint32_t tokens, uint64_t context) {
  const uint32_t all = segments * tokens;
  const auto pages = static_cast<uint32_t>((context + tokens) / kChunk);
  const uint32_t shared = SharedPages(context);
  const size_t plane = static_cast<size_t>(TokenBytes()) * kChunk / 2;
  std::vector<DeviceSegment> list;
  std::vector<DeviceSegmentPages> segment_pages;
  std::vector<uint32_t> segment_of;
  for (uint32_t s = 0; s < segments; ++s) {
    list.push_back({s * tokens, tokens, context, 0, 0, s, 0});
    segment_pages.push_back({s * pages, pages, 0});
    segment_of.insert(segment_of.end(), tokens, s);
  }
  const auto zeros = [&](size_t count) { return Copy(std::vector<float>(count)); };
  RIVULET_ASSIGN_OR_RETURN(const float* q, zeros(size_t{all} * heads_ * padded_));
  RIVULET_ASSIGN_OR_RETURN(const float* kv, zeros(size_t{all} * kv_heads_ * padded_));
  RIVULET_ASSIGN_OR_RETURN(float* out, zeros(size_t{all} * heads_ * padded_));
  RIVULET_ASSIGN_OR_RETURN(float* partials, zeros(AttendPartialFloats(segments, heads_, padded_)));
  RIVULET_ASSIGN_OR_RETURN(std::byte * tails, Copy(std::vector<std::byte>(segments * 2 * plane)));
  const size_t page_count = shared + size_t{pages - shared} * segments + 1;
  RIVULET_ASSIGN_OR_RETURN(std::byte * page_memory, ZeroPages(page_count, 2 * plane));
  AttendCall call{.rows = {},
                  .slots = {},
                  .pages = {},
                  .heads = heads_,
                  .kv_heads = kv_heads_,
                  .padded = padded_,
                  .window = window_,
                  .bf16_pages = bf16_,
                  .q = q,
                  .q_stride = heads_ * padded_,
                  .k = kv,
                  .k_stride = kv_heads_ * padded_,
                  .v = kv,
                  .v_stride = kv_heads_ * padded_,
                  .tail_value_offset = plane,
                  .page_value_offset = plane,
                  .partials = partials,
                  .out = {out, all, size_t{heads_} * padded_, size_t{heads_} * padded_}};
  RIVULET_ASSIGN_OR_RETURN(call.rows.segments, Copy(list));
  RIVULET_ASSIGN_OR_RETURN(call.rows.segment_of, Copy(segment_of));
  RIVULET_ASSIGN_OR_RETURN(call.pages.segments, Copy(segment_pages));
  RIVULET_ASSIGN_OR_RETURN(call.pages.slots, Copy(Slots(segments, pages, shared)));
  call.rows.segment_count = segments;
  call.rows.tokens = all;
  call.rows.single = tokens == 1;
  call.slots = {nullptr, 0, tails, 2 * plane, page_memory, 2 * plane};
  return call;
}

// Of one call, when several run one behind the other.
absl::StatusOr<double> Bench::Seconds(uint32_t segments, uint32_t tokens, uint64_t context) {
  RIVULET_ASSIGN_OR_RETURN(const AttendCall call, CallFor(segments, tokens, context));
  const int repeats = absl::GetFlag(FLAGS_repeats);
  device_->Attend(call);
  device_->Record(0);
  for (int i = 0; i < repeats; ++i) device_->Attend(call);
  device_->Record(1);
  RIVULET_RETURN_IF_ERROR(device_->Wait(1));
  const double seconds = device_->SecondsBetween(0, 1) / repeats;
  for (void* memory : taken_) device_->Free(memory);
  taken_.clear();
  return seconds;
}

absl::StatusOr<std::vector<uint32_t>> Numbers(const std::string& text) {
  std::vector<uint32_t> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtoi(part, &numbers.emplace_back())) {
      return absl::InvalidArgumentError("give numbers: 1,2,3");
    }
  }
  return numbers;
}

absl::Status Bench::Run() {
  if (!bf16_ && absl::GetFlag(FLAGS_kv_dtype) != "fp32") {
    return absl::InvalidArgumentError("--kv_dtype: fp32 or bf16");
  }
  RIVULET_ASSIGN_OR_RETURN(device_, OpenCudaDevice(ProductPrecision::kBFloat16));
  limits_ = device_->MeasureLimits();
  std::printf("%s: read %.0f GB/s\n", device_->name().c_str(), limits_.read * 1e-9);
  std::printf(
      "| rows | context | us | MB | share of the read rate | prompt of %u, us | TFLOP/s |\n",
      absl::GetFlag(FLAGS_prompt));
  std::printf("|---|---|---|---|---|---|---|\n");
  RIVULET_ASSIGN_OR_RETURN(const auto rows, Numbers(absl::GetFlag(FLAGS_rows)));
  RIVULET_ASSIGN_OR_RETURN(const auto contexts, Numbers(absl::GetFlag(FLAGS_contexts)));
  for (const uint32_t context : contexts) {
    double prompt = 0;
    const uint32_t tokens = absl::GetFlag(FLAGS_prompt);
    if (tokens != 0) {
      RIVULET_ASSIGN_OR_RETURN(prompt, Seconds(1, tokens, context));
    }
    const double flops = 4.0 * heads_ * padded_ * tokens * (context + tokens / 2.0);
    for (const uint32_t row : rows) {
      if (Bytes(row, context, 0, context + kChunk) > static_cast<double>(kMostBytes)) continue;
      RIVULET_ASSIGN_OR_RETURN(const double seconds, Seconds(row, 1, context));
      const double bytes = Bytes(row, context, FirstSeen(context, window_), context + 1);
      std::printf("| %u | %u | %.1f | %.1f | %.1f %% | %.1f | %.0f |\n", row, context,
                  seconds * 1e6, bytes * 1e-6, 100 * bytes / limits_.read / seconds, prompt * 1e6,
                  prompt == 0 ? 0.0 : flops / prompt * 1e-12);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("softmax attention on the GPU beside its memory's read rate");
  absl::ParseCommandLine(argc, argv);
  rivulet::Bench bench;
  const absl::Status status = bench.Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "rivulet-device-attention-bench: %s\n", status.ToString().c_str());
  return 1;
}
