// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/thread_seconds.h"

namespace rivulet {
namespace {

using Progress = RequestReader::Progress;
using testing::HasSubstr;

constexpr size_t kHead = 512;
constexpr uint64_t kBody = 100;

struct Outcome {
  std::vector<HttpRequest> requests;
  int refused = 0;
  std::string why;
};

// Gives the bytes to a reader in the pieces that `cut` makes of them.
template <typename Cut>
Outcome ReadInPieces(const std::string& bytes, Cut cut) {
  RequestReader reader(kHead);
  Outcome outcome;
  std::string input;
  for (size_t at = 0; at < bytes.size() && outcome.refused == 0;) {
    const size_t piece = cut(bytes.size() - at);
    input += bytes.substr(at, piece);
    at += piece;
    for (bool more = true; more;) {
      const Progress progress = reader.Read(input);
      more = progress == Progress::kHead || progress == Progress::kDone;
      if (progress == Progress::kHead) reader.AcceptBody(kBody);
      if (progress == Progress::kDone) {
        outcome.requests.push_back(std::move(reader.request()));
        reader.StartNext();
      }
      if (progress == Progress::kRefused) {
        outcome.refused = reader.refusal_status();
        outcome.why = reader.refusal_text();
      }
    }
  }
  return outcome;
}

Outcome ReadAll(const std::string& bytes) {
  return ReadInPieces(bytes, [](size_t left) { return left; });
}

std::string Post(const std::string& headers, const std::string& body) {
  return "POST /p HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body;
}

TEST(RequestReaderTest, ReadsARequest) {
  const Outcome outcome = ReadAll(
      "PUT /a/b?c=d&e HTTP/1.1\r\nHost: here\r\nX-Two:  words here \r\nContent-Length: "
      "3\r\n\r\nabc");
  ASSERT_EQ(outcome.requests.size(), 1u) << outcome.why;
  const HttpRequest& request = outcome.requests[0];
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.path, "/a/b");
  EXPECT_EQ(request.query, "c=d&e");
  EXPECT_EQ(request.body, "abc");
  ASSERT_NE(request.Find("x-two"), nullptr);
  EXPECT_EQ(*request.Find("x-two"), "words here");
  EXPECT_EQ(request.Find("x-three"), nullptr);
  EXPECT_TRUE(request.keep_alive);
}

TEST(RequestReaderTest, ReadsPipelinedRequestsChunksAndLinesBetween) {
  const Outcome outcome =
      ReadAll("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n" +
              Post("Transfer-Encoding: Chunked\r\n",
                   "3;ext=1\r\nabc\r\n002\r\nde\r\n0\r\nTrailer: t\r\n\r\n") +
              "\r\n\r\nGET http://h/3?q HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  ASSERT_EQ(outcome.requests.size(), 3u) << outcome.why;
  EXPECT_EQ(outcome.requests[0].path, "/1");
  EXPECT_EQ(outcome.requests[1].body, "abcde");
  EXPECT_EQ(outcome.requests[1].Find("Trailer"), nullptr);
  EXPECT_EQ(outcome.requests[2].path, "/3");
  EXPECT_EQ(outcome.requests[2].query, "q");
  EXPECT_FALSE(outcome.requests[2].keep_alive);
}

TEST(RequestReaderTest, TakesTheHostOffATarget) {
  const std::pair<const char*, std::pair<const char*, const char*>> kTargets[] = {
      {"http://h/a?b", {"/a", "b"}}, {"HTTPS://H", {"/", ""}}, {"http://h?a/b", {"/", "a/b"}}};
  for (const auto& [target, read] : kTargets) {
    const Outcome outcome = ReadAll(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: h\r\n\r\n"));
    ASSERT_EQ(outcome.requests.size(), 1u) << target << outcome.why;
    EXPECT_EQ(outcome.requests[0].path, read.first) << target;
    EXPECT_EQ(outcome.requests[0].query, read.second) << target;
  }
}

// Each once moved all that followed.
TEST(RequestReaderTest, ManyLinesBeforeARequestTakeLittleTime) {
  std::string input;
  for (int i = 0; i < 1 << 20; ++i) input += "\r\n";
  const double started = ThreadSeconds();
  RequestReader reader(kHead);
  EXPECT_EQ(reader.Read(input), Progress::kNeedsMore);
  EXPECT_TRUE(input.empty());
  EXPECT_LT(ThreadSeconds() - started, 2.0);
}

TEST(RequestReaderTest, OldClientsEndTheirConnection) {
  const Outcome outcome = ReadAll("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  ASSERT_EQ(outcome.requests.size(), 1u) << outcome.why;
  EXPECT_FALSE(outcome.requests[0].keep_alive);
}

struct Refused {
  std::string bytes;
  int status;
};

// What two programs could read differently, and what is too much.
TEST(RequestReaderTest, RefusesAmbiguousAndOversizedRequests) {
  const std::string get = "GET / HTTP/1.1\r\nHost: h\r\n";
  const Refused cases[] = {
      {Post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n"), 400},
      {Post("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"), 400},
      {Post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), 400},
      {Post("Content-Length: 3, 3\r\n", "abc"), 400},
      {Post("Content-Length: +3\r\n", "abc"), 400},
      {Post("Content-Length: -3\r\n", "abc"), 400},
      {Post("Content-Length: 0x3\r\n", "abc"), 400},
      {Post("Content-Length: \r\n", "abc"), 400},
      {Post("Content-Length: 99999999999999999999\r\n", "abc"), 400},
      {Post("Content-Length: 101\r\n", ""), 413},
      {Post("Transfer-Encoding: chunked\r\n", "65\r\n"), 413},
      {Post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 501},
      {Post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"), 501},
      {Post("Transfer-Encoding: identity\r\n", "abc"), 501},
      {Post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\n", "3\nabc\r\n0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\n", "-3\r\nabc\r\n0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\n", "g\r\nabc\r\n0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\n", "3\r\nabcd\r\n0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\n", "3;" + std::string(8000, 'x')), 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
      {Post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), 400},
      {Post("Content-Encoding: gzip\r\nContent-Length: 3\r\n", "abc"), 415},
      {Post("Content-Encoding: identity\r\nContent-Encoding: identity\r\n", ""), 415},
      {Post("Expect: the worst\r\n", ""), 417},
      {"GET http://evil.test/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET http://h:81/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET http:///h HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET http://h HTTP/1.1\r\nHost: h/\r\n\r\n", 400},
      {get + "A: b\r\n c\r\n\r\n", 400},
      {get + "A: b\r\n\tc\r\n\r\n", 400},
      {get + "A: b\n\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: h\n\n", 400},
      {get + "A: b\rC: d\r\n\r\n", 400},
      {get + std::string("A: b\0c\r\n\r\n", 10), 400},
      {get + "A b\r\n\r\n", 400},
      {get + ": b\r\n\r\n", 400},
      {get + "Host: other\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET relative HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET /\r\nHost: h\r\n\r\n", 400},
      {"\x16\x03\x01\x02", 400},  // TLS
      {get + "A: " + std::string(kHead, 'b'), 431},
      {"GET /" + std::string(kHead, 'b'), 431},
  };
  for (const auto& [bytes, status] : cases) {
    const Outcome outcome = ReadAll(bytes);
    EXPECT_EQ(outcome.refused, status) << bytes << "\n" << outcome.why;
    EXPECT_TRUE(outcome.requests.empty()) << bytes;
    const Outcome slowly = ReadInPieces(bytes, [](size_t) { return 1; });
    EXPECT_EQ(slowly.refused, status) << bytes << "\n" << slowly.why;
  }
}

TEST(RequestReaderTest, TheLimitsThemselvesAreAllowed) {
  std::string head = "GET / HTTP/1.1\r\nHost: h\r\nA: ";
  head += std::string(kHead - head.size() - 4, 'b') + "\r\n\r\n";
  EXPECT_EQ(ReadAll(head).requests.size(), 1u);
  EXPECT_EQ(ReadAll(Post("Content-Length: 100\r\n", std::string(100, 'b'))).requests.size(), 1u);
}

// Any bytes have the same outcome in pieces as in one piece.
TEST(RequestReaderTest, PiecesAndDamageDoNotMatter) {
  std::mt19937_64 random(TestSeed());
  const std::string good = Post("Content-Length: 3\r\nA: b\r\n", "abc") +
                           Post("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n") +
                           "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    for (uint64_t flips = random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] = "\r\n :;0a\t\x80"[random() % 9];
    }
    const Outcome whole = ReadAll(bytes);
    const Outcome cut =
        ReadInPieces(bytes, [&](size_t left) { return std::min<size_t>(left, 1 + random() % 40); });
    ASSERT_EQ(whole.refused, cut.refused) << bytes << "\n" << whole.why << "\n" << cut.why;
    ASSERT_EQ(whole.requests.size(), cut.requests.size()) << bytes;
    for (size_t k = 0; k < cut.requests.size(); ++k) {
      ASSERT_EQ(whole.requests[k].body, cut.requests[k].body) << bytes;
      ASSERT_EQ(whole.requests[k].path, cut.requests[k].path) << bytes;
    }
  }
}

}  // namespace
}  // namespace rivulet
