// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Recurrences on the GPU by their declarations, as an engine runs them: a decode step of rows whose
// tails have every length. Beside device_kernel_bench.cc, for what has several reads, a normaliser,
// or pages.
//
//   rivulet-device-recurrence-bench --rows 1,128,256
//
// Prints the time of one layer's recurrence, the bytes that it must move (the base or the live
// pages once, half of a tail, what a fold reads and writes for a sixteenth of the rows, inputs and
// outputs), the share of the measured read rate that this makes, and the time over that of a
// perfect update of the state in place.
#include <bit>
#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/device_timer.h"
#include "kernels/base/status.h"
#include "kernels/device/fenwick_operations.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/hla/hla_config.h"
#include "kernels/mixers/linear_attention/linear_attention_config.h"
#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/retnet/retnet_config.h"
#include "kernels/recurrence/sum_recurrence.h"

ABSL_FLAG(std::string, rows, "1,8,32,128,256", "rows of a step");
ABSL_FLAG(std::string, only, "", "only cases whose name has this in it");

namespace rivulet {
namespace {

constexpr uint32_t kChunk = DeviceTimer::kChunk;
// Of sessions with pages: eight of them are live at every tail length, and a ninth is to come.
constexpr uint64_t kChunksWithPages = 255;
constexpr uint32_t kLevels = 13;

struct Case {
  std::string name;
  RecurrenceDeclaration declaration;
};

Case Hla(const std::string& name, HlaConfig config, size_t width) {
  config.shape = {.heads = 16, .groups = 16, .key_dim = width, .value_dim = width};
  config.use_decay = true;
  const std::vector<double> log_gamma(config.shape.heads, std::log(0.97));
  return {absl::StrCat(name, " 16 x ", width, " x ", width), HlaDeclaration(config, log_gamma)};
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const size_t width : {64, 128, 256}) {
    cases.push_back(Hla("HLA masked", {}, width));
    cases.push_back(Hla("HLA serial", {.form = HlaForm::kSerial}, width));
    cases.push_back(Hla("AHLA", {.variant = HlaVariant::kAsymmetric}, width));
    cases.push_back(Hla("third order", {.variant = HlaVariant::kThird}, width));
  }
  cases.push_back(
      {"linear, normalised 16 x 128 x 128", LinearAttentionDeclaration({16, 16, 128, 128}, true)});
  cases.push_back({"RetNet 8 x 256 x 512", RetNetDeclaration({8, 8, 256, 512})});
  const Mamba2Constants constants{.a = std::vector<float>(80, -0.5f),
                                  .d = std::vector<float>(size_t{80} * 64, 1.0f)};
  cases.push_back({"log-linear Mamba-2 80 x 128 x 64",
                   Mamba2Declaration({80, 1, 128, 64}, constants, kLevels)});
  cases.push_back({"log-linear Gated DeltaNet 16 x 128 x 128",
                   DeltaRuleDeclaration({16, 16, 128, 128}, true, kLevels)});
  return cases;
}

class Bench {
 public:
  absl::Status Run();

 private:
  absl::Status Recurrence(const Case& wanted, uint32_t rows, bool bf16);
  DevicePages Pages(const StateLayout& layout, uint32_t rows);
  TokenInputs Inputs(DeviceWorkspace& workspace, const RecurrenceDeclaration& declaration,
                     uint32_t rows);

  DeviceTimer timer_;
};

// The tables of each row: pages 0 to 7 of its own, and, where its chunk ends, the table after that,
// with page 8 alone.
DevicePages Bench::Pages(const StateLayout& layout, uint32_t rows) {
  const uint32_t pages = layout.page_kind().levels;
  std::vector<DeviceSegmentPages> segments;
  std::vector<uint32_t> slots;
  for (uint32_t r = 0; r < rows; ++r) {
    segments.push_back({static_cast<uint32_t>(slots.size()), 0, 0});
    for (const bool folded : {false, true}) {
      if (folded && r % kChunk + 1 != kChunk) continue;
      const uint64_t live = LivePages(kChunksWithPages + folded, pages);
      for (uint32_t p = 0; p < pages; ++p) {
        slots.push_back((live >> p & 1) != 0 ? r * pages + p : kNoPage);
      }
    }
  }
  return {timer_.Copy(segments), timer_.Copy(slots), pages};
}

TokenInputs Bench::Inputs(DeviceWorkspace& workspace, const RecurrenceDeclaration& declaration,
                          uint32_t rows) {
  const HeadShape& shape = declaration.shape;
  const bool grouped_queries = declaration.sharing == Sharing::kKeysAndValues;
  const size_t queries = grouped_queries ? shape.heads : shape.groups;
  const size_t values = grouped_queries ? shape.groups : shape.heads;
  const auto input = [&](size_t columns) { return timer_.Input(workspace, rows, columns); };
  return {.q = input(queries * shape.padded_key()),
          .k = input(shape.groups * shape.padded_key()),
          .v = input(values * shape.padded_value()),
          .decay = input(shape.heads),
          .beta = input(shape.heads),
          .levels = input(shape.heads * std::max(1u, declaration.levels))};
}

absl::Status Bench::Recurrence(const Case& wanted, uint32_t rows, bool bf16) {
  RecurrenceDeclaration declaration = wanted.declaration;
  declaration.shape.state_dtype = bf16 ? DType::kBFloat16 : DType::kFloat32;
  StateLayout layout(kChunk, DType::kBFloat16);
  const SumRecurrence recurrence(declaration, layout);
  const size_t base = layout.base_bytes(), tail = layout.tail_bytes(), page = layout.page_bytes();
  const uint32_t pages = layout.page_kind().fenwick() ? layout.page_kind().levels : 0;
  const size_t row_bytes = base + pages * page;
  const size_t copies = DeviceTimer::Copies(row_bytes * rows);
  auto* const bases = static_cast<std::byte*>(timer_.Memory(base * rows * copies));
  auto* const tails = static_cast<std::byte*>(timer_.Memory(tail * rows * copies));
  auto* const page_memory = static_cast<std::byte*>(timer_.Memory(pages * page * rows * copies));
  DeviceWorkspace workspace(timer_.device());
  const TokenInputs inputs = Inputs(workspace, declaration, rows);
  const HeadShape& shape = declaration.shape;
  const FloatMatrix out = workspace.Take(rows, shape.heads * shape.padded_value());
  DeviceWorkspace temporaries(timer_.device());
  DeviceStep step{.device = timer_.device(),
                  .workspace = &temporaries,
                  .rows = timer_.OneTokenEach(rows, pages == 0 ? 4 : kChunksWithPages),
                  .slots = {}};
  if (pages != 0) step.pages = Pages(layout, rows);
  RIVULET_ASSIGN_OR_RETURN(const double seconds, timer_.Time(copies, [&](size_t i) {
    step.slots = {bases + i * rows * base,
                  base,
                  tails + i * rows * tail,
                  tail,
                  page_memory + i * rows * pages * page,
                  page};
    temporaries.Reset();
    recurrence.Enqueue(step, inputs, out);
  }));
  const double live = std::popcount(kChunksWithPages) * static_cast<double>(page);
  const double state = pages == 0 ? static_cast<double>(base) : live;
  // A fold reads and writes a state; that of pages reads the live ones again, which is in `state`
  // twice then, and writes one.
  const double folds = (pages == 0 ? 2 * state : live + static_cast<double>(page)) / kChunk;
  const double numbers =
      static_cast<double>(inputs.q.columns + inputs.k.columns + inputs.v.columns + out.columns) *
      sizeof(float);
  const double bytes = rows * (state + folds + 0.5 * static_cast<double>(tail) + numbers);
  timer_.Print(wanted.name + (bf16 ? ", bf16 states" : ", fp32 states"), rows, seconds, bytes,
               2.0 * rows * state);
  timer_.FreeAll();
  return absl::OkStatus();
}

absl::Status Bench::Run() {
  RIVULET_RETURN_IF_ERROR(timer_.Open());
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_rows), ',')) {
    uint32_t rows = 0;
    if (!absl::SimpleAtoi(text, &rows)) return absl::InvalidArgumentError("--rows: 1,2,3");
    for (const Case& each : Cases()) {
      if (each.name.find(absl::GetFlag(FLAGS_only)) == std::string::npos) continue;
      for (const bool bf16 : {false, true}) {
        RIVULET_RETURN_IF_ERROR(Recurrence(each, rows, bf16));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("recurrences on the GPU beside its memory's ceilings");
  absl::ParseCommandLine(argc, argv);
  rivulet::Bench bench;
  const absl::Status status = bench.Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "rivulet-device-recurrence-bench: %s\n", status.ToString().c_str());
  return 1;
}
