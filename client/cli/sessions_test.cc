// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/sessions.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rivulet::cli {
namespace {

constexpr int64_t kNow = 1'800'000'000'000;

v1::Session Session(const std::string& id, const std::string& name, int64_t seconds_ago) {
  v1::Session session;
  session.set_id(id);
  session.set_name(name);
  session.set_position(42);
  session.set_state_bytes(2'202'009);
  session.set_last_used_unix_ms(kNow - seconds_ago * 1000);
  return session;
}

TEST(SessionsTableTest, ShowsTheLatestFirstAndMarksTheCurrentOne) {
  std::vector<v1::Session> sessions = {Session("old", "tale", 3 * 3600), Session("newer", "", 60)};
  sessions[1].set_busy(true);
  EXPECT_EQ(SessionsTable(sessions, "old", kNow),
            "  ID     NAME  TOKENS  STATE    BUSY  LAST USED\n"
            "  newer        42      2.1 MiB  yes   60 s ago\n"
            "* old    tale  42      2.1 MiB  -     3 h ago\n");
}

TEST(SessionsTableTest, NoSessionIsMarkedWithoutACurrentOne) {
  const std::string table = SessionsTable({Session("a", "", 1)}, "", kNow);
  EXPECT_EQ(table.find('*'), std::string::npos);
}

TEST(SessionsTableTest, ANameCannotControlTheTerminal) {
  const std::string table = SessionsTable({Session("a", "x\x1b[2J\ny", 1)}, "", kNow);
  EXPECT_NE(table.find("x^[[2J^Jy"), std::string::npos) << table;
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
}

TEST(SessionsTableTest, ALongNameIsCutAndALongIdIsNot) {
  const std::string table =
      SessionsTable({Session(std::string(100, 'i'), std::string(100, 'n'), 1)}, "", kNow);
  EXPECT_NE(table.find(std::string(100, 'i')), std::string::npos);
  EXPECT_NE(table.find(std::string(29, 'n') + "... "), std::string::npos);
}

TEST(SessionsTreeTest, EachSessionIsFollowedByItsForks) {
  std::vector<v1::Session> sessions = {Session("fork", "", 1), Session("other", "", 1),
                                       Session("first", "", 1), Session("fork_of_fork", "", 1)};
  sessions[0].set_forked_from("first");
  sessions[0].set_forked_at(7);
  sessions[1].set_created_unix_ms(2);
  sessions[2].set_created_unix_ms(1);
  sessions[3].set_forked_from("fork");
  std::vector<std::string> ids;
  for (const v1::Session& session : InTreeOrder(sessions)) ids.push_back(session.id());
  EXPECT_EQ(ids, (std::vector<std::string>{"first", "fork", "fork_of_fork", "other"}));
  EXPECT_EQ(SessionsTree(sessions, "other"),
            "  first  42 tokens\n"
            "     fork  42 tokens, forked at 7\n"
            "        fork_of_fork  42 tokens, forked at 0\n"
            "* other  42 tokens\n");
}

TEST(SessionsTableTest, WithoutSessionsOnlyTheHeadingIsPrinted) {
  EXPECT_EQ(SessionsTable({}, "", kNow), "  ID  NAME  TOKENS  STATE  BUSY  LAST USED\n");
}

}  // namespace
}  // namespace rivulet::cli
