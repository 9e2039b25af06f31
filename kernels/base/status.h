// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_BASE_STATUS_H_
#define RIVULET_KERNELS_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Errors that a caller, a file or a device can cause are returned as absl::Status. These two macros
// propagate them:
//
//   RIVULET_RETURN_IF_ERROR(CheckShape(tensor));
//   RIVULET_ASSIGN_OR_RETURN(Weights weights, LoadWeights(path));
//
// Both return the failed Status unchanged from the enclosing function, which must return
// absl::Status or absl::StatusOr. RIVULET_ASSIGN_OR_RETURN is more than one statement: it needs
// braces around it after an if. A type with a comma in it needs an alias or `auto`.

#define RIVULET_RETURN_IF_ERROR(expression)       \
  do {                                            \
    ::absl::Status rivulet_status = (expression); \
    if (!rivulet_status.ok()) [[unlikely]]        \
      return rivulet_status;                      \
  } while (false)

#define RIVULET_STATUS_CONCAT_INNER(a, b) a##b
#define RIVULET_STATUS_CONCAT(a, b) RIVULET_STATUS_CONCAT_INNER(a, b)

#define RIVULET_ASSIGN_OR_RETURN(declaration, expression)                                   \
  RIVULET_ASSIGN_OR_RETURN_INNER(RIVULET_STATUS_CONCAT(rivulet_or_, __LINE__), declaration, \
                                 expression)

#define RIVULET_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                           \
  if (!result.ok()) [[unlikely]]                                        \
    return std::move(result).status();                                  \
  declaration = *std::move(result)

#endif  // RIVULET_KERNELS_BASE_STATUS_H_
