// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What an operator sees: health, reflection, metrics, versions, SIGTERM, and the command line.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "client/client.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "kernels/base/test_directory.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/terminal.h"

namespace rivulet::e2e {
namespace {

std::unique_ptr<ServerProcess> StartTales(const std::vector<std::string>& flags = {}) {
  auto server = ServerProcess::Start(SourcePath("models/tales"), flags);
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  return server.ok() ? *std::move(server) : nullptr;
}

grpc::health::v1::HealthCheckResponse::ServingStatus Health(const std::string& address,
                                                            const std::string& service) {
  auto stub = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  if (!stub->Check(&context, request, &response).ok()) return {};
  return response.status();
}

v1::GenerateRequest Endless() {
  v1::GenerateRequest request;
  request.set_prompt("Once upon a time");
  request.set_max_tokens(1'000'000);
  request.mutable_stop()->set_ignore_eos(true);
  return request;
}

TEST(OperationTest, HealthReflectionAndHttp) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  using grpc::health::v1::HealthCheckResponse;
  EXPECT_EQ(Health(server->address(), ""), HealthCheckResponse::SERVING);
  EXPECT_EQ(Health(server->address(), "rivulet.v1.Inference"), HealthCheckResponse::SERVING);
  EXPECT_EQ(HttpGet(server->http_address(), "/healthz").status, 200);
  EXPECT_EQ(HttpGet(server->http_address(), "/readyz").status, 200);
  EXPECT_EQ(HttpGet(server->http_address(), "/nothing").status, 404);

  auto stub = grpc::reflection::v1alpha::ServerReflection::NewStub(
      grpc::CreateChannel(server->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  auto stream = stub->ServerReflectionInfo(&context);
  grpc::reflection::v1alpha::ServerReflectionRequest request;
  request.set_list_services("");
  stream->Write(request);
  grpc::reflection::v1alpha::ServerReflectionResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_NE(response.DebugString().find("rivulet.v1.Inference"), std::string::npos);
  stream->WritesDone();
  EXPECT_EQ(server->Stop().code, 0);
}

TEST(OperationTest, ABarShowsTheLoadOnATerminal) {
  const auto terminal =
      Terminal::Start({Binary("rivulet-server"), "--model", SourcePath("models/tales"),
                       "--listen=127.0.0.1:0", "--http=127.0.0.1:0"},
                      {});
  EXPECT_TRUE(terminal->WaitFor("\rloading [").found) << terminal->output();
  EXPECT_TRUE(terminal->WaitFor("] 100 %  ready").found) << terminal->output();
  EXPECT_TRUE(terminal->WaitFor("\r\x1b[K").found) << "the bar is erased";
  EXPECT_TRUE(terminal->WaitFor("grpc listening on").found) << terminal->output();
  EXPECT_THAT(terminal->output(), testing::Not(testing::HasSubstr("info loading percent")));
  kill(terminal->pid(), SIGTERM);
  EXPECT_EQ(terminal->Wait(), 0);
}

struct Served {
  std::vector<uint32_t> ids;  // of a completion
  std::string metrics, log;
};

// A line of /metrics: {a label}, then a number above 0.
auto HasPositive(const std::string& name_and_label) {
  return testing::ContainsRegex(name_and_label + " ([1-9]|0\\.0*[1-9])");
}

Served ServeWithPackedCache(const std::string& directory) {
  auto server = StartTales({"--packed-cache", directory});
  if (server == nullptr) return {};
  const std::string metrics = HttpGet(server->http_address(), "/metrics").body;
  v1::GenerateRequest request;
  request.set_prompt("Once upon a time");
  request.set_max_tokens(40);
  request.mutable_sampling()->set_temperature(0);
  std::vector<uint32_t> ids;
  const absl::Status status =
      Client(server->address()).Generate(request, {}, [&](const auto& message) {
        ids.insert(ids.end(), message.token_ids().begin(), message.token_ids().end());
        return true;
      });
  EXPECT_TRUE(status.ok()) << status;
  return {ids, metrics, server->Stop().output};
}

TEST(OperationTest, WeightsThatAServerPackedServeTheNext) {
  const std::string directory = TestDirectory();
  const auto [ids, first_metrics, first_log] = ServeWithPackedCache(directory);
  EXPECT_THAT(first_log, testing::HasSubstr("info packed_cache_written file=" + directory));
  EXPECT_THAT(first_metrics, HasPositive("model_load_seconds.source=.checkpoint.}"));
  EXPECT_THAT(first_metrics, HasPositive("model_load_bytes.source=.checkpoint.}"));
  EXPECT_EQ(ids.size(), 40u);
  const auto [same_ids, second_metrics, second_log] = ServeWithPackedCache(directory);
  EXPECT_THAT(second_log, testing::HasSubstr("info packed_cache_read file=" + directory));
  EXPECT_THAT(second_metrics, HasPositive("model_load_seconds.source=.packed_cache.}"));
  EXPECT_THAT(second_metrics, HasPositive("model_load_bytes.source=.packed_cache.}"));
  EXPECT_EQ(same_ids, ids);
  const auto [more_ids, third_metrics, third_log] = ServeWithPackedCache("/proc/self/status");
  EXPECT_THAT(third_log, testing::HasSubstr("warning packed_cache_not_written error="));
  EXPECT_THAT(third_metrics, HasPositive("model_load_seconds.source=.checkpoint.}"));
  EXPECT_EQ(more_ids, ids);
}

// With the usual soft limit of 1024 files a thousand connections made gRPC deaf for good.
TEST(OperationTest, TakesAsManyDescriptorsAsItMay) {
  rlimit own;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &own), 0);
  const rlimit low = {std::min<rlim_t>(64, own.rlim_max), own.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  auto server = StartTales();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &own), 0);
  ASSERT_NE(server, nullptr);
  rlimit limit;
  ASSERT_EQ(prlimit(server->process().pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, own.rlim_max);
}

// gRPC never accepts again then; the probes must say so, so that the server is restarted.
TEST(OperationTest, ProbesFailOnceGrpcAcceptsNoMore) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(HttpGet(server->http_address(), "/healthz").status, 200);
  rlimit usual;
  ASSERT_EQ(prlimit(server->process().pid(), RLIMIT_NOFILE, nullptr, &usual), 0);
  const rlimit few = {64, usual.rlim_max};
  ASSERT_EQ(prlimit(server->process().pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string port = server->address().substr(server->address().rfind(':') + 1);
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  std::vector<int> connections;
  for (int i = 0; i < 80; ++i) {
    connections.push_back(socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(connect(connections.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
              0);
  }
  EXPECT_NE(server->process().WaitForLine("grpc_accepts_no_more", std::chrono::seconds(20)), "");
  for (const int connection : connections) close(connection);
  HttpAnswer health;
  for (int i = 0; i < 50 && health.status != 503; ++i) {
    health = HttpGet(server->http_address(), "/healthz");
  }
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(HttpGet(server->http_address(), "/readyz").status, 503);
  // A sanitizer that looks at an object needs descriptors too.
  ASSERT_EQ(prlimit(server->process().pid(), RLIMIT_NOFILE, &usual, nullptr), 0);
  const Exit exit = server->Stop();
  EXPECT_EQ(exit.code, 0) << exit.output;
}

// The line was printed before the signal handler was told that there is something to drain.
TEST(OperationTest, DrainsWhenStoppedAsSoonAsItListens) {
  for (int i = 0; i < 10; ++i) {
    auto server = StartTales();
    ASSERT_NE(server, nullptr);
    EXPECT_EQ(server->Stop().code, 0);
  }
}

TEST(OperationTest, MetricsCountWhatHappened) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  Client client(server->address());
  v1::GenerateRequest request = Endless();
  request.set_max_tokens(33);
  ASSERT_TRUE(client.Generate(request, {}, [](const auto&) { return true; }).ok());
  const std::string page = HttpGet(server->http_address(), "/metrics").body;
  EXPECT_EQ(Metric(page, "rivulet_generation_tokens_total"), 33) << page;
  EXPECT_GE(Metric(page, "rivulet_prompt_tokens_total{source=\"computed\"}"), 4);
  EXPECT_GE(Metric(page, "rivulet_folds_total"), 2);
  EXPECT_EQ(Metric(page, "rivulet_requests_running"), 0);
  EXPECT_EQ(Metric(page, "rivulet_state_slots_used"), 0);
  EXPECT_EQ(Metric(page, "rivulet_time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(Metric(page, "rivulet_inter_token_latency_seconds_count"), 32);
  EXPECT_EQ(server->Stop().code, 0);
}

// No new work, running streams get --drain-seconds, the rest end with a clear status; exit code 0.
TEST(OperationTest, SigtermDrains) {
  auto server = StartTales({"--drain-seconds=5"});
  ASSERT_NE(server, nullptr);
  Client client(server->address());
  std::atomic<bool> long_started = false, short_started = false;
  absl::Status endless, small;
  int small_tokens = 0;
  std::thread long_stream([&] {
    endless = client.Generate(Endless(), {}, [&](const auto&) { return long_started = true; });
  });
  std::thread short_stream([&] {
    v1::GenerateRequest request = Endless();
    request.set_max_tokens(500);  // most of them are still to come at the SIGTERM
    small = client.Generate(request, {}, [&](const auto& message) {
      small_tokens += message.token_ids_size();
      return short_started = true;
    });
  });
  while (!long_started || !short_started) std::this_thread::yield();
  server->process().Signal(SIGTERM);
  for (int i = 0; i < 500 && HttpGet(server->http_address(), "/readyz").status != 503; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(HttpGet(server->http_address(), "/readyz").status, 503);
  EXPECT_EQ(HttpGet(server->http_address(), "/healthz").status, 200);
  for (const char* service : {"", "rivulet.v1.Inference", "rivulet.v1.Sessions"}) {
    EXPECT_EQ(Health(server->address(), service),
              grpc::health::v1::HealthCheckResponse::NOT_SERVING)
        << service;
  }
  Client late(server->address());
  EXPECT_EQ(late.Generate(Endless(), {}, [](const auto&) { return true; }).code(),
            absl::StatusCode::kUnavailable);
  const Exit exit = server->process().Wait(std::chrono::seconds(30));
  long_stream.join();
  short_stream.join();
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_TRUE(small.ok()) << small.ToString();
  EXPECT_EQ(small_tokens, 500);
  EXPECT_EQ(endless.code(), absl::StatusCode::kUnavailable) << endless.ToString();
}

// How much address space a process has taken, in bytes.
rlim_t AddressSpace(pid_t pid) {
  rlim_t pages = 0;
  std::ifstream("/proc/" + std::to_string(pid) + "/statm") >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

// Tokenizing 4 MiB takes more than 300 MiB.
TEST(OperationTest, ARequestWithoutMemoryFailsAndTheServerGoesOn) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  const pid_t pid = server->process().pid();
  if (AddressSpace(pid) > rlim_t{1} << 40) GTEST_SKIP() << "a sanitizer reserves all addresses";
  Client client(server->address());
  v1::GenerateRequest small = Endless();
  small.set_max_tokens(20);
  const auto ignore = [](const auto&) { return true; };
  ASSERT_TRUE(client.Generate(small, {}, ignore).ok());
  rlimit usual;
  ASSERT_EQ(prlimit(pid, RLIMIT_AS, nullptr, &usual), 0);
  const rlimit tight = {AddressSpace(pid) + (192 << 20), usual.rlim_max};
  ASSERT_EQ(prlimit(pid, RLIMIT_AS, &tight, nullptr), 0);
  std::string text;
  while (text.size() < (4 << 20) - 64) text += "Once upon a time there was a mill. ";
  for (int i = 0; i < 3; ++i) {
    v1::TokenizeRequest tokenize;
    tokenize.set_text(text);
    EXPECT_EQ(client.Tokenize(tokenize).status().code(), absl::StatusCode::kResourceExhausted);
    v1::GenerateRequest large = small;
    large.set_prompt(text);
    EXPECT_EQ(client.Generate(large, {}, ignore).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(client.Generate(small, {}, ignore).ok());
  }
  ASSERT_EQ(prlimit(pid, RLIMIT_AS, &usual, nullptr), 0);
  const Exit exit = server->Stop();
  EXPECT_EQ(exit.code, 0) << exit.output;
}

TEST(CommandLineTest, VersionsNameACommit) {
  for (const char* name : {"rivulet", "rivulet-server"}) {
    const Exit exit = RunProgram({Binary(name), "--version"});
    EXPECT_EQ(exit.code, 0) << exit.output;
    EXPECT_THAT(exit.output,
                testing::ContainsRegex("[0-9]+[.][0-9]+[.][0-9]+ .*([0-9a-f]{7}|unknown)"));
  }
}

TEST(CommandLineTest, GeneratesAndScores) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  const std::string where = "--server=" + server->address();
  const std::string cli = Binary("rivulet");
  const Exit plain = RunProgram({cli, "generate", where, "--prompt", "Once upon a time",
                                 "--max-tokens=20", "--seed=3", "--echo"});
  EXPECT_EQ(plain.code, 0) << plain.output;
  EXPECT_EQ(plain.output.find("Once upon a time"), 0u) << plain.output;
  EXPECT_GT(plain.output.size(), 40u);
  // The prompt from standard input is the same prompt.
  EXPECT_EQ(RunProgram({cli, "generate", where, "--max-tokens=20", "--seed=3", "--echo"},
                       "Once upon a time\n")
                .output,
            plain.output);
  const Exit json =
      RunProgram({cli, "generate", where, "--json", "--max-tokens=5", "--logprobs=2"}, "The");
  EXPECT_EQ(json.code, 0) << json.output;
  EXPECT_NE(json.output.find("\"token_ids\""), std::string::npos) << json.output;
  EXPECT_NE(json.output.find("\"finish_reason\""), std::string::npos) << json.output;
  const Exit score = RunProgram({cli, "score", where, "--prompt", "Once upon a time", "--top=2"});
  EXPECT_EQ(score.code, 0) << score.output;
  EXPECT_NE(score.output.find("perplexity"), std::string::npos) << score.output;
  const Exit model = RunProgram({cli, "model", where, "--json"});
  EXPECT_NE(model.output.find("\"architecture\":\"hla\""), std::string::npos) << model.output;
  const Exit wrong = RunProgram({cli, "generate", where, "--prompt=x", "--temperature=-1"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.output.find("temperature"), std::string::npos) << wrong.output;
  EXPECT_EQ(server->Stop().code, 0);
}

// A model may write what moves the cursor or sets a title: a terminal must not obey it, and a file
// must get every byte of it.
TEST(CommandLineTest, ModelTextCannotDriveATerminal) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  v1::TokenizeRequest escape;
  escape.set_text("\x1b");
  const auto tokens = Client(server->address()).Tokenize(escape);
  ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
  const std::string id = std::to_string(tokens->token_ids(tokens->token_ids_size() - 1));
  const std::string cli = Binary("rivulet"), where = "--server=" + server->address();
  const std::vector<std::vector<std::string>> commands = {
      {cli, "generate", where, "--prompt=x", "--logit-bias=" + id + "=100", "--max-tokens=3"},
      {cli, "generate", where, "--prompt=x", "--logit-bias=" + id + "=100", "--max-tokens=3",
       "-n2"},
      {cli, "generate", where, "--prompt=x\x1b", "--echo", "--max-tokens=1"},
      {cli, "score", where, "--prompt=x\x1b"}};
  for (const auto& command : commands) {
    SCOPED_TRACE(testing::PrintToString(command));
    const auto terminal = Terminal::Start(command, {});
    EXPECT_TRUE(terminal->WaitFor("^[").found) << terminal->output();
    EXPECT_EQ(terminal->Wait(), 0);
    EXPECT_THAT(terminal->output(), testing::Not(testing::HasSubstr("\x1b")));
    const std::string piped = RunProgram(command).output;
    EXPECT_THAT(piped, testing::HasSubstr("\x1b"));
    EXPECT_THAT(piped, testing::Not(testing::HasSubstr("^[")));
  }
  EXPECT_EQ(server->Stop().code, 0);
}

// ctrl-C ends the call with code 130, which is not that of a program killed by the signal, and
// frees the server's row.
TEST(CommandLineTest, AnInterruptEndsTheCall) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  auto cli = ChildProcess::Start({Binary("rivulet"), "generate", "--server=" + server->address(),
                                  "--prompt=Once", "--max-tokens=1000000", "--ignore-eos"});
  const auto eventually = [&](const char* metric, double value) {
    for (int i = 0; i < 1000; ++i) {
      if (Metric(HttpGet(server->http_address(), "/metrics").body, metric) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  };
  ASSERT_TRUE(eventually("rivulet_requests_running", 1));
  cli->Signal(SIGINT);
  const Exit exit = cli->Wait(std::chrono::seconds(10));
  EXPECT_EQ(exit.code, 130) << exit.output;
  EXPECT_FALSE(exit.killed);
  EXPECT_TRUE(eventually("rivulet_requests_running", 0));
  EXPECT_TRUE(eventually("rivulet_state_slots_used", 0));
  EXPECT_EQ(server->Stop().code, 0);
}

}  // namespace
}  // namespace rivulet::e2e
