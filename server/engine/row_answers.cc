// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/row_answers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/device/sampling_operations.h"
#include "kernels/ops/sampling/sampling.h"
#include "kernels/recurrence/pages.h"

namespace rivulet {
namespace {

// Finite, so that the logit does not count as broken, and so low that no bias brings it back. A
// device has the same.
constexpr float kNever = sampling::kForbiddenLogit;

// Takes the stop ids out of the draw while it lives.
class Forbidden {
 public:
  Forbidden(std::span<const uint32_t> ids, std::span<float> logits) : logits_(logits) {
    for (uint32_t id : ids) {
      if (id >= logits.size()) continue;
      saved_.emplace_back(id, logits[id]);
      logits[id] = kNever;
    }
  }
  ~Forbidden() {
    // Backwards, so that an id that is listed twice gets its first value.
    for (auto entry = saved_.rbegin(); entry != saved_.rend(); ++entry) {
      logits_[entry->first] = entry->second;
    }
  }

 private:
  std::span<float> logits_;
  std::vector<std::pair<uint32_t, float>> saved_;
};

// Takes the tokens that a mask lacks out of the draw, in the same way.
class Confined {
 public:
  // `kept`: what the logits were, if they are wanted again; null: they stay changed.
  Confined(std::span<const uint64_t> mask, std::span<float> logits, std::vector<float>* kept)
      : logits_(logits), kept_(kept) {
    if (kept != nullptr) kept->assign(logits.begin(), logits.end());
    for (size_t word = 0; word < mask.size(); ++word) {
      const auto rest = logits.subspan(kMaskBits * word);
      Confine(mask[word], rest.first(std::min<size_t>(kMaskBits, rest.size())));
    }
  }
  ~Confined() {
    if (kept_ != nullptr) std::copy(kept_->begin(), kept_->end(), logits_.begin());
  }

 private:
  static void Confine(uint64_t bits, std::span<float> logits) {
    if (bits == UINT64_MAX) return;
    for (size_t i = 0; i < logits.size(); ++i) {
      if ((bits >> i & 1) == 0) logits[i] = kNever;
    }
  }

  std::span<float> logits_;
  std::vector<float>* kept_;
};

// Tokens that end a text may come where it may end, and there alone.
void MarkEnds(std::span<const uint32_t> ends, bool may_end, size_t vocab,
              std::span<uint64_t> mask) {
  for (const uint32_t id : ends) {
    if (id >= vocab) continue;
    const uint64_t bit = uint64_t{1} << (id % kMaskBits);
    uint64_t& word = mask[id / kMaskBits];
    word = may_end ? word | bit : word & ~bit;
  }
}

// The row's tokens that its counts lack: those after the first sample, up to this one.
std::span<const uint32_t> RecentTokens(const StepPlan& plan, const StepRow& row, size_t sample) {
  const size_t end = row.segment.first_token + row.segment.tokens - row.samples + 1 + sample;
  return std::span(plan.tokens).subspan(end - sample, sample);
}

absl::StatusOr<uint32_t> Draw(const StepPlan& plan, const Place& place, std::span<float> logits,
                              SamplingScratch& scratch) {
  const StepRow& row = plan.rows[place.row];
  const SampleSpec& spec = row.spec;
  const Forbidden forbidden(ForbiddenFor(spec, place.sample), logits);
  return Sample(logits, *spec.params, HistoryOf(plan, row, place.sample),
                {spec.index, spec.position + place.sample}, scratch);
}

// As Draw, from what the row's grammar takes.
absl::StatusOr<uint32_t> DrawConfined(const StepPlan& plan, const Place& place,
                                      std::span<float> logits, SamplingScratch& scratch) {
  const StepRow& row = plan.rows[place.row];
  static thread_local std::vector<float> kept;
  static thread_local std::vector<uint64_t> mask;
  mask.resize(MaskWords(logits.size()));
  RIVULET_ASSIGN_OR_RETURN(const RowMask may_come, FindMask(plan, place));
  RIVULET_RETURN_IF_ERROR(WriteMask(may_come, logits.size(), mask));
  const Confined confined(mask, logits, row.spec.logprobs > 0 ? &kept : nullptr);
  RIVULET_ASSIGN_OR_RETURN(const uint32_t token, Draw(plan, place, logits, scratch));
  RIVULET_RETURN_IF_ERROR(CheckConfined(token, mask));
  return token;
}

absl::Status SamplePlace(const StepPlan& plan, const Place& place, std::span<float> logits,
                         SampledToken& result) {
  const SampleSpec& spec = plan.rows[place.row].spec;
  // One for each thread of the pool, reused in each step.
  static thread_local SamplingScratch scratch;
  const auto draw = spec.grammar == nullptr ? Draw : DrawConfined;
  RIVULET_ASSIGN_OR_RETURN(result.token, draw(plan, place, logits, scratch));
  if (spec.logprobs == 0) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(result.logprob,
                           ChosenAndTopLogprobs(logits, result.token, spec.logprobs));
  return absl::OkStatus();
}

absl::Status CheckIds(const char* what, std::span<const uint32_t> ids, uint32_t vocab,
                      bool promises) {
  for (uint32_t id : ids) {
    if (id < vocab || (promises && id == kLastSampled)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        what, " ", id, " is outside of the vocabulary of ", vocab, " tokens: send ids below that"));
  }
  return absl::OkStatus();
}

absl::Status CheckSegmentPages(const Segment& segment, const StateCapacity& capacity) {
  const std::vector<PageCapacity>& kinds = capacity.pages;
  if (kinds.empty()) return absl::OkStatus();
  if (segment.pages == nullptr) return absl::InvalidArgumentError("the row has no page tables");
  absl::Status status;
  for (size_t kind = 0; kind < kinds.size() && status.ok(); ++kind) {
    status = CheckPages(kinds[kind].kind, segment.pages[kind], segment.position, segment.tokens);
  }
  return status;
}

}  // namespace

std::vector<Place> PlacesOf(const StepPlan& plan, const StepResult& result) {
  std::vector<Place> places;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const StepRow& row = plan.rows[r];
    if (!result.rows[r].status.ok()) continue;
    const size_t scores = row.score_targets.size();
    const size_t first_sample = row.segment.tokens - row.samples;
    const size_t first_place = places.size();
    for (size_t i = 0; i < scores; ++i) places.push_back({r, row.segment.first_token + i, i});
    for (size_t i = first_sample; i < row.segment.tokens; ++i) {
      if (i >= scores) places.push_back({r, row.segment.first_token + i});
      (i >= scores ? places.back() : places[first_place + i]).sample = i - first_sample;
    }
  }
  return places;
}

StepResult CheckRows(const StepPlan& plan, uint32_t vocab, const StateCapacity& capacity,
                     bool promises) {
  StepResult result;
  result.rows.resize(plan.rows.size());
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const StepRow& row = plan.rows[r];
    RIVULET_CHECK(row.segment.first_token + row.segment.tokens <= plan.tokens.size() &&
                      row.score_targets.size() <= row.segment.tokens &&
                      row.samples <= row.segment.tokens,
                  "a row reaches past its tokens");
    RIVULET_CHECK(row.segment.tokens <= kLongestSegment, "a segment is longer than any may be");
    const uint32_t* first = plan.tokens.data() + row.segment.first_token;
    absl::Status& status = result.rows[r].status;
    status = CheckIds("token id", {first, row.segment.tokens}, vocab, promises);
    status.Update(CheckIds("token id to score", row.score_targets, vocab, false));
    status.Update(CheckSegmentPages(row.segment, capacity));
    result.rows[r].scores.resize(row.score_targets.size());
    result.rows[r].samples.resize(row.samples);
  }
  return result;
}

absl::Status AnswerPlace(const StepPlan& plan, const Place& place, std::span<float> logits,
                         RowResult& result) {
  const StepRow& row = plan.rows[place.row];
  if (place.score != Place::kNone) {
    RIVULET_ASSIGN_OR_RETURN(
        result.scores[place.score],
        ChosenAndTopLogprobs(logits, row.score_targets[place.score], row.score_top));
  }
  if (place.sample == Place::kNone) return absl::OkStatus();
  return SamplePlace(plan, place, logits, result.samples[place.sample]);
}

bool RowMask::operator==(const RowMask& other) const {
  if (allowed.state != other.allowed.state || allowed.first != other.allowed.first) return false;
  if (may_end != other.may_end) return false;
  return ends == other.ends || (ends != nullptr && other.ends != nullptr && *ends == *other.ends);
}

absl::StatusOr<RowMask> FindMask(const StepPlan& plan, const Place& place) {
  const StepRow& row = plan.rows[place.row];
  const SampleSpec& spec = row.spec;
  RIVULET_ASSIGN_OR_RETURN(AllowedTokens allowed,
                           spec.grammar->Allowed(RecentTokens(plan, row, place.sample)));
  const bool may_end = allowed.may_end() && place.sample >= spec.forbid_stops;
  return RowMask{std::move(allowed), may_end, spec.stop_ids};
}

absl::Status WriteMask(const RowMask& mask, size_t vocab, std::span<uint64_t> bits) {
  const std::span<const uint64_t> from = mask.allowed.bits();
  const size_t known = std::min(from.size(), bits.size());
  std::copy_n(from.begin(), known, bits.begin());
  std::fill(bits.begin() + static_cast<ptrdiff_t>(known), bits.end(), 0);
  if (vocab % kMaskBits != 0) bits.back() &= (uint64_t{1} << (vocab % kMaskBits)) - 1;
  if (mask.ends != nullptr) MarkEnds(*mask.ends, mask.may_end, vocab, bits);
  if (std::any_of(bits.begin(), bits.end(), [](uint64_t word) { return word != 0; })) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError("structured_output leaves no token that may come");
}

absl::Status CheckConfined(uint32_t token, std::span<const uint64_t> mask) {
  if (sampling::MayCome(mask.data(), token)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the penalties bring back token ", token,
                                                    ", which structured_output does not take"));
}

TokenHistory HistoryOf(const StepPlan& plan, const StepRow& row, size_t sample) {
  return {row.spec.session_counts, row.spec.turn_counts, RecentTokens(plan, row, sample)};
}

std::span<const uint32_t> ForbiddenFor(const SampleSpec& spec, size_t sample) {
  if (sample >= spec.forbid_stops || spec.stop_ids == nullptr) return {};
  return *spec.stop_ids;
}

void NoteFailure(const absl::Status& status, const Place& place, RowResult& row) {
  const bool later = place.sample != Place::kNone && place.sample > 0;
  (later ? row.samples[place.sample].status : row.status).Update(status);
}

uint64_t PositionOf(const StepRow& row, const Place& place) {
  return row.segment.position + place.token - row.segment.first_token;
}

absl::Status At(const absl::Status& status, const Place& place, uint64_t position) {
  return absl::Status(
      status.code(),
      absl::StrCat("row ", place.row, " of the step, after the token at position ", position, ": ",
                   status.message(), "; the session's state is lost: start a new one"));
}

absl::Status NoMemory(const char* when) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the server ran out of memory ", when,
      "; the session's state is lost: start a new one, and give the server less --state-memory"));
}

}  // namespace rivulet
