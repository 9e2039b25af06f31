// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A real Prometheus scrapes the real server under load, and what it has stored is compared with
// what the clients got. promtool checks the page and deploy/prometheus. The log level changes while
// the server runs.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "nlohmann/json.hpp"
#include "server/http/testing.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// deploy/setup unpacks the package of the distribution there; an installed one does as well.
std::string Tool(const std::string& name) {
  const std::string unpacked = SourcePath("build/tools/prometheus/usr/bin/" + name);
  const std::string installed = "/usr/bin/" + name;
  for (const std::string& path : {unpacked, installed}) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  ADD_FAILURE() << "there is no " << name << "; this unpacks it: deploy/setup --test";
  return "";
}

constexpr seconds kLimit{120};  // for machines that are very busy

// Polls, since a scrape comes when it comes.
bool Eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(100));
  }
  return true;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

std::string PercentEncoded(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    char hex[4];
    std::snprintf(hex, sizeof(hex), "%%%02X", static_cast<unsigned char>(c));
    encoded += hex;
  }
  return encoded;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = "/tmp/rivulet-prometheus-XXXXXX";
    path_ = mkdtemp(path.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Prometheus takes no port 0, so the kernel is asked for one that is free now.
int FreePort() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener, generic, length), 0);
  EXPECT_EQ(getsockname(listener, generic, &length), 0);
  close(listener);
  return ntohs(address.sin_port);
}

// A Prometheus of its own: scrapes `target` each second, with the rules of deploy/prometheus.
class Prometheus {
 public:
  explicit Prometheus(const std::string& target) : address_("127.0.0.1:") {
    address_ += std::to_string(FreePort());
    const std::string config = folder_.path() / "prometheus.yml";
    const std::string rules =
        std::filesystem::absolute(SourcePath("deploy/prometheus/rules.yml")).string();
    std::ofstream(config) << "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
                          << "rule_files: ['" << rules << "']\n"
                          << "scrape_configs: [{job_name: rivulet, static_configs: [{targets: ['"
                          << target << "']}]}]\n";
    process_ = ChildProcess::Start({Tool("prometheus"), "--config.file=" + config,
                                    "--storage.tsdb.path=" + (folder_.path() / "data").string(),
                                    "--web.listen-address=" + address_});
  }

  nlohmann::json Api(const std::string& path) const {
    const HttpAnswer answer = HttpGet(address_, "/api/v1/" + path);
    if (answer.status != 200) return {};
    return nlohmann::json::parse(answer.body)["data"];
  }

  // The one value that `expression` has now; none if there is none.
  std::optional<double> Query(const std::string& expression) const {
    const nlohmann::json data = Api("query?query=" + PercentEncoded(expression));
    if (data.is_null() || data["result"].size() != 1) return std::nullopt;
    return std::stod(data["result"][0]["value"][1].get<std::string>());
  }

  bool EventuallyIs(const std::string& expression, double value) const {
    return Eventually([&] { return Query(expression) == value; });
  }

  std::string output() const { return process_->output(); }

 private:
  TemporaryFolder folder_;
  std::string address_;
  std::unique_ptr<ChildProcess> process_;
};

std::unique_ptr<ServerProcess> StartTales() {
  auto server = ServerProcess::Start(SourcePath("models/tales"));
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  return server.ok() ? *std::move(server) : nullptr;
}

v1::GenerateRequest Tale(uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_prompt("Once upon a time");
  request.set_max_tokens(max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  return request;
}

// What the clients saw.
struct Seen {
  std::atomic<int> streams{0};
  std::atomic<int> tokens{0};
  std::atomic<int> cached_tokens{0};
};

void Generate(Client& client, const v1::GenerateRequest& request, Seen& seen) {
  const absl::Status status = client.Generate(request, {}, [&](const auto& message) {
    seen.tokens += message.token_ids_size();
    seen.cached_tokens += static_cast<int>(message.usage().cached_tokens());
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  ++seen.streams;
}

void Generate(const std::string& address, uint32_t max_tokens, Seen& seen) {
  Client client(address);
  Generate(client, Tale(max_tokens), seen);
}

// Returns the session's id.
std::string TakeTwoTurns(Client& client, Seen& seen) {
  const auto session = client.CreateSession({});
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  if (!session.ok()) return "";
  v1::GenerateRequest turn = Tale(20);
  turn.set_session_id(session->id());
  Generate(client, turn, seen);
  Generate(client, turn, seen);
  EXPECT_TRUE(client.DeleteSession(session->id()).ok());
  return session->id();
}

// Streams side by side, one after the other, until `enough`.
void Load(const std::string& address, Seen& seen, const std::function<bool()>& enough) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> clients;
  for (uint32_t i = 0; i < 6; ++i) {
    clients.emplace_back([&, i] {
      do {
        Generate(address, 50 + 13 * i, seen);
      } while (!stop);
    });
  }
  EXPECT_TRUE(Eventually(enough));
  stop = true;
  for (std::thread& client : clients) client.join();
}

void ExpectCounters(const Prometheus& prometheus, const Seen& seen) {
  EXPECT_TRUE(prometheus.EventuallyIs("rivulet_generation_tokens_total", seen.tokens))
      << prometheus.Query("rivulet_generation_tokens_total").value_or(-1) << " of " << seen.tokens;
  const auto requests = [&](const std::string& outcome) {
    return prometheus.Query("rivulet_requests_total{outcome=\"" + outcome + "\"}");
  };
  EXPECT_GT(seen.cached_tokens, 0);
  EXPECT_EQ(prometheus.Query("rivulet_prompt_tokens_total{source=\"cached\"}"), seen.cached_tokens);
  EXPECT_EQ(prometheus.Query("rivulet_sessions_ended_total{reason=\"deleted\"}"), 1);
  EXPECT_EQ(requests("length"), seen.streams);
  EXPECT_EQ(requests("scored"), 1);
  EXPECT_EQ(requests("rejected_invalid"), 1);
  EXPECT_EQ(requests("error"), 0);
  EXPECT_EQ(prometheus.Query("sum(rivulet_requests_total)"), seen.streams + 2);
}

void ExpectHistograms(const Prometheus& prometheus, const Seen& seen) {
  const auto count = [&](const std::string& name) {
    return prometheus.Query("rivulet_" + name + "_count");
  };
  EXPECT_EQ(count("time_to_first_token_seconds"), seen.streams);
  EXPECT_EQ(count("inter_token_latency_seconds"), seen.tokens - seen.streams);
  EXPECT_EQ(count("e2e_request_latency_seconds"), seen.streams + 1);
  EXPECT_EQ(count("request_queue_time_seconds"), seen.streams + 1);
  EXPECT_EQ(count("request_prefill_time_seconds"), seen.streams + 1);
  // Each row but a prompt's last makes one token, and its sum is over all decode rows.
  EXPECT_EQ(prometheus.Query("rivulet_decode_batch_size_sum"), seen.tokens - seen.streams);
  const std::string quantile =
      "histogram_quantile(0.99, rate(rivulet_inter_token_latency_seconds_bucket[5m]))";
  EXPECT_GT(prometheus.Query(quantile).value_or(NAN), 0);
  EXPECT_GT(prometheus.Query("job:rivulet_inter_token_latency_seconds:p99_5m").value_or(NAN), 0);
  EXPECT_GT(prometheus.Query("rivulet_time_to_first_token_seconds_sum").value_or(0), 0);
}

void ExpectIdleGauges(const Prometheus& prometheus) {
  for (const char* name : {"requests_running", "requests_waiting", "state_slots_used",
                           "state_slot_usage_ratio", "sessions", "draining"}) {
    EXPECT_EQ(prometheus.Query(std::string("rivulet_") + name), 0) << name;
  }
  EXPECT_EQ(prometheus.Query("sum(rivulet_state_bytes) - sum(rivulet_prefix_cache_bytes)"), 0);
  EXPECT_GT(prometheus.Query("rivulet_state_slots_capacity").value_or(0), 0);
  EXPECT_EQ(prometheus.Query("rivulet_model_info{model_name=\"tales\"}"), 1);
  EXPECT_EQ(prometheus.Query("count(rivulet_build_info{version!=\"\",commit!=\"\"})"), 1);
}

void ExpectHelp(const Prometheus& prometheus) {
  const nlohmann::json metadata = prometheus.Api("metadata");
  size_t ours = 0;
  for (const auto& [name, entries] : metadata.items()) {
    if (name.rfind("rivulet_", 0) != 0) continue;
    ++ours;
    EXPECT_NE(entries[0]["help"], "") << name;
    EXPECT_NE(entries[0]["type"], "unknown") << name;
  }
  EXPECT_GE(ours, 20u) << metadata.dump();
}

TEST(ObservabilityTest, PrometheusHasWhatTheClientsGot) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  ASSERT_NE(Tool("prometheus"), "");
  const Prometheus prometheus(server->http_address());
  ASSERT_TRUE(prometheus.EventuallyIs("up", 1)) << prometheus.output();
  Seen seen;
  Load(server->address(), seen, [&] {
    return prometheus.Query("max_over_time(rivulet_requests_running[5m])").value_or(0) > 0 &&
           prometheus.Query("rivulet_generation_tokens_total").value_or(0) > 1000;
  });
  Client client(server->address());
  const std::string session = TakeTwoTurns(client, seen);
  v1::ScoreRequest score;
  score.set_prompt("Once upon a time there was a mill.");
  EXPECT_TRUE(client.Score(score).ok());
  v1::GenerateRequest invalid = Tale(1);
  invalid.mutable_sampling()->set_temperature(-1);
  EXPECT_FALSE(client.Generate(invalid, {}, [](const auto&) { return true; }).ok());
  // The scrape that saw the refusal came after everything else.
  ASSERT_TRUE(prometheus.EventuallyIs("rivulet_requests_total{outcome=\"rejected_invalid\"}", 1));
  ExpectCounters(prometheus, seen);
  ExpectHistograms(prometheus, seen);
  ExpectIdleGauges(prometheus);
  ExpectHelp(prometheus);
  EXPECT_EQ(prometheus.Query("min_over_time(up[5m])"), 1);
  EXPECT_EQ(prometheus.Query("count(ALERTS{alertstate=\"firing\"})"), std::nullopt)
      << prometheus.Api("alerts").dump();
  const Exit exit = server->Stop();
  EXPECT_EQ(exit.code, 0);
  EXPECT_EQ(Count(exit.output, " session_id=" + session + " method=Generate"), 2u);
  EXPECT_EQ(
      Count(exit.output, " session_ended tenant=\"\" session_id=" + session + " reason=deleted"),
      1u);
}

TEST(ObservabilityTest, PromtoolAcceptsThePage) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  ASSERT_NE(Tool("promtool"), "");
  Seen seen;
  Generate(server->address(), 20, seen);
  const std::string page = HttpGet(server->http_address(), "/metrics").body;
  const Exit check = RunProgram({Tool("promtool"), "check", "metrics"}, page);
  EXPECT_EQ(check.code, 0) << check.output;
  EXPECT_EQ(check.output, "");
}

TEST(ObservabilityTest, EveryMetricIsDocumented) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  std::ifstream file(SourcePath("docs/observability.md"));
  const std::string docs{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::istringstream page(HttpGet(server->http_address(), "/metrics").body);
  const std::string mark = "# TYPE rivulet_";
  size_t metrics = 0;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind(mark, 0) != 0) continue;
    const std::string name = line.substr(mark.size(), line.rfind(' ') - mark.size());
    EXPECT_NE(docs.find("| `" + name + "` |"), std::string::npos) << name;
    ++metrics;
  }
  EXPECT_GE(metrics, 20u);
}

TEST(ObservabilityTest, PromtoolAcceptsTheRules) {
  ASSERT_NE(Tool("promtool"), "");
  const std::string folder = SourcePath("deploy/prometheus/");
  const Exit config = RunProgram({Tool("promtool"), "check", "config", folder + "prometheus.yml"});
  EXPECT_EQ(config.code, 0) << config.output;
  const Exit rules = RunProgram({Tool("promtool"), "check", "rules", folder + "rules.yml"});
  EXPECT_EQ(rules.code, 0) << rules.output;
  const Exit tests = RunProgram({Tool("promtool"), "test", "rules", folder + "rules_test.yml"});
  EXPECT_EQ(tests.code, 0) << tests.output;
}

std::string PutLogLevel(const ServerProcess& server, const std::string& level) {
  return TestHttpClient(server.http_address()).Request("PUT", "/loglevel", level).body;
}

TEST(ObservabilityTest, LogLevelChangesWhileTheServerRuns) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  Seen seen;
  Generate(server->address(), 3, seen);
  EXPECT_EQ(PutLogLevel(*server, "off"), "off\n");
  Generate(server->address(), 4, seen);
  EXPECT_EQ(PutLogLevel(*server, "loud"),
            "'loud' is not a log level; send debug, info, warning, error or off\n");
  EXPECT_EQ(HttpGet(server->http_address(), "/loglevel").body, "off\n");
  EXPECT_EQ(PutLogLevel(*server, "debug"), "debug\n");
  Generate(server->address(), 5, seen);
  const std::string log = server->Stop().output;
  EXPECT_EQ(Count(log, " info request_finished request_id="), 2u) << log;
  EXPECT_THAT(log, testing::HasSubstr("completion_tokens=3"));
  EXPECT_THAT(log, testing::HasSubstr("completion_tokens=5"));
  EXPECT_THAT(log, testing::HasSubstr("log_level_changed from=info to=off client=127.0.0.1"));
  EXPECT_THAT(log, testing::HasSubstr("log_level_changed from=off to=debug client=127.0.0.1"));
  EXPECT_EQ(Count(log, " debug request_queued request_id="), 1u) << log;
}

}  // namespace
}  // namespace rivulet::e2e
