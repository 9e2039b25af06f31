// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bytes → HTTP/1.1 requests, one after the other (pipelining). Boost.Beast parses; what it lets
// pass although two programs may understand it differently (request smuggling) is refused before:
// bare LF or CR, folded header lines, control characters, more than one length, Transfer-Encoding
// other than chunked or together with Content-Length, no Host or several. No sockets, no clock.
//
// It does not undo Content-Encoding, drops trailers and chunk extensions, and knows no route.
//
// Threading: one thread at a time. No input throws, but for std::bad_alloc.
#ifndef RIVULET_SERVER_HTTP_REQUEST_READER_H_
#define RIVULET_SERVER_HTTP_REQUEST_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/http/http_message.h"

namespace rivulet {

class RequestReader {
 public:
  enum class Progress {
    kNeedsMore,  // the input is used up, or ends within a line or a chunk's header
    kHead,       // request() has all but the body; AcceptBody is to be called before the next Read
    kDone,       // request() is complete; StartNext is to be called before the next Read
    kRefused,    // refusal_status() and refusal_text(); nothing more can be read
  };

  // A request line and headers of more than `most_head_bytes` are refused.
  explicit RequestReader(size_t most_head_bytes);
  ~RequestReader();

  // Goes on with the request, and removes what it used from the front of `input`.
  Progress Read(std::string& input);

  // After kHead: a body of more bytes is refused.
  void AcceptBody(uint64_t most_body_bytes);
  // The client waits for "100 Continue" before it sends the body. After kHead.
  bool expects_continue() const { return expects_continue_; }
  // A part of a request has been read.
  bool begun() const { return begun_; }
  size_t body_bytes() const;  // read so far

  HttpRequest& request() { return request_; }
  void StartNext();

  int refusal_status() const { return refusal_status_; }
  const std::string& refusal_text() const { return refusal_text_; }

 private:
  struct Parser;

  Progress ReadHead(std::string& input);
  Progress ReadBody(std::string& input);
  Progress TakeHead();
  Progress CheckFraming();
  Progress Refuse(int status, std::string text);

  const size_t most_head_bytes_;
  std::unique_ptr<Parser> parser_;
  HttpRequest request_;
  uint64_t most_body_bytes_ = 0;
  size_t scanned_ = 0;  // bytes of the input without an end of the head
  bool begun_ = false;
  bool has_head_ = false;
  bool expects_continue_ = false;
  std::optional<std::string> target_host_;
  int refusal_status_ = 0;
  std::string refusal_text_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_REQUEST_READER_H_
