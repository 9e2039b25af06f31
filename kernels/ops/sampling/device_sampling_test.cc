// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A device draws the tokens that the host draws from equal logits, and gives back the same
// log-probabilities. On a fake device, and on the GPU where there is one.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_support.h"
#include "kernels/device/device.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/ops/sampling/device_rows.h"
#include "kernels/ops/sampling/logit_scan.h"
#include "kernels/ops/sampling/sampling.h"

namespace rivulet {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(DeviceExponentialTest, IsTheHostsBitForBit) {
  std::mt19937_64 random(TestSeed());
  std::vector<float> x = {0.0f, -0.0f, -1e-30f, -103.99999f, -104.0f, -104.00001f, -1e30f, -kInf};
  for (int i = 0; i < 2000000; ++i) {
    x.push_back(-std::uniform_real_distribution<float>(0, 106)(random));
    x.push_back(-std::exp(std::uniform_real_distribution<float>(-40, 5)(random)));
  }
  std::vector<float> weights(x.size());
  ForEachFusedTarget([&](const char* target) {
    ExpWeights(x.data(), 0.0f, 1.0f, x.size(), weights.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(weights[i], sampling::ExpOfNegative(x[i])) << target << " at " << x[i];
    }
  });
}

// One draw: what the host is asked, and what surrounds it.
struct Draw {
  std::vector<float> logits;
  SamplingParams params;
  TokenCounts session, turn;
  std::vector<uint32_t> forbidden;
  std::vector<uint64_t> mask;  // empty: any token may come
  DrawPlace place;
  uint32_t last = kNoToken;  // precedes the draw, known to the device alone
  uint32_t logprobs = kNoToken;
  uint32_t scored = kNoToken;
};

class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}

  Draw Next(size_t vocab) {
    Draw draw;
    draw.logits = Logits(vocab);
    draw.params = Params(vocab);
    for (size_t i = Below(40); i-- > 0;) draw.session.Add(Token(vocab));
    for (size_t i = Below(12); i-- > 0;) draw.turn.Add(Token(vocab));
    if (Below(4) == 0) draw.forbidden = {Token(vocab), Best(draw.logits), 1u << 30};
    if (Below(2) == 0) draw.mask = Mask(draw.logits);
    draw.place = {static_cast<uint32_t>(Below(3)), random_()};
    if (Below(3) == 0) draw.last = Below(2) == 0 ? Best(draw.logits) : Token(vocab);
    if (Below(3) == 0) draw.logprobs = static_cast<uint32_t>(Below(kMaxTopLogprobs + 1));
    if (draw.logprobs != kNoToken && Below(2) == 0) draw.scored = Token(vocab);
    if (Below(25) == 0) {
      const float bad[] = {kInf, -kInf, std::nanf("")};
      for (size_t i = 0; i <= Below(3); ++i) draw.logits[Below(vocab)] = bad[Below(3)];
    }
    return draw;
  }

 private:
  size_t Below(size_t end) { return random_() % end; }
  uint32_t Token(size_t vocab) { return static_cast<uint32_t>(Below(vocab)); }
  float Uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random_);
  }
  static uint32_t Best(const std::vector<float>& logits) {
    return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }

  // Some rows flat, some steep, some of few values so that most tokens tie, some with extremes.
  std::vector<float> Logits(size_t vocab) {
    std::vector<float> logits(vocab);
    std::normal_distribution<float> normal(0.0f, Below(2) == 0 ? 0.3f : Uniform(1, 8));
    for (float& l : logits) l = normal(random_);
    const size_t kind = Below(8);
    for (size_t i = 0; i < vocab; ++i) {
      if (kind == 0) logits[i] = std::round(logits[i]);
      if (kind == 1) logits[i] = i % 3 == 0 ? 0.0f : -0.0f;
      if (kind == 2) logits[i] = Below(50) == 0 ? 3.4e38f : -3.4e38f;
      if (kind == 3 && Below(100) != 0) logits[i] = -1e4f;
    }
    return logits;
  }

  // Few tokens, many, one, all, all but the best or but any; bits behind the vocabulary mean
  // nothing.
  std::vector<uint64_t> Mask(const std::vector<float>& logits) {
    const size_t vocab = logits.size(), kind = Below(7);
    std::vector<uint64_t> mask(MaskWords(vocab), kind < 3 ? ~uint64_t{0} : 0);
    const auto flip = [&](uint32_t token) {
      mask[token / kMaskBits] ^= uint64_t{1} << (token % kMaskBits);
    };
    if (kind == 1 && vocab > 1) flip(Best(logits));
    if (kind == 2 && vocab > 1) flip(Token(vocab));
    if (kind == 3) flip(Token(vocab));
    if (kind == 4) flip(Best(logits));
    for (uint64_t& word : mask) {
      if (kind == 5) word = random_() & random_() & random_();
      if (kind == 6) word = random_() | random_();
    }
    if (kind > 4) mask[0] |= 1;
    if (vocab % kMaskBits != 0) mask.back() ^= random_() << (vocab % kMaskBits);
    return mask;
  }

  SamplingParams Params(size_t vocab) {
    SamplingParams p;
    p.seed = random_();
    p.temperature = Below(5) == 0 ? 0.0f : Below(9) == 0 ? 1e-42f : Uniform(0.1f, 2.0f);
    if (Below(2) == 0) p.top_k = 1 + Below(Below(2) == 0 ? 50 : 2 * vocab);
    if (Below(2) == 0) p.top_p = Below(6) == 0 ? 1e-20f : Uniform(0.01f, 1.0f);
    if (Below(3) == 0) p.min_p = Below(9) == 0 ? std::nextafter(1.0f, 0.0f) : Uniform(0, 0.2f);
    if (Below(3) == 0) p.repetition_penalty = Below(9) == 0 ? 1e-39f : Uniform(0.7f, 1.6f);
    if (Below(3) == 0) p.frequency_penalty = Uniform(-2, 2);
    if (Below(3) == 0) p.presence_penalty = Uniform(-2, 2);
    if (Below(3) == 0) {
      const uint32_t first = Token(vocab);
      p.logit_bias = {{first, Uniform(-100, 100)},
                      {static_cast<uint32_t>((first + 1) % vocab), Uniform(-5, 5)}};
      if (vocab == 1) p.logit_bias.resize(1);
    }
    return p;
  }

  std::mt19937_64 random_;
};

struct Answer {
  absl::Status status;
  uint32_t token = 0;
  bool brought_back = false;  // by penalties, though the mask lacks it: its row fails
  Logprobs logprobs, scored;
};

Answer OnHost(Draw draw) {
  std::vector<float> logits = draw.logits;
  const auto check = [&](auto&& result, auto& to) {
    if (result.ok()) to = *result;
    return result.status();
  };
  for (uint32_t token = 0; !draw.mask.empty() && token < logits.size(); ++token) {
    if (!sampling::MayCome(draw.mask.data(), token)) logits[token] = sampling::kForbiddenLogit;
  }
  for (const uint32_t token : draw.forbidden) {
    if (token < logits.size()) logits[token] = sampling::kForbiddenLogit;
  }
  if (draw.last != kNoToken) {
    draw.session.Add(draw.last);
    draw.turn.Add(draw.last);
  }
  Answer answer;
  SamplingScratch scratch;
  answer.status = check(
      Sample(logits, draw.params, {&draw.session, &draw.turn}, draw.place, scratch), answer.token);
  answer.brought_back = answer.status.ok() && !draw.mask.empty() &&
                        !sampling::MayCome(draw.mask.data(), answer.token);
  if (draw.logprobs == kNoToken || !answer.status.ok()) return answer;
  answer.status =
      check(ChosenAndTopLogprobs(draw.logits, answer.token, draw.logprobs), answer.logprobs);
  if (draw.scored == kNoToken || !answer.status.ok()) return answer;
  answer.status =
      check(ChosenAndTopLogprobs(draw.logits, draw.scored, draw.logprobs), answer.scored);
  return answer;
}

// Memory of a device that a vector is copied to.
template <typename T>
T* Copy(Device& device, const std::vector<T>& numbers) {
  const absl::StatusOr<void*> memory = device.Allocate(numbers.size() * sizeof(T) + 1);
  EXPECT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(device.Upload(*memory, numbers.data(), numbers.size() * sizeof(T)).ok());
  return static_cast<T*>(*memory);
}

template <typename T>
std::vector<T> Fetch(Device& device, const T* from, size_t count) {
  std::vector<T> result(count);
  void* const pinned = device.AllocatePinned(count * sizeof(T) + 1);
  device.CopyToHost(pinned, from, count * sizeof(T));
  EXPECT_TRUE(device.Synchronize().ok());
  std::memcpy(result.data(), pinned, count * sizeof(T));
  device.FreePinned(pinned);
  return result;
}

// All draws, which have the same vocabulary, in one call.
std::vector<Answer> OnDevice(Device& device, const std::vector<Draw>& draws) {
  const size_t vocab = draws[0].logits.size(), stride = vocab + 3;
  const auto count = static_cast<uint32_t>(draws.size());
  EditWriter writer(vocab);
  std::vector<float> logits(count * stride, std::nanf(""));
  std::vector<SampleRow> rows;
  std::vector<LogitEdit> edits(1);
  std::vector<uint64_t> masks(1);
  std::vector<uint32_t> last_tokens(count, 0);
  for (uint32_t i = 0; i < count; ++i) {
    const Draw& draw = draws[i];
    std::copy(draw.logits.begin(), draw.logits.end(), logits.begin() + i * stride);
    const TokenHistory history{&draw.session, &draw.turn};
    const size_t first = edits.size();
    edits.resize(first + EditWriter::Bound(draw.params, history, draw.forbidden.size()));
    SampleRow row = DescribeDraw(draw.params, draw.place);
    row.first_edit = static_cast<uint32_t>(first);
    row.edits = static_cast<uint32_t>(
        writer.Write(draw.params, history, draw.forbidden, edits.data() + first));
    row.slot = count - 1 - i;
    row.counts_last = draw.last != kNoToken ? 1 : 0;
    last_tokens[row.slot] = draw.last;
    row.top_logits = draw.logprobs;
    row.scored = draw.scored;
    if (!draw.mask.empty()) row.mask = static_cast<uint32_t>(masks.size());
    masks.insert(masks.end(), draw.mask.begin(), draw.mask.end());
    rows.push_back(row);
  }
  SampleCall call;
  call.logits = {Copy(device, logits), count, vocab, stride};
  call.rows = Copy(device, rows);
  call.edits = Copy(device, edits);
  call.masks = Copy(device, masks);
  call.count = count;
  call.last_tokens = Copy(device, last_tokens);
  call.results = Copy(device, std::vector<SampleResult>(count));
  call.logprobs = Copy(device, std::vector<LogprobResult>(count));
  device.Sample(call);
  const auto results = Fetch(device, call.results, count);
  const auto logprobs = Fetch(device, call.logprobs, count);
  last_tokens = Fetch(device, call.last_tokens, count);
  std::vector<Answer> answers(count);
  for (uint32_t i = 0; i < count; ++i) {
    Answer& answer = answers[i];
    if (results[i].broken != kNoToken) {
      answer.status = LogitNotFinite(results[i].broken, vocab, results[i].broken_logit);
      continue;
    }
    answer.token = results[i].token;
    EXPECT_EQ(last_tokens[count - 1 - i], answer.token);
    if (draws[i].logprobs == kNoToken) continue;
    const size_t n = std::min<size_t>(draws[i].logprobs, vocab);
    answer.logprobs = LogprobsFrom(logprobs[i], answer.token, logprobs[i].sampled, n);
    if (draws[i].scored == kNoToken) continue;
    answer.scored = LogprobsFrom(logprobs[i], draws[i].scored, logprobs[i].scored, n);
  }
  device.Free(call.logits.data);
  device.Free(const_cast<SampleRow*>(call.rows));
  device.Free(call.edits);
  device.Free(const_cast<uint64_t*>(call.masks));
  device.Free(call.last_tokens);
  device.Free(call.results);
  device.Free(call.logprobs);
  return answers;
}

void ExpectSame(const Logprobs& expected, const Logprobs& actual) {
  EXPECT_EQ(expected.chosen.token, actual.chosen.token);
  EXPECT_EQ(expected.chosen.logprob, actual.chosen.logprob);
  ASSERT_EQ(expected.top.size(), actual.top.size());
  for (size_t i = 0; i < expected.top.size(); ++i) {
    EXPECT_EQ(expected.top[i].token, actual.top[i].token) << i;
    EXPECT_EQ(expected.top[i].logprob, actual.top[i].logprob) << i;
  }
}

void ExpectSame(const Answer& expected, const Answer& actual, bool logits) {
  ASSERT_EQ(expected.status.ok(), actual.status.ok()) << expected.status << actual.status;
  if (!expected.status.ok()) {
    if (logits) return;
    EXPECT_EQ(expected.status.message(), actual.status.message());
    return;
  }
  EXPECT_EQ(expected.token, actual.token);
  if (expected.brought_back) return;
  ExpectSame(expected.logprobs, actual.logprobs);
  ExpectSame(expected.scored, actual.scored);
}

// The weights' bits are the host's where it has fused multiply-add, as every host of such a GPU.
void CheckAgainstTheHost(Device& device, size_t rounds) {
  Draws random(TestSeed());
  for (const size_t vocab :
       {1, 2, 31, 33, 63, 64, 65, 127, 500, 1000, 5003, 33000, 50257, 131072}) {
    const size_t count = vocab > 10000 ? 40 : 150;
    size_t drawn = 0, confined = 0, brought_back = 0;
    for (size_t round = 0; round < (vocab > 10000 ? (rounds + 3) / 4 : rounds); ++round) {
      std::vector<Draw> draws;
      for (size_t i = 0; i < count; ++i) draws.push_back(random.Next(vocab));
      const std::vector<Answer> answers = OnDevice(device, draws);
      for (size_t i = 0; i < count; ++i) {
        SCOPED_TRACE("vocabulary " + std::to_string(vocab) + ", round " + std::to_string(round) +
                     ", draw " + std::to_string(i));
        const Answer expected = OnHost(draws[i]);
        ExpectSame(expected, answers[i], draws[i].logprobs != kNoToken);
        if (testing::Test::HasFailure()) return;
        drawn += answers[i].status.ok();
        confined += answers[i].status.ok() && !draws[i].mask.empty();
        brought_back += expected.brought_back;
      }
    }
    std::printf("vocabulary %zu: %zu draws on %s are the host's, %zu with a mask, %zu past it\n",
                vocab, drawn, device.name().c_str(), confined, brought_back);
  }
}

void OnAFusedTarget(const std::function<void()>& check) {
  bool checked = false;
  ForEachFusedTarget([&](const char*) {
    if (!std::exchange(checked, true)) check();
  });
}

TEST(DeviceSamplingTest, TheFakeDeviceDrawsWhatTheHostDraws) {
  OnAFusedTarget([] {
    FakeDevice device;
    CheckAgainstTheHost(device, 2);
  });
}

TEST(DeviceSamplingTest, TheGpuDrawsWhatTheHostDraws) {
  RIVULET_NEED_GPU();
  const auto device = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(device.ok()) << device.status();
  OnAFusedTarget([&] { CheckAgainstTheHost(**device, 20); });
}

}  // namespace
}  // namespace rivulet
