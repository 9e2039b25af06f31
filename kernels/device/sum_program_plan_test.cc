// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/sum_program_plan.h"

#include <vector>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

enum Vector : uint32_t { kQuery, kKey, kValue, kOut, kTemporary, kOther };

// Rows are copies where they say of what, and written by reads otherwise.
ProgramRow Copy(uint32_t vector) { return {.width = 64, .copies = 1, .copy = {vector}}; }

SumProgramCall Program(const std::vector<ProgramRow>& rows, const std::vector<ProgramSum>& sums,
                       const std::vector<ProgramRead>& reads) {
  SumProgramCall call;
  call.out = kOut;
  for (const ProgramRow& row : rows) call.rows_of[call.row_count++] = row;
  for (const ProgramSum& sum : sums) call.sums[call.sum_count++] = sum;
  for (const ProgramRead& read : reads) call.reads[call.read_count++] = read;
  return call;
}

// The visits, as sums with their reads.
std::vector<std::vector<uint32_t>> Visits(const SumProgramCall& call) {
  ProgramPlan plan;
  std::vector<std::vector<uint32_t>> visits;
  if (!PlanVisits(call, plan)) return visits;
  for (uint32_t v = 0; v < plan.visit_count; ++v) {
    const ProgramVisit& visit = plan.visits[v];
    visits.push_back({visit.sum});
    for (uint32_t r = 0; r < visit.read_count; ++r) visits.back().push_back(visit.reads[r]);
  }
  return visits;
}

using Expected = std::vector<std::vector<uint32_t>>;

// Rows k, v, u; S = k ⊗ k, F = u ⊗ v; u = S(q), o = F(q).
TEST(SumProgramPlanTest, VisitsSumsInTheOrderOfTheirReads) {
  const SumProgramCall masked =
      Program({Copy(kKey), Copy(kValue), {}}, {{.key = 0, .value = 0}, {.key = 2, .value = 1}},
              {{.sum = 0, .query = kQuery, .to_row = true, .to = 2},
               {.sum = 1, .query = kQuery, .to = kOut}});
  EXPECT_EQ(Visits(masked), (Expected{{0, 0}, {1, 1}}));
}

// Rows k, v, q, y; S = k ⊗ k, C = q ⊗ v, G = k ⊗ y; u = S(q), o = C(u), y = C(k), o += G(q).
TEST(SumProgramPlanTest, ReadsOfOneSumShareItsVisit) {
  const SumProgramCall serial =
      Program({Copy(kKey), Copy(kValue), Copy(kQuery), {}},
              {{.key = 0, .value = 0}, {.key = 2, .value = 1}, {.key = 0, .value = 3}},
              {{.sum = 0, .query = kQuery, .to = kTemporary},
               {.sum = 1, .query = kTemporary, .to = kOut},
               {.sum = 1, .query = kKey, .to_row = true, .to = 3, .strict = true},
               {.sum = 2, .query = kQuery, .to = kOut, .add = -1}});
  EXPECT_EQ(Visits(serial), (Expected{{0, 0}, {1, 1, 2}, {2, 3}}));
}

TEST(SumProgramPlanTest, ASumThatIsReadAgainWithWhatItGaveHasNoPlan) {
  EXPECT_TRUE(Visits(Program({Copy(kKey)}, {{.key = 0, .value = 0}},
                             {{.sum = 0, .query = kQuery, .to = kTemporary},
                              {.sum = 0, .query = kTemporary, .to = kOut}}))
                  .empty());
}

TEST(SumProgramPlanTest, AQueryThatIsWrittenLaterHasNoPlan) {
  EXPECT_TRUE(Visits(Program({Copy(kKey)}, {{.key = 0, .value = 0}, {.key = 0, .value = 0}},
                             {{.sum = 0, .query = kTemporary, .to = kOut},
                              {.sum = 1, .query = kQuery, .to = kTemporary}}))
                  .empty());
}

// Its rows would not be known where it is folded.
TEST(SumProgramPlanTest, ASumOfRowsThatItsOwnReadWritesHasNoPlan) {
  EXPECT_TRUE(Visits(Program({Copy(kKey), {}}, {{.key = 0, .value = 1}},
                             {{.sum = 0, .query = kQuery, .to_row = true, .to = 1}}))
                  .empty());
}

TEST(SumProgramPlanTest, ASumThatIsNotReadHasNoPlan) {
  EXPECT_TRUE(Visits(Program({Copy(kKey)}, {{.key = 0, .value = 0}, {.key = 0, .value = 0}},
                             {{.sum = 0, .query = kQuery, .to = kOut}}))
                  .empty());
}

// The second read of sum 0 would be added before that of sum 1.
TEST(SumProgramPlanTest, OutputsAreAddedInOrder) {
  const std::vector<ProgramSum> sums = {{.key = 0, .value = 0}, {.key = 0, .value = 0}};
  const ProgramRead first = {.sum = 0, .query = kQuery, .to = kOut};
  const ProgramRead second = {.sum = 1, .query = kQuery, .to = kOut, .add = 1};
  const ProgramRead third = {.sum = 0, .query = kKey, .to = kOut, .add = 1};
  EXPECT_TRUE(Visits(Program({Copy(kKey)}, sums, {first, second, third})).empty());
  EXPECT_EQ(Visits(Program({Copy(kKey)}, sums, {first, third, second})),
            (Expected{{0, 0, 1}, {1, 2}}));
}

TEST(SumProgramPlanTest, AVisitHasTwoReadsAtMost) {
  const ProgramRead read = {.sum = 0, .query = kQuery, .to_row = true, .to = 1};
  ProgramRead last = read;
  last.to_row = false, last.to = kOther;
  EXPECT_TRUE(
      Visits(Program({Copy(kKey), {}}, {{.key = 0, .value = 0}}, {read, last, read})).empty());
}

}  // namespace
}  // namespace rivulet
