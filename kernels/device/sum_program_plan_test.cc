// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/sum_program_plan.h"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <random>
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
  EXPECT_EQ(Visits(Program({Copy(kKey)}, sums, {first, second})), (Expected{{0, 0}, {1, 1}}));
}

// They are read at the same time.
TEST(SumProgramPlanTest, ReadsOfAVisitWriteToDifferentPlaces) {
  const std::vector<ProgramSum> sums = {{.key = 0, .value = 0}};
  ProgramRead first = {.sum = 0, .query = kQuery, .to = kOut};
  ProgramRead second = {.sum = 0, .query = kKey, .to = kOut, .add = 1};
  EXPECT_TRUE(Visits(Program({Copy(kKey)}, sums, {first, second})).empty());
  first.to = second.to = kTemporary, second.add = 0;
  EXPECT_TRUE(Visits(Program({Copy(kKey)}, sums, {first, second})).empty());
  second.to = kOther;
  EXPECT_EQ(Visits(Program({Copy(kKey)}, sums, {first, second})), (Expected{{0, 0, 1}}));
}

TEST(SumProgramPlanTest, AVisitHasTwoReadsAtMost) {
  const ProgramRead first = {.sum = 0, .query = kQuery, .to_row = true, .to = 1};
  const ProgramRead second = {.sum = 0, .query = kQuery, .to = kTemporary};
  const ProgramRead third = {.sum = 0, .query = kQuery, .to = kOther};
  const std::vector<ProgramRow> rows = {Copy(kKey), {}};
  EXPECT_EQ(Visits(Program(rows, {{.key = 0, .value = 0}}, {first, second})),
            (Expected{{0, 0, 1}}));
  EXPECT_TRUE(Visits(Program(rows, {{.key = 0, .value = 0}}, {first, second, third})).empty());
}

// --- random programs -------------------------------------------------------------------------

// What vectors and rows hold: for each a number that is a hash of what it was computed from.
struct Numbers {
  std::array<uint64_t, kMostProgramVectors> vectors = {11, 12, 13, 0};
  std::array<uint64_t, kMostProgramRows> rows = {21, 22, 0, 0};
  std::vector<uint64_t> folds;

  bool operator==(const Numbers&) const = default;
};

uint64_t Mix(std::initializer_list<uint64_t> numbers) {
  uint64_t mixed = 1;
  for (const uint64_t x : numbers) mixed = (mixed ^ x) * 0x9e3779b97f4a7c15u + (mixed >> 29);
  return mixed;
}

// Of a read; a strict one does not see the token's rows.
uint64_t Result(const SumProgramCall& call, uint32_t index, const Numbers& from) {
  const ProgramRead& read = call.reads[index];
  const ProgramSum& sum = call.sums[read.sum];
  const uint64_t query = from.vectors[read.query];
  if (read.strict) return Mix({read.sum, query});
  return Mix({read.sum, query, from.rows[sum.key], from.rows[sum.value]});
}

void Write(const ProgramRead& read, uint64_t x, Numbers& to) {
  uint64_t& target = read.to_row ? to.rows[read.to] : to.vectors[read.to];
  target = read.add == 0.0f ? x : Mix({target, x});
}

uint64_t Folded(const SumProgramCall& call, uint32_t sum, const Numbers& from) {
  return Mix({from.rows[call.sums[sum].key], from.rows[call.sums[sum].value]});
}

// As it is declared: read after read, and then all folds.
Numbers InOrder(const SumProgramCall& call) {
  Numbers numbers;
  for (uint32_t i = 0; i < call.read_count; ++i) {
    Write(call.reads[i], Result(call, i, numbers), numbers);
  }
  for (uint32_t s = 0; s < call.sum_count; ++s) numbers.folds.push_back(Folded(call, s, numbers));
  return numbers;
}

// Visit after visit. All that a visit reads and folds is as it was before the visit.
Numbers Planned(const SumProgramCall& call, const ProgramPlan& plan) {
  Numbers numbers;
  numbers.folds.resize(call.sum_count);
  for (uint32_t v = 0; v < plan.visit_count; ++v) {
    const ProgramVisit& visit = plan.visits[v];
    const Numbers before = numbers;
    numbers.folds[visit.sum] = Folded(call, visit.sum, before);
    for (uint32_t r = 0; r < visit.read_count; ++r) {
      EXPECT_EQ(call.reads[visit.reads[r]].sum, visit.sum);
      Write(call.reads[visit.reads[r]], Result(call, visit.reads[r], before), numbers);
    }
  }
  return numbers;
}

class RandomPrograms {
 public:
  // Rows 2 and 3 and the two temporaries are written once at most, and before they are read.
  SumProgramCall Next() {
    written_rows_ = {true, true, false, false};
    written_ = {true, true, false, false, false, false};
    added_ = false;
    SumProgramCall call = Program({Copy(kKey), Copy(kValue), {}, {}}, {}, {});
    const uint32_t reads = 1 + Draw(5);
    for (uint32_t s = 1 + Draw(4); s > 0; --s) {
      call.sums[call.sum_count++] = {.key = Draw(4), .value = Draw(4)};
    }
    while (call.read_count < reads) AddRead(call);
    return call;
  }
  // Whether every row that is folded was written.
  bool Complete(const SumProgramCall& call) const {
    for (uint32_t s = 0; s < call.sum_count; ++s) {
      if (!Known(call.sums[s])) return false;
    }
    return true;
  }

 private:
  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  bool Known(const ProgramSum& sum) const {
    return written_rows_[sum.key] && written_rows_[sum.value];
  }

  void AddRead(SumProgramCall& call) {
    ProgramRead read = {.sum = Draw(call.sum_count), .strict = Draw(2) == 0};
    if (!read.strict && !Known(call.sums[read.sum])) read.strict = true;
    do read.query = Draw(6);
    while (!written_[read.query]);
    AddTarget(read);
    call.reads[call.read_count++] = read;
  }
  // The output, or a row or temporary that nothing has written.
  void AddTarget(ProgramRead& read) {
    const uint32_t target = Draw(6), temporary = kTemporary + target % 2;
    if (target < 2 && !written_rows_[2 + target]) {
      read.to_row = true, read.to = 2 + target;
      written_rows_[read.to] = true;
    } else if (target < 4 && !written_[temporary]) {
      read.to = temporary;
      written_[temporary] = true;
    } else {
      read.to = kOut, read.add = added_ ? 1.0f : 0.0f;
      added_ = true;
    }
  }

  std::mt19937 random_{7};
  bool added_ = false;
  std::array<bool, 4> written_rows_;
  std::array<bool, 6> written_;  // vectors that can be queries
};

TEST(SumProgramPlanTest, PlansComputeWhatProgramsDeclare) {
  RandomPrograms programs;
  uint32_t plans = 0, several = 0;
  for (uint32_t i = 0; i < 100000; ++i) {
    const SumProgramCall call = programs.Next();
    ProgramPlan plan;
    if (!programs.Complete(call) || !PlanVisits(call, plan)) continue;
    ++plans;
    several += plan.visit_count > 1 && plan.visit_count < call.read_count ? 1 : 0;
    ASSERT_EQ(plan.visit_count, call.sum_count);
    ASSERT_TRUE(Planned(call, plan) == InOrder(call)) << "program " << i;
  }
  EXPECT_GT(plans, 1000u);
  EXPECT_GT(several, 100u);
}

}  // namespace
}  // namespace rivulet
