// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How far the load of a model is: a bar on stderr where it is a terminal, else a log line for each
// tenth. Nothing at log levels above info.
//
// Threading: one thread at a time.
#ifndef RIVULET_SERVER_LOG_LOAD_PROGRESS_H_
#define RIVULET_SERVER_LOG_LOAD_PROGRESS_H_

#include <functional>
#include <string>

namespace rivulet {

// To be called with the share done in [0, 1] and what is being done. The bar is erased when the
// last copy is destroyed, so that what is printed next has the line to itself.
std::function<void(double, const std::string&)> LoadProgress();

// "loading [#####...............]  25 %  layer 3 of 12", at most `columns` characters.
std::string LoadProgressLine(double share, const std::string& what, size_t columns);

}  // namespace rivulet

#endif  // RIVULET_SERVER_LOG_LOAD_PROGRESS_H_
