// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/compression.h"

#include <zlib.h>

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace rivulet {
namespace {

// zlib: the largest window, and 16 for gzip's header.
constexpr int kGzipWindow = 15 + 16;
constexpr int kGzipMemory = 8;

bool AcceptsGzip(const HttpRequest& request) {
  const std::string* const accept = request.Find("Accept-Encoding");
  if (accept == nullptr) return false;
  for (const absl::string_view entry : absl::StrSplit(*accept, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(entry, ';');
    const absl::string_view quality = absl::StripAsciiWhitespace(parts.second);
    const bool refused = quality == "q=0" || quality == "q=0.0";
    if (absl::StripAsciiWhitespace(parts.first) == "gzip") return !refused;
  }
  return false;
}

// False if zlib has no memory; `text` is then unchanged.
bool Compress(std::string& text) {
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, kGzipMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return false;
  }
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (whole) text = std::move(packed);
  return whole;
}

}  // namespace

void CompressFor(const HttpRequest& request, HttpResponse& response) {
  response.headers.push_back({"Vary", "Accept-Encoding"});
  if (AcceptsGzip(request) && Compress(response.body)) {
    response.headers.push_back({"Content-Encoding", "gzip"});
  }
}

}  // namespace rivulet
