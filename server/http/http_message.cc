// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/http_message.h"

#include <algorithm>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rivulet {
namespace {

const char* Reason(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

// As RFC 9110 wants it, in every locale.
std::string Now() {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  return absl::StrFormat("%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[utc.tm_wday], utc.tm_mday,
                         kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min,
                         utc.tm_sec);
}

void AppendHeader(const std::string& name, const std::string& value, std::string& head) {
  head += name;
  head += ": ";
  for (const char c : value) head += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  head += "\r\n";
}

}  // namespace

const std::string* HttpRequest::Find(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (absl::EqualsIgnoreCase(header.name, absl::string_view(name.data(), name.size()))) {
      return &header.value;
    }
  }
  return nullptr;
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool encoded = text[i] == '%' && i + 2 < text.size() &&
                         absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                         absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]));
    decoded += encoded ? absl::HexStringToBytes({text.data() + i + 1, 2})[0] : text[i];
    i += encoded ? 2 : 0;
  }
  return decoded;
}

std::optional<std::string> QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) != name) continue;
    return PercentDecoded(pair.substr(std::min(equals + 1, pair.size())));
  }
  return std::nullopt;
}

std::string ResponseHead(const HttpResponse& response, HttpFraming framing, bool keep_alive) {
  std::string head =
      absl::StrCat("HTTP/1.1 ", response.status, " ", Reason(response.status), "\r\n");
  AppendHeader("Date", Now(), head);
  if (!response.content_type.empty()) AppendHeader("Content-Type", response.content_type, head);
  for (const HttpHeader& header : response.headers) AppendHeader(header.name, header.value, head);
  // A 304 would have to give the length of the body that it leaves out.
  if (framing == HttpFraming::kLength && response.status != 304) {
    AppendHeader("Content-Length", std::to_string(response.body.size()), head);
  }
  if (framing == HttpFraming::kChunked) AppendHeader("Transfer-Encoding", "chunked", head);
  if (!keep_alive) AppendHeader("Connection", "close", head);
  head += "\r\n";
  return head;
}

std::string Chunk(std::string_view bytes) {
  if (bytes.empty()) return "";
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n",
                      absl::string_view(bytes.data(), bytes.size()), "\r\n");
}

}  // namespace rivulet
