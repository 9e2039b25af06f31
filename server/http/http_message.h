// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// An HTTP/1.1 request as it was read, and a response as it is written. Plain values: any thread may
// hold one, one at a time may change it.
#ifndef RIVULET_SERVER_HTTP_HTTP_MESSAGE_H_
#define RIVULET_SERVER_HTTP_HTTP_MESSAGE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/security/caller.h"
#include "server/security/peer_names.h"

namespace rivulet {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;
  std::string path;       // as sent, percent-encoding included; begins with /, or is * (OPTIONS)
  std::string query;      // what follows the ?; empty without one
  int minor_version = 1;  // HTTP/1.x
  bool keep_alive = true;
  std::vector<HttpHeader> headers;  // in order; of a chunked request, without its trailers
  std::string body;                 // as sent: no Content-Encoding is undone
  std::string client;               // the peer's address, without its port
  PeerNames peer_names;             // of the peer's certificate
  CallerPtr caller;                 // HttpRoutes::admit's; null without one

  // The first header of this name (any case), or null.
  const std::string* Find(std::string_view name) const;
};

// "%2F" becomes "/". What is not a byte in two hexadecimal digits stays as it is.
std::string PercentDecoded(std::string_view text);

// The first value of a name in "a=1&b=2", decoded; none if it is not there.
std::optional<std::string> QueryValue(std::string_view query, std::string_view name);

struct HttpResponse {
  int status = 200;
  std::string content_type;
  std::vector<HttpHeader> headers;  // beside those of framing, Content-Type and Date
  std::string body;
};

// How the end of a response's body is told.
enum class HttpFraming { kLength, kChunked, kUntilClose };

// The status line and the headers, with the empty line. Control characters in values become spaces.
std::string ResponseHead(const HttpResponse& response, HttpFraming framing, bool keep_alive);

// One chunk of a chunked body; empty for no bytes, which would end the body.
std::string Chunk(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_HTTP_MESSAGE_H_
