// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/fake_server.h"

#include <cctype>
#include <chrono>
#include <sstream>

namespace rivulet {
namespace {

using Stream = grpc::ServerReaderWriter<v1::GenerateResponse, v1::ChatRequest>;

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string Input(const v1::GenerateRequest& turn) {
  if (!turn.has_messages()) return turn.prompt();
  std::string text;
  for (const auto& message : turn.messages().messages()) text += message.content() + " ";
  return text;
}

void SendWord(Stream* stream, std::string word) {
  for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  v1::GenerateResponse message;
  message.set_text(" " + word);
  message.add_token_ids(1);
  message.set_seed(11);
  stream->Write(message);
}

void SendFinish(Stream* stream, v1::FinishReason reason, size_t words, uint64_t cached) {
  v1::GenerateResponse message;
  message.set_finish_reason(reason);
  message.mutable_usage()->set_prompt_tokens(static_cast<uint32_t>(words));
  message.mutable_usage()->set_completion_tokens(static_cast<uint32_t>(words));
  message.mutable_usage()->set_cached_tokens(static_cast<uint32_t>(cached));
  stream->Write(message);
}

void WaitForCancel(Stream* stream, bool deaf) {
  v1::ChatRequest request;
  while (stream->Read(&request) && (deaf || !request.cancel())) {
  }
}

}  // namespace

grpc::Status FakeInference::Chat(grpc::ServerContext* context, Stream* stream) {
  v1::ChatRequest request;
  while (stream->Read(&request)) {
    if (!request.has_turn()) continue;  // a cancel that came too late
    {
      MutexLock lock(&mutex_);
      turns_.push_back(request.turn());
    }
    const std::vector<std::string> words = Words(Input(request.turn()));
    const std::string first = words.empty() ? "" : words[0];
    if (request.turn().has_messages() && !applies_templates_) {
      return {grpc::StatusCode::UNIMPLEMENTED, "messages: no chat templates"};
    }
    if (first == "crowd") {
      context->AddTrailingMetadata("retry-after-ms", "70");
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many wait"};
    }
    uint64_t cached = 0;
    const std::string& id = request.turn().session_id();
    if (!id.empty()) {
      const grpc::Status status = sessions_->Advance(id, 2 * words.size(), &cached);
      if (!status.ok()) return status;
    }
    if (first == "end") return grpc::Status::OK;
    for (const std::string& word : words) SendWord(stream, word);
    if (first == "break") return {grpc::StatusCode::UNAVAILABLE, "the server is going"};
    const bool waits = first == "hang" || first == "deaf";
    if (waits) WaitForCancel(stream, first == "deaf");
    const bool cancelled = waits || first == "leave";
    SendFinish(stream, cancelled ? v1::FINISH_REASON_CANCELLED : v1::FINISH_REASON_EOS,
               words.size(), cached);
  }
  return grpc::Status::OK;
}

grpc::Status FakeInference::GetModel(grpc::ServerContext*, const v1::GetModelRequest*,
                                     v1::Model* model) {
  model->set_name("fake");
  model->set_parameters(9'200'000);
  model->set_has_tokenizer(true);
  model->set_has_chat_template(has_chat_template_);
  return grpc::Status::OK;
}

std::vector<v1::GenerateRequest> FakeInference::turns() const {
  MutexLock lock(&mutex_);
  return turns_;
}

grpc::Status FakeSessions::CreateSession(grpc::ServerContext*,
                                         const v1::CreateSessionRequest* request,
                                         v1::Session* session) {
  MutexLock lock(&mutex_);
  const std::string id =
      request->id().empty() ? "made-" + std::to_string(++created_) : request->id();
  if (sessions_.count(id) != 0) return {grpc::StatusCode::ALREADY_EXISTS, id + " exists"};
  session->set_id(id);
  session->set_name(request->name());
  sessions_[id] = *session;
  return grpc::Status::OK;
}

grpc::Status FakeSessions::GetSession(grpc::ServerContext*, const v1::GetSessionRequest* request,
                                      v1::Session* session) {
  MutexLock lock(&mutex_);
  const auto it = sessions_.find(request->id());
  if (it == sessions_.end()) return {grpc::StatusCode::NOT_FOUND, "no session " + request->id()};
  *session = it->second;
  return grpc::Status::OK;
}

grpc::Status FakeSessions::ListSessions(grpc::ServerContext*,
                                        const v1::ListSessionsRequest* request,
                                        v1::ListSessionsResponse* response) {
  MutexLock lock(&mutex_);
  auto it = sessions_.upper_bound(request->page_token());
  for (size_t i = 0; i < kPageSize && it != sessions_.end(); ++i, ++it) {
    *response->add_sessions() = it->second;
  }
  if (it != sessions_.end()) response->set_next_page_token(std::prev(it)->first);
  return grpc::Status::OK;
}

grpc::Status FakeSessions::UpdateSession(grpc::ServerContext*,
                                         const v1::UpdateSessionRequest* request,
                                         v1::Session* session) {
  MutexLock lock(&mutex_);
  const auto it = sessions_.find(request->id());
  if (it == sessions_.end()) return {grpc::StatusCode::NOT_FOUND, "no session " + request->id()};
  if (request->has_name()) it->second.set_name(request->name());
  *session = it->second;
  return grpc::Status::OK;
}

grpc::Status FakeSessions::ForkSession(grpc::ServerContext*, const v1::ForkSessionRequest* request,
                                       v1::Session* session) {
  MutexLock lock(&mutex_);
  const auto it = sessions_.find(request->id());
  if (it == sessions_.end()) return {grpc::StatusCode::NOT_FOUND, "no session " + request->id()};
  v1::Session fork = it->second;
  fork.set_id(request->new_id().empty() ? "fork-" + std::to_string(++created_) : request->new_id());
  fork.set_name(request->name());
  if (request->has_position()) fork.set_position(request->position());
  fork.set_forked_from(request->id());
  fork.set_forked_at(fork.position());
  *session = sessions_[fork.id()] = fork;
  return grpc::Status::OK;
}

grpc::Status FakeSessions::RewindSession(grpc::ServerContext*,
                                         const v1::RewindSessionRequest* request,
                                         v1::Session* session) {
  MutexLock lock(&mutex_);
  const auto it = sessions_.find(request->id());
  if (it == sessions_.end()) return {grpc::StatusCode::NOT_FOUND, "no session " + request->id()};
  v1::Session& rewound = it->second;
  rewound.set_position(request->position());
  auto* const kept = rewound.mutable_kept_positions();
  while (!kept->empty() && kept->Get(kept->size() - 1) > request->position()) kept->RemoveLast();
  *session = rewound;
  return grpc::Status::OK;
}

grpc::Status FakeSessions::DeleteSession(grpc::ServerContext*,
                                         const v1::DeleteSessionRequest* request,
                                         v1::DeleteSessionResponse*) {
  MutexLock lock(&mutex_);
  if (sessions_.erase(request->id()) > 0) return grpc::Status::OK;
  return {grpc::StatusCode::NOT_FOUND, "no session " + request->id()};
}

grpc::Status FakeSessions::Advance(const std::string& id, uint64_t tokens, uint64_t* before) {
  MutexLock lock(&mutex_);
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) {
    return {grpc::StatusCode::NOT_FOUND, "session " + id + " was dropped to make room"};
  }
  *before = it->second.position();
  it->second.add_kept_positions(it->second.position());
  it->second.set_position(*before + tokens);
  return grpc::Status::OK;
}

void FakeSessions::Drop(const std::string& id) {
  MutexLock lock(&mutex_);
  sessions_.erase(id);
}

std::vector<std::string> FakeSessions::ids() const {
  MutexLock lock(&mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  return ids;
}

FakeServer::FakeServer() {
  inference.sessions_ = &sessions;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&inference);
  builder.RegisterService(&sessions);
  server_ = builder.BuildAndStart();
  address_ = "127.0.0.1:" + std::to_string(port);
}

FakeServer::~FakeServer() { server_->Shutdown(std::chrono::system_clock::now()); }

}  // namespace rivulet
