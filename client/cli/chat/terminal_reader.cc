// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>  // before histedit.h, which names FILE without it
//
#include <histedit.h>

#include <cstdlib>
#include <cwchar>
#include <filesystem>
#include <system_error>

#include "client/cli/chat/line_reader.h"

namespace rivulet::cli {
namespace {

constexpr int kHistoryLines = 1000;
// Encloses characters of a prompt that take no space on the screen.
constexpr char kInvisible = '\1';

// libedit's defaults, and the keys that users expect in addition.
void BindKeys(EditLine* editor) {
  el_set(editor, EL_EDITOR, "emacs");
  const char* const keys[][2] = {
      {"^R", "em-inc-search-prev"},      {"^W", "ed-delete-prev-word"},
      {"\\e[3~", "ed-delete-next-char"}, {"\\e[1~", "ed-move-to-beg"},
      {"\\e[4~", "ed-move-to-end"},      {"\\e[1;5C", "em-next-word"},
      {"\\e[1;5D", "ed-prev-word"},
  };
  for (const auto& [key, function] : keys) el_set(editor, EL_BIND, key, function, nullptr);
  el_source(editor, nullptr);  // the user's ~/.editrc takes precedence
}

// A pipe or a device could be read forever.
bool MayLoad(const std::string& file) {
  constexpr off_t kLargestHistory = off_t{16} << 20;
  struct stat status;
  return stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_size <= kLargestHistory;
}

// The lines of earlier runs and of this one, in libedit's format. Each line is appended when it is
// entered, so that concurrent programs keep each other's lines.
class LineHistory {
 public:
  explicit LineHistory(std::string file) : file_(std::move(file)), history_(history_init()) {
    Do(H_SETSIZE, kHistoryLines);
    Do(H_SETUNIQUE, 1);
    if (!MayLoad(file_)) return;
    const int loaded = Do(H_LOAD, file_.c_str());
    if (loaded > 2 * kHistoryLines) Do(H_SAVE, file_.c_str());  // leaves the newest
  }
  ~LineHistory() { history_end(history_); }
  LineHistory(const LineHistory&) = delete;
  LineHistory& operator=(const LineHistory&) = delete;

  void Add(const std::string& line) {
    if (Do(H_ENTER, line.c_str()) >= 0) Append(line);
  }
  History* get() { return history_; }

 private:
  template <typename Argument>
  int Do(int operation, Argument argument) {
    HistEvent event;
    return history(history_, &event, operation, argument);
  }

  // Failures are ignored: the chat works without a saved history.
  void Append(const std::string& line) {
    if (file_.empty()) return;
    MakePrivateFolder(std::filesystem::path(file_).parent_path());
    const int descriptor = open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (descriptor < 0) return;
    FILE* const file = fdopen(descriptor, "a");
    if (file == nullptr) {
      close(descriptor);
      return;
    }
    std::fseek(file, 0, SEEK_END);  // libedit writes its heading where the position is 0
    WriteAlone(line, file);
    std::fclose(file);
  }

  // libedit can only write whole histories, so this writes one that holds a single line.
  static void WriteAlone(const std::string& line, FILE* file) {
    History* const alone = history_init();
    HistEvent event;
    history(alone, &event, H_SETSIZE, 1);
    history(alone, &event, H_ENTER, line.c_str());
    history(alone, &event, H_SAVE_FP, file);
    history_end(alone);
  }

  static void MakePrivateFolder(const std::filesystem::path& folder) {
    std::error_code ignored;
    std::filesystem::create_directories(folder.parent_path(), ignored);
    mkdir(folder.c_str(), 0700);
  }

  const std::string file_;
  History* const history_;
};

class TerminalReader final : public LineReader {
 public:
  TerminalReader(SignalWatcher& signals, const std::string& history_file, bool bold_prompt)
      : signals_(signals),
        bold_prompt_(bold_prompt),
        // If standard output is a file, the line is still edited on the terminal.
        screen_(isatty(STDOUT_FILENO) ? stdout : stderr),
        history_(history_file),
        editor_(el_init("rivulet", stdin, screen_, stderr)) {
    if (editor_ == nullptr) return;
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT_ESC, &TerminalReader::Prompt, kInvisible);
    el_set(editor_, EL_HIST, &history, history_.get());
    el_set(editor_, EL_GETCFN, &TerminalReader::GetCharacter);
    BindKeys(editor_);
  }
  ~TerminalReader() override {
    if (editor_ != nullptr) el_end(editor_);
  }

  bool usable() const { return editor_ != nullptr; }

  ReadResult Read(const std::string& prompt) override {
    const std::string mark(1, kInvisible);
    prompt_ = bold_prompt_ ? mark + "\033[1m" + mark + prompt + mark + "\033[0m" + mark : prompt;
    outcome_ = ReadResult::kEnd;
    int count = 0;
    // libedit would do this after the prompt, and the kernel would edit keys that arrive before.
    el_set(editor_, EL_PREP_TERM, 1);
    const char* const text = el_gets(editor_, &count);
    if (text != nullptr && count > 0) return {ReadResult::kLine, WithoutNewline(text, count)};
    std::fputs(outcome_ == ReadResult::kInterrupted ? "^C\n" : "\n", screen_);
    std::fflush(screen_);
    return {outcome_, ""};
  }

  void AddToHistory(const std::string& line) override {
    if (!line.empty()) history_.Add(line);
  }

 private:
  static TerminalReader* Self(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<TerminalReader*>(self);
  }
  static char* Prompt(EditLine* editor) { return Self(editor)->prompt_.data(); }
  static int GetCharacter(EditLine* editor, wchar_t* character) {
    return Self(editor)->Next(character);
  }

  static std::string WithoutNewline(const char* text, int count) {
    std::string line(text, static_cast<size_t>(count));
    if (line.back() == '\n') line.pop_back();
    return line;
  }

  // For EL_GETCFN: returns 1 for a character, 0 at the end, -1 to abandon the line.
  int Next(wchar_t* character) {
    for (;;) {
      const InputEvent event = signals_.Wait(STDIN_FILENO);
      if (event == InputEvent::kInterrupted) return GiveUp(ReadResult::kInterrupted);
      if (event == InputEvent::kTerminated) return GiveUp(ReadResult::kTerminated);
      if (event == InputEvent::kResized) Redraw();
      if (event == InputEvent::kResumed) TakeTerminalBack();
      if (event != InputEvent::kReadable) continue;
      if (const int read = ReadCharacter(character); read != kIncomplete) return read;
    }
  }

  int GiveUp(ReadResult::Outcome outcome) {
    outcome_ = outcome;
    partial_ = {};
    return -1;
  }

  // The terminal has reflowed the line.
  void Redraw() {
    el_resize(editor_);
    std::fputs("\r", screen_);
    el_set(editor_, EL_ECHOTC, "cd", nullptr);  // clears to the end of the screen
    el_set(editor_, EL_REFRESH);
  }

  // The shell changed the terminal's mode while the program was stopped.
  void TakeTerminalBack() {
    el_set(editor_, EL_PREP_TERM, 0);
    el_set(editor_, EL_PREP_TERM, 1);
    el_set(editor_, EL_REFRESH);
  }

  // Reads one byte; sets `character` if that completes one.
  int ReadCharacter(wchar_t* character) {
    char byte = 0;
    const ssize_t bytes = read(STDIN_FILENO, &byte, 1);
    if (bytes == 0) return 0;
    if (bytes < 0) return errno == EINTR || errno == EAGAIN ? kIncomplete : 0;
    const size_t taken = std::mbrtowc(character, &byte, 1, &partial_);
    if (taken == static_cast<size_t>(-1)) partial_ = {};  // not UTF-8: not a character
    return taken <= 1 ? 1 : kIncomplete;
  }

  static constexpr int kIncomplete = 2;

  SignalWatcher& signals_;
  const bool bold_prompt_;
  FILE* const screen_;
  LineHistory history_;
  EditLine* const editor_;
  std::string prompt_;
  std::mbstate_t partial_{};
  ReadResult::Outcome outcome_ = ReadResult::kEnd;
};

}  // namespace

std::unique_ptr<LineReader> MakeTerminalReader(SignalWatcher& signals,
                                               const std::string& history_file, bool bold_prompt) {
  auto reader = std::make_unique<TerminalReader>(signals, history_file, bold_prompt);
  if (!reader->usable()) return nullptr;
  return reader;
}

std::string HistoryFile() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/rivulet/history";
  const char* const home = std::getenv("HOME");
  if (home == nullptr || home[0] == '\0') return "";
  return std::string(home) + "/.local/state/rivulet/history";
}

}  // namespace rivulet::cli
