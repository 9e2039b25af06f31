// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target of what the HTTP port reads from clients: requests, queries, and the JSON bodies
// of the OpenAI API, those of /v1/responses among them; and of what models say where tools may be
// called. Every input is read as all of them. Built with
// -DRIVULET_FUZZ=ON by clang:
//   build/<preset>/test/openai_fuzz -max_len=4096 -runs=1000000
//   -dict=server/openai/openai_fuzz.dict
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/http/http_message.h"
#include "server/http/request_reader.h"
#include "server/openai/api_request.h"
#include "server/openai/json_body.h"
#include "server/openai/response_request.h"
#include "server/openai/tool_calls.h"

namespace {

using rivulet::HttpRequest;
using rivulet::RequestReader;

constexpr size_t kMostHead = 1024;
constexpr uint64_t kMostBody = 256;

struct Outcome {
  std::vector<HttpRequest> requests;
  int refused = 0;
};

Outcome ReadInPieces(const std::string& bytes, size_t piece) {
  RequestReader reader(kMostHead);
  Outcome outcome;
  std::string input;
  for (size_t at = 0; at < bytes.size() && outcome.refused == 0; at += piece) {
    input += bytes.substr(at, piece);
    for (bool more = true; more;) {
      const RequestReader::Progress progress = reader.Read(input);
      more =
          progress == RequestReader::Progress::kHead || progress == RequestReader::Progress::kDone;
      if (progress == RequestReader::Progress::kHead) reader.AcceptBody(kMostBody);
      if (progress == RequestReader::Progress::kRefused) outcome.refused = reader.refusal_status();
      if (progress != RequestReader::Progress::kDone) continue;
      outcome.requests.push_back(std::move(reader.request()));
      reader.StartNext();
    }
  }
  return outcome;
}

// The outcome does not depend on how the network cut the bytes.
void CheckHttp(const std::string& bytes) {
  const Outcome whole = ReadInPieces(bytes, std::max<size_t>(1, bytes.size()));
  const Outcome cut = ReadInPieces(bytes, 1 + bytes.size() % 13);
  if (whole.refused != cut.refused || whole.requests.size() != cut.requests.size()) std::abort();
  for (size_t i = 0; i < whole.requests.size(); ++i) {
    const HttpRequest& request = whole.requests[i];
    if (request.path != cut.requests[i].path || request.body != cut.requests[i].body) std::abort();
    if (request.body.size() > kMostBody) std::abort();
    if (request.path[0] != '/' && request.path != "*") std::abort();
  }
}

// As a gRPC client could have sent it: with strings that are UTF-8.
void CheckProto(const rivulet::v1::GenerateRequest& proto) {
  if (!rivulet::v1::GenerateRequest().ParseFromString(proto.SerializeAsString())) std::abort();
}

// What is parsed can be written, and means the same when it is parsed again.
void CheckJson(const std::string& bytes) {
  const auto json = rivulet::openai::ParseJson(bytes);
  if (!json.ok()) return;
  const auto again = rivulet::openai::ParseJson(rivulet::openai::Dump(*json));
  if (!again.ok() || *again != *json) std::abort();
  HttpRequest request;
  request.body = bytes;
  const auto response = rivulet::openai::ReadResponseRequest(request, "m");
  if (response.ok()) {
    CheckProto(response->proto);
    if (!rivulet::openai::ParseJson(rivulet::openai::Dump(response->echo)).ok()) std::abort();
  }
  for (const auto endpoint :
       {rivulet::openai::Endpoint::kChat, rivulet::openai::Endpoint::kCompletions}) {
    const auto read = rivulet::openai::ReadApiRequest(request, endpoint, "m");
    if (read.ok()) CheckProto(read->proto);
  }
}

struct Said {
  std::string text;
  std::vector<rivulet::openai::ToolCall> calls;
};

using SharedSchemas = std::shared_ptr<const rivulet::openai::ToolSchemas>;

Said ReadCallsInPieces(const SharedSchemas& tools, const std::string& bytes, size_t piece) {
  rivulet::openai::ToolCallParser parser(tools);
  Said said;
  for (size_t at = 0; at < bytes.size(); at += piece)
    said.text += parser.Add(bytes.substr(at, piece));
  auto rest = parser.Finish();
  said.text += rest.text;
  said.calls = std::move(rest.calls);
  return said;
}

// What a model says does not depend on how its tokens cut it, and the arguments of calls are JSON
// unless the model gave them as a text.
void CheckToolCalls(const std::string& bytes) {
  static const SharedSchemas tools = [] {
    auto made = std::make_shared<rivulet::openai::ToolSchemas>();
    made->Add(*rivulet::openai::ParseJson(
        R"({"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "n": {}}}})"));
    return made;
  }();
  const Said whole = ReadCallsInPieces(tools, bytes, std::max<size_t>(1, bytes.size()));
  const Said cut = ReadCallsInPieces(tools, bytes, 1 + bytes.size() % 7);
  if (whole.text != cut.text || whole.calls.size() != cut.calls.size()) std::abort();
  for (size_t i = 0; i < whole.calls.size(); ++i) {
    if (whole.calls[i].name != cut.calls[i].name) std::abort();
    if (whole.calls[i].arguments != cut.calls[i].arguments) std::abort();
  }
  if (whole.calls.empty() && whole.text != bytes) std::abort();
}

void CheckQuery(const std::string& bytes) {
  const auto value = rivulet::QueryValue(bytes, "a");
  if (value.has_value() && value->size() > bytes.size()) std::abort();
  if (rivulet::PercentDecoded(bytes).size() > bytes.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  CheckHttp(bytes);
  CheckJson(bytes);
  CheckToolCalls(bytes);
  CheckQuery(bytes);
  return 0;
}
