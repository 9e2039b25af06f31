// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A Jinja template, as transformers runs those of chat models: Jinja 3.1 in its immutable sandbox,
// with trim_blocks and lstrip_blocks, break and continue, tojson as json.dumps, raise_exception,
// strftime_now and {% generation %}. README.md in this folder lists what is provided.
//
// It deliberately has no access to files, the network, the environment or other templates, and
// every rendering is bounded (Limits): no template and no input ends the process or keeps a thread
// for long. Threading: const after Parse; Render may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_JINJA_TEMPLATE_H_
#define RIVULET_MODEL_LOADER_JINJA_TEMPLATE_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "model_loader/jinja/budget.h"
#include "model_loader/jinja/runtime.h"
#include "model_loader/jinja/syntax.h"
#include "model_loader/jinja/value.h"

namespace rivulet::jinja {

struct RenderOptions {
  Limits limits;
  Clock now;  // what strftime_now shows, in the process's time zone
};

class Template {
 public:
  // INVALID_ARGUMENT naming the line of what is not valid.
  static absl::StatusOr<Template> Parse(std::string_view source);

  // The text; what it copies from the input keeps its marks. `input` is a mapping of names to
  // values. INVALID_ARGUMENT when the template refuses the input (raise_exception: the message is
  // the template's), uses a value wrongly, or exceeds a limit; nothing is left behind.
  absl::StatusOr<MarkedText> Render(const Value& input, const RenderOptions& options) const;

 private:
  explicit Template(Syntax syntax) : syntax_(std::move(syntax)) {}

  Syntax syntax_;
};

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_TEMPLATE_H_
