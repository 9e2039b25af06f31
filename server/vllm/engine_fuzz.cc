// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target of what clients send in vLLM's engine protocol. Built with -DRIVULET_FUZZ=ON by
// clang:
//   build/<preset>/test/engine_fuzz -max_len=1024 -runs=1000000
#include "server/rpc/message_fuzz.h"
#include "server/vllm/engine_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr const char* kWords[] = {"{}", "a", "", "(a|b)*", "root ::= \"a\"", "{\"type\":3}", "é"};
  vllm::grpc::engine::GenerateRequest request;
  if (!rivulet::MessageFuzz(data, size, kWords).Read(request)) return -1;
  const auto read = rivulet::vllm_engine::ReadRequest(request);
  rivulet::CheckRead(read.status(), read.ok() ? read->proto : rivulet::v1::GenerateRequest());
  return 0;
}
