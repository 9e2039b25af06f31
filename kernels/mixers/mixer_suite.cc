// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mixer_suite.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <numeric>
#include <ostream>
#include <random>

#include "kernels/base/check.h"
#include "kernels/mixers/allocation_counter.h"

namespace rivulet {
namespace {

// Every float and bf16 made of these bytes is a NaN: whoever reads what it should not, shows it.
constexpr int kPoison = 0xff;

// Rows of floats that the caller need not keep alive.
class Rows {
 public:
  Rows(size_t rows, size_t columns)
      : buffer_(rows * PaddedColumns(columns)),
        view_{buffer_.data(), rows, columns, PaddedColumns(columns)} {}
  FloatMatrix view() const { return view_; }

 private:
  AlignedBuffer<float> buffer_;
  FloatMatrix view_;
};

// Slots of one layer with guard bytes between them; all poison until made Fresh.
class Slots {
 public:
  Slots(const StateLayout& layout, size_t slots)
      : layout_(layout),
        checkpoint_stride_(RoundUp(layout.checkpoint_bytes(), kAlignment) + kAlignment),
        tail_stride_(RoundUp(layout.tail_bytes(), kAlignment) + kAlignment),
        checkpoints_(slots * checkpoint_stride_),
        tails_(slots * tail_stride_) {
    std::memset(checkpoints_.data(), kPoison, checkpoints_.size());
    std::memset(tails_.data(), kPoison, tails_.size());
  }

  // A new session's checkpoint: all zeros. Its tail needs no initial value and so stays poison.
  void Fresh(uint32_t checkpoint) {
    std::memset(checkpoints_.data() + checkpoint * checkpoint_stride_, 0,
                layout_.checkpoint_bytes());
  }
  LayerState state() {
    return {checkpoints_.data(), checkpoint_stride_, tails_.data(), tail_stride_};
  }
  // With the guard behind it.
  std::string Checkpoint(uint32_t slot) const {
    return Bytes(checkpoints_, checkpoint_stride_, slot);
  }
  std::string Tail(uint32_t slot) const { return Bytes(tails_, tail_stride_, slot); }
  // The numbers of a checkpoint, without the gaps between planes.
  std::string CheckpointPlanes(uint32_t slot) const {
    std::string bytes;
    for (const StatePlane& plane : layout_.planes()) {
      if (plane.part != StatePart::kCheckpoint) continue;
      size_t count = DTypeSize(plane.dtype);
      for (const size_t extent : plane.shape) count *= extent;
      bytes += Checkpoint(slot).substr(plane.offset, count);
    }
    return bytes;
  }

 private:
  static std::string Bytes(const AlignedBuffer<std::byte>& all, size_t stride, uint32_t slot) {
    return std::string(reinterpret_cast<const char*>(all.data()) + slot * stride, stride);
  }

  const StateLayout& layout_;
  size_t checkpoint_stride_, tail_stride_;
  AlignedBuffer<std::byte> checkpoints_, tails_;
};

// One session: which slots it holds and how far it is.
struct Session {
  uint32_t checkpoint = 0;
  uint32_t tail = 0;
  uint64_t position = 0;
};

// Runs the session's next inputs.rows tokens alone and in place.
void Advance(SuiteSubject& subject, Slots& slots, Session& session, ConstFloatMatrix inputs,
             FloatMatrix outputs, ThreadPool& pool) {
  const Segment segment{.first_token = 0,
                        .tokens = inputs.rows,
                        .position = session.position,
                        .checkpoint_in = session.checkpoint,
                        .checkpoint_out = session.checkpoint,
                        .tail = session.tail};
  subject.Run(std::span(&segment, 1), slots.state(), inputs, outputs, pool);
  session.position += inputs.rows;
}

// Outputs of a new session that is given `inputs` in pieces of these sizes.
Rows RunInPieces(SuiteSubject& subject, ConstFloatMatrix inputs, const std::vector<size_t>& pieces,
                 ThreadPool& pool) {
  Rows outputs(inputs.rows, subject.output_columns());
  Slots slots(subject.layout(), 1);
  slots.Fresh(0);
  Session session;
  for (const size_t tokens : pieces) {
    const size_t first = session.position;
    Advance(subject, slots, session, inputs.Rows(first, tokens), outputs.view().Rows(first, tokens),
            pool);
  }
  RIVULET_CHECK(session.position == inputs.rows, "the pieces must cover the inputs");
  return outputs;
}

Rows RunOneAtATime(SuiteSubject& subject, ConstFloatMatrix inputs, ThreadPool& pool) {
  return RunInPieces(subject, inputs, std::vector<size_t>(inputs.rows, 1), pool);
}

bool SameBits(ConstFloatMatrix a, ConstFloatMatrix b) {
  RIVULET_CHECK(a.rows == b.rows && a.columns == b.columns, "comparing different shapes");
  for (size_t r = 0; r < a.rows; ++r) {
    if (std::memcmp(a.row(r), b.row(r), a.columns * sizeof(float)) != 0) return false;
  }
  return true;
}

// Equal but for bytes of `moved` that are poison still, which nobody wrote: padding. A number that
// should have been written shows as NaN in the next outputs.
bool SameWrittenBytes(const std::string& in_place, const std::string& moved) {
  if (in_place.size() != moved.size()) return false;
  for (size_t i = 0; i < moved.size(); ++i) {
    if (moved[i] != in_place[i] && moved[i] != static_cast<char>(kPoison)) return false;
  }
  return true;
}

testing::AssertionResult AllFinite(ConstFloatMatrix x) {
  for (size_t r = 0; r < x.rows; ++r) {
    for (size_t c = 0; c < x.columns; ++c) {
      if (!std::isfinite(x.row(r)[c])) {
        return testing::AssertionFailure() << x.row(r)[c] << " at row " << r << ", column " << c;
      }
    }
  }
  return testing::AssertionSuccess();
}

// max|a - b| over the first `rows` rows, over max|b| of at least a chunk of them: alone, the score
// of a first token may cancel to almost nothing, and its rounding would be compared with that.
double RelativeError(ConstFloatMatrix a, const std::vector<double>& b, size_t rows) {
  double error = 0, scale = 0;
  for (size_t i = 0; i < rows * a.columns; ++i) {
    error = std::max(error, std::abs(a.row(i / a.columns)[i % a.columns] - b[i]));
  }
  for (size_t i = 0; i < std::max(rows, kFoldInterval) * a.columns; ++i) {
    scale = std::max(scale, std::abs(b[i]));
  }
  return error / scale;
}

uint64_t Seed() {
  const char* text = std::getenv("RIVULET_TEST_SEED");
  if (text != nullptr) return std::strtoull(text, nullptr, 10);
  return std::random_device()();
}

// `total` cut into random pieces.
std::vector<size_t> RandomPieces(std::mt19937_64& random, size_t total) {
  std::vector<size_t> pieces;
  while (total > 0) {
    const size_t most = std::min<size_t>(total, random() % 2 == 0 ? 5 : 40);
    pieces.push_back(1 + random() % most);
    total -= pieces.back();
  }
  return pieces;
}

// Several sessions in one step: the slots they hold and their rows of the step.
struct Step {
  std::vector<Segment> segments;
  size_t tokens = 0;
};

}  // namespace

void PrintTo(const SuiteCase& suite_case, std::ostream* out) { *out << suite_case.name; }

std::string SuiteCaseName(const testing::TestParamInfo<SuiteCase>& info) { return info.param.name; }

void FillInputs(const SuiteSubject& subject, uint64_t seed, FloatMatrix inputs) {
  for (size_t t = 0; t < inputs.rows; ++t) {
    std::fill_n(inputs.row(t), inputs.columns, 0.0f);
    for (const InputField& field : subject.fields()) {
      for (size_t i = 0; i < field.heads * field.width; ++i) {
        const size_t column = field.column + i / field.width * field.stride + i % field.width;
        inputs.row(t)[column] = GeneratedFloat(field.name, seed, t * field.heads * field.width + i,
                                               field.low, field.high);
      }
    }
  }
}

void MixerSuite::SetUp() {
  subject_ = GetParam().make();
  ASSERT_NE(subject_, nullptr);
  seed_ = Seed();
  std::cout << "replay with RIVULET_TEST_SEED=" << seed_ << std::endl;
}

TEST_P(MixerSuite, MatchesTheDefinition) {
  ThreadPool pool(2);
  Rows inputs(300, subject_->input_columns());
  FillInputs(*subject_, seed_, inputs.view());
  const std::vector<double> reference = subject_->Reference(inputs.view());
  const Rows outputs = RunInPieces(*subject_, inputs.view(), {300}, pool);
  ASSERT_TRUE(AllFinite(outputs.view()));
  if (reference.empty()) return;  // a whole layer: its vectors are checked instead
  ASSERT_EQ(reference.size(), 300 * subject_->output_columns());
  double worst = 0;
  for (const size_t tokens : {1, 2, 15, 16, 17, 48, 64, 127, 128, 129, 256, 300}) {
    const double error = RelativeError(outputs.view(), reference, tokens);
    EXPECT_LE(error, subject_->tolerance()) << "over the first " << tokens << " tokens";
    worst = std::max(worst, error);
  }
  RecordProperty("relative_error", std::to_string(worst));
}

TEST_P(MixerSuite, OneCallEqualsOneTokenAtATime) {
  ThreadPool pool(2);
  Rows inputs(300, subject_->input_columns());
  FillInputs(*subject_, seed_, inputs.view());
  const Rows recurrent = RunOneAtATime(*subject_, inputs.view(), pool);
  ASSERT_TRUE(AllFinite(recurrent.view()));
  std::vector<size_t> lengths(3 * kFoldInterval);
  std::iota(lengths.begin(), lengths.end(), 1);
  lengths.insert(lengths.end(), {64, 127, 128, 129, 256, 300});
  for (const size_t tokens : lengths) {
    const Rows chunkwise = RunInPieces(*subject_, inputs.view().Rows(0, tokens), {tokens}, pool);
    EXPECT_TRUE(SameBits(chunkwise.view(), recurrent.view().Rows(0, tokens)))
        << "one call of " << tokens << " tokens";
  }
}

TEST_P(MixerSuite, AnySplitOfAPromptGivesTheSameBits) {
  constexpr size_t kTokens = 3 * kFoldInterval + 5, kLong = 129;
  ThreadPool pool(2);
  std::mt19937_64 random(seed_);
  Rows inputs(kLong, subject_->input_columns());
  FillInputs(*subject_, seed_, inputs.view());
  const Rows whole = RunInPieces(*subject_, inputs.view(), {kLong}, pool);
  for (size_t prompt = 1; prompt < kTokens; ++prompt) {
    std::vector<size_t> pieces(1 + kTokens - prompt, 1);  // then one token at a time
    pieces[0] = prompt;
    const Rows split = RunInPieces(*subject_, inputs.view().Rows(0, kTokens), pieces, pool);
    EXPECT_TRUE(SameBits(split.view(), whole.view().Rows(0, kTokens)))
        << "prompt of " << prompt << " tokens, then decode";
  }
  for (int round = 0; round < 10; ++round) {
    const Rows split = RunInPieces(*subject_, inputs.view(), RandomPieces(random, kLong), pool);
    EXPECT_TRUE(SameBits(split.view(), whole.view())) << "random cut " << round;
  }
}

TEST_P(MixerSuite, NeighboursAndPlacesDoNotMatter) {
  constexpr size_t kSessions = 5, kSteps = 8, kTokens = 160;
  ThreadPool pool(2);
  std::mt19937_64 random(seed_);
  std::vector<Rows> inputs, alone;
  for (size_t s = 0; s < kSessions; ++s) {
    inputs.emplace_back(kTokens, subject_->input_columns());
    FillInputs(*subject_, seed_ + s, inputs[s].view());
    alone.push_back(RunInPieces(*subject_, inputs[s].view(), {kTokens}, pool));
  }
  // Each session at slots of its own, drawn at random from twice as many.
  std::vector<uint32_t> places(2 * kSessions);
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), random);
  Slots slots(subject_->layout(), places.size());
  std::vector<Session> sessions(kSessions);
  for (size_t s = 0; s < kSessions; ++s) {
    sessions[s] = {.checkpoint = places[s], .tail = places[kSessions + s]};
    slots.Fresh(sessions[s].checkpoint);
  }
  for (size_t round = 0; round < kSteps; ++round) {
    // A step: some of the sessions in random order, each with a random number of tokens.
    std::vector<size_t> order(kSessions);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    order.resize(2 + random() % (kSessions - 1));
    Step step;
    for (const size_t s : order) {
      const size_t count = 1 + random() % (round % 2 == 0 ? 20 : 2);
      step.segments.push_back({.first_token = step.tokens,
                               .tokens = count,
                               .position = sessions[s].position,
                               .checkpoint_in = sessions[s].checkpoint,
                               .checkpoint_out = sessions[s].checkpoint,
                               .tail = sessions[s].tail});
      step.tokens += count;
    }
    Rows x(step.tokens, subject_->input_columns()), y(step.tokens, subject_->output_columns());
    for (size_t i = 0; i < order.size(); ++i) {
      const Segment& segment = step.segments[i];
      for (size_t t = 0; t < segment.tokens; ++t) {
        const float* from = inputs[order[i]].view().row(segment.position + t);
        std::copy_n(from, x.view().columns, x.view().row(segment.first_token + t));
      }
    }
    subject_->Run(step.segments, slots.state(), x.view(), y.view(), pool);
    for (size_t i = 0; i < order.size(); ++i) {
      const Segment& segment = step.segments[i];
      EXPECT_TRUE(SameBits(y.view().Rows(segment.first_token, segment.tokens),
                           alone[order[i]].view().Rows(segment.position, segment.tokens)))
          << "session " << order[i] << " at position " << segment.position << ", row "
          << segment.first_token << " of a step of " << step.tokens;
      sessions[order[i]].position += segment.tokens;
    }
  }
}

TEST_P(MixerSuite, OtherSlotsStayUntouched) {
  constexpr uint32_t kSlots = 5;
  ThreadPool pool(2);
  Rows inputs(50, subject_->input_columns()), outputs(50, subject_->output_columns());
  FillInputs(*subject_, seed_, inputs.view());
  Slots slots(subject_->layout(), kSlots);
  slots.Fresh(2);
  Session session{.checkpoint = 2, .tail = 3};
  for (const size_t tokens : {1, 20, 29}) {
    std::vector<std::string> before;
    for (uint32_t s = 0; s < kSlots; ++s) before.push_back(slots.Checkpoint(s) + slots.Tail(s));
    const std::string own = slots.Checkpoint(2);
    const bool folds = Folds(session.position, tokens);
    const size_t first = session.position;
    Advance(*subject_, slots, session, inputs.view().Rows(first, tokens),
            outputs.view().Rows(first, tokens), pool);
    for (const uint32_t s : {0u, 1u, 4u}) {
      EXPECT_TRUE(slots.Checkpoint(s) + slots.Tail(s) == before[s]) << "slot " << s;
    }
    EXPECT_TRUE(slots.Tail(2) == before[2].substr(own.size())) << "tail of the checkpoint's number";
    EXPECT_TRUE(slots.Checkpoint(3) == before[3].substr(0, own.size()))
        << "checkpoint of the tail's number";
    if (!folds) {
      EXPECT_TRUE(slots.Checkpoint(2) == own) << "wrote a checkpoint without a fold";
    }
  }
}

TEST_P(MixerSuite, FoldIntoANewSlotEqualsInPlace) {
  constexpr size_t kTokens = 5 * kFoldInterval + 3;
  ThreadPool pool(2);
  std::mt19937_64 random(seed_);
  Rows inputs(kTokens, subject_->input_columns());
  FillInputs(*subject_, seed_, inputs.view());
  Rows in_place(kTokens, subject_->output_columns()), moved(kTokens, subject_->output_columns());
  Slots a(subject_->layout(), 1), b(subject_->layout(), 2);
  a.Fresh(0);
  b.Fresh(0);
  Session session;
  uint32_t current = 0;
  for (const size_t tokens : RandomPieces(random, kTokens)) {
    const size_t first = session.position;
    const Segment segment{.first_token = 0,
                          .tokens = tokens,
                          .position = first,
                          .checkpoint_in = current,
                          .checkpoint_out = 1 - current,
                          .tail = 0};
    const std::string shared = b.Checkpoint(current), spare = b.Checkpoint(1 - current);
    subject_->Run(std::span(&segment, 1), b.state(), inputs.view().Rows(first, tokens),
                  moved.view().Rows(first, tokens), pool);
    Advance(*subject_, a, session, inputs.view().Rows(first, tokens),
            in_place.view().Rows(first, tokens), pool);
    EXPECT_TRUE(b.Checkpoint(current) == shared) << "the shared checkpoint at position " << first;
    if (Folds(first, tokens)) {
      current = 1 - current;
    } else {
      EXPECT_TRUE(b.Checkpoint(1 - current) == spare) << "wrote a checkpoint without a fold";
    }
    EXPECT_TRUE(SameWrittenBytes(a.CheckpointPlanes(0), b.CheckpointPlanes(current)))
        << "checkpoints differ at position " << first;
  }
  EXPECT_TRUE(SameBits(in_place.view(), moved.view()));
}

TEST_P(MixerSuite, NumberOfThreadsDoesNotMatter) {
  constexpr size_t kTokens = 70;
  std::mt19937_64 random(seed_);
  Rows inputs(kTokens, subject_->input_columns());
  FillInputs(*subject_, seed_, inputs.view());
  const std::vector<size_t> pieces = RandomPieces(random, kTokens);
  ThreadPool one(1);
  const Rows expected = RunInPieces(*subject_, inputs.view(), pieces, one);
  for (const size_t threads : {2, 3}) {
    ThreadPool pool(threads);
    const Rows outputs = RunInPieces(*subject_, inputs.view(), pieces, pool);
    EXPECT_TRUE(SameBits(outputs.view(), expected.view())) << threads << " threads";
  }
}

TEST_P(MixerSuite, DecodeAllocatesNothing) {
  constexpr size_t kTokens = 4 * kFoldInterval, kWarm = kFoldInterval;
  ThreadPool pool(2);
  Rows inputs(kTokens, subject_->input_columns()), outputs(kTokens, subject_->output_columns());
  FillInputs(*subject_, seed_, inputs.view());
  Slots slots(subject_->layout(), 1);
  slots.Fresh(0);
  Session session;
  uint64_t before = 0;
  for (size_t t = 0; t < kTokens; ++t) {
    if (t == kWarm) before = AllocationCount();
    Advance(*subject_, slots, session, inputs.view().Rows(t, 1), outputs.view().Rows(t, 1), pool);
  }
  EXPECT_EQ(AllocationCount() - before, 0u) << "over " << kTokens - kWarm << " tokens";
}

}  // namespace rivulet
