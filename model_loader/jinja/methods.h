// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_MODEL_LOADER_JINJA_METHODS_H_
#define RIVULET_MODEL_LOADER_JINJA_METHODS_H_

#include <string_view>

#include "model_loader/jinja/callable.h"

namespace rivulet::jinja {

// Of strings. Null if there is none by that name.
const Builtin* FindTextMethod(std::string_view name);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_METHODS_H_
