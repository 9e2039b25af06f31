// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where a model's files are, for what a user names: a directory with config.json, or a model in the
// layout of the hub's cache, of which one snapshot is served:
//
//   models--ORG--NAME/refs/main           the commit that "main" was when it was downloaded
//   models--ORG--NAME/snapshots/COMMIT/   links to the files
//   models--ORG--NAME/blobs/              the files
//
// It looks at names and at the first bytes of small files. A folder without a model, a model in
// another form (GGUF, GPTQ ...) and an incomplete download are named before anything is read.
// It does not download, and changes nothing. Threading: a pure function of the file system.
#ifndef RIVULET_MODEL_LOADER_MODEL_FOLDER_H_
#define RIVULET_MODEL_LOADER_MODEL_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

struct ModelFolder {
  std::string directory;  // with the files
  std::string name;       // its last component, or ORG/NAME
  std::string commit;     // of a snapshot; empty: none
};

// NOT_FOUND: there is no such directory, it has no snapshot, or a file's download is incomplete (a
// link that leads nowhere, a Git LFS pointer). INVALID_ARGUMENT: it is not clear which model or
// snapshot is meant. UNIMPLEMENTED: a form of weights that is not read. The message says what to
// do.
absl::StatusOr<ModelFolder> FindModelFolder(const std::string& path);

// UNIMPLEMENTED, with the name of the method, for a config.json whose weights are quantised.
absl::Status CheckNotQuantised(const nlohmann::json& config);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MODEL_FOLDER_H_
