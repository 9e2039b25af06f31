// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_SERVICE_STRUCTURED_OUTPUT_H_
#define RIVULET_SERVER_SERVICE_STRUCTURED_OUTPUT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "rivulet/v1/inference.pb.h"
#include "server/grammar/token_grammar.h"
#include "server/service/served_model.h"

namespace rivulet {

inline constexpr size_t kMaxChoices = 1024;
inline constexpr size_t kMaxChoiceBytes = size_t{64} << 10;  // of all together

// The grammar that a request asks for; null if it asks for none. `thinks`: the prompt has opened a
// <think>, and the grammar holds for what follows </think>. INVALID_ARGUMENT and UNIMPLEMENTED
// say what is wrong with it. It may take some 100 ms, so call it on a worker.
absl::StatusOr<std::shared_ptr<TokenGrammar>> ReadStructuredOutput(const v1::GenerateRequest& proto,
                                                                   const ServedModel& model,
                                                                   bool thinks);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_STRUCTURED_OUTPUT_H_
