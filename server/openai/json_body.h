// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// JSON bodies of requests, read field by field. Every error is INVALID_ARGUMENT and names its
// field, in the text and for ErrorResponse (errors.h).
//
// Threading: pure functions; a reader belongs to one thread. No exception leaves, but for
// std::bad_alloc.
#ifndef RIVULET_SERVER_OPENAI_JSON_BODY_H_
#define RIVULET_SERVER_OPENAI_JSON_BODY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/service/client_json.h"

namespace rivulet::openai {

using Json = ClientJson;

// A request's body, as ParseClientJson.
inline absl::StatusOr<Json> ParseJson(std::string_view text) {
  return ParseClientJson(text, "the body");
}

// An error of one field, which is then the `param` of the response. `code`: OpenAI's, may be empty.
absl::Status FieldError(const std::string& field, const std::string& problem,
                        const std::string& code = "");

// The text of a value for a request's field or an error; bytes that are not UTF-8 are replaced.
std::string Dump(const Json& value);

// Reads the fields of an object. A field that is null counts as absent. The first error is kept in
// status(); what is read after it is of no use.
class FieldReader {
 public:
  // `prefix` is put before names in errors. The object outlives the reader.
  FieldReader(const Json& object, std::string prefix);

  // Null if absent.
  const Json* Find(const std::string& name);
  std::optional<std::string> Text(const std::string& name);
  std::optional<bool> Bool(const std::string& name);
  std::optional<double> Number(const std::string& name);
  // Within [-2^63, 2^63).
  std::optional<int64_t> Integer(const std::string& name);
  // Within [0, 2^32).
  std::optional<uint32_t> Count(const std::string& name);
  // Null if absent or, with an error, of another kind.
  const Json* Array(const std::string& name);
  const Json* Object(const std::string& name);

  // The field changes nothing here.
  void Ignore(const std::string& name) { known_.insert(name); }
  // The field is not served, unless it has the value that changes nothing.
  void Refuse(const std::string& name, const std::string& remedy, const Json& harmless = nullptr);

  void Fail(const std::string& name, const std::string& problem, const std::string& code = "");
  // Keeps an error of another reader.
  void Update(const absl::Status& status) { status_.Update(status); }
  const absl::Status& status() const { return status_; }
  // status(), or an error for the first field that is there and was not asked for.
  absl::Status Finish();

 private:
  const Json* FindKind(const std::string& name, bool (*is)(const Json&), const char* wanted);

  const Json& object_;
  const std::string prefix_;
  std::set<std::string> known_;
  absl::Status status_;
};

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_JSON_BODY_H_
