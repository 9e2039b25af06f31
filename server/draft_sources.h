// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What --speculate and its flags ask for.
#ifndef RIVULET_SERVER_DRAFT_SOURCES_H_
#define RIVULET_SERVER_DRAFT_SOURCES_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model_loader/tokenizer.h"
#include "server/drafts/drafter.h"
#include "server/engine/engine.h"
#include "server/metrics/metrics.h"
#include "server/options.h"

namespace rivulet {

// What can be said about the files of these flags before a model is loaded: the text can be read,
// and the draft model has a folder. Errors as below.
absl::Status CheckDraftFiles(const ServerOptions& options);

// The source of drafts, or null for --speculate off. `tokenizer`, null if there is none, and
// `engine` are those of the model that is served. `engine` and `metrics` outlive the result. Errors
// name flag, file and remedy.
absl::StatusOr<std::unique_ptr<DrafterSource>> MakeDrafterSource(const ServerOptions& options,
                                                                 const Tokenizer* tokenizer,
                                                                 Engine& engine, Metrics& metrics);

}  // namespace rivulet

#endif  // RIVULET_SERVER_DRAFT_SOURCES_H_
