// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/template.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/jinja/interpreter.h"
#include "model_loader/jinja/parser.h"

namespace rivulet::jinja {

absl::StatusOr<Template> Template::Parse(std::string_view source) {
  auto syntax = jinja::Parse(source);
  if (syntax.ok()) return Template(*std::move(syntax));
  return absl::InvalidArgumentError(
      absl::StrCat("the template is not valid: ", syntax.status().message()));
}

absl::StatusOr<MarkedText> Template::Render(const Value& input,
                                            const RenderOptions& options) const {
  if (input.mapping() == nullptr) return TypeError("the input of a template is a mapping");
  Interpreter interpreter(syntax_, options.limits, options.now);
  auto text = interpreter.Render(*input.mapping());
  if (text.ok()) return text;
  if (interpreter.refused()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the template refuses the input: ", text.status().message()));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the template fails in line ", interpreter.failed_line(), ": ", text.status().message()));
}

}  // namespace rivulet::jinja
