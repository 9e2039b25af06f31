// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The parts of a description lie behind each other, aligned, and within the bytes that are
// reserved.
#include "server/engine/step_description.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

uintptr_t Address(const void* at) { return reinterpret_cast<uintptr_t>(at); }

// A description whose edits and masks are in use, and which bytes are.
class Described {
 public:
  Described(const StepDescription::Extents& extents, size_t edits, size_t masks, size_t words)
      : uses_(StepDescription::Bytes(extents, 0, edits, masks * words)),
        memory_(uses_.size() / sizeof(uint64_t) + 1),
        here_(reinterpret_cast<std::byte*>(memory_.data()), extents) {
    for (size_t i = 0; i < extents.places; ++i) here_.draws()[i] = {};
  }

  StepDescription& operator*() { return here_; }
  const void* memory() const { return memory_.data(); }

  // Nothing else has these bytes.
  void Use(const void* at, size_t size, size_t alignment) {
    if (size == 0) return;
    const size_t from = Address(at) - Address(memory_.data());
    ASSERT_EQ(from % alignment, 0u);
    ASSERT_LE(from + size, uses_.size());
    ASSERT_LE(from + size, here_.bytes());
    for (size_t i = from; i < from + size; ++i) ASSERT_EQ(uses_[i]++, 0);
  }

 private:
  std::vector<uint8_t> uses_;
  std::vector<uint64_t> memory_;
  StepDescription here_;
};

class StepDescriptionTest : public testing::Test {
 protected:
  size_t Below(size_t end) { return random_() % end; }

  void CheckOne() {
    const size_t places = 1 + Below(50), edits = Below(40), words = 1 + Below(9);
    const size_t masks = Below(places);
    const size_t tokens = 1 + Below(50);
    const bool fold_bases = Below(2) == 0;
    Described described({tokens, 1 + Below(20), places, 0, fold_bases}, edits, masks, words);
    StepDescription& here = *described;
    size_t left = edits;
    for (size_t i = 0; i < places; ++i) {
      const size_t count = i + 1 == places ? left : Below(left + 1);
      here.AddEdits(here.draws()[i], [&](LogitEdit*) { return count; });
      left -= count;
    }
    if (Below(2) == 0) {
      const size_t begin = here.LateBegin();
      const SampleRow* const late = here.AddLateDraws();
      ASSERT_EQ(Address(late), Address(described.memory()) + begin);
      described.Use(late, places * sizeof(SampleRow), alignof(SampleRow));
    }
    for (size_t i = 0; i < masks; ++i) here.AddMask(here.draws()[i], words);
    described.Use(here.place_tokens(), places * sizeof(uint32_t), alignof(uint32_t));
    described.Use(here.draws(), places * sizeof(SampleRow), alignof(SampleRow));
    ASSERT_EQ(here.fold_bases() != nullptr, fold_bases);
    if (fold_bases) {
      described.Use(here.fold_bases(), tokens * sizeof(uint32_t), alignof(uint32_t));
    }
    for (size_t i = 0; i < places; ++i) {
      const SampleRow& draw = here.draws()[i];
      described.Use(here.edits() + draw.first_edit, draw.edits * sizeof(LogitEdit),
                    sizeof(LogitEdit));
      if (i >= masks) continue;
      const std::span<uint64_t> mask = here.MaskOf(draw, words);
      described.Use(mask.data(), mask.size_bytes(), sizeof(uint64_t));
    }
  }

  std::mt19937_64 random_{TestSeed()};
};

TEST_F(StepDescriptionTest, EditsAndMasksHaveRoomOfTheirOwn) {
  for (int i = 0; i < 2000 && !HasFatalFailure(); ++i) CheckOne();
}

// Each fold's base is found at the last token of its chunk, also of segments without bases of their
// own.
TEST(FoldBasesTest, AreFoundAtTheLastTokenOfEachChunk) {
  const StepDescription::Extents extents = {60, 2, 1, 0, true};
  std::vector<uint64_t> memory(StepDescription::Bytes(extents, 0, 0, 0) / sizeof(uint64_t) + 1);
  StepDescription here(reinterpret_cast<std::byte*>(memory.data()), extents);
  const uint32_t bases[] = {7, 9, 8};
  const Segment own = {
      .first_token = 2, .tokens = 40, .position = 29, .base_out = 8, .fold_bases = bases};
  const Segment in_place = {.first_token = 42, .tokens = 18, .position = 15, .base_out = 5};
  here.SetFoldBases(own, 16);
  here.SetFoldBases(in_place, 16);
  std::vector<uint32_t> expected(60);
  expected[4] = 7;
  expected[20] = 9;
  expected[36] = 8;
  expected[42] = expected[58] = 5;
  EXPECT_EQ(std::vector<uint32_t>(here.fold_bases(), here.fold_bases() + 60), expected);
}

}  // namespace
}  // namespace rivulet
