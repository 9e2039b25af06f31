// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mixer_suite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <ostream>
#include <random>

#include "kernels/base/check.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/worst_difference.h"
#include "kernels/mixers/allocation_counter.h"
#include "kernels/mixers/suite_slots.h"

namespace rivulet {
namespace {

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

// Runs the session's next inputs.rows tokens alone and in place. Returns how often the run
// allocated.
uint64_t Advance(SuiteSubject& subject, SuiteSlots& slots, SuiteSession& session,
                 ConstFloatMatrix inputs, FloatMatrix outputs, ThreadPool& pool) {
  const Segment segment = session.Plan(0, inputs.rows);
  const uint64_t before = AllocationCount();
  subject.Run(std::span(&segment, 1), slots.state(), inputs, outputs, pool);
  const uint64_t allocated = AllocationCount() - before;
  session.Commit();
  return allocated;
}

// Outputs of a new session that is given `inputs` in pieces of these sizes.
Rows RunInPieces(SuiteSubject& subject, ConstFloatMatrix inputs, const std::vector<size_t>& pieces,
                 ThreadPool& pool) {
  Rows outputs(inputs.rows, subject.output_columns());
  SuiteSlots slots(subject.layout(), 1);
  SuiteSession session(slots, 0, 0);
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

// Equal except for bytes of `moved` that are still poison, since they are padding. A number that
// should have been written shows as NaN in the next outputs.
bool SameWrittenBytes(const std::string& in_place, const std::string& moved) {
  if (in_place.size() != moved.size()) return false;
  for (size_t i = 0; i < moved.size(); ++i) {
    if (moved[i] != in_place[i] && moved[i] != static_cast<char>(kPoison)) return false;
  }
  return true;
}

// The numbers of the pages that a session holds.
std::string PagesOf(SuiteSlots& slots, SuiteSession& session) {
  const Segment segment = session.Plan(0, 1);
  std::string bytes = slots.PagePlanes(*segment.pages, 0);
  session.pages.Cancel();
  return bytes;
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

// max|a - b| over the first `rows` rows, over max|b| of at least 16 of them: alone, the score
// of a first token may cancel to almost nothing, and its rounding would be compared with that.
double RelativeError(ConstFloatMatrix a, const std::vector<double>& b, size_t rows) {
  double error = 0, scale = 0;
  for (size_t i = 0; i < rows * a.columns; ++i) {
    error = WorstDifference(error, a.row(i / a.columns)[i % a.columns], b[i]);
  }
  for (size_t i = 0; i < std::max<size_t>(rows, 16) * a.columns; ++i) {
    scale = std::max(scale, std::abs(b[i]));
  }
  return error / scale;
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

namespace {
size_t suite_fold_interval = kFoldInterval;
}  // namespace

size_t SuiteFoldInterval() { return suite_fold_interval; }

std::vector<SuiteCase> BothIntervals(std::vector<SuiteCase> cases) {
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) {
    cases.push_back({cases[i].name + "_c32", [make = cases[i].make] {
                       suite_fold_interval = 32;
                       auto subject = make();
                       suite_fold_interval = kFoldInterval;
                       return subject;
                     }});
  }
  return cases;
}

void PrintTo(const SuiteCase& suite_case, std::ostream* out) { *out << suite_case.name; }

std::string SuiteCaseName(const testing::TestParamInfo<SuiteCase>& info) { return info.param.name; }

void FillInputs(const SuiteSubject& subject, uint64_t seed, FloatMatrix inputs) {
  for (size_t t = 0; t < inputs.rows; ++t) {
    std::fill_n(inputs.row(t), inputs.columns, 0.0f);
    for (const InputField& field : subject.fields()) {
      for (size_t i = 0; i < field.heads * field.width; ++i) {
        const size_t column = field.column + i / field.width * field.stride + i % field.width;
        const float number = GeneratedFloat(field.name, seed, t * field.heads * field.width + i,
                                            field.low, field.high);
        inputs.row(t)[column] = field.whole ? std::floor(number) : number;
      }
    }
  }
}

void MixerSuite::SetUp() {
  subject_ = GetParam().make();
  ASSERT_NE(subject_, nullptr);
  seed_ = TestSeed();
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
  std::vector<size_t> lengths(3 * chunk());
  std::iota(lengths.begin(), lengths.end(), 1);
  lengths.insert(lengths.end(), {64, 127, 128, 129, 256, 300});
  for (const size_t tokens : lengths) {
    const Rows chunkwise = RunInPieces(*subject_, inputs.view().Rows(0, tokens), {tokens}, pool);
    EXPECT_TRUE(SameBits(chunkwise.view(), recurrent.view().Rows(0, tokens)))
        << "one call of " << tokens << " tokens";
  }
}

TEST_P(MixerSuite, AnySplitOfAPromptGivesTheSameBits) {
  constexpr size_t kLong = 129;
  const size_t tokens = 3 * chunk() + 5;
  ThreadPool pool(2);
  std::mt19937_64 random(seed_);
  Rows inputs(kLong, subject_->input_columns());
  FillInputs(*subject_, seed_, inputs.view());
  const Rows whole = RunInPieces(*subject_, inputs.view(), {kLong}, pool);
  for (size_t prompt = 1; prompt < tokens; ++prompt) {
    std::vector<size_t> pieces(1 + tokens - prompt, 1);  // then one token at a time
    pieces[0] = prompt;
    const Rows split = RunInPieces(*subject_, inputs.view().Rows(0, tokens), pieces, pool);
    EXPECT_TRUE(SameBits(split.view(), whole.view().Rows(0, tokens)))
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
  SuiteSlots slots(subject_->layout(), places.size());
  std::vector<SuiteSession> sessions;
  for (size_t s = 0; s < kSessions; ++s) {
    sessions.emplace_back(slots, places[s], places[kSessions + s]);
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
      step.segments.push_back(sessions[s].Plan(step.tokens, count));
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
      sessions[order[i]].Commit();
    }
  }
}

TEST_P(MixerSuite, OtherSlotsStayUntouched) {
  constexpr uint32_t kSlots = 5;
  ThreadPool pool(2);
  Rows inputs(50, subject_->input_columns()), outputs(50, subject_->output_columns());
  FillInputs(*subject_, seed_, inputs.view());
  SuiteSlots slots(subject_->layout(), kSlots);
  SuiteSession session(slots, 2, 3);
  for (const size_t tokens : {1, 20, 29}) {
    std::vector<std::string> before;
    for (uint32_t s = 0; s < kSlots; ++s) before.push_back(slots.Base(s) + slots.Tail(s));
    const std::string own = slots.Base(2);
    const bool folds = Folds(session.position, tokens, chunk());
    const size_t first = session.position;
    Advance(*subject_, slots, session, inputs.view().Rows(first, tokens),
            outputs.view().Rows(first, tokens), pool);
    for (const uint32_t s : {0u, 1u, 4u}) {
      EXPECT_TRUE(slots.Base(s) + slots.Tail(s) == before[s]) << "slot " << s;
    }
    EXPECT_TRUE(slots.Tail(2) == before[2].substr(own.size())) << "tail of the base's number";
    EXPECT_TRUE(slots.Base(3) == before[3].substr(0, own.size())) << "base of the tail's number";
    if (!folds) {
      EXPECT_TRUE(slots.Base(2) == own) << "wrote a base without a fold";
    }
  }
}

// Segments with guesses, of which the first are right and the others other tokens: what follows is
// as if the wrong ones had never run.
TEST_P(MixerSuite, WrongGuessesAreForgotten) {
  if (!subject_->layout().forgets()) GTEST_SKIP() << "it keeps no rows of guesses";
  const size_t count = 6 * chunk();
  ThreadPool pool(2);
  std::mt19937_64 random(seed_);
  Rows inputs(count, subject_->input_columns()), wrong(count, subject_->input_columns());
  FillInputs(*subject_, seed_, inputs.view());
  FillInputs(*subject_, seed_ + 1, wrong.view());
  const Rows expected = RunInPieces(*subject_, inputs.view(), {count}, pool);
  SuiteSlots slots(subject_->layout(), 1);
  SuiteSession session(slots, 0, 0);
  while (session.position < count) {
    const size_t first = session.position, left = count - first;
    const size_t certain = random() % 4 == 0 ? 1 + random() % std::min(left, chunk()) : 1;
    const size_t room = std::min(left - certain, chunk() - 1 - (first + certain) % chunk());
    const size_t guesses = random() % (room + 1), right = random() % (guesses + 1);
    Rows in(certain + guesses, subject_->input_columns());
    Rows out(certain + guesses, subject_->output_columns());
    for (size_t t = 0; t < certain + guesses; ++t) {
      const Rows& from = t < certain + right ? inputs : wrong;
      std::copy_n(from.view().row(first + t), in.view().columns, in.view().row(t));
    }
    Segment segment = session.Plan(0, certain + guesses);
    segment.guesses = guesses;
    subject_->Run(std::span(&segment, 1), slots.state(), in.view(), out.view(), pool);
    session.Commit();
    session.position = first + certain + right;
    ASSERT_TRUE(
        SameBits(out.view().Rows(0, certain + right), expected.view().Rows(first, certain + right)))
        << certain << " tokens from " << first << ", " << right << " of " << guesses << " right";
  }
}

// Each fold of a segment into a base of its own: the outputs and the last base are those of folds
// in place, and the others are the bases after the chunks before.
TEST_P(MixerSuite, FoldsOfASegmentCanLeaveTheirBases) {
  if (subject_->layout().page_kind().rule == PageRule::kRewrittenFenwick) {
    GTEST_SKIP() << "its folds rewrite pages";
  }
  const size_t count = 5 * chunk() + 3, begin = chunk() / 2, folds = 5;
  ThreadPool pool(2);
  Rows inputs(count, subject_->input_columns());
  FillInputs(*subject_, seed_, inputs.view());
  Rows in_place(count, subject_->output_columns()), apart(count, subject_->output_columns());
  SuiteSlots a(subject_->layout(), 1), b(subject_->layout(), folds + 1);
  SuiteSession session(a, 0, 0), other(b, 0, 0);
  const auto run = [&](SuiteSlots& slots, SuiteSession& one, size_t tokens, Rows& out) {
    Advance(*subject_, slots, one, inputs.view().Rows(one.position, tokens),
            out.view().Rows(one.position, tokens), pool);
  };
  run(b, other, begin, apart);
  Segment segment = other.Plan(0, count - begin);
  const std::vector<uint32_t> bases = {3, 1, 4, 2, 5};
  segment.fold_bases = bases.data();
  segment.base_out = bases.back();
  subject_->Run(std::span(&segment, 1), b.state(), inputs.view().Rows(begin, count - begin),
                apart.view().Rows(begin, count - begin), pool);
  run(a, session, begin, in_place);
  for (const uint32_t base : bases) {
    run(a, session, chunk() - session.position % chunk(), in_place);
    EXPECT_TRUE(SameWrittenBytes(a.BasePlanes(0), b.BasePlanes(base)))
        << "the base after " << session.position << " tokens";
  }
  run(a, session, count - session.position, in_place);
  EXPECT_TRUE(SameBits(in_place.view(), apart.view()));
}

TEST_P(MixerSuite, FoldIntoANewSlotEqualsInPlace) {
  const size_t count = 5 * chunk() + 3;
  ThreadPool pool(2);
  std::mt19937_64 random(seed_);
  Rows inputs(count, subject_->input_columns());
  FillInputs(*subject_, seed_, inputs.view());
  Rows in_place(count, subject_->output_columns()), moved(count, subject_->output_columns());
  SuiteSlots a(subject_->layout(), 1), b(subject_->layout(), 2);
  SuiteSession session(a, 0, 0), forked(b, 0, 0);
  for (const size_t tokens : RandomPieces(random, count)) {
    const size_t first = session.position;
    // Another session holds the base and every page: neither may be written.
    const PageTable other = forked.pages.Fork();
    Segment segment = forked.Plan(0, tokens);
    segment.base_out = 1 - segment.base_in;
    const std::string shared = b.Base(segment.base_in);
    const std::string spare = b.Base(segment.base_out);
    const std::string pages = b.PagePlanes(*segment.pages, 0);
    subject_->Run(std::span(&segment, 1), b.state(), inputs.view().Rows(first, tokens),
                  moved.view().Rows(first, tokens), pool);
    EXPECT_TRUE(b.Base(segment.base_in) == shared) << "the shared base at position " << first;
    if (subject_->layout().page_kind().fenwick()) {
      EXPECT_TRUE(b.PagePlanes(*segment.pages, 0) == pages) << "shared pages at " << first;
    }
    if (Folds(first, tokens, chunk())) {
      forked.base = segment.base_out;
    } else {
      EXPECT_TRUE(b.Base(segment.base_out) == spare) << "wrote a base without a fold";
    }
    forked.Commit();
    Advance(*subject_, a, session, inputs.view().Rows(first, tokens),
            in_place.view().Rows(first, tokens), pool);
    EXPECT_TRUE(SameWrittenBytes(a.BasePlanes(0), b.BasePlanes(forked.base)))
        << "bases differ at position " << first;
    EXPECT_TRUE(SameWrittenBytes(PagesOf(a, session), PagesOf(b, forked)))
        << "pages differ at position " << first;
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

// A token's decay that is not finite makes the outputs that it reaches so, and all later ones: a
// session must not go on with what a weight of 0 would leave of it.
TEST_P(MixerSuite, ABrokenDecayReachesTheOutputs) {
  constexpr size_t kBroken = 5;
  const size_t count = 3 * chunk();
  ThreadPool pool(1);
  for (const InputField& field : subject_->fields()) {
    if (field.name != "log_decay" && field.name != "delta") continue;
    for (const float broken : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
      Rows inputs(count, subject_->input_columns());
      FillInputs(*subject_, seed_, inputs.view());
      inputs.view().row(kBroken)[field.column + field.width - 1] = broken;
      for (const size_t piece : {size_t{1}, size_t{count}}) {
        const std::vector<size_t> pieces(count / piece, piece);
        const Rows outputs = RunInPieces(*subject_, inputs.view(), pieces, pool);
        const size_t reached = kBroken + subject_->decay_delay();
        EXPECT_TRUE(AllFinite(outputs.view().Rows(0, reached)));
        for (size_t t = reached; t < count; ++t) {
          EXPECT_FALSE(AllFinite(outputs.view().Rows(t, 1))) << broken << " at token " << t;
        }
      }
    }
  }
}

TEST_P(MixerSuite, DecodeAllocatesNothing) {
  const size_t count = 4 * chunk(), warm = chunk();
  ThreadPool pool(2);
  Rows inputs(count, subject_->input_columns()), outputs(count, subject_->output_columns());
  FillInputs(*subject_, seed_, inputs.view());
  SuiteSlots slots(subject_->layout(), 1);
  SuiteSession session(slots, 0, 0);
  uint64_t allocations = 0;
  for (size_t t = 0; t < count; ++t) {
    const uint64_t run = Advance(*subject_, slots, session, inputs.view().Rows(t, 1),
                                 outputs.view().Rows(t, 1), pool);
    if (t >= warm) allocations += run;
  }
  EXPECT_EQ(allocations, 0u) << "over " << count - warm << " tokens";
}

}  // namespace rivulet
