// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Drafts by prompt look-up: what followed the last tokens when they stood before in the session,
// or in a text that all sessions share. It follows such a place as long as it is right, and learns
// from that how often it is, by how long it has been right: also while no draft is checked, since a
// look-up costs next to nothing.
//
// Tables take at most 16 bytes a token and 4 MiB a completion (LookupIndex), only while it runs.
//
// Threading: engine thread only. The shared text is constant.
#ifndef RIVULET_SERVER_DRAFTS_LOOKUP_DRAFTER_H_
#define RIVULET_SERVER_DRAFTS_LOOKUP_DRAFTER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "server/drafts/drafter.h"
#include "server/drafts/lookup_index.h"
#include "server/metrics/metrics.h"

namespace rivulet {

// A longer run is found more rarely and is right more often.
inline constexpr size_t kLongGram = 4;
inline constexpr size_t kShortGram = 2;

// Indexes by both.
class LookupIndexes {
 public:
  struct Found {
    uint64_t place = 0;  // 0: none
    size_t length = 0;   // tokens before it that are equal, at least
  };

  template <typename Tokens>
  void Follow(const Tokens& tokens, size_t piece = LookupIndex::kPiece) {
    long_.Follow(tokens, piece);
    short_.Follow(tokens, piece);
  }
  template <typename Tokens, typename Text>
  Found Find(const Tokens& tokens, const Text& text, uint64_t end) const {
    if (const uint64_t place = long_.Find(tokens, text, end); place != 0) return {place, kLongGram};
    return {short_.Find(tokens, text, end), kShortGram};
  }
  size_t bytes() const { return long_.bytes() + short_.bytes(); }

 private:
  LookupIndex long_{kLongGram}, short_{kShortGram};
};

// Tokens that every drafter may look up; --lookup-text.
class SharedText {
 public:
  explicit SharedText(std::vector<uint32_t> tokens);
  const std::vector<uint32_t>& tokens() const { return tokens_; }
  const LookupIndexes& indexes() const { return indexes_; }

 private:
  const std::vector<uint32_t> tokens_;
  LookupIndexes indexes_;
};

// How often guesses were right, by how many tokens before them had been.
class LookupRecords {
 public:
  // With what is expected before anything was seen.
  LookupRecords();
  // Begins with what `others` knows.
  LookupRecords(const LookupRecords& others, float weight);

  void Note(size_t length, bool right);
  float Chance(size_t length) const;

 private:
  struct Record {
    float right = 0;
    float made = 0;  // older ones fade
  };
  static constexpr size_t kLengths = 4;  // 2 to 3, 4 to 7, 8 to 15, more
  static size_t ClassOf(size_t length);

  std::array<Record, kLengths> records_;
};

class LookupDrafter final : public Drafter {
 public:
  // `shared` may be null. `all`: of all drafters. They outlive it.
  LookupDrafter(const SharedText* shared, LookupRecords& all, Metrics& metrics);
  ~LookupDrafter() override { CountBytes(0); }

  DraftSource source() const override { return DraftSource::kLookup; }
  void Follow(const TokenSequence& tokens) override;
  size_t Outlook(const TokenSequence& tokens, std::span<float> chances) override;
  void Draft(const TokenSequence& tokens, size_t count, std::vector<uint32_t>& drafts) override;
  double hit_rate() const override { return hit_rate_; }

 private:
  // A place whose tokens are expected to come next.
  struct Match {
    bool shared = false;
    uint64_t next = 0;
    size_t length = 0;  // tokens before it that were right; 0: no place
  };
  void Check(const TokenSequence& tokens, uint32_t token);
  void FindMatch(const TokenSequence& tokens);
  void CountBytes(size_t bytes);

  const SharedText* const shared_;
  LookupRecords& all_;
  Metrics& metrics_;
  LookupIndexes indexes_;
  Match match_;
  LookupRecords records_;
  double hit_rate_ = 0;
  uint64_t followed_ = 0;
  size_t bytes_ = 0;
};

class LookupSource final : public DrafterSource {
 public:
  // `shared`: tokens of a text, empty for none. `metrics` outlives it.
  LookupSource(std::vector<uint32_t> shared, Metrics& metrics);
  std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& completion) override;

 private:
  const SharedText shared_;
  LookupRecords records_;
  Metrics& metrics_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_DRAFTS_LOOKUP_DRAFTER_H_
