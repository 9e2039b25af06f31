// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mixer_suite_on_device.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <ostream>
#include <string_view>

#include "kernels/base/check.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gated.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/mixers/suite_slots.h"

namespace rivulet {
namespace {

constexpr size_t kTexts = 3;
constexpr size_t kFew = 8;       // sessions at the same time
constexpr size_t kSome = 70;     // with so many, not all units have room at once
constexpr size_t kMany = 600;    // with so many, steps of one token take kernels of their own
constexpr size_t kShared = 21;   // tokens that texts 0 and 1 have in common
constexpr size_t kDecoded = 36;  // tokens that come one by one after a prompt

// A layer on a device: its input is rounded as the norm before it would.
class DeviceLayer : public DeviceSubject {
 public:
  explicit DeviceLayer(std::unique_ptr<Mixer> mixer, size_t hidden)
      : mixer_(std::move(mixer)), hidden_(hidden) {}

  const StateLayout& layout() const override { return mixer_->state_layout(); }
  DeviceOutput Enqueue(const DeviceStep& step, ConstFloatMatrix inputs) override {
    DeviceStep own = step;
    const size_t handed_on = mixer_->handed_on_columns();
    if (handed_on != 0) own.handed_on = step.workspace->Take(inputs.rows, handed_on);
    if (hidden_ % kAlignedColumns == 0) own.stream = Twice(step, inputs);
    const FloatMatrix y = step.workspace->Take(inputs.rows, hidden_);
    RowFactor factor;
    own.output_factor = &factor;
    mixer_->Enqueue(own, Gated(step, inputs, {}), y);
    return {.rows = factor.squares == nullptr ? y : Scaled(step, y, factor)};
  }

 private:
  static constexpr size_t kAlignedColumns = 16;

  // What a mixer that reads the stream and the embeddings is given.
  static FloatMatrix Twice(const DeviceStep& step, ConstFloatMatrix x) {
    const FloatMatrix both = step.workspace->Take(x.rows, 2 * x.columns);
    step.device->CopyColumns(x, both.Columns(0, x.columns));
    step.device->CopyColumns(x, both.Columns(x.columns, x.columns));
    return both;
  }

  // 0 + factor · y.
  static FloatMatrix Scaled(const DeviceStep& step, ConstFloatMatrix y, const RowFactor& factor) {
    const FloatMatrix scaled = step.workspace->Take(y.rows, y.columns);
    step.device->CopyColumns(y, scaled);
    step.device->AddNorm({.x = scaled, .update = y, .update_factor = factor, .keep = 0});
    return scaled;
  }

  std::unique_ptr<Mixer> mixer_;
  size_t hidden_;
};

struct HostRows {
  HostRows(size_t rows, size_t columns)
      : buffer(rows * PaddedColumns(columns)),
        view{buffer.data(), rows, columns, PaddedColumns(columns)} {}
  AlignedBuffer<float> buffer;
  FloatMatrix view;
};

std::vector<double> RunOnCpu(SuiteSubject& subject, ConstFloatMatrix inputs) {
  HostRows outputs(inputs.rows, subject.output_columns());
  SuiteSlots slots(subject.layout(), 1);
  SuiteSession session(slots, 0, 0);
  const Segment segment = session.Plan(0, inputs.rows);
  ThreadPool pool(1);
  subject.Run(std::span(&segment, 1), slots.state(), inputs, outputs.view, pool);
  std::vector<double> result;
  for (size_t t = 0; t < inputs.rows; ++t) {
    result.insert(result.end(), outputs.view.row(t), outputs.view.row(t) + outputs.view.columns);
  }
  return result;
}

// Equal but for bytes that were never written.
bool SameWritten(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && a[i] != '\xff' && b[i] != '\xff') return false;
  }
  return true;
}

std::string_view NameOf(DType dtype) { return dtype == DType::kFloat32 ? "fp32" : "bf16"; }

}  // namespace

// --- parameters ----------------------------------------------------------------------------------

std::vector<DeviceSuiteParam> OnDevices(const std::vector<DeviceCase>& cases) {
  constexpr auto kBFloat16 = ProductPrecision::kBFloat16, kFloat32 = ProductPrecision::kFloat32;
  std::vector<DeviceSuiteParam> all;
  for (const DeviceCase& one : cases) {
    const bool both = (one.everywhere || one.every_mode) && one.narrow_states;
    if (one.everywhere) all.push_back({one, false, kFloat32, DType::kFloat32});
    if (one.everywhere && both) all.push_back({one, false, kFloat32, DType::kBFloat16});
    all.push_back({one, true, kBFloat16, DType::kFloat32});
    if (one.narrow_states) all.push_back({one, true, kBFloat16, DType::kBFloat16});
    all.push_back({one, true, kFloat32, DType::kFloat32});
    if (both) all.push_back({one, true, kFloat32, DType::kBFloat16});
  }
  return all;
}

void PrintTo(const DeviceSuiteParam& param, std::ostream* out) {
  const bool bf16 = param.precision == ProductPrecision::kBFloat16;
  *out << param.of.name << (param.gpu ? "_gpu_" : "_fake_") << (bf16 ? "bf16" : "fp32") << "_with_"
       << NameOf(param.state) << "_states";
}

std::string DeviceCaseName(const testing::TestParamInfo<DeviceSuiteParam>& info) {
  return testing::PrintToString(info.param);
}

// --- whole layers --------------------------------------------------------------------------------

RandomLayerSubject::RandomLayerSubject(Maker make, Options options)
    : make_(std::move(make)), options_(std::move(options)) {
  on_cpu_ = std::make_unique<LayerSubject>(Make({}), options_.hidden);
}

std::unique_ptr<Mixer> RandomLayerSubject::Make(const MixerOptions& options) const {
  RandomParameters parameters(7, "", DType::kFloat32, options_.ranges, options.device);
  auto mixer = make_({options_.hidden, parameters, options});
  RIVULET_CHECK(mixer.ok(), "a layer of the suite cannot be made");
  return *std::move(mixer);
}

std::unique_ptr<DeviceSubject> RandomLayerSubject::OnDevice(Device& device) const {
  MixerOptions options{.state_dtype = options_.state, .kv_dtype = options_.state};
  options.device = &device;
  std::unique_ptr<Mixer> mixer = Make(options);
  if (!mixer->runs_on_device()) return nullptr;
  return std::make_unique<DeviceLayer>(std::move(mixer), options_.hidden);
}

// --- the suite -----------------------------------------------------------------------------------

namespace {

// By kind of products; what is left at the end of the program is not closed.
std::unique_ptr<SuiteDevice>& OpenGpu(ProductPrecision precision) {
  static auto* const gpus = new std::map<ProductPrecision, std::unique_ptr<SuiteDevice>>;
  return (*gpus)[precision];
}

}  // namespace

void DeviceMixerSuite::OpenDevice() {
  if (!GetParam().gpu) {
    device_ = new SuiteDevice(std::make_unique<FakeDevice>());
    return;
  }
  RIVULET_NEED_GPU();
  std::unique_ptr<SuiteDevice>& gpu = OpenGpu(GetParam().precision);
  if (gpu == nullptr) {
    auto device = OpenCudaDevice(GetParam().precision);
    ASSERT_TRUE(device.ok()) << device.status();
    gpu = std::make_unique<SuiteDevice>(*std::move(device));
  }
  device_ = gpu.get();
}

void DeviceMixerSuite::SetUp() {
  OpenDevice();
  if (device_ == nullptr) return;
  seed_ = TestSeed();
  random_.seed(seed_);
  device_->subjects.push_back(GetParam().of.make(GetParam().state));
  subject_ = device_->subjects.back().get();
  device_->on_device.push_back(subject_->OnDevice(*device_->device));
  on_device_ = device_->on_device.back().get();
  ASSERT_NE(on_device_, nullptr) << "no form for a device";
  MakeTexts();
}

void DeviceMixerSuite::TearDown() {
  if (!GetParam().gpu) {
    delete device_;
  } else if (device_ != nullptr && !device_->device->Synchronize().ok()) {
    OpenGpu(GetParam().precision) = nullptr;
  }
}

void DeviceMixerSuite::MakeTexts() {
  const size_t columns = subject_->input_columns();
  for (size_t text = 0; text < kTexts; ++text) {
    HostRows rows(tokens(), columns);
    FillInputs(*subject_, seed_ + text, rows.view);
    DeviceSuiteRun::Text all;
    for (size_t t = 0; t < tokens(); ++t) {
      all.rows.insert(all.rows.end(), rows.view.row(t), rows.view.row(t) + columns);
    }
    if (text == 1) std::copy_n(texts_[0].rows.begin(), kShared * columns, all.rows.begin());
    texts_.push_back(std::move(all));
  }
}

std::unique_ptr<DeviceSuiteRun> DeviceMixerSuite::NewRun(size_t sessions) {
  const DeviceSuiteRun::Sizes sizes{.sessions = sessions,
                                    .bases = tokens() / 16 + 2,
                                    .tokens = tokens(),
                                    .input_columns = subject_->input_columns(),
                                    .output_columns = subject_->output_columns()};
  return std::make_unique<DeviceSuiteRun>(*device_->memory, *on_device_, texts_, sizes);
}

void DeviceMixerSuite::Step(DeviceSuiteRun& run, const std::vector<Piece>& pieces,
                            const Form& form) {
  std::vector<uint64_t> positions;
  positions.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    positions.push_back(piece.session == nullptr ? 0 : piece.session->position);
  }
  run.Step(pieces, form);
  const size_t bytes = subject_->output_columns() * sizeof(float);
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (size_t t = 0; t < pieces[i].tokens && !differs_; ++t) {
      const size_t text = pieces[i].session->text, token = positions[i] + t;
      differs_ = std::memcmp(run.Output(i, t), Expected(text, token), bytes) != 0;
      EXPECT_FALSE(differs_) << "token " << token << " of text " << text << ", in segment " << i
                             << " of " << pieces.size() << " with " << pieces[i].tokens
                             << " tokens, a step of "
                             << (form.single ? "single tokens" : "segments of any length")
                             << ", the first " << form.decodes << " of them as single tokens";
    }
  }
}

// Puts pieces of at most one token first. Returns how many they are; 0 if there are no others.
size_t DeviceMixerSuite::PutSinglesFirst(std::vector<Piece>& pieces) {
  const auto others = std::stable_partition(pieces.begin(), pieces.end(),
                                            [](const Piece& piece) { return piece.tokens <= 1; });
  return others == pieces.end() ? 0 : static_cast<size_t>(others - pieces.begin());
}

// All tokens that are left of the sessions, in steps of some of them in random amounts.
void DeviceMixerSuite::Finish(DeviceSuiteRun& run, const std::vector<Session*>& sessions) {
  for (bool any = true; any;) {
    any = false;
    const bool single = random_() % 3 == 0;
    std::vector<Piece> pieces;
    for (Session* session : sessions) {
      const size_t left = tokens() - session->position;
      const size_t most = single ? 1 : random_() % 2 == 0 ? 3 : std::max<size_t>(20, left / 3);
      if (left == 0 || random_() % 4 == 0) {
        if (random_() % 4 == 0) pieces.push_back({});
      } else {
        pieces.push_back({session, std::min<size_t>(left, 1 + random_() % most)});
      }
      any = any || left != 0;
    }
    std::shuffle(pieces.begin(), pieces.end(), random_);
    const bool runs = std::any_of(pieces.begin(), pieces.end(),
                                  [](const Piece& piece) { return piece.tokens != 0; });
    if (!runs) continue;
    if (single) {
      Step(run, pieces, {.single = true});
    } else {
      const size_t decodes = random_() % 2 == 0 ? PutSinglesFirst(pieces) : 0;
      Step(run, pieces, {.padding = random_() % 3, .decodes = decodes});
    }
  }
}

// --- the definition ------------------------------------------------------------------------------

std::vector<double> DeviceMixerSuite::ReferenceOf(size_t text) {
  HostRows inputs(tokens(), subject_->input_columns());
  for (size_t t = 0; t < tokens(); ++t) {
    std::copy_n(texts_[text].rows.data() + t * inputs.view.columns, inputs.view.columns,
                inputs.view.row(t));
  }
  std::vector<double> reference = subject_->Reference(inputs.view);
  return reference.empty() ? RunOnCpu(*subject_, inputs.view) : reference;
}

// The largest distance of a token, in parts of the largest number of its chunk. Alone, a token's
// numbers may cancel to almost nothing.
double DeviceMixerSuite::Distance(size_t text) {
  const std::vector<double> reference = ReferenceOf(text);
  const size_t columns = subject_->output_columns();
  double worst = 0;
  for (size_t first = 0; first < reference.size(); first += 16 * columns) {
    double scale = 1e-30, distance = 0;
    for (size_t i = first; i < std::min(reference.size(), first + 16 * columns); ++i) {
      distance = WorstDifference(distance, expected_[text][i], reference[i]);
      scale = std::max(scale, std::abs(reference[i]));
    }
    if (!std::isfinite(distance)) return INFINITY;
    worst = std::max(worst, distance / scale);
  }
  return worst;
}

void DeviceMixerSuite::CheckDefinition() {
  const DeviceSuiteParam& param = GetParam();
  const bool exact =
      param.precision == ProductPrecision::kFloat32 && param.state == DType::kFloat32;
  const double bound = exact ? param.of.exact : param.of.rounded;
  double worst = 0;
  for (size_t text = 0; text < kTexts; ++text) {
    const auto run = NewRun(1);
    Session session(*run, text);
    const Piece piece{&session, tokens()};
    run->Step({&piece, 1});
    std::vector<float>& all = expected_.emplace_back();
    for (size_t t = 0; t < tokens(); ++t) {
      all.insert(all.end(), run->Output(0, t), run->Output(0, t) + subject_->output_columns());
    }
    worst = std::max(worst, Distance(text));
    EXPECT_LE(Distance(text), bound) << "text " << text;
  }
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string suite = test->test_suite_name();
  std::printf("%s %s: %.2g off, of %.2g\n", suite.substr(0, suite.find('/')).c_str(),
              testing::PrintToString(param).c_str(), worst, bound);
}

// --- cuts and neighbours -------------------------------------------------------------------------

void DeviceMixerSuite::CheckCuts() {
  const auto run = NewRun(1);
  for (const size_t size : {1, 5, 16, 0, 0}) {  // 0: of random sizes
    Session session(*run, 0);
    while (session.position < tokens()) {
      const size_t count = size != 0 ? size : 1 + random_() % (random_() % 2 == 0 ? 5 : 40);
      Step(*run, {{&session, std::min<size_t>(count, tokens() - session.position)}});
    }
  }
}

void DeviceMixerSuite::CheckNeighbours() {
  const auto run = NewRun(kFew);
  std::vector<Session> sessions;
  sessions.reserve(kFew);
  std::vector<Session*> all;
  for (size_t s = 0; s < kFew; ++s) all.push_back(&sessions.emplace_back(*run, s % kTexts));
  Finish(*run, all);
  EXPECT_TRUE(run->bases.OthersAreUntouched());
  EXPECT_TRUE(run->tails.OthersAreUntouched());
  EXPECT_TRUE(run->pages.OthersAreUntouched());
}

// --- one token a segment -------------------------------------------------------------------------

// Sessions at different places of their chunks, after prompts of different lengths; where texts are
// long, every other one near its end.
void DeviceMixerSuite::CheckSingles(size_t count) {
  const auto run = NewRun(count);
  std::vector<Session> sessions;
  sessions.reserve(count);
  std::vector<Piece> prompts, pieces(count);
  for (size_t s = 0; s < count; ++s) {
    Session& session = sessions.emplace_back(*run, s % kTexts);
    size_t prompt = s * 5 % 34;
    if (s % 2 != 0 && tokens() > 3 * kDecoded) prompt += tokens() - 2 * kDecoded;
    if (prompt != 0) prompts.push_back({&session, std::min(prompt, tokens())});
  }
  if (!prompts.empty()) Step(*run, prompts);
  const size_t steps = count == 1 || count == kFew ? kDecoded : 18;  // a border in any case
  for (size_t i = 0; i < steps; ++i) {
    for (size_t s = 0; s < count; ++s) {
      const bool ends = sessions[s].position == tokens();
      pieces[s] = {&sessions[s], ends ? size_t{0} : size_t{1}};
    }
    Step(*run, pieces, {.single = true});
  }
}

// As many that there is more than one wave of blocks. They begin one after the other, and some have
// no token in a step. In some steps a few have several.
void DeviceMixerSuite::CheckManySingles() {
  const auto run = NewRun(kMany);
  std::vector<Session> sessions;
  sessions.reserve(kMany);
  for (size_t s = 0; s < kMany; ++s) sessions.emplace_back(*run, s % kTexts);
  std::vector<Piece> pieces(kMany);
  for (size_t i = 0; i < 16 + 20; ++i) {
    for (size_t s = 0; s < kMany; ++s) {
      const bool waits = i < s % 16 || sessions[s].position == tokens() || (i + s) % 61 == 0;
      pieces[s] = {&sessions[s], waits ? size_t{0} : size_t{1}};
    }
    if (i % 4 != 3) {
      Step(*run, pieces, {.single = true});
      continue;
    }
    for (size_t s = kMany - 2; s < kMany; ++s) {
      pieces[s].tokens = std::min<size_t>(3, tokens() - sessions[s].position);
    }
    Step(*run, pieces, {.decodes = kMany - 2});
  }
}

// --- states that are kept ------------------------------------------------------------------------

// Three sessions go on from one base: one in place, one with a copy of its tail, and one that
// computes what is in the tail again.
void DeviceMixerSuite::CheckForks() {
  const auto run = NewRun(3);
  Session first(*run, 0);
  Step(*run, {{&first, kShared}});
  const uint32_t shared = first.base;
  run->bases.Share(shared);
  const std::string bytes = run->bases.Bytes(shared);
  Session with_tail = first.Fork(1, true), without = first.Fork(1, false);
  Finish(*run, {&first, &with_tail, &without});
  EXPECT_TRUE(run->bases.Bytes(shared) == bytes) << "a shared base was written";
  run->bases.Release(shared);
}

// Rejected tokens are dropped, and the session continues from the token before them.
void DeviceMixerSuite::CheckRewind() {
  if (on_device_->layout().running_tail()) return;
  const auto run = NewRun(2);
  Session session(*run, 1), other(*run, 0);
  Step(*run, {{&session, kShared}, {&other, 3}});
  for (const size_t wrong : {1, 5}) {
    const Piece piece{&session, wrong, /*text=*/2};
    run->Step({&piece, 1});
    session.position = kShared;
  }
  Finish(*run, {&session, &other});
}

// Each fold of a piece leaves a base of its own, and sessions go on from all of them.
void DeviceMixerSuite::CheckFoldBases() {
  if (on_device_->layout().page_kind().rule == PageRule::kRewrittenFenwick) return;
  const auto run = NewRun(10);
  Session session(*run, 0), other(*run, 2), in_place(*run, 0);
  Session folds(*run, 1), stays(*run, 2);  // one token each in the step with the table of bases
  Step(*run, {{&session, 7}, {&folds, 15}, {&stays, 3}});
  std::vector<uint32_t> bases;
  std::vector<PageTable> tables;
  bases.reserve(tokens() / 16), tables.reserve(tokens() / 16);
  const Piece whole{&session, tokens() - 7, SIZE_MAX, &bases, &tables};
  Step(*run, {{&folds, 1}, {&stays, 1}, {&other, 20}, whole}, {.decodes = 2});
  std::vector<Session> resumed;
  resumed.reserve(bases.size());
  std::vector<Session*> all{&other, &folds, &stays};
  for (size_t i = 0; i < bases.size(); ++i) {
    Step(*run, {{&in_place, 16}});
    EXPECT_TRUE(SameWritten(run->BasePlanes(in_place.base), run->BasePlanes(bases[i])))
        << "the base after " << in_place.position << " tokens";
    if (resumed.size() == 4) continue;
    resumed.push_back(run->Resume(0, 16 * (i + 1), bases[i], std::move(tables[i])));
    all.push_back(&resumed.back());
  }
  Finish(*run, all);
}

void DeviceMixerSuite::Check(const char* name, const std::function<void()>& check) {
  SCOPED_TRACE(name);
  differs_ = false;
  if (!HasFatalFailure()) check();
}

TEST_P(DeviceMixerSuite, NumbersAndBits) {
  Check("definition", [this] { CheckDefinition(); });
  Check("cuts", [this] { CheckCuts(); });
  Check("neighbours", [this] { CheckNeighbours(); });
  const size_t most = GetParam().gpu ? kFew : 3;
  for (size_t count = 1; count <= most; ++count) {
    Check("few segments of one token", [this, count] { CheckSingles(count); });
  }
  if (GetParam().gpu) Check("some segments of one token", [this] { CheckSingles(kSome); });
  Check("forks", [this] { CheckForks(); });
  Check("rewind", [this] { CheckRewind(); });
  Check("bases of folds", [this] { CheckFoldBases(); });
  // Kernels for many segments are those of bf16 products, and others for all cases.
  const bool many = GetParam().precision == ProductPrecision::kBFloat16 || GetParam().of.everywhere;
  if (!GetParam().gpu || !GetParam().of.many || !many) return;
  Check("many segments of one token", [this] { CheckManySingles(); });
}

}  // namespace rivulet
