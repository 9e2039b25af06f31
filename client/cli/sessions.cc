// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/sessions.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "client/cli/text.h"
#include "kernels/base/status.h"

namespace rivulet::cli {
namespace {

struct Column {
  const char* heading;
  size_t widest;  // longer text is cut
  std::string (*text)(const v1::Session& session, int64_t now_unix_ms);
};

// Ids are never cut, since users copy them.
constexpr size_t kUncut = 128;

constexpr Column kColumns[] = {
    {"ID", kUncut, [](const v1::Session& s, int64_t) { return OneLine(s.id()); }},
    {"NAME", 32, [](const v1::Session& s, int64_t) { return OneLine(s.name()); }},
    {"TOKENS", 12, [](const v1::Session& s, int64_t) { return std::to_string(s.position()); }},
    {"STATE", 12, [](const v1::Session& s, int64_t) { return Bytes(s.state_bytes()); }},
    {"BUSY", 4, [](const v1::Session& s, int64_t) { return std::string(s.busy() ? "yes" : "-"); }},
    {"LAST USED", 16,
     [](const v1::Session& s, int64_t now) { return Ago(s.last_used_unix_ms(), now); }},
};

size_t WidthOf(const Column& column, const std::vector<v1::Session>& sessions, int64_t now) {
  size_t width = std::string(column.heading).size();
  for (const v1::Session& s : sessions) width = std::max(width, DisplayWidth(column.text(s, now)));
  return std::min(width, column.widest);
}

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

absl::StatusOr<v1::Session> Find(Client& client, const std::string& key, SessionKey kind,
                                 const CallOptions& call) {
  auto session = FindSession(client, key, kind, call);
  if (session.ok()) return session;
  return WithNotFoundHint(session.status(), "`rivulet sessions` lists them");
}

int PrintAllJson(const std::vector<v1::Session>& sessions) {
  for (const v1::Session& session : sessions) {
    if (!PrintJson(session)) return 1;
  }
  return 0;
}

int List(Client& client, const SessionsOptions& options, const CallOptions& call) {
  const auto sessions = client.ListAllSessions(call);
  if (!sessions.ok()) return Fail(sessions.status());
  if (options.common.json) return PrintAllJson(*sessions);
  return Print(SessionsTable(*sessions, "", NowUnixMs())) ? 0 : 1;
}

int PrintOne(const absl::StatusOr<v1::Session>& session, bool json) {
  if (!session.ok()) return Fail(session.status());
  if (json) return PrintJson(*session) ? 0 : 1;
  return Print(SessionsTable({*session}, "", NowUnixMs())) ? 0 : 1;
}

// Prints the id alone, for scripts.
int Create(Client& client, const SessionsOptions& options, const CallOptions& call) {
  const auto session = client.CreateSession(options.create, call);
  if (!session.ok() || options.common.json) return PrintOne(session, options.common.json);
  return Print(session->id() + "\n") ? 0 : 1;
}

int Get(Client& client, const SessionsOptions& options, const CallOptions& call) {
  const auto session = Find(client, options.ids.at(0), SessionKey::kIdNameOrStart, call);
  return PrintOne(session, options.common.json);
}

int Rename(Client& client, const SessionsOptions& options, const CallOptions& call) {
  const auto session = Find(client, options.update.id(), SessionKey::kIdNameOrStart, call);
  if (!session.ok()) return Fail(session.status());
  v1::UpdateSessionRequest update = options.update;
  update.set_id(session->id());
  return PrintOne(client.UpdateSession(update, call), options.common.json);
}

int Tree(Client& client, const SessionsOptions& options, const CallOptions& call) {
  const auto sessions = client.ListAllSessions(call);
  if (!sessions.ok()) return Fail(sessions.status());
  if (options.common.json) return PrintAllJson(InTreeOrder(*sessions));
  return Print(SessionsTree(*sessions, "")) ? 0 : 1;
}

// Prints the id alone, for scripts.
int Fork(Client& client, const SessionsOptions& options, const CallOptions& call) {
  const auto session = Find(client, options.fork.id(), SessionKey::kIdNameOrStart, call);
  if (!session.ok()) return Fail(session.status());
  v1::ForkSessionRequest request = options.fork;
  request.set_id(session->id());
  const auto fork = client.ForkSession(request, call);
  if (!fork.ok() || options.common.json) return PrintOne(fork, options.common.json);
  return Print(fork->id() + "\n") ? 0 : 1;
}

int Rewind(Client& client, const SessionsOptions& options, const CallOptions& call) {
  const auto session = Find(client, options.rewind.id(), SessionKey::kIdOrName, call);
  if (!session.ok()) return Fail(session.status());
  v1::RewindSessionRequest request = options.rewind;
  request.set_id(session->id());
  return PrintOne(client.RewindSession(request, call), options.common.json);
}

int Delete(Client& client, const SessionsOptions& options, const CallOptions& call) {
  int code = 0;
  for (const std::string& id : options.ids) {
    const auto session = Find(client, id, SessionKey::kIdOrName, call);
    const absl::Status status =
        session.ok() ? client.DeleteSession(session->id(), call) : session.status();
    if (!status.ok()) code = Fail(status);
    if (absl::IsCancelled(status)) return code;
  }
  return code;
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
  RIVULET_ASSIGN_OR_RETURN(const std::vector<v1::Session> all, client.ListAllSessions(options));
  auto found = OnlyMatch(all, key, [&](const v1::Session& s) { return s.name() == key; });
  if (absl::IsNotFound(found.status()) && kind == SessionKey::kIdNameOrStart) {
    found = OnlyMatch(all, key, [&](const v1::Session& s) { return s.id().rfind(key, 0) == 0; });
  }
  // The server knows what happened to a session that it had.
  const bool told = absl::IsNotFound(found.status()) && absl::IsNotFound(session.status());
  return told ? WithoutAdvice(session.status()) : found;
}

absl::Status WithNotFoundHint(const absl::Status& status, const std::string& hint) {
  if (!absl::IsNotFound(status)) return status;
  return absl::NotFoundError(std::string(status.message()) + "; " + hint);
}

int64_t NowUnixMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string SessionsTable(std::vector<v1::Session> sessions, const std::string& current_id,
                          int64_t now_unix_ms) {
  std::stable_sort(sessions.begin(), sessions.end(), [](const auto& a, const auto& b) {
    return a.last_used_unix_ms() > b.last_used_unix_ms();
  });
  std::vector<std::string> lines = {" "};
  for (const v1::Session& s : sessions) lines.emplace_back(s.id() == current_id ? "*" : " ");
  for (const Column& column : kColumns) {
    const size_t width = WidthOf(column, sessions, now_unix_ms);
    lines[0].append(" ").append(Padded(column.heading, width)).append(" ");
    for (size_t i = 0; i < sessions.size(); ++i) {
      const std::string cell = Padded(column.text(sessions[i], now_unix_ms), width);
      lines[i + 1].append(" ").append(cell).append(" ");
    }
  }
  std::string table;
  for (const std::string& line : lines) {
    table += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return table;
}

namespace {

// Ids of forks by the id that they were forked from; those without one under "".
using Forks = std::map<std::string, std::vector<const v1::Session*>>;

Forks ForksOf(const std::vector<v1::Session>& sessions) {
  std::set<std::string> ids;
  for (const v1::Session& session : sessions) ids.insert(session.id());
  Forks forks;
  for (const v1::Session& session : sessions) {
    const bool known = ids.count(session.forked_from()) > 0;
    forks[known ? session.forked_from() : ""].push_back(&session);
  }
  for (auto& [id, of] : forks) {
    std::stable_sort(of.begin(), of.end(), [](const v1::Session* a, const v1::Session* b) {
      return a->created_unix_ms() < b->created_unix_ms();
    });
  }
  return forks;
}

std::string TreeLine(const v1::Session& session, size_t depth, const std::string& current_id) {
  std::string line = session.id() == current_id ? "* " : "  ";
  line.append(3 * depth, ' ').append(OneLine(session.id()));
  if (!session.name().empty()) line.append("  ").append(OneLine(session.name()));
  line.append("  ").append(Counted(session.position(), "token"));
  if (!session.forked_from().empty()) {
    line.append(", forked at ").append(std::to_string(session.forked_at()));
  }
  return line.append("\n");
}

// Each session and how deep it stands, above its forks. Without recursion: clients choose how deep
// forks are nested.
using Nested = std::vector<std::pair<const v1::Session*, size_t>>;

Nested NestedOf(const std::vector<v1::Session>& sessions) {
  const Forks forks = ForksOf(sessions);
  Nested open, nested;
  const auto push = [&](const std::string& id, size_t depth) {
    const auto found = forks.find(id);
    if (found == forks.end()) return;
    for (auto one = found->second.rbegin(); one != found->second.rend(); ++one) {
      open.emplace_back(*one, depth);
    }
  };
  push("", 0);
  while (!open.empty()) {
    const auto [session, depth] = nested.emplace_back(open.back());
    open.pop_back();
    push(session->id(), depth + 1);
  }
  return nested;
}

}  // namespace

std::string SessionsTree(const std::vector<v1::Session>& sessions, const std::string& current_id) {
  std::string tree;
  for (const auto& [session, depth] : NestedOf(sessions)) {
    tree += TreeLine(*session, std::min<size_t>(depth, 20), current_id);
  }
  return tree;
}

std::vector<v1::Session> InTreeOrder(const std::vector<v1::Session>& sessions) {
  std::vector<v1::Session> ordered;
  for (const auto& [session, depth] : NestedOf(sessions)) ordered.push_back(*session);
  return ordered;
}

int RunSessions(const SessionsOptions& options, Cancellation& cancellation) {
  UseUtf8Locale();
  Client client(options.common.server, options.common.access);
  const CallOptions call = MakeCallOptions(options.common, cancellation);
  switch (options.action) {
    case SessionsAction::kList:
      return List(client, options, call);
    case SessionsAction::kTree:
      return Tree(client, options, call);
    case SessionsAction::kGet:
      return Get(client, options, call);
    case SessionsAction::kCreate:
      return Create(client, options, call);
    case SessionsAction::kRename:
      return Rename(client, options, call);
    case SessionsAction::kFork:
      return Fork(client, options, call);
    case SessionsAction::kRewind:
      return Rewind(client, options, call);
    case SessionsAction::kDelete:
      return Delete(client, options, call);
  }
  return 1;
}

}  // namespace rivulet::cli
