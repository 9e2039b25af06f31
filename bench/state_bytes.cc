// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// rivulet-state-bytes: what one layer keeps for one session, for every mixer, as the Markdown table
// of docs/performance.md. The numbers are those of the mixers' own StateLayouts, at the shapes of
// context_cases.h.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/context_cases.h"
#include "kernels/base/status.h"

namespace rivulet {
namespace {

// The bytes of softmax attention's keys and values for a token, bf16, with as many heads of keys as
// of queries.
constexpr double kCacheBytesOfToken = 2.0 * kContextHidden * 2;

// Forms whose states differ from those of context_cases.cc.
constexpr const char* kForms[][2] = {{"serial", R"("hla_form": "serial")"},
                                     {"unmasked", R"("hla_form": "none")"},
                                     {"normalised", R"("normalize": true)"}};

std::vector<ContextCase> Cases() {
  std::vector<ContextCase> cases = ContextCases();
  for (const auto& [name, key] : kForms) {
    cases.push_back(
        {absl::StrCat("hla (", name, ")"), "hla",
         absl::StrCat(R"({"num_heads": 16, "head_dim": 64, "use_decay": true, )", key, "}")});
  }
  return cases;
}

absl::StatusOr<StateLayout> LayoutOf(const ContextCase& one, DType state) {
  MixerOptions options;
  options.state_dtype = state;
  options.kv_dtype = state;
  size_t weight_bytes = 0;
  RIVULET_ASSIGN_OR_RETURN(const auto mixer,
                           MakeContextLayer(one, 1, DType::kFloat32, options, &weight_bytes));
  return mixer->state_layout();
}

std::string CacheTokens(const StateLayout& layout) {
  if (layout.page_bytes() > 0) return "grows";
  const double bytes = static_cast<double>(layout.base_bytes() + layout.tail_bytes());
  return absl::StrCat(static_cast<int64_t>(bytes / kCacheBytesOfToken + 0.5));
}

absl::Status Print(const ContextCase& one) {
  RIVULET_ASSIGN_OR_RETURN(const StateLayout fp32, LayoutOf(one, DType::kFloat32));
  const absl::StatusOr<StateLayout> bf16 = LayoutOf(one, DType::kBFloat16);
  const std::string half =
      bf16.ok() ? absl::StrCat(bf16->base_bytes() + bf16->page_bytes()) : "refused";
  const std::string planes = absl::StrJoin(
      fp32.planes(), ", ",
      [](std::string* out, const StatePlane& plane) { absl::StrAppend(out, plane.name); });
  std::printf("| %s | %zu | %zu | %s | %zu | %s | %s |\n", one.name.c_str(), fp32.base_bytes(),
              fp32.page_bytes(), half.c_str(), fp32.tail_bytes(), CacheTokens(fp32).c_str(),
              planes.c_str());
  return absl::OkStatus();
}

int Main() {
  std::printf(
      "| mixer | base, fp32 | page, fp32 | base and page, bf16 | tail | tokens of a softmax cache "
      "| planes |\n|---|---|---|---|---|---|---|\n");
  for (const ContextCase& one : Cases()) {
    const absl::Status status = Print(one);
    if (status.ok()) continue;
    std::fprintf(stderr, "rivulet-state-bytes: error: %s: %s\n", one.name.c_str(),
                 std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace rivulet

int main() { return rivulet::Main(); }
