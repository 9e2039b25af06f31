// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/drafts/lookup_drafter.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace rivulet {
namespace {

// What is expected before anything was seen, by length, and how many guesses that weighs.
constexpr float kFirstChances[] = {0.3f, 0.5f, 0.7f, 0.85f};
constexpr float kFirstWeight = 4;
// So many guesses count; then older ones fade.
constexpr float kMostGuesses = 64;
// A token's part in the hit rate.
constexpr double kHitWeight = 1.0 / 32;

// What other completions have shown, in a new one.
constexpr float kOthersWeight = 8;

}  // namespace

LookupRecords::LookupRecords() {
  for (size_t i = 0; i < kLengths; ++i) {
    records_[i] = {kFirstWeight * kFirstChances[i], kFirstWeight};
  }
}

LookupRecords::LookupRecords(const LookupRecords& others, float weight) {
  for (size_t i = 0; i < kLengths; ++i) {
    const Record& other = others.records_[i];
    records_[i] = {weight * other.right / other.made, weight};
  }
}

size_t LookupRecords::ClassOf(size_t length) {
  return std::min<size_t>(std::bit_width(std::max<size_t>(length, 2)) - 2, kLengths - 1);
}

void LookupRecords::Note(size_t length, bool right) {
  Record& record = records_[ClassOf(length)];
  if (record.made >= kMostGuesses) record = {record.right / 2, record.made / 2};
  record.made += 1;
  record.right += right ? 1 : 0;
}

float LookupRecords::Chance(size_t length) const {
  const Record& record = records_[ClassOf(length)];
  return record.right / record.made;
}

SharedText::SharedText(std::vector<uint32_t> tokens) : tokens_(std::move(tokens)) {
  if (!tokens_.empty()) indexes_.Follow(tokens_, tokens_.size());
}

LookupDrafter::LookupDrafter(const SharedText* shared, LookupRecords& all, Metrics& metrics)
    : shared_(shared), all_(all), metrics_(metrics), records_(all, kOthersWeight) {}

size_t LookupDrafter::Outlook(const TokenSequence& tokens, std::span<float> chances) {
  Follow(tokens);
  if (match_.length == 0) return 0;
  size_t count = chances.size();
  if (match_.shared) count = std::min<size_t>(count, shared_->tokens().size() - match_.next);
  for (size_t i = 0; i < count; ++i) chances[i] = records_.Chance(match_.length + i);
  return count;
}

// A match near the end of the session continues with the drafts made so far, as periodic text does.
void LookupDrafter::Draft(const TokenSequence& tokens, size_t count,
                          std::vector<uint32_t>& drafts) {
  const size_t first = drafts.size();
  for (size_t i = 0; i < count; ++i) {
    const uint64_t place = match_.next + i;
    if (match_.shared) {
      drafts.push_back(shared_->tokens()[place]);
    } else {
      drafts.push_back(place < tokens.size() ? tokens[place]
                                             : drafts[first + place - tokens.size()]);
    }
  }
}

// The tokens that are there at the first call are no guesses of this drafter.
void LookupDrafter::Follow(const TokenSequence& tokens) {
  const uint64_t before = followed_ == 0 ? tokens.size() : followed_;
  indexes_.Follow(tokens);
  CountBytes(indexes_.bytes());
  followed_ = tokens.size();
  for (uint64_t place = before; place < tokens.size(); ++place) Check(tokens, tokens[place]);
  if (match_.length == 0) FindMatch(tokens);
}

// What `token` says of the guess that would have been made of it.
void LookupDrafter::Check(const TokenSequence& tokens, uint32_t token) {
  const bool guesses = match_.length > 0;
  const auto expected = [&] {
    return match_.shared ? shared_->tokens()[match_.next] : tokens[match_.next];
  };
  const bool right = guesses && expected() == token;
  hit_rate_ += kHitWeight * ((right ? 1 : 0) - hit_rate_);
  if (!guesses) return;
  records_.Note(match_.length, right);
  all_.Note(match_.length, right);
  match_ = right ? Match{match_.shared, match_.next + 1, match_.length + 1} : Match{};
  if (match_.shared && match_.next >= shared_->tokens().size()) match_ = {};
}

void LookupDrafter::FindMatch(const TokenSequence& tokens) {
  LookupIndexes::Found found = indexes_.Find(tokens, tokens, tokens.size());
  const bool session_knows = found.place != 0 && found.length == kLongGram;
  if (shared_ != nullptr && !session_knows) {
    const auto shared = shared_->indexes().Find(shared_->tokens(), tokens, tokens.size());
    if (shared.place != 0 && (found.place == 0 || shared.length > found.length)) {
      match_ = {true, shared.place, shared.length};
      return;
    }
  }
  if (found.place != 0) match_ = {false, found.place, found.length};
}

void LookupDrafter::CountBytes(size_t bytes) {
  metrics_.draft_memory_bytes.Add(static_cast<int64_t>(bytes) - static_cast<int64_t>(bytes_));
  bytes_ = bytes;
}

LookupSource::LookupSource(std::vector<uint32_t> shared, Metrics& metrics)
    : shared_(std::move(shared)), metrics_(metrics) {}

std::unique_ptr<Drafter> LookupSource::MakeDrafter(const DraftedCompletion& /*completion*/) {
  const bool text = !shared_.tokens().empty();
  return std::make_unique<LookupDrafter>(text ? &shared_ : nullptr, records_, metrics_);
}

}  // namespace rivulet
