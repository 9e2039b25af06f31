// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/recorder.h"

#include "absl/strings/ascii.h"

namespace rivulet::cli::bench {
namespace {

constexpr size_t kMaxKindBytes = 200;
// The share of a good request's tokens that may be late.
constexpr double kLateShare = 0.01;

// Replaces each run of digits by one '#' and cuts long texts.
std::string KindOf(const std::string& text) {
  std::string kind;
  for (size_t i = 0; i < text.size() && kind.size() < kMaxKindBytes; ++i) {
    const char c = absl::ascii_isdigit(static_cast<unsigned char>(text[i])) ? '#' : text[i];
    if (c != '#' || kind.empty() || kind.back() != '#') kind += c;
  }
  return kind;
}

bool IsWithin(TimePoint begin, TimePoint end, double limit_ms) {
  return limit_ms <= 0 || Milliseconds(end - begin) <= limit_ms;
}

}  // namespace

void ErrorTable::Add(const absl::Status& status) {
  const std::string code = absl::StatusCodeToString(status.code());
  ++by_code_[code];
  std::pair<std::string, std::string> kind(code, KindOf(std::string(status.message())));
  if (by_kind_.size() >= kMaxKinds && !by_kind_.contains(kind)) kind.second = "(other texts)";
  ++by_kind_[kind];
}

uint64_t ErrorTable::total() const {
  uint64_t total = 0;
  for (const auto& [code, count] : by_code_) total += count;
  return total;
}

Recorder::Recorder(const BenchOptions& options) : options_(options), phases_(1) {}

void Recorder::BeginPhase(const std::string& name, TimePoint now) {
  current_ = phases_.size();
  PhaseStatistics& phase = phases_.emplace_back();
  phase.name = name;
  phase.begin = phase.end = now;
  phase.turns.resize(options_.turns);
}

void Recorder::EndPhase(TimePoint now) {
  current().end = now;
  current_ = kOutside;
}

RequestRecord Recorder::StartRequest(TimePoint due, TimePoint now, uint32_t turn,
                                     uint32_t wanted_tokens) {
  ++current().due;
  if (options_.rate > 0) current().send_lag.Add(now - due);
  return {.phase = current_, .turn = turn, .wanted_tokens = wanted_tokens, .due = due};
}

RequestRecord Recorder::StartInterfering(TimePoint now) {
  return {.phase = current_, .interfering = true, .due = now};
}

void Recorder::OnMessage(RequestRecord& record, const v1::GenerateResponse& message,
                         TimePoint now) {
  if (message.has_usage()) record.usage = message.usage();
  if (message.token_ids_size() > 0) {
    OnTokens(record, static_cast<uint64_t>(message.token_ids_size()), now);
  }
}

void Recorder::OnTokens(RequestRecord& record, uint64_t tokens, TimePoint now) {
  if (!record.interfering) {
    if (record.tokens == 0 || now - record.last >= kTogether) BeginMessage(record, now);
    AddTokens(record, tokens);
  }
  if (record.tokens == 0) record.first = now;
  record.last = now;
  record.tokens += tokens;
}

void Recorder::BeginMessage(RequestRecord& record, TimePoint now) {
  if (++record.messages == 1) {
    phases_[record.phase].first_token.Add(now - record.due);
    ++total_first_tokens_;
  } else {
    record.gap = now - record.last;
    current().message_gap.Add(record.gap);
  }
  ++current().messages;
}

// Tokens that came with the first one have no gap.
void Recorder::AddTokens(RequestRecord& record, uint64_t tokens) {
  if (record.messages > 1) {
    current().token_gap.Add(record.gap, tokens);
    if (options_.slo_itl_ms > 0 && Milliseconds(record.gap) > options_.slo_itl_ms) {
      record.late_tokens += tokens;
    }
  }
  current().output_tokens += tokens;
  total_tokens_ += tokens;
}

void Recorder::OnEnd(const RequestRecord& record, const absl::Status& status, bool cut_off,
                     TimePoint now) {
  PhaseStatistics& phase = phases_[record.phase];
  if (!status.ok() && !cut_off) {
    phase.errors.Add(status);
    ++total_failed_;
  }
  if (record.interfering) return OnInterferingEnd(record, status, cut_off);
  if (status.ok()) {
    OnSuccess(record, phase, now);
  } else {
    ++(cut_off ? phase.cut_off : phase.failed);
  }
}

void Recorder::OnInterferingEnd(const RequestRecord& record, const absl::Status& status,
                                bool cut_off) {
  InterferenceStatistics& interference = phases_[record.phase].interference;
  if (status.ok()) {
    ++interference.succeeded;
    interference.first_token.Add(record.first - record.due);
  } else if (!cut_off) {
    ++interference.failed;
  }
}

void Recorder::OnSuccess(const RequestRecord& record, PhaseStatistics& phase, TimePoint now) {
  ++total_succeeded_;
  ++phase.succeeded;
  phase.end_to_end.Add(now - record.due);
  if (record.messages > 1) {
    phase.per_token_mean.Add((record.last - record.first) /
                             static_cast<int64_t>(record.tokens - 1));
  }
  if (record.tokens != record.wanted_tokens) ++phase.wrong_length;
  AddTurn(record, phase);
  ++current().completed;
  current().prompt_tokens += record.usage.prompt_tokens();
  if (record.phase == current_ && MeetsLimits(record)) ++phase.good;
}

bool Recorder::MeetsLimits(const RequestRecord& record) const {
  return record.tokens > 0 && IsWithin(record.due, record.first, options_.slo_ttft_ms) &&
         static_cast<double>(record.late_tokens) <= kLateShare * static_cast<double>(record.tokens);
}

void Recorder::AddTurn(const RequestRecord& record, PhaseStatistics& phase) const {
  if (record.turn >= phase.turns.size()) return;
  TurnStatistics& turn = phase.turns[record.turn];
  ++turn.succeeded;
  turn.prompt_tokens += record.usage.prompt_tokens();
  turn.cached_tokens += record.usage.cached_tokens();
  if (record.tokens > 0) turn.first_token.Add(record.first - record.due);
}

void Recorder::OnNotSent() {
  ++current().due;
  ++current().not_sent;
}

void Recorder::OnSessionError(const absl::Status& status) {
  current().errors.Add(status);
  ++total_failed_;
}

std::vector<PhaseStatistics> Recorder::TakePhases() {
  phases_.erase(phases_.begin());
  current_ = kOutside;
  return std::exchange(phases_, std::vector<PhaseStatistics>(1));
}

}  // namespace rivulet::cli::bench
