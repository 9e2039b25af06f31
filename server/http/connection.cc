// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <new>
#include <utility>

#include "server/log/log.h"

namespace rivulet {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
// How long a response to a client that has closed its side may take before we look whether it is
// there. Short ones are not disturbed.
constexpr std::chrono::milliseconds kProbeTime{250};

// One for all connections: a read is copied out of it before the next begins.
std::array<char, 65536>& Scratch() {
  static thread_local std::array<char, 65536> scratch;
  return scratch;
}

}  // namespace

void IoPoster::Post(std::function<void()> task) {
  MutexLock lock(&mutex_);
  if (io_ == nullptr) return;
  try {
    asio::post(*io_, std::move(task));
  } catch (const std::bad_alloc&) {
    LogWarning("http_no_memory", {{"error", "a response could not go on"}});
  }
}

void IoPoster::Close() {
  MutexLock lock(&mutex_);
  io_ = nullptr;
}

class Connection::Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, uint64_t number, HttpRequest request)
      : HttpExchange(std::move(request)),
        connection_(std::move(connection)),
        poster_(connection_->hub_.poster()),
        number_(number) {}
  // The connection's last reference may be here, and its socket belongs to the I/O thread.
  ~Exchange() override {
    poster_->Post([connection = std::move(connection_), number = number_] {
      if (connection->IsCurrent(number) && !connection->whole_) connection->Close();
    });
  }

  void WhenGone(std::function<void(bool)> gone) override {
    if (connection_->IsCurrent(number_)) connection_->gone_ = std::move(gone);
  }

  void Respond(HttpResponse response) override {
    Post([response = std::move(response)](Connection& connection) mutable {
      connection.Respond(std::move(response));
    });
  }
  void BeginStream(HttpResponse head) override {
    Post([head = std::move(head)](Connection& connection) { connection.BeginStream(head); });
  }
  void Write(std::string bytes, std::function<void(bool)> done) override {
    poster_->Post([connection = connection_, number = number_, bytes = std::move(bytes),
                   done = std::move(done)]() mutable {
      if (!connection->IsCurrent(number)) return done(false);
      connection->StreamWrite(bytes, std::move(done));
    });
  }
  void EndStream() override {
    Post([](Connection& connection) { connection.EndStream(); });
  }
  void Cut() override {
    Post([](Connection& connection) { connection.Close(); });
  }

 private:
  template <typename Work>
  void Post(Work work) {
    poster_->Post([connection = connection_, number = number_, work = std::move(work)]() mutable {
      if (connection->IsCurrent(number)) work(*connection);
    });
  }

  std::shared_ptr<Connection> connection_;
  const std::shared_ptr<IoPoster> poster_;
  const uint64_t number_;
};

Connection::Connection(ConnectionHub& hub, tcp::socket socket)
    : hub_(hub),
      io_(hub.io()),
      socket_(std::move(socket)),
      transport_(hub.MakeTransport(socket_)),
      timer_(socket_.get_executor()),
      reader_(hub.limits().head_bytes),
      waits_since_(std::chrono::steady_clock::now()) {}

template <typename Work>
auto Connection::Guarded(Work work) {
  return [self = shared_from_this(), work](const auto&... arguments) {
    if (self->phase_ == Phase::kClosed) return;
    try {
      work(arguments...);
    } catch (const std::exception& error) {
      LogWarning("http_request_failed", {{"error", error.what()}});
      self->Close();
    }
  };
}

void Connection::Start() {
  error_code error;
  socket_.non_blocking(true, error);
  if (!error) {
    const tcp::endpoint peer = socket_.remote_endpoint(error);
    client_ = peer.address().to_string();
  }
  if (error || transport_ == nullptr) return Close();
  SetLimit(Limit::kHead);
  WaitReadable();
}

void Connection::EndSoon() {
  ends_ = true;
  if (phase_ != Phase::kAnswering) Close();
}

void Connection::Close(bool stalled) {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  if (phase_ == Phase::kAnswering && !has_head_) hub_.CountResponse(499);
  phase_ = Phase::kClosed;
  exchange_ = 0;
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  GiveBodyBytes();
  hub_.Ended(*this);
  if (const auto gone = std::exchange(gone_, nullptr)) gone(stalled);
  if (const auto done = std::exchange(write_done_, nullptr)) done(false);
}

// ---- Limits of time.

std::chrono::milliseconds Connection::TimeOf(Limit limit) const {
  const HttpLimits& limits = hub_.limits();
  switch (limit) {
    case Limit::kHead:
      return limits.head_time;
    case Limit::kBody:
      return limits.body_time;
    case Limit::kIdle:
      return limits.idle_time;
    case Limit::kProbe:
      return kProbeTime;
    case Limit::kLinger:
      return limits.linger_time;
    default:
      return limits.write_time;
  }
}

void Connection::SetLimit(Limit limit) {
  if (limit == limit_) return;
  limit_ = limit;
  limit == Limit::kNone ? static_cast<void>(timer_.cancel()) : RestartLimit(limit);
}

void Connection::RestartLimit(Limit limit) {
  limit_ = limit;
  timer_.expires_after(TimeOf(limit));
  timer_.async_wait(Guarded([this](const error_code& error) {
    const bool late = timer_.expiry() <= std::chrono::steady_clock::now();
    if (!error && late && limit_ != Limit::kNone) OnExpired();
  }));
}

void Connection::OnExpired() {
  if (limit_ == Limit::kProbe) return LookForClient();
  const bool speaks = phase_ == Phase::kReading && reader_.begun();
  if (!speaks) return Close(/*stalled=*/limit_ == Limit::kWrite);
  Refuse(hub_.Refusal(408, "the request did not arrive in time"));
}

// ---- Input.

void Connection::WaitReadable() {
  const bool full = phase_ == Phase::kAnswering && input_.size() >= hub_.limits().head_bytes;
  if (waits_readable_ || input_ended_ || full) return;
  waits_readable_ = true;
  const auto ready = Guarded([this](const error_code& error) {
    waits_readable_ = false;
    error ? Close() : OnReadable();
  });
  if (transport_->holds_input())
    return asio::post(socket_.get_executor(), [ready] { ready(error_code()); });
  socket_.async_wait(std::exchange(read_wait_, tcp::socket::wait_read), ready);
}

void Connection::OnReadable() {
  if (!ReadInput()) return;
  if (phase_ == Phase::kReading) return Advance();
  WaitReadable();
}

// False when the connection is closed.
bool Connection::ReadInput() {
  size_t most = Scratch().size();
  if (phase_ == Phase::kAnswering) most = hub_.limits().head_bytes - input_.size();
  const auto read = transport_->Read(Scratch().data(), std::min(most, Scratch().size()));
  switch (read.progress) {
    case Transport::Progress::kDone:
      if (phase_ != Phase::kLingering) input_.append(Scratch().data(), read.bytes);
      break;
    case Transport::Progress::kBlocked:
      read_wait_ = read.wait;
      break;
    case Transport::Progress::kEnd:
      OnInputEnd();
      break;
    case Transport::Progress::kFailed:
      Close();
  }
  return phase_ != Phase::kClosed;
}

void Connection::OnInputEnd() {
  input_ended_ = true;
  if (phase_ == Phase::kLingering) return Close();
  if (phase_ != Phase::kAnswering) return;
  if (!has_head_ && minor_version_ == 1) SetLimit(Limit::kProbe);
  socket_.async_wait(tcp::socket::wait_error, Guarded([this](const error_code& error) {
                       if (error != asio::error::operation_aborted) Close();
                     }));
}

void Connection::LookForClient() {
  if (has_head_ || phase_ != Phase::kAnswering) return;
  pending_ += kContinue;
  Flush();
}

// ---- Requests.

void Connection::Advance() {
  while (phase_ == Phase::kReading && Step()) continue;
}

// False when nothing more can be done with what was read.
bool Connection::Step() {
  switch (reader_.Read(input_)) {
    case RequestReader::Progress::kNeedsMore:
      return OnNeedsMore();
    case RequestReader::Progress::kHead:
      return OnHead();
    case RequestReader::Progress::kDone:
      Dispatch();
      return false;
    default:
      Refuse(hub_.Refusal(reader_.refusal_status(), reader_.refusal_text()));
      return false;
  }
}

bool Connection::OnNeedsMore() {
  if (input_ended_) {
    Close();
    return false;
  }
  if (!CountBodyBytes()) {
    HttpResponse busy = hub_.Refusal(503, "too many bytes of requests are being received");
    busy.headers.push_back({"Retry-After", "1"});
    Refuse(std::move(busy));
    return false;
  }
  if (limit_ == Limit::kIdle && reader_.begun()) SetLimit(Limit::kHead);
  if (limit_ == Limit::kBody && reader_.expects_continue() && !said_continue_) {
    said_continue_ = true;
    pending_ += kContinue;
    Flush();
  }
  WaitReadable();
  return false;
}

bool Connection::OnHead() {
  const ConnectionHub::Route found = hub_.FindRoute(reader_.request());
  if (found.route == nullptr) {
    HttpResponse refusal =
        hub_.Refusal(found.status,
                     found.status == 405 ? "the path has no such method" : "there is no such path");
    if (!found.allow.empty()) refusal.headers.push_back({"Allow", found.allow});
    Refuse(std::move(refusal));
    return false;
  }
  reader_.request().peer_names = transport_->peer_names();
  if (auto refusal = hub_.Admit(*found.route, reader_.request())) {
    Refuse(*std::move(refusal));
    return false;
  }
  reader_.AcceptBody(found.route->most_body_bytes);
  SetLimit(Limit::kBody);
  return true;
}

bool Connection::CountBodyBytes() {
  const size_t more = reader_.body_bytes() - counted_body_bytes_;
  if (!hub_.TakeBodyBytes(more)) return false;
  counted_body_bytes_ += more;
  return true;
}

void Connection::GiveBodyBytes() { hub_.GiveBodyBytes(std::exchange(counted_body_bytes_, 0)); }

void Connection::Dispatch() {
  static uint64_t last_exchange = 0;
  GiveBodyBytes();
  SetLimit(Limit::kNone);
  HttpRequest request = std::move(reader_.request());
  reader_.StartNext();
  request.client = client_;
  phase_ = Phase::kAnswering;
  exchange_ = ++last_exchange;
  keep_alive_ = request.keep_alive && !ends_;
  minor_version_ = request.minor_version;
  without_body_ = request.method == "HEAD";
  has_head_ = whole_ = said_continue_ = false;
  // Again: the routes may have changed while the body was read.
  const ConnectionHub::Route found = hub_.FindRoute(request);
  if (found.route == nullptr) return Refuse(hub_.Refusal(found.status, "no such path any more"));
  found.route->handler(
      std::make_shared<Exchange>(shared_from_this(), exchange_, std::move(request)));
  input_ended_ ? OnInputEnd() : WaitReadable();
}

// Responds without a handler and ends the connection: what follows on it is not to be trusted, or
// not to be waited for.
void Connection::Refuse(HttpResponse response) {
  phase_ = Phase::kAnswering;
  keep_alive_ = without_body_ = has_head_ = whole_ = false;
  GiveBodyBytes();
  Respond(std::move(response));
}

// ---- Responses.

bool Connection::IsCurrent(uint64_t exchange) const {
  return phase_ == Phase::kAnswering && exchange_ == exchange;
}

void Connection::QueueHead(const HttpResponse& response) {
  keep_alive_ = keep_alive_ && !ends_;
  has_head_ = true;
  hub_.CountResponse(response.status);
  pending_ += ResponseHead(response, framing_, keep_alive_);
}

void Connection::Respond(HttpResponse response) {
  if (has_head_) return;
  framing_ = HttpFraming::kLength;
  QueueHead(response);
  if (!without_body_) pending_ += response.body;
  EndResponse();
}

// The head goes out with the first write.
void Connection::BeginStream(const HttpResponse& head) {
  if (has_head_) return;
  framing_ = minor_version_ == 1 ? HttpFraming::kChunked : HttpFraming::kUntilClose;
  keep_alive_ = keep_alive_ && minor_version_ == 1;
  QueueHead(head);
}

void Connection::StreamWrite(const std::string& bytes, std::function<void(bool)> done) {
  if (bytes.empty() && pending_.empty() && !writing_) return done(true);
  write_done_ = std::move(done);
  pending_ += framing_ == HttpFraming::kChunked ? Chunk(bytes) : bytes;
  Flush();
}

void Connection::EndStream() {
  if (framing_ == HttpFraming::kChunked) pending_ += kLastChunk;
  EndResponse();
}

void Connection::EndResponse() {
  whole_ = true;
  gone_ = nullptr;
  Flush();
  if (!writing_) OnAllWritten();
}

void Connection::Flush() {
  if (writing_) return;
  if (written_ == output_.size()) {
    output_.clear();
    written_ = 0;
    output_.swap(pending_);
  }
  if (output_.empty()) return;
  writing_ = true;
  if (phase_ == Phase::kAnswering) RestartLimit(Limit::kWrite);
  TryWrite();
}

// What comes of it is handled on another stack: a write often begins in the middle of something.
void Connection::TryWrite() {
  const auto write = transport_->Write(output_.data() + written_, output_.size() - written_);
  if (write.progress == Transport::Progress::kBlocked) {
    return socket_.async_wait(
        write.wait, Guarded([this](const error_code& error) { error ? Close() : TryWrite(); }));
  }
  const bool ok = write.progress == Transport::Progress::kDone;
  asio::post(socket_.get_executor(),
             Guarded([this, ok, bytes = write.bytes] { ok ? OnWritten(bytes) : Close(); }));
}

void Connection::OnWritten(size_t bytes) {
  writing_ = false;
  written_ += bytes;
  Flush();
  if (!writing_) OnAllWritten();
}

void Connection::OnAllWritten() {
  if (phase_ != Phase::kAnswering) return;
  output_ = {};  // a connection that waits holds no buffer
  written_ = 0;
  SetLimit(Limit::kNone);
  if (const auto done = std::exchange(write_done_, nullptr)) done(true);
  if (!whole_ || phase_ != Phase::kAnswering || writing_) return;
  whole_ = false;
  exchange_ = 0;
  waits_since_ = std::chrono::steady_clock::now();
  if (!keep_alive_ || ends_) return Linger();
  phase_ = Phase::kReading;
  SetLimit(Limit::kIdle);
  Advance();
}

void Connection::Linger() {
  phase_ = Phase::kLingering;
  input_ = {};
  if (!transport_->EndOutput() || input_ended_) return Close();
  SetLimit(Limit::kLinger);
  WaitReadable();
}

}  // namespace rivulet
