// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The files of the model's folder that a gateway needs to tokenize, in one archive.
// Threading: any thread.
#ifndef RIVULET_SERVER_VLLM_TOKENIZER_BUNDLE_H_
#define RIVULET_SERVER_VLLM_TOKENIZER_BUNDLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"

namespace rivulet::vllm_engine {

struct TokenizerArchive {
  std::string zip;
  std::string sha256;  // in hexadecimal digits
};

class TokenizerBundle {
 public:
  // `folder`: with config.json. `begin_ids`: what a text that begins a context gets before it.
  TokenizerBundle(std::string folder, std::vector<uint32_t> begin_ids)
      : folder_(std::move(folder)), begin_ids_(std::move(begin_ids)) {}

  // Made by the first call, which takes up to seconds: on a worker. FAILED_PRECONDITION if the
  // folder has no tokenizer; UNIMPLEMENTED for one that tokenizer.json cannot say. After a failure
  // the next call tries again.
  absl::StatusOr<std::shared_ptr<const TokenizerArchive>> Get();

 private:
  const std::string folder_;
  const std::vector<uint32_t> begin_ids_;
  Mutex mutex_;
  std::shared_ptr<const TokenizerArchive> archive_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_TOKENIZER_BUNDLE_H_
