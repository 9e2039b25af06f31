// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests of the scheduler and of what stands above it: a tokenizer for FakeEngine's vocabulary,
// and requests with everything filled in.
#ifndef RIVULET_SERVER_SCHEDULER_TEST_SUPPORT_H_
#define RIVULET_SERVER_SCHEDULER_TEST_SUPPORT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model_loader/tokenizer.h"
#include "server/engine/fake_engine.h"
#include "server/scheduler/request.h"
#include "server/scheduler/scheduler.h"

namespace rivulet {

// Ids 0 to 25 are the letters, 26 is a space, 27 and 28 are the two bytes of é, 98 is BOS, 99 is
// EOS, the others are "[id]".
class FakeTokenizer : public Tokenizer {
 public:
  static constexpr uint32_t kSpace = 26, kFirstByte = 27, kSecondByte = 28, kBos = 98, kEos = 99;

  FakeTokenizer() {
    for (uint32_t id = 0; id < FakeEngine::kVocab; ++id) pieces_.push_back(PieceOf(id));
  }
  // From now on every token is one character, so that the tokens of a generated text are those
  // that were generated.
  void UseCharacters() {
    characters_ = "\t\n\v\f\r";
    for (char c = ' '; c <= '~'; ++c) characters_ += c;
    for (uint32_t id = 0; id < FakeEngine::kVocab; ++id) pieces_[id] = characters_[id];
  }
  // "<s>" at the start is BOS unless it is plain.
  absl::StatusOr<std::vector<uint32_t>> EncodeMarked(std::string_view text,
                                                     const PlainRanges& plain) const override {
    std::vector<uint32_t> ids;
    if (text.starts_with("<s>") && !Overlaps(plain, 0, 3)) {
      ids.push_back(kBos);
      text.remove_prefix(3);
    }
    for (const char c : text) {
      const size_t character = characters_.find(c);
      if (character != std::string::npos) ids.push_back(static_cast<uint32_t>(character));
      if (character != std::string::npos) continue;
      if (c != ' ' && (c < 'a' || c > 'z')) return absl::InvalidArgumentError("letters only");
      ids.push_back(c == ' ' ? kSpace : static_cast<uint32_t>(c - 'a'));
    }
    return ids;
  }
  std::string_view TokenBytes(uint32_t id) const override { return pieces_[id]; }
  std::string_view Piece(uint32_t id) const override { return pieces_[id]; }
  size_t vocab_size() const override { return pieces_.size(); }
  bool AddsDummyPrefix() const override { return false; }
  int64_t bos_id() const override { return kBos; }
  int64_t eos_id() const override { return kEos; }

 private:
  static std::string PieceOf(uint32_t id) {
    if (id < 26) return std::string(1, static_cast<char>('a' + id));
    if (id == kSpace) return " ";
    if (id == kFirstByte) return "\xC3";
    if (id == kSecondByte) return "\xA9";
    if (id == kBos || id == kEos) return "";
    return absl::StrCat("[", id, "]");
  }
  std::vector<std::string> pieces_;
  std::string characters_;  // by id; empty: not UseCharacters
};

// What one completion has sent so far, put together.
struct Received {
  std::vector<uint32_t> tokens;
  std::string text;
  FinishReason reason = FinishReason::kNone;
  std::string matched_stop;
  std::string fork_id;
  Usage usage;
  std::vector<Logprobs> prompt_logprobs;
  std::vector<Logprobs> logprobs;

  void Add(const StreamMessage& message) {
    Append(message.tokens, tokens);
    text += message.text;
    reason = message.finish_reason;
    matched_stop = message.matched_stop;
    fork_id = message.fork_id;
    usage = message.usage;
    Append(message.prompt_logprobs, prompt_logprobs);
    Append(message.logprobs, logprobs);
  }

 private:
  template <typename From, typename T>
  static void Append(const From& from, std::vector<T>& to) {
    to.insert(to.end(), from.begin(), from.end());
  }
};

// A client that reads on request.
struct Client {
  explicit Client(uint32_t completions, size_t capacity = Outbox::kDefaultCapacityTokens)
      : outbox(std::make_shared<Outbox>(std::weak_ptr<StreamSink>(), capacity)),
        received(completions) {}

  // Takes all there is.
  void Read() {
    for (;;) {
      Outbox::Taken taken = outbox->Take();
      if (taken.message) received[taken.message->index].Add(*taken.message);
      if (taken.end) end = taken.end;
      if (!taken.message) return;
    }
  }
  std::vector<uint32_t> tokens(uint32_t index = 0) const { return received[index].tokens; }

  uint64_t id = 0;  // of the request, where the test has set it
  std::shared_ptr<Outbox> outbox;
  std::vector<Received> received;
  std::optional<absl::Status> end;
};

inline std::unique_ptr<Request> MakeRequest(const Client& client, std::vector<uint32_t> prompt,
                                            uint32_t max_tokens) {
  auto request = std::make_unique<Request>();
  request->id = Scheduler::NewId();
  request->prompt = std::move(prompt);
  request->completions = static_cast<uint32_t>(client.received.size());
  request->max_tokens = max_tokens;
  request->outbox = client.outbox;
  return request;
}

// The tokens that FakeEngine gives after `prompt`, without any stop.
inline std::vector<uint32_t> ExpectedTokens(std::vector<uint32_t> prompt, uint32_t index,
                                            size_t count) {
  const size_t prompt_tokens = prompt.size();
  for (size_t i = 0; i < count; ++i) prompt.push_back(FakeEngine::NextToken(prompt, index));
  return {prompt.begin() + static_cast<ptrdiff_t>(prompt_tokens), prompt.end()};
}

// What FakeEngine says of `target` after `context`.
inline float ExpectedScore(std::vector<uint32_t> context, uint32_t target) {
  context.push_back(target);
  return -static_cast<float>(FakeEngine::Hash(context) % 1000) / 100;
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_TEST_SUPPORT_H_
