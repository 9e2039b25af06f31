// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/chat.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/chat/command.h"
#include "client/cli/sessions.h"
#include "client/cli/text.h"

namespace rivulet::cli {
namespace {

constexpr int kInterruptedCode = 130;
constexpr int kTerminatedCode = 143;
constexpr double kGoodbyeSeconds = 2;

// The loop of a chat. Every call to the server is made in WithCall, so that ctrl-C reaches it.
class Chat {
 public:
  Chat(const ChatOptions& options, const v1::Model& model, Client& client, bool interactive,
       SignalWatcher& signals, LineReader& reader, Screen& screen)
      : options_(options),
        model_(model),
        interactive_(interactive),
        signals_(signals),
        reader_(reader),
        screen_(screen),
        client_(client),
        conversation_(client, options.request, model.has_chat_template(), options.system) {}

  int Run() {
    conversation_.SetThinking(options_.thinking);
    Start();
    while (!code_) Step();
    CommonOptions goodbye = options_.common;
    goodbye.timeout_seconds = kGoodbyeSeconds;
    Cancellation never;
    conversation_.DeleteUnnamed(MakeCallOptions(goodbye, never));
    return *code_;
  }

 private:
  // Runs `call`. Ctrl-C asks the server to end the running turn; if pressed again, or if no turn
  // runs, it abandons the call.
  template <typename Function>
  auto WithCall(Function call) {
    Cancellation cancellation;
    interrupted_ = false;
    const SignalWatcher::DuringCall during(signals_, [&](int times, bool terminate) {
      interrupted_ = true;
      if (terminate || times > 1 || !conversation_.CancelTurn()) cancellation.Cancel();
    });
    return call(MakeCallOptions(options_.common, cancellation));
  }

  // Resumes the requested session and prints the greeting.
  void Start() {
    if (!options_.session.empty()) {
      const absl::Status status = SwitchTo(options_.session);
      if (!status.ok()) {
        screen_.Error(WithNotFoundHint(status, "`rivulet sessions` lists them"));
        return End(1);
      }
      if (!options_.system.empty() && conversation_.begun()) {
        screen_.Error(absl::StrCat("--system: ", options_.session,
                                   " has begun, and keeps what it began with; leave it out"));
        return End(1);
      }
    }
    if (interactive_) Greet();
  }

  absl::Status SwitchTo(const std::string& key) {
    return WithCall([&](const CallOptions& call) { return conversation_.Switch(key, call); });
  }

  void Greet() {
    screen_.Note(absl::StrCat(model_.name(),
                              model_.has_chat_template()
                                  ? " answers your messages."
                                  : " continues your text; an empty line lets it continue.",
                              " /help lists the commands, ctrl-D ends."));
    if (!conversation_.id().empty()) ShowCurrent();
  }

  void Step() {
    const ReadResult input = ReadText();
    switch (input.outcome) {
      case ReadResult::kLine:
        return Obey(ParseCommand(input.line));
      case ReadResult::kEnd:
        return End(0);
      case ReadResult::kInterrupted:
        return interactive_ ? void() : End(kInterruptedCode);
      case ReadResult::kTerminated:
        return End(kTerminatedCode);
    }
  }

  void End(int code) { code_ = code; }

  // Reads a line and its continuations. The first line decides whether it is a command.
  ReadResult ReadText() {
    const std::string name = OneLine(conversation_.name());
    ReadResult result = reader_.Read(absl::StrCat(name, "> "));
    if (result.outcome != ReadResult::kLine) return result;
    reader_.AddToHistory(result.line);
    while (TakeContinuation(result.line)) {
      ReadResult next = reader_.Read("... ");
      if (next.outcome != ReadResult::kLine) return next;
      reader_.AddToHistory(next.line);
      result.line.append("\n").append(next.line);
    }
    return result;
  }

  void Obey(const Command& command) {
    switch (command.kind) {
      case CommandKind::kText:
        return Say(command.argument);
      case CommandKind::kNew:
        conversation_.StartNew(command.argument);
        last_line_.reset();
        return screen_.Note("a new session, created with your first line");
      case CommandKind::kName:
        return Name(command.argument);
      case CommandKind::kSessions:
        return ShowSessions();
      case CommandKind::kSwitch:
        return Switch(command.argument);
      case CommandKind::kUndo:
        return Undo();
      case CommandKind::kRetry:
        return Retry();
      case CommandKind::kFork:
        return Fork(command.argument);
      case CommandKind::kTree:
        return ShowTree();
      case CommandKind::kStats:
        return ShowStats();
      case CommandKind::kHelp:
        return screen_.Table(std::string(CommandHelp()));
      case CommandKind::kQuit:
        return End(0);
      case CommandKind::kUnknown:
        return screen_.Error(
            absl::StrCat("no command ", command.argument,
                         "; /help lists them, // sends a line that begins with /"));
    }
  }

  void Say(const std::string& text) {
    if (text.empty() && conversation_.sends_messages()) return;
    if (!IsUtf8(text)) return Failed(absl::InvalidArgumentError("the line is not UTF-8"));
    last_line_ = text;
    absl::Status status = RunTurn(text);
    if (absl::IsUnimplemented(status) && conversation_.sends_messages()) {
      if (!DoWithoutTemplate()) return;
      status = RunTurn(text);
    }
    if (code_) return;
    if (status.ok()) return screen_.TurnSummary(conversation_.last_turn());
    Failed(status);
    if (interactive_) Explain(status);
  }

  // The conversation as it was before its last turn. False: it is as it was.
  bool TakeBack() {
    const absl::StatusOr<uint64_t> left =
        WithCall([&](const CallOptions& call) { return conversation_.Undo(call); });
    if (left.ok()) {
      screen_.Note(absl::StrCat("took back the last turn; ", Counted(*left, "token"), " left"));
      return true;
    }
    if (absl::IsFailedPrecondition(left.status())) {
      screen_.Note(std::string(left.status().message()));
    } else {
      Failed(left.status());
    }
    return false;
  }

  void Undo() {
    if (TakeBack()) last_line_.reset();
  }

  void Retry() {
    if (!last_line_.has_value()) return screen_.Note("there is no line of yours to send again");
    const std::string line = *last_line_;
    if (TakeBack()) Say(line);
  }

  void Fork(const std::string& name) {
    const absl::Status status =
        WithCall([&](const CallOptions& call) { return conversation_.Fork(name, call); });
    if (absl::IsFailedPrecondition(status)) return screen_.Note(std::string(status.message()));
    if (!status.ok()) return Failed(status);
    ShowCurrent();
  }

  void ShowTree() {
    const absl::StatusOr<std::vector<v1::Session>> sessions =
        WithCall([&](const CallOptions& call) { return client_.ListAllSessions(call); });
    if (!sessions.ok()) return Failed(sessions.status());
    screen_.Table(SessionsTree(*sessions, conversation_.id()));
  }

  absl::Status RunTurn(const std::string& text) {
    bool read = true, begun = false;
    absl::Status status = WithCall([&](const CallOptions& call) {
      return conversation_.Say(text, call, [&](const std::string& piece) {
        if (!std::exchange(begun, true)) screen_.BeginText(conversation_.starts_thinking());
        read = screen_.Text(piece);
        return read;
      });
    });
    screen_.EndText();
    if (!read) End(1);  // standard output is closed
    return status.ok() && EndedByServer()
               ? absl::UnavailableError("the server ended the answer before it was complete")
               : status;
  }

  // A server that shuts down ends its turns as if the client had asked for it.
  bool EndedByServer() const {
    return conversation_.last_turn().finish_reason == v1::FINISH_REASON_CANCELLED && !interrupted_;
  }

  // For a model with a chat template on a server that does not apply templates. False if the chat
  // cannot continue.
  bool DoWithoutTemplate() {
    const std::string why = "this server does not apply chat templates";
    if (!options_.system.empty()) {
      screen_.Error(absl::StrCat("--system: ", why, "; leave it out and start with the text"));
      End(1);
      return false;
    }
    screen_.Note(
        absl::StrCat("warning: ", why, "; ", model_.name(),
                     " continues your text as it stands; an empty line lets it continue."));
    conversation_.FallBackToText();
    return true;
  }

  // The server's own messages begin like this; others are from gRPC, which did not reach a server.
  static bool ServerSaid(const absl::Status& status) {
    return absl::StartsWith(status.message(), "the server");
  }

  // How to continue after a failed turn.
  void Explain(const absl::Status& status) {
    if (absl::IsNotFound(status)) {
      screen_.Note("The session is gone, and its text with it. Your next line starts a new one.");
    } else if (absl::IsUnavailable(status)) {
      const std::string silence = absl::StrCat("No answer from ", options_.common.server, ". ");
      screen_.Note(absl::StrCat(ServerSaid(status) ? "" : silence,
                                "The next line tries again; arrow up brings this one back."));
    } else if (absl::IsAborted(status)) {
      screen_.Note("Another client is using this session. Try again, or /new.");
    }
  }

  void Failed(const absl::Status& status) {
    screen_.Error(status);
    if (!interactive_) End(1);
  }

  void Name(const std::string& name) {
    const std::string& current = conversation_.name();
    if (name.empty() && current.empty()) return screen_.Note("the session has no name");
    if (name.empty()) return screen_.Note(absl::StrCat("its name is ", current));
    const absl::Status status =
        WithCall([&](const CallOptions& call) { return conversation_.SetName(name, call); });
    if (!status.ok()) return Failed(status);
    screen_.Note(absl::StrCat("its name is ", name, "; it is kept when you leave"));
  }

  void Switch(const std::string& key) {
    if (key.empty())
      return screen_.Error("/switch needs the id or name of a session; /sessions lists them");
    const absl::Status status = SwitchTo(key);
    if (!status.ok()) return Failed(WithNotFoundHint(status, "/sessions lists them"));
    last_line_.reset();
    ShowCurrent();
  }

  void ShowCurrent() {
    const std::string& name = conversation_.name();
    screen_.Note(absl::StrCat("session ", conversation_.id(), name.empty() ? "" : ", ", name));
  }

  void ShowSessions() {
    const absl::StatusOr<std::vector<v1::Session>> sessions =
        WithCall([&](const CallOptions& call) { return client_.ListAllSessions(call); });
    if (!sessions.ok()) return Failed(sessions.status());
    screen_.Table(SessionsTable(*sessions, conversation_.id(), NowUnixMs()));
    if (conversation_.id().empty())
      screen_.Note("yours is new and will be created with your first line");
  }

  void ShowStats() {
    const absl::StatusOr<v1::Session> session =
        WithCall([&](const CallOptions& call) { return conversation_.Describe(call); });
    const absl::Status& status = session.status();
    if (absl::IsFailedPrecondition(status)) return screen_.Note(std::string(status.message()));
    if (!status.ok()) return Failed(status);
    screen_.Table(StatsText(*session));
  }

  static std::string StateText(const v1::Session& session) {
    if (session.tier().empty()) return "none yet";
    const bool memory = session.tier() == "host" || session.tier() == "device";
    return absl::StrCat(Bytes(session.state_bytes()), " in ", OneLine(session.tier()),
                        memory ? " memory" : "");
  }

  std::string StatsText(const v1::Session& session) const {
    const std::string name = session.name().empty() ? "" : absl::StrCat(" (", session.name(), ")");
    std::string text = absl::StrCat("session    ", OneLine(session.id()), OneLine(name),
                                    "\nposition   ", Counted(session.position(), "token"),
                                    "\nstate      ", StateText(session), "\n");
    const TurnNumbers& turn = conversation_.last_turn();
    if (turn.finish_reason == v1::FINISH_REASON_UNSPECIFIED) return text;
    absl::StrAppend(&text, "last turn  ", Counted(turn.usage.prompt_tokens(), "prompt token"), ", ",
                    OneLine(Summary(turn)), "\nseed       ", turn.seed, "\n");
    return text;
  }

  const ChatOptions& options_;
  const v1::Model& model_;
  const bool interactive_;
  SignalWatcher& signals_;
  LineReader& reader_;
  Screen& screen_;
  Client& client_;
  Conversation conversation_;
  std::optional<std::string> last_line_;  // of the last turn, while /retry can send it again
  std::optional<int> code_;
  std::atomic<bool> interrupted_ = false;  // a signal came during the call
};

}  // namespace

int RunChat(const ChatOptions& options, bool interactive, SignalWatcher& signals,
            LineReader& reader, Screen& screen) {
  Client client(options.common.server, options.common.access);
  Cancellation cancellation;
  absl::StatusOr<v1::Model> model;
  {
    const SignalWatcher::DuringCall during(signals, [&](int, bool) { cancellation.Cancel(); });
    model = client.GetModel(MakeCallOptions(options.common, cancellation));
  }
  if (!model.ok()) return screen.Error(model.status()), 1;
  if (!options.system.empty() && !model->has_chat_template()) {
    screen.Error(absl::StrCat("--system: ", model->name(),
                              " has no chat template; start with the text instead"));
    return 1;
  }
  if (options.thinking.has_value() && !model->has_chat_template()) {
    screen.Error(
        absl::StrCat("--thinking: ", model->name(), " has no chat template; leave it out"));
    return 1;
  }
  if (!model->has_tokenizer()) {
    screen.Error(absl::StrCat(model->name(), " has no tokenizer; use generate --tokens"));
    return 1;
  }
  return Chat(options, *model, client, interactive, signals, reader, screen).Run();
}

int RunChat(const ChatOptions& options) {
  UseUtf8Locale();
  SignalWatcher signals;
  const Screen::Style style = Screen::StyleOfStandardStreams();
  Screen screen(stdout, stderr, style);
  std::unique_ptr<LineReader> reader;
  if (isatty(STDIN_FILENO)) reader = MakeTerminalReader(signals, HistoryFile(), style.colours);
  const bool interactive = reader != nullptr;
  if (reader == nullptr) reader = MakePipeReader(signals);
  return RunChat(options, interactive, signals, *reader, screen);
}

}  // namespace rivulet::cli
