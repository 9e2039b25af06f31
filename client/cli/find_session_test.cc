// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/cli/sessions.h"
#include "client/fake_server.h"

namespace rivulet::cli {
namespace {

using testing::HasSubstr;

class FindSessionTest : public testing::Test {
 protected:
  void Create(const std::string& id, const std::string& name) {
    v1::CreateSessionRequest request;
    request.set_id(id);
    request.set_name(name);
    ASSERT_TRUE(client_.CreateSession(request).ok());
  }
  // The id that was found, or the error.
  std::string Find(const std::string& key, SessionKey kind = SessionKey::kIdNameOrStart) {
    const auto session = FindSession(client_, key, kind, {});
    return session.ok() ? session->id() : std::string(session.status().ToString());
  }

  FakeServer server_;
  Client client_{server_.address()};
};

TEST_F(FindSessionTest, IdBeforeNameBeforeStart) {
  Create("tale", "of a goose");
  Create("tale-2", "tale");
  Create("other", "tale-");
  EXPECT_EQ(Find("tale"), "tale");
  EXPECT_EQ(Find("of a goose"), "tale");
  EXPECT_EQ(Find("tale-"), "other");
  EXPECT_EQ(Find("oth"), "other");
}

TEST_F(FindSessionTest, SeveralMatchesAreListed) {
  for (const char* id : {"abc", "abd"}) Create(id, "same");
  EXPECT_THAT(Find("same"), HasSubstr("2 sessions match same; choose one of: abc abd"));
  EXPECT_THAT(Find("ab"), HasSubstr("FAILED_PRECONDITION"));
}

TEST_F(FindSessionTest, TheStartOfAnIdIsNotEnoughForDeletion) {
  Create("job-10", "");
  EXPECT_EQ(Find("job-1"), "job-10");
  EXPECT_THAT(Find("job-1", SessionKey::kIdOrName), HasSubstr("NOT_FOUND"));
}

TEST_F(FindSessionTest, AnEmptyKeyDoesNotMatchUnnamedSessions) {
  Create("abc", "");
  EXPECT_THAT(Find(""), HasSubstr("INVALID_ARGUMENT"));
}

TEST(NotFoundHintTest, IsAddedToNotFoundOnly) {
  EXPECT_EQ(WithNotFoundHint(absl::NotFoundError("none"), "look there").message(),
            "none; look there");
  EXPECT_EQ(WithNotFoundHint(absl::AbortedError("busy"), "look there").message(), "busy");
}

}  // namespace
}  // namespace rivulet::cli
