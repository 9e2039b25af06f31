// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a template can call, and the state of a loop. Threading: of one rendering, one thread.
#ifndef RIVULET_MODEL_LOADER_JINJA_CALLABLE_H_
#define RIVULET_MODEL_LOADER_JINJA_CALLABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/jinja/value.h"

namespace rivulet::jinja {

class Runtime;
class Arguments;
struct Statement;
struct Scope;

// The arguments of a call as they are written.
struct GivenArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  bool plain_names = false;  // a name came from a mapping (**) whose strings have plain bytes
};

using BuiltinFunction = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& subject,
                                                  Arguments& arguments);

// A filter, a test, a method or a function that we provide. `subject` is the value that is
// filtered, tested, or whose method it is. `parameters`: names, separated by spaces; a last "*"
// takes further arguments, by position or by name.
struct Builtin {
  std::string_view name;
  std::string_view parameters;
  BuiltinFunction run;
};

struct Callable {
  std::string name;
  const Builtin* builtin = nullptr;
  Value subject;                     // of a method
  const Statement* macro = nullptr;  // a macro, or the body of a call block
  std::weak_ptr<Scope> scope;        // where the macro was defined
};

// Of one loop that runs.
struct LoopState {
  std::vector<Value> items;
  size_t index = 0;  // from 0
  int depth = 0;     // of recursive calls, from 0
  bool called_changed = false;
  std::vector<Value> last_changed;
  const Statement* recursive = nullptr;  // what loop(...) runs again; null: it may not be called
  std::weak_ptr<Scope> scope;            // around the loop
  Charge charge;
};

// The arguments of a Builtin, matched with its parameters.
class Arguments {
 public:
  Arguments(Runtime& runtime, std::string_view callee) : runtime_(runtime), callee_(callee) {}

  // Matches by position, then by name. An error for an argument too many or an unknown name.
  absl::Status Bind(std::string_view parameters, GivenArguments given);

  // Null if it was not given.
  const Value* Given(size_t index) const;
  // An error names the parameter that is missing.
  absl::StatusOr<Value> Required(size_t index) const;
  bool Flag(size_t index) const;  // false by default
  absl::StatusOr<int64_t> Integer(size_t index, int64_t otherwise) const;
  // str(argument).
  absl::StatusOr<std::string> String(size_t index, std::string_view otherwise) const;
  // Of the parameter "*".
  GivenArguments& rest() { return rest_; }
  // Whether one of them is or holds a string with plain bytes.
  bool has_plain() const { return has_plain_; }

 private:
  absl::Status Place(std::string name, Value value, bool takes_rest);

  Runtime& runtime_;
  std::string_view callee_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
  GivenArguments rest_;
  bool has_plain_ = false;
};

// Null if there is none by that name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindFunction(std::string_view name);
const Builtin* FindMethod(const Value& subject, std::string_view name);
// A method of Python's that would change a list or a mapping, as append.
bool IsRefusedMethod(const Value& subject, std::string_view name);
// A filter or function of Jinja that this engine knows but does not provide.
bool IsUnsupportedFilter(std::string_view name);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_CALLABLE_H_
