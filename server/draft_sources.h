// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What --speculate and its flags ask for.
#ifndef RIVULET_SERVER_DRAFT_SOURCES_H_
#define RIVULET_SERVER_DRAFT_SOURCES_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "model_loader/tokenizer.h"
#include "server/drafts/drafter.h"
#include "server/metrics/metrics.h"
#include "server/options.h"

namespace rivulet {

// The source of drafts, or null for --speculate off. `tokenizer`, null if there is none, and
// `vocab` are those of the model that is served. `metrics` outlives the result. Errors name flag,
// file and remedy.
absl::StatusOr<std::unique_ptr<DrafterSource>> MakeDrafterSource(const ServerOptions& options,
                                                                 const Tokenizer* tokenizer,
                                                                 uint32_t vocab, Metrics& metrics);

}  // namespace rivulet

#endif  // RIVULET_SERVER_DRAFT_SOURCES_H_
