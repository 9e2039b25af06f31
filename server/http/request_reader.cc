// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"

namespace rivulet {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;

constexpr std::string_view kHeadEnd = "\r\n\r\n";
// A chunk's header with its extensions, or the trailers. Nothing that we know sends more than a
// hundred bytes.
constexpr size_t kLargestChunkHeader = 4096;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t' && c != '\r' && c != '\n') || byte == 0x7f;
}

// The first fault in input[begin, end), or null. Bytes behind `end` may be looked at.
const char* FindFault(const std::string& input, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    const char c = input[i];
    if (IsControl(c)) return "a control character in the head";
    if (c == '\n' && (i == 0 || input[i - 1] != '\r')) return "a line that ends in LF without CR";
    if (c != '\n' && i > 0 && input[i - 1] == '\r') return "a CR that ends no line";
    const bool begins_line = i >= 2 && input[i - 1] == '\n';
    if (begins_line && (c == ' ' || c == '\t')) return "a folded header line";
  }
  return nullptr;
}

size_t Count(const HttpRequest& request, std::string_view name) {
  return static_cast<size_t>(std::count_if(
      request.headers.begin(), request.headers.end(),
      [&](const HttpHeader& header) { return absl::EqualsIgnoreCase(header.name, ToAbsl(name)); }));
}

bool AllDigits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// Takes the host of "http://host/path" off, as a proxy may send it. None: it is a path alone.
std::optional<std::string> TakeHost(std::string_view& target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(ToAbsl(target), ToAbsl(scheme))) continue;
    target.remove_prefix(scheme.size());
    const std::string_view host = target.substr(0, target.find_first_of("/?"));
    target.remove_prefix(host.size());
    return std::string(host);
  }
  return std::nullopt;
}

}  // namespace

struct RequestReader::Parser : http::request_parser<http::string_body> {};

RequestReader::RequestReader(size_t most_head_bytes) : most_head_bytes_(most_head_bytes) {
  StartNext();
}

RequestReader::~RequestReader() = default;

void RequestReader::StartNext() {
  parser_ = nullptr;
  request_ = {};
  scanned_ = 0;
  begun_ = has_head_ = expects_continue_ = false;
}

size_t RequestReader::body_bytes() const {
  return parser_ == nullptr ? 0 : parser_->get().body().size();
}

RequestReader::Progress RequestReader::Refuse(int status, std::string text) {
  refusal_status_ = status;
  refusal_text_ = std::move(text);
  return Progress::kRefused;
}

RequestReader::Progress RequestReader::Read(std::string& input) {
  if (refusal_status_ != 0) return Progress::kRefused;
  return has_head_ ? ReadBody(input) : ReadHead(input);
}

RequestReader::Progress RequestReader::ReadHead(std::string& input) {
  // Some clients end a body with a line that belongs to nothing.
  size_t lines = 0;
  while (!begun_ && std::string_view(input).substr(lines).starts_with("\r\n")) lines += 2;
  input.erase(0, lines);
  if (!begun_ && input == "\r") return Progress::kNeedsMore;
  begun_ = begun_ || !input.empty();
  const size_t from = scanned_ < kHeadEnd.size() ? 0 : scanned_ - kHeadEnd.size() + 1;
  const size_t end = input.find(kHeadEnd, from);
  const bool whole = end != std::string::npos;
  const size_t head = whole ? end + kHeadEnd.size() : input.size();
  const char* const fault = FindFault(input, scanned_, std::min(head, most_head_bytes_));
  if (fault != nullptr) return Refuse(400, fault);
  if (head > most_head_bytes_ || (!whole && head == most_head_bytes_)) {
    return Refuse(431, absl::StrCat("the request line and the headers have more than ",
                                    most_head_bytes_, " bytes"));
  }
  scanned_ = head;
  if (!whole) return Progress::kNeedsMore;
  parser_ = std::make_unique<Parser>();
  parser_->header_limit(std::numeric_limits<uint32_t>::max());
  parser_->body_limit(std::numeric_limits<uint64_t>::max());
  parser_->eager(false);
  error_code error;
  parser_->put(boost::asio::buffer(input.data(), head), error);
  if (error == http::error::bad_version) return Refuse(505, "only HTTP/1.1 and 1.0 are served");
  if (error || !parser_->is_header_done()) {
    return Refuse(400, absl::StrCat("the head is not HTTP: ", error.message()));
  }
  input.erase(0, head);
  return TakeHead();
}

RequestReader::Progress RequestReader::TakeHead() {
  has_head_ = true;
  const auto& message = parser_->get();
  request_.method = std::string(View(message.method_string()));
  request_.minor_version = static_cast<int>(message.version() % 10);
  request_.keep_alive = parser_->keep_alive() && request_.minor_version == 1;
  std::string_view target = View(message.target());
  target_host_ = TakeHost(target);
  const size_t question = target.find('?');
  request_.path = std::string(target.substr(0, question));
  if (target_host_.has_value() && request_.path.empty()) request_.path.assign(1, '/');
  if (question != std::string_view::npos) request_.query = std::string(target.substr(question + 1));
  for (const auto& field : message) {
    request_.headers.push_back(
        {std::string(View(field.name_string())), std::string(View(field.value()))});
  }
  const std::string* const expect = request_.Find("Expect");
  expects_continue_ = expect != nullptr && absl::EqualsIgnoreCase(*expect, "100-continue");
  return CheckFraming();
}

// RFC 9112, sections 3.2 and 6.
RequestReader::Progress RequestReader::CheckFraming() {
  const size_t hosts = Count(request_, "Host");
  const size_t lengths = Count(request_, "Content-Length");
  const size_t encodings = Count(request_, "Transfer-Encoding");
  if (request_.path.empty() || (request_.path[0] != '/' && request_.path != "*")) {
    return Refuse(400, "the request's target is not a path");
  }
  if (hosts > 1 || (hosts == 0 && request_.minor_version == 1)) {
    return Refuse(400, "a request has one Host header");
  }
  // Programs disagree about which of them counts.
  if (target_host_.has_value() && hosts == 1 &&
      !absl::EqualsIgnoreCase(*target_host_, *request_.Find("Host"))) {
    return Refuse(400, "the target names another host than the Host header");
  }
  if (lengths + encodings > 1) {
    return Refuse(400, "more than one Content-Length or Transfer-Encoding");
  }
  if (lengths == 1 && !AllDigits(*request_.Find("Content-Length"))) {
    return Refuse(400, "Content-Length is not a number");
  }
  if (encodings == 1 && (request_.minor_version == 0 ||
                         !absl::EqualsIgnoreCase(*request_.Find("Transfer-Encoding"), "chunked"))) {
    return Refuse(501, "the only Transfer-Encoding that is served is chunked, with HTTP/1.1");
  }
  // Taken as it is, a body would mean something else to a proxy that has unpacked it.
  const std::string* const encoding = request_.Find("Content-Encoding");
  if (encoding != nullptr &&
      (Count(request_, "Content-Encoding") > 1 || !absl::EqualsIgnoreCase(*encoding, "identity"))) {
    return Refuse(415, "bodies are read as they are: send no Content-Encoding");
  }
  if (Count(request_, "Expect") > 0 && !expects_continue_) {
    return Refuse(417, "the only Expect that is served is 100-continue");
  }
  return Progress::kHead;
}

void RequestReader::AcceptBody(uint64_t most_body_bytes) {
  most_body_bytes_ = most_body_bytes;
  parser_->body_limit(most_body_bytes);
  parser_->eager(true);
}

RequestReader::Progress RequestReader::ReadBody(std::string& input) {
  const auto too_large = [this] {
    return Refuse(413, absl::StrCat("the body has more than ", most_body_bytes_, " bytes"));
  };
  const auto length = parser_->content_length();
  if (length && *length > most_body_bytes_) return too_large();
  error_code error;
  while (!parser_->is_done() && !input.empty() && !error) {
    const size_t used = parser_->put(boost::asio::buffer(input), error);
    input.erase(0, used);
    if (used == 0 && !error) break;
  }
  if (error == http::error::need_more) error = {};
  if (error == http::error::body_limit) return too_large();
  if (error) return Refuse(400, absl::StrCat("the body is not as announced: ", error.message()));
  if (parser_->is_done()) {
    request_.body = std::move(parser_->get().body());
    return Progress::kDone;
  }
  if (input.size() > kLargestChunkHeader) return Refuse(400, "a chunk's header is too long");
  return Progress::kNeedsMore;
}

}  // namespace rivulet
