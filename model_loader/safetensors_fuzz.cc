// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target of the safetensors header. Built with -DRIVULET_FUZZ=ON by clang:
//   build/<preset>/test/safetensors_fuzz -max_len=4096 -max_total_time=60
#include "model_loader/safetensors_header.h"

// What a caller does with the table: reads every byte of every tensor.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = rivulet::ParseSafetensors({data, size}, "fuzz");
  if (!tensors.ok()) return 0;
  uint8_t sum = 0;
  for (const rivulet::StoredTensor& tensor : *tensors) {
    for (size_t i = 0; i < tensor.bytes; ++i) sum = static_cast<uint8_t>(sum + tensor.data[i]);
  }
  volatile uint8_t sink = sum;  // keeps the reads
  static_cast<void>(sink);
  return 0;
}
