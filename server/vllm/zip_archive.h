// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A zip archive in memory: deflated files without folders, dates or Zip64.
#ifndef RIVULET_SERVER_VLLM_ZIP_ARCHIVE_H_
#define RIVULET_SERVER_VLLM_ZIP_ARCHIVE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rivulet::vllm_engine {

class ZipArchive {
 public:
  // RESOURCE_EXHAUSTED when the archive would be over 2 GiB.
  absl::Status Add(std::string_view name, std::string_view content);
  // The archive's bytes; nothing may be added after.
  std::string Finish();

 private:
  std::string files_, directory_;
  uint16_t count_ = 0;
};

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_ZIP_ARCHIVE_H_
