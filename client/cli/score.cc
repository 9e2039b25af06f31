// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <string>

#include "client/cli/commands.h"

namespace rivulet::cli {
namespace {

// False if stdout is closed.
bool PrintTable(const v1::ScoreResponse& response) {
  double sum = 0;
  for (const v1::TokenLogprob& token : response.tokens()) {
    sum += double{token.logprob()};
    if (!PrintModelText(LogprobLine(token))) return false;
  }
  const int count = response.tokens_size();
  if (count == 0) return true;
  std::fprintf(stderr, "%d tokens, log-probability %.4f, per token %.4f, perplexity %.4f\n", count,
               sum, sum / count, std::exp(-sum / count));
  return true;
}

}  // namespace

int RunScore(const ScoreOptions& options, Cancellation& cancellation) {
  v1::ScoreRequest request;
  request.set_top_logprobs(options.top);
  if (absl::Status status = FillInput(options.input, request); !status.ok()) return Fail(status);
  Client client(options.common.server, options.common.access);
  const auto response = client.Score(request, MakeCallOptions(options.common, cancellation));
  if (!response.ok()) return Fail(response.status());
  const bool printed = options.common.json ? PrintJson(*response) : PrintTable(*response);
  if (!printed) return FailedOutput(errno);
  if (response->tokens_size() > 0) return 0;
  std::fputs("error: nothing to score: no token has a predecessor\n", stderr);
  return 1;
}

int RunModel(const CommonOptions& options, Cancellation& cancellation) {
  Client client(options.server, options.access);
  const auto model = client.GetModel(MakeCallOptions(options, cancellation));
  if (!model.ok()) return Fail(model.status());
  if (options.json) return PrintJson(*model) ? 0 : 1;
  return Print(model->DebugString()) ? 0 : 1;
}

}  // namespace rivulet::cli
