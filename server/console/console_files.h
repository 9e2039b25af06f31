// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The files of server/console/files, which the build puts into the program (embed.cmake).
#ifndef RIVULET_SERVER_CONSOLE_CONSOLE_FILES_H_
#define RIVULET_SERVER_CONSOLE_CONSOLE_FILES_H_

#include <span>
#include <string_view>

namespace rivulet {

struct ConsoleFile {
  std::string_view name;
  std::string_view bytes;
  std::string_view etag;  // in quotes; changes with the bytes
};

std::span<const ConsoleFile> ConsoleFiles();

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONSOLE_CONSOLE_FILES_H_
