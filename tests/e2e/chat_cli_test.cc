// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `rivulet chat` on a real terminal and `rivulet sessions`, against the real server on the bundled
// model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/terminal.h"

namespace rivulet::e2e {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kArrowUp = "\x1b[A";
constexpr const char* kArrowLeft = "\x1b[D";
constexpr const char* kBackspace = "\x7f";
constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";

// "NUMBER" before `after` in a summary line; -1 if there is none.
int NumberBefore(const std::string& text, const std::string& after) {
  const size_t end = text.find(after);
  if (end == std::string::npos) return -1;
  const size_t begin = text.find_last_not_of("0123456789", end - 1) + 1;
  return begin < end ? std::stoi(text.substr(begin, end - begin)) : -1;
}

class ChatCliTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto server = ServerProcess::Start(SourcePath("models/tales"));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  static void TearDownTestSuite() {
    const Exit exit = server_->Stop();
    EXPECT_EQ(exit.code, 0) << exit.output;
    server_.reset();
  }

  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    state_ = testing::TempDir() + "rivulet_chat_" + std::to_string(getpid()) + "_" + info->name();
    std::filesystem::remove_all(state_);
    Client client(server_->address());
    const auto sessions = client.ListAllSessions();
    ASSERT_TRUE(sessions.ok()) << sessions.status().ToString();
    for (const v1::Session& session : *sessions) {
      ASSERT_TRUE(client.DeleteSession(session.id()).ok());
    }
  }
  void TearDown() override { std::filesystem::remove_all(state_); }

  std::string HistoryPath() const { return state_ + "/rivulet/history"; }

  // No locale is set: the program has to find a UTF-8 one itself.
  std::unique_ptr<Terminal> StartChat(const std::vector<std::string>& flags,
                                      const std::string& address = server_->address()) {
    std::vector<std::string> arguments = {Binary("rivulet"), "chat",   "--server",
                                          address,           "--seed", "7"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    auto terminal =
        Terminal::Start(arguments, {"XDG_STATE_HOME=" + state_, "NO_COLOR=1", "HOME=/nonexistent"});
    EXPECT_TRUE(terminal->WaitFor("ctrl-D ends.").found) << terminal->output();
    EXPECT_TRUE(terminal->WaitFor("> ").found);
    return terminal;
  }

  // Types a line, waits for the next prompt, and returns what is printed up to the end of the
  // summary line.
  static std::string Turn(Terminal& terminal, const std::string& line) {
    terminal.Type(line + "\r");
    std::string printed = terminal.WaitFor("\r\n[").before;
    const Terminal::Found summary = terminal.WaitFor("]\r\n");
    EXPECT_TRUE(summary.found) << terminal.output();
    // Before it the terminal is the kernel's, which would take a ctrl-D for its own.
    EXPECT_TRUE(terminal.WaitFor("> ").found) << terminal.output();
    return printed.append("\n[").append(summary.before);
  }

  // Waits until so many bytes more were printed: the answer streams.
  static bool Streams(const Terminal& terminal, size_t bytes) {
    const size_t before = terminal.printed();
    for (int i = 0; i < 60'000; ++i) {
      if (terminal.printed() >= before + bytes) return true;
      usleep(1000);
    }
    return false;
  }

  static Exit Sessions(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {Binary("rivulet"), "sessions"});
    arguments.insert(arguments.end(), {"--server", server_->address()});
    return RunProgram(arguments);
  }

  static inline std::unique_ptr<ServerProcess> server_;
  std::string state_;
};

TEST_F(ChatCliTest, ASecondTurnContinuesTheFirst) {
  const auto terminal = StartChat({"-m", "20"});
  const std::string first = Turn(*terminal, "Once upon a time");
  EXPECT_THAT(first, HasSubstr("20 tokens, "));
  EXPECT_THAT(first, HasSubstr(" tokens/s, "));
  EXPECT_THAT(first, HasSubstr("first token "));
  EXPECT_EQ(NumberBefore(first, " cached"), 0) << first;
  EXPECT_GT(first.find("\n["), 60u) << "the text of 20 tokens: " << first;
  const std::string second = Turn(*terminal, "and then");
  EXPECT_GT(NumberBefore(second, " cached"), 20) << second;
  terminal->Type(kCtrlD);
  EXPECT_EQ(terminal->Wait(), 0);
  EXPECT_TRUE(Client(server_->address()).ListAllSessions()->empty()) << "unnamed, so deleted";
  EXPECT_THAT(terminal->output(), Not(HasSubstr("\x1b[2m"))) << "NO_COLOR";
}

TEST_F(ChatCliTest, EnterAloneLetsTheModelGoOn) {
  const auto terminal = StartChat({"-m", "10"});
  Turn(*terminal, "Once upon a time");
  const std::string second = Turn(*terminal, "");
  EXPECT_THAT(second, HasSubstr("10 tokens"));
  EXPECT_GT(NumberBefore(second, " cached"), 10);
}

TEST_F(ChatCliTest, SessionsHaveNamesAndAreSwitched) {
  const auto terminal = StartChat({"-m", "8"});
  terminal->Type("/name first\r");
  ASSERT_TRUE(terminal->WaitFor("its name is first").found) << terminal->output();
  Turn(*terminal, "Once");
  terminal->Type("/new second\r");
  ASSERT_TRUE(terminal->WaitFor("second> ").found);
  EXPECT_EQ(NumberBefore(Turn(*terminal, "There"), " cached"), 0);
  terminal->Type("/sessions\r");
  ASSERT_TRUE(terminal->WaitFor("LAST USED").found) << terminal->output();
  const std::string table = terminal->WaitFor("second> ").before;
  EXPECT_THAT(table, HasSubstr("* "));
  EXPECT_THAT(table, HasSubstr("first"));
  terminal->Type("/switch first\r");
  ASSERT_TRUE(terminal->WaitFor("first> ").found) << terminal->output();
  EXPECT_GT(NumberBefore(Turn(*terminal, "and"), " cached"), 8);
  terminal->Type("/stats\r");
  EXPECT_TRUE(terminal->WaitFor(" (first)\r\nposition   ").found) << terminal->output();
  terminal->Type("/quit\r");
  EXPECT_EQ(terminal->Wait(), 0);
  EXPECT_EQ(Client(server_->address()).ListAllSessions()->size(), 2u) << "named ones stay";
  const auto resumed = StartChat({"-m", "8", "--session", "second"});
  EXPECT_GT(NumberBefore(Turn(*resumed, "and"), " cached"), 8);
}

TEST_F(ChatCliTest, CtrlCStopsTheTurnAndNotTheProgram) {
  const auto terminal = StartChat({"-m", "1000000", "--ignore-eos"});
  terminal->Type("Once upon a time\r");
  ASSERT_TRUE(terminal->WaitFor("e").found);
  ASSERT_TRUE(Streams(*terminal, 200));
  terminal->Type(kCtrlC);
  ASSERT_TRUE(terminal->WaitFor("stopped by you]").found) << terminal->output();
  // Before the prompt the terminal is the kernel's, which keeps a ctrl-D for itself.
  ASSERT_TRUE(terminal->WaitFor("> ").found) << terminal->output();
  terminal->Type("and then\r");
  ASSERT_TRUE(Streams(*terminal, 600));
  terminal->Type(kCtrlC);
  const Terminal::Found again = terminal->WaitFor("stopped by you]");
  ASSERT_TRUE(again.found) << terminal->output();
  EXPECT_GT(NumberBefore(again.before, " cached"), 0) << "what was committed is kept";
  ASSERT_TRUE(terminal->WaitFor("> ").found) << terminal->output();
  terminal->Type(kCtrlD);
  EXPECT_EQ(terminal->Wait(), 0);
}

TEST_F(ChatCliTest, CtrlCAtThePromptClearsTheLine) {
  const auto terminal = StartChat({"-m", "5"});
  terminal->Type("never sent");
  ASSERT_TRUE(terminal->WaitFor("sent").found);
  terminal->Type(kCtrlC);
  ASSERT_TRUE(terminal->WaitFor("^C\r\n").found) << terminal->output();
  ASSERT_TRUE(terminal->WaitFor("> ").found);
  Turn(*terminal, "Once");
  terminal->Type("/stats\r");
  EXPECT_TRUE(terminal->WaitFor("last turn  2 prompt tokens").found)
      << "BOS and one token: " << terminal->output();
}

TEST_F(ChatCliTest, ArrowUpBringsBackLinesOfThisRunAndTheLast) {
  auto terminal = StartChat({"-m", "5"});
  terminal->Type("/name remembered\r");
  ASSERT_TRUE(terminal->WaitFor("its name is remembered").found);
  terminal->Type("/quit\r");
  EXPECT_EQ(terminal->Wait(), 0);
  struct stat status {};
  ASSERT_EQ(stat(HistoryPath().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  terminal = StartChat({"-m", "5"});
  terminal->Type(std::string(kArrowUp) + kArrowUp + "\r");
  EXPECT_TRUE(terminal->WaitFor("its name is remembered;").found) << terminal->output();
}

TEST_F(ChatCliTest, AHistoryThatCannotBeWrittenIsHarmless) {
  std::ofstream(state_) << "a file where the folder should be";
  const auto terminal = StartChat({"-m", "5"});
  Turn(*terminal, "Once");
  terminal->Type(kCtrlD);
  EXPECT_EQ(terminal->Wait(), 0);
}

TEST_F(ChatCliTest, EditsCharactersAndNotBytes) {
  const auto terminal = StartChat({"-m", "5"});
  // Types "éx漢字y", takes the x out by moving over two wide characters, and the y from the end.
  terminal->Type("\u00e9x\u6f22\u5b57y");
  EXPECT_TRUE(terminal->WaitFor("y").found);
  Turn(*terminal, std::string(kBackspace) + kArrowLeft + kArrowLeft + kBackspace + "\x05.");
  EXPECT_THAT(terminal->output(), HasSubstr("\u6f22"));
  std::ifstream history(HistoryPath());
  std::stringstream text;
  text << history.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("\n\u00e9\u6f22\u5b57.\n"));
  terminal->Type("/stats\r");
  ASSERT_TRUE(terminal->WaitFor("last turn  ").found);
  v1::TokenizeRequest request;
  request.set_text("\u00e9\u6f22\u5b57.");
  request.set_add_bos(true);
  const auto tokens = Client(server_->address()).Tokenize(request);
  EXPECT_EQ(NumberBefore(terminal->WaitFor(", ").before + ",", " prompt tokens,"),
            tokens->token_ids_size());
}

TEST_F(ChatCliTest, ResizingTheWindowIsHarmless) {
  const auto terminal = StartChat({"-m", "200", "--ignore-eos"});
  terminal->Type("Once upon");
  ASSERT_TRUE(terminal->WaitFor("upon").found);
  terminal->Resize(40, 10);
  terminal->Type(" a time");
  ASSERT_TRUE(terminal->WaitFor("time").found);
  terminal->Type("\r");
  terminal->Resize(7, 3);
  ASSERT_TRUE(terminal->WaitFor("limit]").found) << terminal->output();
  terminal->Resize(120, 40);
  Turn(*terminal, "and then");
}

std::vector<std::string> Lines(const std::string& printed) {
  return absl::StrSplit(absl::StrReplaceAll(printed, {{"\r", ""}}), '\n');
}

size_t WidestOf(const std::vector<std::string>& lines) {
  size_t widest = 0;
  for (const std::string& line : lines) widest = std::max(widest, line.size());
  return widest;
}

TEST_F(ChatCliTest, WrapsWordsAtTheWidthOfTheWindow) {
  const std::string line = "Once upon a time";
  const Exit piped = RunProgram({Binary("rivulet"), "chat", "--server", server_->address(),
                                 "--seed", "7", "-m", "100", "--ignore-eos"},
                                line + "\n");
  ASSERT_EQ(piped.code, 0) << piped.output;
  const std::vector<std::string> words = absl::StrSplit(piped.output, absl::ByAnyChar(" \n"));
  EXPECT_GT(WidestOf(Lines(piped.output)), 80u) << "a pipe's text is not wrapped";
  const auto terminal = StartChat({"-m", "100", "--ignore-eos"});
  for (const int columns : {80, 40}) {
    terminal->Resize(columns, 24);
    terminal->Type("/new\r");
    ASSERT_TRUE(terminal->WaitFor("line\r\n").found) << terminal->output();
    ASSERT_TRUE(terminal->WaitFor("> ").found);
    terminal->Type(line + "\r");
    ASSERT_TRUE(terminal->WaitFor("time\r\n").found) << terminal->output();
    const std::string answer = terminal->WaitFor("\r\n[").before + "\n";
    ASSERT_TRUE(terminal->WaitFor("> ").found) << terminal->output();
    EXPECT_LE(WidestOf(Lines(answer)), static_cast<size_t>(columns)) << answer;
    EXPECT_GT(WidestOf(Lines(answer)), static_cast<size_t>(columns) - 12) << "lines are filled";
    const std::vector<std::string> shown =
        absl::StrSplit(absl::StrReplaceAll(answer, {{"\r", ""}}), absl::ByAnyChar(" \n"));
    EXPECT_EQ(shown, words) << "no word is broken or lost";
  }
}

TEST_F(ChatCliTest, AResizedWindowWrapsTheRestOfATurn) {
  const auto terminal = StartChat({"-m", "1000000", "--ignore-eos"});
  terminal->Type("Once upon a time\r");
  ASSERT_TRUE(Streams(*terminal, 400));
  terminal->Resize(30, 24);
  ASSERT_TRUE(Streams(*terminal, 20'000)) << "more than the terminal buffers";
  terminal->Type(kCtrlC);
  // The terminal echoes ctrl-C into a line of the answer, and drops what it has not shown yet.
  std::string printed = terminal->WaitFor("stopped by").before;
  const size_t echo = printed.find("^C");
  ASSERT_NE(echo, printed.npos);
  printed.resize(printed.rfind('\n', echo));
  EXPECT_GT(WidestOf(Lines(printed.substr(0, 400))), 60u) << printed.substr(0, 400);
  const std::string last = printed.substr(printed.find('\n', printed.size() - 1000) + 1);
  EXPECT_LE(WidestOf(Lines(last)), 30u) << last;
}

TEST_F(ChatCliTest, AServerThatGoesAndComesBack) {
  auto started = ServerProcess::Start(SourcePath("models/tales"));
  ASSERT_TRUE(started.ok()) << started.status().ToString();
  std::unique_ptr<ServerProcess> server = *std::move(started);
  const std::string address = server->address();
  const auto terminal = StartChat({"-m", "1000000", "--ignore-eos"}, address);
  terminal->Type("Once upon a time\r");
  ASSERT_TRUE(terminal->WaitFor("e").found);
  ASSERT_TRUE(Streams(*terminal, 200));
  server->process().Signal(SIGKILL);
  ASSERT_TRUE(terminal->WaitFor("error: UNAVAILABLE").found) << terminal->output();
  ASSERT_TRUE(terminal->WaitFor("The next line tries again").found) << terminal->output();
  terminal->Type("and then\r");
  ASSERT_TRUE(terminal->WaitFor("error: UNAVAILABLE").found) << terminal->output();
  started = ServerProcess::Start(SourcePath("models/tales"), {"--listen=" + address});
  ASSERT_TRUE(started.ok()) << started.status().ToString();
  server = *std::move(started);
  std::string code = "UNAVAILABLE";
  while (code == "UNAVAILABLE") {
    usleep(100'000);  // gRPC tries to connect about once a second
    terminal->Type("and then\r");
    ASSERT_TRUE(terminal->WaitFor("\r\nerror: ").found) << terminal->output();
    code = terminal->WaitFor(":").before;
  }
  EXPECT_EQ(code, "NOT_FOUND") << terminal->output();
  ASSERT_TRUE(terminal->WaitFor("Your next line starts a new one").found) << terminal->output();
  terminal->Type("Once\r");
  ASSERT_TRUE(Streams(*terminal, 200));
  terminal->Type(kCtrlC);
  EXPECT_TRUE(terminal->WaitFor("stopped by you]").found) << terminal->output();
  terminal->Type("/quit\r");
  EXPECT_EQ(terminal->Wait(), 0);
}

TEST_F(ChatCliTest, TerminationDeletesWhatIsUnnamed) {
  const auto terminal = StartChat({"-m", "1000000", "--ignore-eos"});
  terminal->Type("Once upon a time\r");
  ASSERT_TRUE(Streams(*terminal, 200));
  kill(terminal->pid(), SIGTERM);
  EXPECT_EQ(terminal->Wait(), 143);
  EXPECT_TRUE(Client(server_->address()).ListAllSessions()->empty());
}

TEST_F(ChatCliTest, APipeIsReadLineByLine) {
  const Exit exit = RunProgram(
      {Binary("rivulet"), "chat", "--server", server_->address(), "-m", "8", "--seed", "7"},
      "Once upon a time\nand then\n/stats");
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, Not(HasSubstr("> ")));
  EXPECT_THAT(exit.output, Not(HasSubstr("\x1b")));
  EXPECT_THAT(exit.output, HasSubstr("position   "));
  EXPECT_EQ(RunProgram({Binary("rivulet"), "chat", "--server", "127.0.0.1:1"}, "x\n").code, 1);
}

TEST_F(ChatCliTest, TheTreeOfSessionsIsPrintedAsJson) {
  ASSERT_EQ(Sessions({"create", "--id", "z_first"}).code, 0);
  ASSERT_EQ(Sessions({"fork", "z_first", "--id", "a_fork"}).code, 0);
  ASSERT_EQ(Sessions({"create", "--id", "m_other"}).code, 0);
  const std::string tree = Sessions({"tree", "--json"}).output;
  const size_t first = tree.find("{\"id\":\"z_first\""), fork = tree.find("{\"id\":\"a_fork\""),
               other = tree.find("{\"id\":\"m_other\"");
  EXPECT_TRUE(first < fork && fork < other && other != std::string::npos) << tree;
  EXPECT_THAT(tree, HasSubstr("\"forked_from\":\"z_first\""));
  EXPECT_EQ(Sessions({"delete", "z_first", "a_fork", "m_other"}).code, 0);
}

TEST_F(ChatCliTest, LogprobsAreALineForEachToken) {
  const auto generate = [](std::vector<std::string> flags) {
    std::vector<std::string> command = {
        Binary("rivulet"),  "generate", "--server", server_->address(), "-p",
        "Once upon a time", "-m",       "4",        "--seed",           "7"};
    command.insert(command.end(), flags.begin(), flags.end());
    const Exit exit = RunProgram(command);
    EXPECT_EQ(exit.code, 0) << exit.output;
    return exit.output;
  };
  const auto texts_of = [](const std::string& lines, int* count) {
    const std::regex line("( *-?[0-9]+\\.[0-9]{5} +[0-9]+  \"(.*)\"(  [0-9]+:-?[0-9.]+){2})\n");
    std::string texts;
    std::smatch found;
    for (std::string rest = lines; std::regex_search(rest, found, line); rest = found.suffix()) {
      EXPECT_EQ(found.prefix().str(), "") << lines;
      texts += found[2];
      ++*count;
    }
    return texts;
  };
  const std::string plain = generate({});
  int tokens = 0;
  EXPECT_EQ(texts_of(generate({"--logprobs", "2"}), &tokens) + "\n", plain);
  EXPECT_EQ(tokens, 4);
  const std::string with_prompt = generate({"--prompt-logprobs", "2"});
  ASSERT_GT(with_prompt.size(), plain.size());
  const size_t lines = with_prompt.size() - plain.size();
  EXPECT_EQ(with_prompt.substr(lines), plain);
  EXPECT_EQ(texts_of(with_prompt.substr(0, lines), &(tokens = 0)), "Once upon a time");
  const std::string two = generate({"--logprobs", "2", "-n", "2"});
  EXPECT_THAT(two, testing::StartsWith("--- completion 0\n"));
  const size_t second = two.find("--- completion 1\n");
  ASSERT_NE(second, std::string::npos) << two;
  EXPECT_EQ(texts_of(two.substr(17, second - 17), &(tokens = 0)) + "\n", plain);
}

TEST_F(ChatCliTest, SessionsAreMadeListedAndDeleted) {
  EXPECT_EQ(Sessions({"create", "--id", "tale", "--name", "a tale"}).output, "tale\n");
  const Exit again = Sessions({"create", "--id", "tale"});
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.output, HasSubstr("ALREADY_EXISTS"));
  std::string made = Sessions({"create"}).output;
  ASSERT_FALSE(made.empty());
  made.pop_back();
  EXPECT_THAT(Sessions({}).output, testing::AllOf(HasSubstr("tale"), HasSubstr(made)));
  EXPECT_THAT(Sessions({"get", "tale"}).output, HasSubstr("a tale"));
  EXPECT_THAT(Sessions({"rename", "tale", "another tale"}).output, HasSubstr("another tale"));
  EXPECT_THAT(Sessions({"get", "tale"}).output, HasSubstr("another tale"));
  EXPECT_THAT(Sessions({"get", "another tale"}).output, HasSubstr("tale"));
  EXPECT_EQ(Sessions({"rename", "tal", ""}).code, 0);
  EXPECT_THAT(Sessions({"get", "tale"}).output, Not(HasSubstr("another tale")));
  EXPECT_THAT(Sessions({"rename", "unknown", "name"}).output, HasSubstr("NOT_FOUND"));
  const Exit wrong = Sessions({"rename", "tale"});
  EXPECT_EQ(wrong.code, 2) << "wrong usage";
  EXPECT_THAT(wrong.output, HasSubstr("name is required"));
  for (const char* position : {"-1", "0x10", "18446744073709551616", " 5"}) {
    EXPECT_EQ(Sessions({"rewind", "tale", position}).code, 2) << position;
  }
  EXPECT_THAT(Sessions({"list", "--json"}).output, HasSubstr("\"id\":\"tale\""));
  EXPECT_EQ(Sessions({"delete", "tal"}).code, 1) << "the start of an id deletes nothing";
  EXPECT_EQ(Sessions({"rename", made, "made here"}).code, 0);
  const Exit deleted = Sessions({"delete", "unknown", "tale", "made here"});
  EXPECT_EQ(deleted.code, 1) << "one of them was none";
  EXPECT_THAT(deleted.output, HasSubstr("NOT_FOUND"));
  EXPECT_EQ(Sessions({"list", "--json"}).output, "");
}

}  // namespace
}  // namespace rivulet::e2e
