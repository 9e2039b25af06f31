// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/outbox.h"

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

using testing::ElementsAre;

StreamMessage Token(uint32_t index, uint32_t token, const std::string& text) {
  StreamMessage message;
  message.index = index;
  message.tokens = {token};
  message.text = text;
  return message;
}

TEST(OutboxTest, MergesWhatWaitsOfOneCompletion) {
  Outbox outbox({});
  EXPECT_TRUE(outbox.Push(Token(0, 1, "a")));
  EXPECT_FALSE(outbox.Push(Token(1, 2, "b")));  // announced already
  StreamMessage guessed = Token(0, 3, "c");
  guessed.guessed = {0};
  EXPECT_FALSE(outbox.Push(std::move(guessed)));
  const auto first = outbox.Take();
  ASSERT_TRUE(first.message.has_value());
  EXPECT_EQ(first.message->index, 0u);
  EXPECT_EQ(first.message->text, "ac");
  EXPECT_THAT(first.message->tokens, ElementsAre(1, 3));
  EXPECT_THAT(first.message->guessed, ElementsAre(1));
  EXPECT_FALSE(first.end.has_value());
  EXPECT_EQ(outbox.Take().message->index, 1u);
  EXPECT_FALSE(outbox.Take().message.has_value());
}

TEST(OutboxTest, EndComesAfterTheLastMessage) {
  Outbox outbox({});
  (void)outbox.Push(Token(0, 1, "a"));
  (void)outbox.Push(Token(1, 1, "b"));
  (void)outbox.Close(absl::AbortedError("why"));
  for (int i = 0; i < 2; ++i) {
    const auto taken = outbox.Take();
    EXPECT_TRUE(taken.message.has_value());
    EXPECT_FALSE(taken.end.has_value());
  }
  const auto last = outbox.Take();
  EXPECT_FALSE(last.message.has_value());
  EXPECT_EQ(last.end, absl::AbortedError("why"));
}

TEST(OutboxTest, IsFullWithTokensThatAreStillToCome) {
  Outbox outbox({}, 3);
  (void)outbox.Push(Token(0, 1, ""));
  EXPECT_FALSE(outbox.full());
  EXPECT_FALSE(outbox.full(1));
  EXPECT_TRUE(outbox.full(2));
}

TEST(OutboxTest, TellsWhenThereIsRoomAgain) {
  int told = 0;
  Outbox outbox({}, 2);
  outbox.set_on_room([&] { ++told; });
  (void)outbox.Push(Token(0, 1, ""));
  EXPECT_FALSE(outbox.full());
  (void)outbox.Push(Token(1, 1, ""));
  (void)outbox.Push(Token(1, 2, ""));
  EXPECT_TRUE(outbox.full());
  (void)outbox.Take();  // one of three tokens: still full
  EXPECT_TRUE(outbox.full());
  EXPECT_EQ(told, 0);
  (void)outbox.Take();
  EXPECT_FALSE(outbox.full());
  EXPECT_EQ(told, 1);
}

// A sink that takes all that is there, on the dispatcher's thread.
class Reader : public StreamSink {
 public:
  void OnReady() override {
    for (;;) {
      const Outbox::Taken taken = outbox->Take();
      if (taken.message) tokens += taken.message->tokens.size();
      if (taken.end) ended = true;
      if (!taken.message) return;
    }
  }
  std::shared_ptr<Outbox> outbox;
  std::atomic<size_t> tokens{0};
  std::atomic<bool> ended{false};
};

TEST(DispatcherTest, DeliversEverythingBeforeItEnds) {
  constexpr size_t kStreams = 8, kTokens = 2000;
  std::vector<std::shared_ptr<Reader>> readers;
  {
    Dispatcher dispatcher;
    for (size_t i = 0; i < kStreams; ++i) {
      readers.push_back(std::make_shared<Reader>());
      readers[i]->outbox = std::make_shared<Outbox>(readers[i]);
    }
    std::vector<std::shared_ptr<Outbox>> ready;
    for (uint32_t token = 0; token < kTokens; ++token) {
      for (const auto& reader : readers) {
        if (reader->outbox->Push(Token(0, token, ""))) ready.push_back(reader->outbox);
      }
      dispatcher.Announce(ready);
    }
    for (const auto& reader : readers) {
      if (reader->outbox->Close(absl::OkStatus())) ready.push_back(reader->outbox);
    }
    dispatcher.Announce(ready);
  }
  for (const auto& reader : readers) {
    EXPECT_EQ(reader->tokens, kTokens);
    EXPECT_TRUE(reader->ended);
  }
}

// Counts how often any sink of this kind is told.
class CountingSink : public StreamSink {
 public:
  explicit CountingSink(std::atomic<int>& told) : told_(told) {}
  void OnReady() override { ++told_; }

 private:
  std::atomic<int>& told_;
};

TEST(DispatcherTest, SinkThatIsGoneIsNotTold) {
  std::atomic<int> told_alive{0}, told_gone{0};
  auto alive = std::make_shared<CountingSink>(told_alive);
  auto gone = std::make_shared<CountingSink>(told_gone);
  const std::weak_ptr<CountingSink> was_there = gone;
  std::vector<std::shared_ptr<Outbox>> ready = {std::make_shared<Outbox>(alive),
                                                std::make_shared<Outbox>(gone)};
  gone.reset();
  EXPECT_TRUE(was_there.expired()) << "an outbox keeps its sink alive";
  for (const auto& outbox : ready) EXPECT_TRUE(outbox->Push(Token(0, 1, "")));
  {
    Dispatcher dispatcher;
    dispatcher.Announce(ready);
  }
  EXPECT_EQ(told_alive, 1);
  EXPECT_EQ(told_gone, 0);
}

}  // namespace
}  // namespace rivulet
