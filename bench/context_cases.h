// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What context_bench measures: the mixers at shapes that can be compared, and the positions that
// stand for a context.
#ifndef RIVULET_BENCH_CONTEXT_CASES_H_
#define RIVULET_BENCH_CONTEXT_CASES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/random_parameters.h"

namespace rivulet {

inline constexpr size_t kContextHidden = 1024;

struct ContextCase {
  std::string name;    // the type, and a variant of it
  std::string type;    // as in MixerParsers()
  std::string config;  // JSON
};

// Every mixer at least once. One that is not in the table of context_cases.cc is measured with
// num_heads 8 and its other defaults.
std::vector<ContextCase> ContextCases();

// One layer of random weights, whose decays are those of trained models: a state that vanishes at
// once would be numbers no processor likes. The bytes of its weights go to weight_bytes.
absl::StatusOr<std::unique_ptr<Mixer>> MakeContextLayer(const ContextCase& one, uint64_t seed,
                                                        DType dtype, const MixerOptions& options,
                                                        size_t* weight_bytes);

// Where a session stands that has about `context` tokens, always at the end of a chunk.
struct ContextPlace {
  // For a binary counter of pages: "fewest" (one page), "most", or "typical" (half of the most, and
  // the next fold carries one page, as folds do on average). Empty for all others.
  std::string pages;
  uint64_t position = 0;
};
std::vector<ContextPlace> ContextPlaces(const PageKind& kind, uint64_t context);

}  // namespace rivulet

#endif  // RIVULET_BENCH_CONTEXT_CASES_H_
