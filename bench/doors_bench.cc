// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a door costs: the same completions by native gRPC, by the other protocols on its port and by
// HTTP, in turns on one running server, with a thread for each stream. bench/README.md has the
// command.
//
// For each door and number of streams it prints tokens/s, the server's processor time (with --pid;
// it depends less than the rest on what else the machine does), the time to the first token and the
// gaps between messages (a gap counts once for each token behind it). The client is deliberately
// plain: blocking calls, and for HTTP one socket for each stream on which lines are counted.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "kserve/grpc_service.grpc.pb.h"
#include "vllm/vllm_engine.grpc.pb.h"

ABSL_FLAG(std::string, server, "127.0.0.1:8590", "address of gRPC");
ABSL_FLAG(std::string, http, "127.0.0.1:8591", "address of HTTP; a numeric IPv4 address");
ABSL_FLAG(std::vector<std::string>, streams, (std::vector<std::string>{"1", "64"}),
          "numbers of streams at once");
ABSL_FLAG(std::string, pid, "", "the server's process, for its processor time");
ABSL_FLAG(uint32_t, tokens, 128, "of each completion");
ABSL_FLAG(uint32_t, rounds, 5, "completions of each stream, door after door");

namespace rivulet {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// What one stream saw, or all.
struct Seen {
  uint64_t tokens = 0;
  uint64_t messages = 0;
  bool failed = false;
  std::vector<double> first, gaps;

  void Add(const Seen& other) {
    tokens += other.tokens;
    messages += other.messages;
    failed = failed || other.failed;
    first.insert(first.end(), other.first.begin(), other.first.end());
    gaps.insert(gaps.end(), other.gaps.begin(), other.gaps.end());
  }
};

// The times of one stream's messages.
class Watch {
 public:
  void Message(uint64_t tokens, Seen& seen) {
    if (tokens == 0) return;
    const Clock::time_point now = Clock::now();
    const double gap = Milliseconds(now - last_);
    if (!begun_) seen.first.push_back(gap);
    if (begun_) seen.gaps.insert(seen.gaps.end(), tokens, gap);
    begun_ = true;
    last_ = now;
    seen.tokens += tokens;
    ++seen.messages;
  }

 private:
  Clock::time_point last_ = Clock::now();
  bool begun_ = false;
};

class DoorClient {
 public:
  virtual ~DoorClient() = default;
  virtual const char* name() const = 0;
  // One completion; any thread.
  virtual void Complete(uint64_t seed, Seen& seen) = 0;
};

constexpr char kPrompt[] = "Once upon a time";

class GrpcClient final : public DoorClient {
 public:
  explicit GrpcClient(const std::string& address) : client_(address) {}

  const char* name() const override { return "gRPC"; }

  void Complete(uint64_t seed, Seen& seen) override {
    v1::GenerateRequest request;
    request.set_prompt(kPrompt);
    request.set_max_tokens(absl::GetFlag(FLAGS_tokens));
    request.mutable_sampling()->set_seed(seed);
    request.mutable_stop()->set_ignore_eos(true);
    Watch watch;
    const absl::Status status =
        client_.Generate(request, {}, [&](const v1::GenerateResponse& message) {
          watch.Message(static_cast<uint64_t>(message.token_ids_size()), seen);
          return true;
        });
    if (!status.ok()) seen.failed = true;
  }

 private:
  Client client_;
};

// The sampling parameters that tales' generation_config.json gives to those that say nothing.
constexpr float kTemperature = 0.7f, kTopP = 0.8f, kRepetitionPenalty = 1.08f;

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
}

class VllmClient final : public DoorClient {
 public:
  explicit VllmClient(const std::string& address)
      : stub_(::vllm::grpc::engine::VllmEngine::NewStub(NewChannel(address))) {}

  const char* name() const override { return "vLLM's"; }

  void Complete(uint64_t seed, Seen& seen) override {
    ::vllm::grpc::engine::GenerateRequest request;
    request.set_text(kPrompt);
    request.set_stream(true);
    auto& params = *request.mutable_sampling_params();
    params.set_temperature(kTemperature);
    params.set_top_p(kTopP);
    params.set_repetition_penalty(kRepetitionPenalty);
    params.set_max_tokens(absl::GetFlag(FLAGS_tokens));
    params.set_seed(static_cast<int32_t>(seed));
    params.set_ignore_eos(true);
    Watch watch;
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request);
    ::vllm::grpc::engine::GenerateResponse message;
    while (reader->Read(&message)) {
      watch.Message(static_cast<uint64_t>(message.chunk().token_ids_size()), seen);
    }
    if (!reader->Finish().ok()) seen.failed = true;
  }

 private:
  const std::unique_ptr<::vllm::grpc::engine::VllmEngine::Stub> stub_;
};

class KserveClient final : public DoorClient {
 public:
  explicit KserveClient(const std::string& address)
      : stub_(::inference::GRPCInferenceService::NewStub(NewChannel(address))) {}

  const char* name() const override { return "KServe's"; }

  // A stream for each completion. Token ids are asked for, to be counted.
  void Complete(uint64_t seed, Seen& seen) override {
    ::inference::ModelInferRequest request;
    request.set_model_name("tales");
    Input(request, "text_input", "BYTES").mutable_contents()->add_bytes_contents(kPrompt);
    Input(request, "stream", "BOOL").mutable_contents()->add_bool_contents(true);
    auto& parameters = *request.mutable_parameters();
    parameters["max_tokens"].set_int64_param(absl::GetFlag(FLAGS_tokens));
    parameters["seed"].set_int64_param(static_cast<int64_t>(seed));
    parameters["ignore_eos"].set_bool_param(true);
    request.add_outputs()->set_name("output_ids");
    Watch watch;
    grpc::ClientContext context;
    const auto stream = stub_->ModelStreamInfer(&context);
    stream->Write(request);
    stream->WritesDone();
    ::inference::ModelStreamInferResponse message;
    while (stream->Read(&message)) {
      seen.failed = seen.failed || !message.error_message().empty();
      const auto& infer = message.infer_response();
      const bool ids = infer.outputs_size() > 1;
      watch.Message(ids ? static_cast<uint64_t>(infer.outputs(1).shape(0)) : 0, seen);
    }
    if (!stream->Finish().ok()) seen.failed = true;
  }

 private:
  static ::inference::ModelInferRequest::InferInputTensor& Input(
      ::inference::ModelInferRequest& request, const char* name, const char* datatype) {
    auto& input = *request.add_inputs();
    input.set_name(name);
    input.set_datatype(datatype);
    input.add_shape(1);
    return input;
  }

  const std::unique_ptr<::inference::GRPCInferenceService::Stub> stub_;
};

class HttpClient final : public DoorClient {
 public:
  explicit HttpClient(const std::string& address) {
    const size_t colon = address.rfind(':');
    int port = 0;
    address_.sin_family = AF_INET;
    const bool read = colon != std::string::npos &&
                      absl::SimpleAtoi(address.substr(colon + 1), &port) &&
                      inet_pton(AF_INET, address.substr(0, colon).c_str(), &address_.sin_addr) == 1;
    address_.sin_port = htons(static_cast<uint16_t>(port));
    if (!read) std::fprintf(stderr, "--http: %s is no HOST:PORT\n", address.c_str());
  }

  const char* name() const override { return "HTTP"; }

  // Token ids are asked for, so that tokens can be counted as gRPC's are.
  void Complete(uint64_t seed, Seen& seen) override {
    const std::string body = absl::StrCat(
        "{\"prompt\":\"", kPrompt, "\",\"stream\":true,\"ignore_eos\":true,\"return_token_ids\":",
        "true,\"max_tokens\":", absl::GetFlag(FLAGS_tokens), ",\"seed\":", seed, "}");
    const std::string text =
        absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                     "Content-Length: ", body.size(), "\r\n\r\n", body);
    Watch watch;
    const int descriptor = Connect();
    const bool sent = descriptor >= 0 && send(descriptor, text.data(), text.size(), MSG_NOSIGNAL) ==
                                             static_cast<ssize_t>(text.size());
    if (!sent || !ReadStream(descriptor, watch, seen)) seen.failed = true;
    if (descriptor >= 0) close(descriptor);
  }

 private:
  int Connect() const {
    const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (descriptor < 0) return -1;
    const int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) == 0) {
      return descriptor;
    }
    close(descriptor);
    return -1;
  }

  // False if the stream does not end as it should.
  static bool ReadStream(int descriptor, Watch& watch, Seen& seen) {
    std::string held;
    char bytes[16384];
    for (ssize_t count = 0; (count = recv(descriptor, bytes, sizeof(bytes), 0)) > 0;) {
      held.append(bytes, static_cast<size_t>(count));
      for (size_t end = 0; (end = held.find("\n\n")) != std::string::npos;) {
        if (held.find("data: [DONE]") < end) return true;
        watch.Message(TokensOf(held.substr(0, end)), seen);
        held.erase(0, end + 2);
      }
    }
    return false;
  }

  // Of an event.
  static uint64_t TokensOf(const std::string& event) {
    constexpr char kIds[] = "\"token_ids\":[";
    const size_t ids = event.find(kIds);
    if (ids == std::string::npos) return 0;
    const size_t begin = ids + sizeof(kIds) - 1, end = event.find(']', begin);
    if (end == std::string::npos || end == begin) return 0;
    return 1 + static_cast<uint64_t>(std::count(event.begin() + static_cast<ptrdiff_t>(begin),
                                                event.begin() + static_cast<ptrdiff_t>(end), ','));
  }

  sockaddr_in address_ = {};
};

// Processor time that the server has used; 0: not known.
double ServerSeconds() {
  std::ifstream stat("/proc/" + absl::GetFlag(FLAGS_pid) + "/stat");
  std::string word;
  double ticks = 0;
  for (int field = 1; field <= 15 && stat >> word; ++field) {
    if (field >= 14) ticks += std::atof(word.c_str());  // utime, stime
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// One completion on each of `streams` streams at once.
double RunRound(DoorClient& door, size_t streams, uint64_t round, Seen& all) {
  std::vector<Seen> seen(streams);
  std::vector<std::thread> threads;
  const Clock::time_point start = Clock::now();
  for (size_t i = 0; i < streams; ++i) {
    threads.emplace_back([&, i] { door.Complete(round * streams + i + 1, seen[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = Milliseconds(Clock::now() - start) / 1000;
  for (const Seen& one : seen) all.Add(one);
  return seconds;
}

double Percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto place = static_cast<size_t>(share * static_cast<double>(values.size()));
  return values[std::min(place, values.size() - 1)];
}

int Measure(const std::vector<DoorClient*>& doors, size_t streams) {
  const uint32_t rounds = absl::GetFlag(FLAGS_rounds);
  std::vector<Seen> all(doors.size());
  std::vector<std::vector<double>> rates(doors.size());
  std::vector<double> server(doors.size());
  for (uint64_t round = 0; round <= rounds; ++round) {
    for (size_t i = 0; i < doors.size(); ++i) {
      Seen seen;
      const double used = ServerSeconds();
      const double seconds = RunRound(*doors[i], streams, round, seen);
      if (round == 0) continue;  // warms up
      rates[i].push_back(static_cast<double>(seen.tokens) / seconds);
      server[i] += ServerSeconds() - used;
      all[i].Add(seen);
    }
  }
  bool failed = false;
  for (size_t i = 0; i < doors.size(); ++i) {
    Seen& seen = all[i];
    failed = failed || seen.failed;
    const double per_message = static_cast<double>(seen.tokens) /
                               static_cast<double>(std::max<uint64_t>(1, seen.messages));
    std::printf("| %s | %zu | %.0f (%.0f to %.0f) | %.0f | %.2f | %.2f / %.2f | %.2f / %.2f |%s\n",
                doors[i]->name(), streams, Percentile(rates[i], 0.5), Percentile(rates[i], 0),
                Percentile(rates[i], 1),
                1e6 * server[i] / static_cast<double>(std::max<uint64_t>(1, seen.tokens)),
                per_message, Percentile(seen.first, 0.5), Percentile(seen.first, 0.99),
                Percentile(seen.gaps, 0.5), Percentile(seen.gaps, 0.99),
                seen.failed ? " FAILED" : "");
    std::fflush(stdout);
  }
  return failed ? 1 : 0;
}

int Main() {
  GrpcClient grpc(absl::GetFlag(FLAGS_server));
  VllmClient vllm(absl::GetFlag(FLAGS_server));
  KserveClient kserve(absl::GetFlag(FLAGS_server));
  HttpClient http(absl::GetFlag(FLAGS_http));
  std::printf(
      "| door | streams | tokens/s (of rounds) | server's processor time, us/token | tokens a "
      "message | "
      "first token p50 / p99, ms | gap p50 / p99, ms |\n|---|---|---|---|---|---|---|\n");
  int failed = 0;
  for (const std::string& streams : absl::GetFlag(FLAGS_streams)) {
    size_t count = 0;
    if (!absl::SimpleAtoi(streams, &count) || count == 0) return 2;
    failed |= Measure({&grpc, &vllm, &kserve, &http}, count);
  }
  return failed;
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "rivulet-doors-bench: what each protocol costs, on a running server");
  absl::ParseCommandLine(argc, argv);
  return rivulet::Main();
}
