// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target of what clients send in KServe's protocol: tensors, parameters and their JSON.
// Built with -DRIVULET_FUZZ=ON by clang:
//   build/<preset>/test/infer_fuzz -max_len=1024 -runs=1000000
#include "server/kserve/infer_request.h"
#include "server/rpc/message_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr const char* kWords[] = {"text_input",
                                    "input_ids",
                                    "sampling_parameters",
                                    "stream",
                                    "text_output",
                                    "output_ids",
                                    "exclude_input_in_output",
                                    "BYTES",
                                    "BOOL",
                                    "INT32",
                                    "INT64",
                                    "UINT32",
                                    "sequence_id",
                                    "sequence_start",
                                    "sequence_end",
                                    "timeout",
                                    "temperature",
                                    "top_k",
                                    "top_p",
                                    "max_tokens",
                                    "stop",
                                    "seed",
                                    "n",
                                    "{\"top_k\": 3}",
                                    "{\"stop\":[\"a\"],\"logit_bias\":{\"3\":1}}",
                                    "true",
                                    "3",
                                    "a",
                                    "",
                                    "1",
                                    "id",
                                    "structured_output",
                                    "priority"};
  inference::ModelInferRequest request;
  if (!rivulet::MessageFuzz(data, size, kWords).Read(request)) return -1;
  for (const bool ours : {false, true}) {
    if (ours) request.set_model_name("m");
    if (ours) request.clear_model_version();
    const auto read = rivulet::kserve::ReadInferRequest(request, "m");
    rivulet::CheckRead(read.status(), read.ok() ? read->proto : rivulet::v1::GenerateRequest());
    if (read.ok() && read->format.completions == 0) std::abort();
  }
  return 0;
}
