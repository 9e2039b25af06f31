// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bad requests, bad files and bad flags: each gets an error that names the problem, and the server
// keeps serving all other clients.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "kernels/base/test_directory.h"
#include "rivulet/v1/inference.grpc.pb.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

// A small model with random weights and no tokenizer.
std::string SmallModel() { return SourcePath("tests/parity/fixtures/hla_masked"); }

bool EventuallyIs(const ServerProcess& server, const std::string& metric, double value) {
  for (int i = 0; i < 2000; ++i) {
    if (Metric(HttpGet(server.http_address(), "/metrics").body, metric) == value) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class BadRequestTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto server = ServerProcess::Start(SourcePath("models/tales"), {"--max-prompt=1000"});
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    client_ = std::make_unique<Client>(server_->address());
  }
  static void TearDownTestSuite() {
    client_.reset();
    EXPECT_EQ(server_->Stop().code, 0);
    server_.reset();
  }
  // Good requests must still work.
  void TearDown() override {
    v1::GenerateRequest request;
    request.set_prompt("Once");
    request.set_max_tokens(2);
    EXPECT_TRUE(Generate(request).ok());
  }

  static absl::Status Generate(const v1::GenerateRequest& request) {
    return client_->Generate(request, {}, [](const auto&) { return true; });
  }
  static v1::GenerateRequest Good() {
    v1::GenerateRequest request;
    request.set_prompt("Once upon a time");
    request.set_max_tokens(4);
    return request;
  }
  // Expects INVALID_ARGUMENT with `words` in its message for the request that `spoil` has changed.
  static void ExpectInvalid(const std::function<void(v1::GenerateRequest&)>& spoil,
                            const std::string& words) {
    v1::GenerateRequest request = Good();
    spoil(request);
    const absl::Status status = Generate(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_NE(std::string(status.message()).find(words), std::string::npos)
        << words << " is not in: " << status.ToString();
  }

  static inline std::unique_ptr<ServerProcess> server_;
  static inline std::unique_ptr<Client> client_;
};

TEST_F(BadRequestTest, Prompts) {
  ExpectInvalid([](auto& r) { r.mutable_token_ids()->add_ids(4'000'000'000u); }, "4000000000");
  ExpectInvalid([](auto& r) { r.clear_input(); }, "prompt");
  ExpectInvalid([](auto& r) { r.mutable_token_ids(); }, "empty");
  ExpectInvalid(
      [](auto& r) {
        for (int i = 0; i < 1001; ++i) r.mutable_token_ids()->add_ids(5);
      },
      "--max-prompt");
  ExpectInvalid([](auto& r) { r.mutable_messages()->add_messages()->set_role("user"); },
                "template");
  ExpectInvalid([](auto& r) { r.set_prompt("ab\xC3"); }, "UTF-8");
}

TEST_F(BadRequestTest, SamplingOutsideItsLimits) {
  ExpectInvalid([](auto& r) { r.mutable_sampling()->set_temperature(-1); }, "temperature");
  ExpectInvalid([](auto& r) { r.mutable_sampling()->set_temperature(NAN); }, "temperature");
  ExpectInvalid([](auto& r) { r.mutable_sampling()->set_top_p(0); }, "top_p");
  ExpectInvalid([](auto& r) { r.mutable_sampling()->set_top_p(1.5f); }, "top_p");
  ExpectInvalid([](auto& r) { r.mutable_sampling()->set_min_p(1); }, "min_p");
  ExpectInvalid([](auto& r) { r.mutable_sampling()->set_repetition_penalty(0); },
                "repetition_penalty");
  ExpectInvalid([](auto& r) { r.mutable_sampling()->set_frequency_penalty(3); },
                "frequency_penalty");
  ExpectInvalid([](auto& r) { r.mutable_sampling()->set_presence_penalty(-3); },
                "presence_penalty");
  ExpectInvalid([](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[99'999'999] = 1; },
                "99999999");
  ExpectInvalid([](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[5] = 101; }, "101");
}

TEST_F(BadRequestTest, StopsAndCounts) {
  ExpectInvalid([](auto& r) { r.mutable_stop()->add_strings(""); }, "stop");
  ExpectInvalid([](auto& r) { r.mutable_stop()->add_strings(std::string(257, 'x')); }, "256");
  ExpectInvalid(
      [](auto& r) {
        for (int i = 0; i < 17; ++i) r.mutable_stop()->add_strings("x");
      },
      "16");
  ExpectInvalid(
      [](auto& r) {
        for (uint32_t i = 0; i < 65; ++i) r.mutable_stop()->add_token_ids(i);
      },
      "64");
  ExpectInvalid([](auto& r) { r.set_logprobs(21); }, "20");
  ExpectInvalid([](auto& r) { r.set_prompt_logprobs(21); }, "20");
  ExpectInvalid([](auto& r) { r.set_n(65); }, "64");
  ExpectInvalid([](auto& r) { r.set_n(0); }, "n");
}

TEST_F(BadRequestTest, ScoreAndDetokenize) {
  v1::ScoreRequest score;
  EXPECT_EQ(client_->Score(score).status().code(), absl::StatusCode::kInvalidArgument);
  score.mutable_token_ids()->add_ids(1'000'000);
  EXPECT_EQ(client_->Score(score).status().code(), absl::StatusCode::kInvalidArgument);
  score.mutable_token_ids()->set_ids(0, 5);
  score.set_top_logprobs(21);
  EXPECT_EQ(client_->Score(score).status().code(), absl::StatusCode::kInvalidArgument);
  v1::DetokenizeRequest detokenize;
  detokenize.add_token_ids(1'000'000);
  EXPECT_EQ(client_->Detokenize(detokenize).status().code(), absl::StatusCode::kInvalidArgument);
}

// Tokenizing takes about 80 times the text's memory, so a text has a limit below that of a message.
TEST_F(BadRequestTest, ATextTooLongToTokenize) {
  const std::string text((4 << 20) + 1, 'a');
  ExpectInvalid([&](auto& r) { r.set_prompt(text); }, "4194304");
  v1::TokenizeRequest tokenize;
  tokenize.set_text(text);
  EXPECT_EQ(client_->Tokenize(tokenize).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BadRequestTest, MissingOrBusySessions) {
  v1::GenerateRequest request = Good();
  request.set_session_id("unknown");
  const absl::Status unknown = Generate(request);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(unknown.message()).find("unknown"), std::string::npos);
  ExpectInvalid([](auto& r) { r.set_session_id(std::string(129, 'a')); }, "session_id");
  v1::CreateSessionRequest create;
  create.set_id("talk");
  ASSERT_TRUE(client_->CreateSession(create).ok());
  request.set_session_id("talk");
  request.set_max_tokens(1'000'000);
  request.mutable_stop()->set_ignore_eos(true);
  absl::Status busy, busy_for_several;
  EXPECT_TRUE(client_
                  ->Generate(request, {},
                             [&](const auto&) {
                               v1::GenerateRequest second = Good();
                               second.set_session_id("talk");
                               busy = Generate(second);
                               second.set_n(2);
                               busy_for_several = Generate(second);
                               return false;
                             })
                  .ok());
  EXPECT_EQ(busy.code(), absl::StatusCode::kAborted) << busy.ToString();
  EXPECT_EQ(busy_for_several.code(), absl::StatusCode::kAborted) << busy_for_several.ToString();
}

TEST_F(BadRequestTest, ADeadlineInThePast) {
  CallOptions options;
  options.timeout = std::chrono::milliseconds(-1000);
  const absl::Status status = client_->Generate(Good(), options, [](const auto&) { return true; });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status.ToString();
}

TEST_F(BadRequestTest, ADisconnectedClientFreesItsPlace) {
  v1::GenerateRequest request = Good();
  request.set_max_tokens(1'000'000);
  request.mutable_stop()->set_ignore_eos(true);
  EXPECT_TRUE(client_->Generate(request, {}, [](const auto&) { return false; }).ok());
  EXPECT_TRUE(EventuallyIs(*server_, "rivulet_requests_running", 0));
}

TEST_F(BadRequestTest, AMessageOverTheLimit) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  auto stub = v1::Inference::NewStub(
      grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments));
  v1::TokenizeRequest request;
  request.set_text(std::string((64 << 20) + 1, 'a'));
  grpc::ClientContext context;
  v1::TokenizeResponse response;
  const grpc::Status status = stub->Tokenize(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
}

// ---- overload and idle clients ----

v1::GenerateRequest Endless() {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(1);
  request.set_max_tokens(1'000'000'000);
  request.mutable_stop()->set_ignore_eos(true);
  return request;
}

std::unique_ptr<v1::Inference::Stub> StubOf(const ServerProcess& server) {
  return v1::Inference::NewStub(
      grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials()));
}

// An endless stream.
struct Stream {
  explicit Stream(v1::Inference::Stub& stub, const v1::GenerateRequest& request = Endless())
      : reader(stub.Generate(&context, request)) {}
  bool Read() {
    v1::GenerateResponse message;
    return reader->Read(&message);
  }
  grpc::Status Finish() {
    while (Read()) continue;
    return reader->Finish();
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
};

TEST(LoadTest, AClientThatNeverReadsLosesItsPlace) {
  auto server = ServerProcess::Start(SmallModel(), {"--stalled-client-seconds=1"});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const auto stub = StubOf(**server);
  v1::GenerateRequest request = Endless();
  request.set_logprobs(20);
  Stream stalled(*stub, request);
  const std::string stalled_count = "rivulet_requests_total{outcome=\"stalled\"}";
  EXPECT_TRUE(EventuallyIs(**server, stalled_count, 1));
  EXPECT_TRUE(EventuallyIs(**server, "rivulet_state_slots_used", 0));
  EXPECT_EQ(stalled.Finish().error_code(), grpc::StatusCode::CANCELLED);
  request.set_max_tokens(5);
  EXPECT_TRUE(Stream(*stub, request).Finish().ok());
  EXPECT_EQ((*server)->Stop().code, 0);
}

// 40 requests arrive while all rows are taken and four may wait: four are served in the end, and
// each of the others gets the reason.
TEST(LoadTest, TenTimesMoreRequestsThanTheQueueHolds) {
  auto server = ServerProcess::Start(SmallModel(), {"--max-queue=4", "--state-memory=64KiB"});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const auto stub = StubOf(**server);
  const std::string page = HttpGet((*server)->http_address(), "/metrics").body;
  std::vector<std::unique_ptr<Stream>> running;
  for (int i = 0; i < Metric(page, "rivulet_state_slots_capacity"); ++i) {
    running.push_back(std::make_unique<Stream>(*stub));
    ASSERT_TRUE(running.back()->Read());
  }
  std::atomic<int> served{0}, refused{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 40; ++i) {
    clients.emplace_back([&] {
      v1::GenerateRequest request = Endless();
      request.set_max_tokens(5);
      const grpc::Status status = Stream(*stub, request).Finish();
      if (status.ok()) ++served;
      if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
        EXPECT_NE(status.error_message().find("--max-queue"), std::string::npos);
        ++refused;
      }
    });
  }
  const std::string rejected = "rivulet_requests_total{outcome=\"rejected_queue\"}";
  EXPECT_TRUE(EventuallyIs(**server, rejected, 36));
  for (auto& stream : running) stream->context.TryCancel();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served, 4);
  EXPECT_EQ(refused, 36);
  EXPECT_EQ((*server)->Stop().code, 0);
}

grpc::ChannelArguments OwnConnection() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

// Says nothing.
class Connection {
 public:
  explicit Connection(const std::string& address) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in peer = {};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) == 0;
  }
  ~Connection() { close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  bool connected() const { return connected_; }

 private:
  const int socket_;
  bool connected_ = false;
};

TEST(LoadTest, AThousandIdleConnectionsDelayNoRequest) {
  auto server = ServerProcess::Start(SmallModel());
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  std::vector<std::unique_ptr<Connection>> idle;
  const auto stub = StubOf(**server);
  v1::GenerateRequest request = Endless();
  request.set_max_tokens(5);
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(std::make_unique<Connection>((*server)->address()));
    ASSERT_TRUE(idle.back()->connected()) << i;
    if (i % 100 > 0) continue;
    EXPECT_TRUE(Stream(*stub, request).Finish().ok()) << i;
  }
  // On a connection that is made after them, too.
  const auto fresh = v1::Inference::NewStub(grpc::CreateCustomChannel(
      (*server)->address(), grpc::InsecureChannelCredentials(), OwnConnection()));
  EXPECT_TRUE(Stream(*fresh, request).Finish().ok());
  EXPECT_EQ((*server)->Stop().code, 0);
}

// ---- bad files ----

// A copy of the small model in a folder of its own.
std::string CopyModel(const std::string& name) {
  const std::string folder = TestDirectory() + "/bad_" + name;
  std::filesystem::copy(SmallModel(), folder);
  return folder;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}
void Replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

// Expects that the server refuses the model: a non-zero exit code, and every word in its output.
void ExpectRefused(const std::string& model, const std::vector<std::string>& words) {
  const Exit exit = RunProgram(
      {Binary("rivulet-server"), "--model=" + model, "--listen=127.0.0.1:0", "--http=127.0.0.1:0"});
  EXPECT_GT(exit.code, 0) << exit.output;
  EXPECT_LT(exit.code, 128) << "died of a signal: " << exit.output;
  for (const std::string& word : words) {
    EXPECT_NE(exit.output.find(word), std::string::npos) << word << " is not in: " << exit.output;
  }
}

void ExpectRefusedWeights(const std::string& name, const std::function<void(std::string&)>& spoil,
                          const std::vector<std::string>& words) {
  const std::string folder = CopyModel(name);
  std::string bytes = ReadFile(folder + "/model.safetensors");
  spoil(bytes);
  WriteFile(folder + "/model.safetensors", bytes);
  ExpectRefused(folder, words);
}

void ExpectRefusedConfig(const std::string& name, const std::string& from, const std::string& to,
                         const std::vector<std::string>& words) {
  const std::string folder = CopyModel(name);
  std::string config = ReadFile(folder + "/config.json");
  Replace(config, from, to);
  WriteFile(folder + "/config.json", config);
  ExpectRefused(folder, words);
}

TEST(BadModelTest, Folders) {
  ExpectRefused("/no/such/folder", {"/no/such/folder"});
  const std::string folder = CopyModel("no_config");
  std::filesystem::remove(folder + "/config.json");
  ExpectRefused(folder, {"config.json"});
  const std::string weightless = CopyModel("no_weights");
  std::filesystem::remove(weightless + "/model.safetensors");
  ExpectRefused(weightless, {"model.safetensors"});
}

TEST(BadModelTest, DamagedSafetensors) {
  ExpectRefusedWeights("truncated", [](std::string& b) { b.resize(b.size() / 2); },
                       {"model.safetensors"});
  ExpectRefusedWeights("empty", [](std::string& b) { b.clear(); }, {"model.safetensors"});
  ExpectRefusedWeights("header",
                       [](std::string& b) {
                         const uint64_t size = b.size() + 1;
                         std::memcpy(b.data(), &size, sizeof size);
                       },
                       {"header"});
  ExpectRefusedWeights("huge_header",
                       [](std::string& b) {
                         const uint64_t size = std::numeric_limits<uint64_t>::max() - 3;
                         std::memcpy(b.data(), &size, sizeof size);
                       },
                       {"header"});
  ExpectRefusedWeights("json", [](std::string& b) { b[9] = '\xff'; }, {"model.safetensors"});
}

// Changes a tensor's dtype in the header without changing its length.
TEST(BadModelTest, WrongDtype) {
  ExpectRefusedWeights("dtype", [](std::string& b) { Replace(b, "\"F32\"", "\"I32\""); }, {"I32"});
}

// The second tensor's offsets become the first's.
TEST(BadModelTest, OverlappingOffsets) {
  ExpectRefusedWeights("overlap",
                       [](std::string& b) {
                         const std::string key = "\"data_offsets\"";
                         const size_t first = b.find('[', b.find(key));
                         const size_t second = b.find('[', b.find(key, first));
                         const size_t third = b.find('[', b.find(key, second));
                         const std::string offsets = b.substr(second, b.find(']', second) - second);
                         const std::string other = b.substr(third, b.find(']', third) - third);
                         std::string moved = offsets;
                         moved.resize(std::max(offsets.size(), other.size()), ' ');
                         if (other.size() == moved.size()) b.replace(third, other.size(), moved);
                       },
                       {"offset"});
}

TEST(BadModelTest, NanWeightsNameTheTensor) {
  ExpectRefusedWeights("nan",
                       [](std::string& b) {
                         const float nan = NAN;
                         std::memcpy(b.data() + b.size() - 4, &nan, 4);
                       },
                       {"NaN", "weight"});
}

TEST(BadModelTest, Configs) {
  ExpectRefusedConfig("model_type", "\"hla\"", "\"hal\"", {"hal", "model_type"});
  ExpectRefusedConfig("json_syntax", "{", "[", {"config.json"});
  ExpectRefusedConfig("shape", "\"intermediate_size\": ", "\"intermediate_size\": 1",
                      {"mlp", "expected"});
}

// ---- bad flags ----

TEST(BadFlagTest, PortInUseIsAClearError) {
  auto server = ServerProcess::Start(SmallModel());
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  for (const std::string flag : {"--listen", "--http"}) {
    const std::string taken = flag == "--listen" ? (*server)->address() : (*server)->http_address();
    const std::string other = flag == "--listen" ? "--http=127.0.0.1:0" : "--listen=127.0.0.1:0";
    const Exit exit = RunProgram(
        {Binary("rivulet-server"), "--model=" + SmallModel(), flag + "=" + taken, other});
    EXPECT_GT(exit.code, 0);
    EXPECT_LT(exit.code, 128) << exit.output;
    EXPECT_NE(exit.output.find(taken), std::string::npos) << exit.output;
  }
  EXPECT_EQ((*server)->Stop().code, 0);
}

TEST(BadFlagTest, UnknownConfigKeys) {
  const std::string file = TestDirectory() + "/bad_config.json";
  WriteFile(file, R"({"model": "somewhere", "max-queu": 3})");
  const Exit exit = RunProgram({Binary("rivulet-server"), "--config=" + file});
  EXPECT_EQ(exit.code, 2) << exit.output;
  EXPECT_NE(exit.output.find("max-queu"), std::string::npos) << exit.output;
  EXPECT_NE(exit.output.find(file), std::string::npos) << exit.output;
}

TEST(BadFlagTest, ValuesOutsideTheirLimits) {
  for (const std::string flag :
       {"--dtype=fp8", "--state-dtype=int4", "--device=tpu", "--threads=-1", "--state-memory=lots",
        "--max-queue=-5", "--no-such-flag", "--config=/no/such/file", "--listen=nonsense",
        "--override-config=norm_groups"}) {
    const Exit exit = RunProgram({Binary("rivulet-server"), "--model=" + SmallModel(), flag});
    EXPECT_GT(exit.code, 0) << flag;
    EXPECT_LT(exit.code, 128) << flag << exit.output;
    EXPECT_FALSE(exit.output.empty()) << flag;
  }
}

TEST(BadFlagTest, StateMemoryTooSmallForOneSession) {
  const Exit exit = RunProgram({Binary("rivulet-server"), "--model=" + SmallModel(),
                                "--state-memory=1", "--listen=127.0.0.1:0", "--http=127.0.0.1:0"});
  EXPECT_GT(exit.code, 0);
  EXPECT_NE(exit.output.find("--state-memory"), std::string::npos) << exit.output;
}

}  // namespace
}  // namespace rivulet::e2e
