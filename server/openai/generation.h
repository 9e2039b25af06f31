// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One HTTP request that generates: its body becomes a GenerationCall, or one for each of several
// prompts, whose messages become a reply. What differs between endpoints is their GenerationTask.
//
//   I/O thread    StartGeneration; later the ends of writes, and that the client is gone
//   worker        reads and checks the body, submits; builds a reply that is long
//   dispatcher    hands over what was generated
//
// A client that does not read fills its connection's buffer, then the request's outbox, and the
// scheduler leaves its rows out (outbox.h); after --stalled-client-seconds the connection is cut.
#ifndef RIVULET_SERVER_OPENAI_GENERATION_H_
#define RIVULET_SERVER_OPENAI_GENERATION_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rivulet/v1/inference.pb.h"
#include "server/http/http_exchange.h"
#include "server/service/generation_call.h"
#include "server/service/service_context.h"

namespace rivulet::openai {

// What an endpoint makes of a request. One thread at a time; no exception but std::bad_alloc.
class GenerationTask {
 public:
  virtual ~GenerationTask() = default;

  // For the log; a constant.
  virtual const char* method() const = 0;
  // The requests that the body asks for, at least one; may take the body. `call` is what will run
  // the first. Called first.
  virtual absl::StatusOr<std::vector<v1::GenerateRequest>> Read(
      HttpRequest& http, const std::shared_ptr<GenerationCall>& call) = 0;
  // The next message of a request → events of a stream, or nothing for a reply that is sent as a
  // whole.
  virtual absl::StatusOr<std::string> Add(size_t request, v1::GenerateResponse message) = 0;
  // After the last message, one of the two: the events that end a stream, or the whole reply.
  virtual std::string LastEvents() = 0;
  virtual std::string Whole() = 0;
  // Whether these two take long.
  virtual bool large() const = 0;
  // An error of a request in the words of the endpoint. After Read.
  virtual absl::Status Explain(const absl::Status& status) const = 0;
  // Instead: a call failed, perhaps before Read. Drops what was made for it alone.
  virtual void Fail() = 0;
  // The event that ends a stream that has begun. After Fail.
  virtual std::string ErrorEvent(const absl::Status& status) = 0;

  // For headers; empty before the first message, or if there is none.
  virtual std::string request_id() const = 0;
  virtual std::string session_id() const = 0;
};

// The service outlives all its calls (ServiceContext::calls). On the I/O thread.
void StartGeneration(const ServiceContext& service, std::unique_ptr<GenerationTask> task,
                     const std::shared_ptr<HttpExchange>& exchange);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_GENERATION_H_
