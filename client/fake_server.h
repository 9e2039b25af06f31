// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A server in the test's process: sessions in a map and a "model" that answers every turn with its
// words in capitals, one message each. Tests only.
#ifndef RIVULET_CLIENT_FAKE_SERVER_H_
#define RIVULET_CLIENT_FAKE_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/mutex.h"
#include "rivulet/v1/inference.grpc.pb.h"

namespace rivulet {

// Special prompts: "hang" sends a word and waits for cancel; "deaf" does the same and ignores
// cancel; "leave" sends a word and ends the turn as cancelled; "break" sends a word and ends the
// stream with UNAVAILABLE; "end" ends it with OK; "crowd" is refused with a retry after 70 ms.
class FakeInference final : public v1::Inference::Service {
 public:
  grpc::Status Chat(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::GenerateResponse, v1::ChatRequest>* stream) override;
  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*,
                        v1::Model* model) override;

  std::vector<v1::GenerateRequest> turns() const;
  void set_has_chat_template(bool value) { has_chat_template_ = value; }
  void set_applies_templates(bool value) { applies_templates_ = value; }

 private:
  friend class FakeServer;
  class FakeSessions* sessions_ = nullptr;
  bool has_chat_template_ = false;
  bool applies_templates_ = true;
  mutable Mutex mutex_;
  std::vector<v1::GenerateRequest> turns_ ABSL_GUARDED_BY(mutex_);
};

class FakeSessions final : public v1::Sessions::Service {
 public:
  static constexpr size_t kPageSize = 3;

  grpc::Status CreateSession(grpc::ServerContext*, const v1::CreateSessionRequest* request,
                             v1::Session* session) override;
  grpc::Status GetSession(grpc::ServerContext*, const v1::GetSessionRequest* request,
                          v1::Session* session) override;
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* response) override;
  grpc::Status UpdateSession(grpc::ServerContext*, const v1::UpdateSessionRequest* request,
                             v1::Session* session) override;
  grpc::Status ForkSession(grpc::ServerContext*, const v1::ForkSessionRequest* request,
                           v1::Session* session) override;
  grpc::Status RewindSession(grpc::ServerContext*, const v1::RewindSessionRequest* request,
                             v1::Session* session) override;
  grpc::Status DeleteSession(grpc::ServerContext*, const v1::DeleteSessionRequest* request,
                             v1::DeleteSessionResponse*) override;

  // Adds tokens to a session; NOT_FOUND if there is none.
  grpc::Status Advance(const std::string& id, uint64_t tokens, uint64_t* before);
  // As a server does when it needs the memory.
  void Drop(const std::string& id);
  std::vector<std::string> ids() const;

 private:
  mutable Mutex mutex_;
  int created_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, v1::Session> sessions_ ABSL_GUARDED_BY(mutex_);
};

class FakeServer {
 public:
  FakeServer();
  ~FakeServer();

  const std::string& address() const { return address_; }
  FakeInference inference;
  FakeSessions sessions;

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace rivulet

#endif  // RIVULET_CLIENT_FAKE_SERVER_H_
