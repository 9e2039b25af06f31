// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/http_message.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace rivulet {
namespace {

TEST(HttpMessageTest, PercentsAreDecodedWhereTheyAreBytes) {
  EXPECT_EQ(PercentDecoded("a%2Fb%20c"), "a/b c");
  EXPECT_EQ(PercentDecoded("%C3%a9"), "é");
  EXPECT_EQ(PercentDecoded(std::string("%00", 3)), std::string(1, '\0'));
  for (const char* const as_it_is : {"", "%", "%2", "%%", "%2x", "% 2", "%+f", "%0x1"}) {
    EXPECT_EQ(PercentDecoded(as_it_is), as_it_is);
  }
}

TEST(HttpMessageTest, QueriesHaveValuesByName) {
  const std::string query = "a=1&b=x%26y&c&=d&a=2&e==";
  EXPECT_EQ(QueryValue(query, "a"), "1");
  EXPECT_EQ(QueryValue(query, "b"), "x&y");
  EXPECT_EQ(QueryValue(query, "c"), "");
  EXPECT_EQ(QueryValue(query, "e"), "=");
  EXPECT_EQ(QueryValue(query, "f"), std::nullopt);
  EXPECT_EQ(QueryValue("", "a"), std::nullopt);
  EXPECT_EQ(QueryValue("&&&", "a"), std::nullopt);
}

TEST(HttpMessageTest, EveryStatusThatIsSentHasAName) {
  for (const int status : {100, 200, 304, 400, 401, 403, 404, 405, 408, 409, 413,
                           415, 417, 429, 431, 499, 500, 501, 503, 504, 505}) {
    const std::string head = ResponseHead({status, "", {}, ""}, HttpFraming::kLength, true);
    EXPECT_EQ(head.find("Unknown"), std::string::npos) << head;
  }
}

TEST(HttpMessageTest, A304HasNoLength) {
  const auto head = [](int status) {
    return ResponseHead({status, "", {}, ""}, HttpFraming::kLength, true);
  };
  EXPECT_NE(head(200).find("Content-Length: 0"), std::string::npos);
  EXPECT_EQ(head(304).find("Content-Length"), std::string::npos);
}

}  // namespace
}  // namespace rivulet
