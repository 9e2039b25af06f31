// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/find_session.h"

#include <string_view>
#include <vector>

namespace rivulet::cli {
namespace {

absl::Status Ambiguous(const std::string& key, const std::vector<v1::Session>& matches) {
  constexpr size_t kNamed = 8;
  std::string text = std::to_string(matches.size()) + " sessions match " + key + "; choose one of:";
  for (size_t i = 0; i < matches.size() && i < kNamed; ++i) text += " " + matches[i].id();
  if (matches.size() > kNamed) text += " ...";
  return absl::FailedPreconditionError(text);
}

// The only session that `matches` accepts; NOT_FOUND if none.
template <typename Matches>
absl::StatusOr<v1::Session> OnlyMatch(const std::vector<v1::Session>& sessions,
                                      const std::string& key, Matches matches) {
  std::vector<v1::Session> found;
  for (const v1::Session& session : sessions) {
    if (matches(session)) found.push_back(session);
  }
  if (found.size() > 1) return Ambiguous(key, found);
  if (found.size() == 1) return found[0];
  return absl::NotFoundError("no session has the id or name " + key);
}

// The server's message about a session that it had, without the advice for programs that follows
// the last semicolon.
absl::Status WithoutAdvice(const absl::Status& status) {
  const std::string message(status.message());
  return absl::Status(status.code(), message.substr(0, message.rfind("; ")));
}

}  // namespace

absl::StatusOr<v1::Session> FindSession(Client& client, const std::string& key, SessionKey kind,
                                        const CallOptions& options) {
  // An empty key would match every session without a name.
  if (key.empty()) return absl::InvalidArgumentError("the session's id or name is empty");
  // INVALID_ARGUMENT means that the key is not a valid id; it may still be a name.
  absl::StatusOr<v1::Session> session = client.GetSession(key, options);
  if (!absl::IsNotFound(session.status()) && !absl::IsInvalidArgument(session.status())) {
    return session;
  }
  const absl::StatusOr<std::vector<v1::Session>> all = client.ListAllSessions(options);
  if (!all.ok()) return all.status();
  auto found = OnlyMatch(*all, key, [&](const v1::Session& s) { return s.name() == key; });
  if (absl::IsNotFound(found.status()) && kind == SessionKey::kIdNameOrStart) {
    found = OnlyMatch(*all, key, [&](const v1::Session& s) { return s.id().rfind(key, 0) == 0; });
  }
  // The server knows what happened to a session that it had.
  const bool told = absl::IsNotFound(found.status()) && absl::IsNotFound(session.status());
  return told ? WithoutAdvice(session.status()) : found;
}

absl::Status WithNotFoundHint(const absl::Status& status, const std::string& hint) {
  if (!absl::IsNotFound(status)) return status;
  return absl::NotFoundError(std::string(status.message()) + "; " + hint);
}

}  // namespace rivulet::cli
