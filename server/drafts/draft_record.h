// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How often guesses were right.
//
// Threading: like a number.
#ifndef RIVULET_SERVER_DRAFTS_DRAFT_RECORD_H_
#define RIVULET_SERVER_DRAFTS_DRAFT_RECORD_H_

namespace rivulet {

struct DraftRecord {
  // So many guesses count; then older ones fade.
  static constexpr double kMostGuesses = 64;

  // With what is expected before anything was seen.
  double right = 4;
  double made = 8;

  void Note(bool is_right) {
    if (made >= kMostGuesses) {
      right /= 2;
      made /= 2;
    }
    made += 1;
    right += is_right ? 1 : 0;
  }
  double rate() const { return right / made; }
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_DRAFTS_DRAFT_RECORD_H_
