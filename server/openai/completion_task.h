// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_OPENAI_COMPLETION_TASK_H_
#define RIVULET_SERVER_OPENAI_COMPLETION_TASK_H_

#include <memory>

#include "server/openai/api_request.h"
#include "server/openai/generation.h"

namespace rivulet::openai {

// /v1/chat/completions or /v1/completions. The service outlives it.
std::unique_ptr<GenerationTask> MakeCompletionTask(const ServiceContext& service,
                                                   Endpoint endpoint);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_COMPLETION_TASK_H_
