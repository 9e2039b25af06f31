// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine of device_engine.h. Private to this folder: device_engine.cc runs its steps,
// device_engine_masks.cc says what rows with a grammar draw from, device_engine_guesses.cc guesses,
// device_engine_start.cc starts it.
//
// Threading: as Engine.
#ifndef RIVULET_SERVER_ENGINE_DEVICE_ENGINE_CLASS_H_
#define RIVULET_SERVER_ENGINE_DEVICE_ENGINE_CLASS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "kernels/base/thread_pool.h"
#include "kernels/device/sampling_operations.h"
#include "server/engine/device_engine.h"
#include "server/engine/device_model.h"
#include "server/engine/device_predictor.h"
#include "server/engine/device_states.h"
#include "server/engine/row_answers.h"
#include "server/engine/step_description.h"
#include "server/engine/step_draws.h"
#include "server/engine/step_times.h"

namespace rivulet {

class DeviceEngine final : public Engine {
 public:
  DeviceEngine(std::shared_ptr<const LoadedModel> model, Device* device, size_t threads,
               size_t depth)
      : loaded_(std::move(model)),
        device_(device),
        depth_(depth),
        threads_(threads),
        vocab_(static_cast<uint32_t>(loaded_->spec.vocab)),
        edit_writer_(vocab_) {}
  ~DeviceEngine() override { Release(); }

  absl::Status Start(const EngineOptions& options);
  // What Restart opens, and what it opened last.
  void Own(std::unique_ptr<Device> device, DeviceOpener open) {
    owned_device_ = std::move(device);
    open_ = std::move(open);
  }

  StepTicket Launch(const StepPlan& plan) override;
  StepResult Await(StepTicket ticket) override;
  bool SleepTowardsEnd(StepTicket ticket, std::chrono::nanoseconds before) override;
  size_t depth() const override { return depth_; }
  bool guesses() const override { return predictor_ != nullptr; }
  GuessResult Guess(const GuessPlan& plan) override;
  absl::Status failure() const override { return failure_; }
  absl::Status Restart() override;
  DeviceMemory memory() const override { return memory_; }
  StatePool& states() const override { return *states_; }
  uint32_t vocab_size() const override { return vocab_; }

 private:
  // Rows of logits on the device at a time.
  static constexpr size_t kLogitRows = 256;
  // The rows of a step of decode rows that recordings are made for.
  static constexpr std::array<uint32_t, 18> kRecordedRows = {
      1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512, 768, 1024};
  // And the tokens of other small steps: with drafts, with the ends of prompts.
  static constexpr std::array<uint32_t, 13> kRecordedTokens = {2,  4,  6,  8,  12, 16, 24,
                                                               32, 48, 64, 80, 96, 128};
  // From so many rows of one token on, a step with other rows runs them separately
  // (DeviceRows::decodes), without a recording. Fewer rows run faster together with the others
  // (docs/gpu_notes.md#beside-prompts).
  static constexpr uint32_t kLeastApart = 96;
  // Tokens of one pass through the model: at least a segment. Larger steps take several.
  static constexpr size_t kMostTokens = kLongestSegment;
  static constexpr size_t kMostPlaces = 2 * kMostTokens;
  // Edits of logits in a step, of 16 bytes: penalties touch every token of a history.
  static constexpr size_t kMostEdits = size_t{1} << 19;
  // Masks of tokens in a pass: each token may have a sample, and each sample a mask.
  static constexpr size_t kMostMasks = kMostTokens;
  // The rows that guess together, which recordings are made for.
  static constexpr std::array<uint32_t, 8> kGuessRows = {1, 2, 4, 8, 16, 32, 64, 128};
  // Most steps that may be launched and not awaited. Each has its own buffers, events and
  // recordings.
  static constexpr size_t kMostDepth = 2;
  // Of the device's memory: recordings, the library's workspaces and the context grow a little.
  static constexpr uint64_t kLeftFree = uint64_t{768} << 20;

  // A step of decode rows with its draws, or what a step of `tokens` tokens of as many segments
  // does before its logits.
  struct Recording {
    uint32_t tokens = 0;
    bool decodes = false;
    bool head_follows = false;
    size_t number = 0;                     // of the device
    DeviceModel::Stream stream = {};       // of the last layer
    DeviceWorkspace::Mark workspace = {};  // after it
  };

  // What a step, or the guesses of some rows, and the device tell each other. Nothing that may be
  // in flight shares one with something else, so a step's description is copied while the step
  // before runs.
  struct Buffers {
    std::byte* here = nullptr;   // the description, pinned
    std::byte* there = nullptr;  // on the device
    // Pinned. The device writes them where they are.
    SampleResult* results = nullptr;    // [places]
    LogprobResult* logprobs = nullptr;  // [places]
  };

  // Passes of the predictor, by how many are before them.
  struct GuessRecording {
    uint32_t rows = 0;
    std::array<size_t, kMostGuesses> passes = {};  // numbers of the device
  };

  // A draw of a row with a grammar.
  struct ConfinedDraw {
    size_t index = 0;  // of its place among those of the step
    SampleRow draw;
  };

  // A place for a step that is launched and not awaited, with what steps there use one after the
  // other.
  struct Step {
    StepResult result;
    std::vector<bool> on_host;           // rows that the host samples
    bool waits_for_host = false;         // some place is such a row's
    std::vector<PendingAnswer> pending;  // what is in results[] once the step has run
    std::vector<ConfinedDraw> confined;
    std::vector<uint32_t> tails;   // of the rows
    std::vector<size_t> promised;  // rows that began with kLastSampled
    bool known = false;            // the samples are in `result`
    bool timed = false;            // so are the seconds
    bool head_follows = false;     // the predictor runs in it
    const Recording* recording = nullptr;
    StepTimes::Clock::time_point begun;  // when its launch was complete; another may run before it
    size_t begin_event = 0, end_event = 0;
    Buffers buffers;
    std::vector<Recording> recordings;  // with these buffers, of each sort, the smallest first
  };

  Step& StepOf(StepTicket ticket) { return steps_[ticket % depth_]; }
  // The one that is being launched.
  Step& current() { return StepOf(launched_ + 1); }
  void RunPass(const StepPlan& plan);
  bool HeadFollows(const StepPlan& plan) const;
  absl::Status Finish(Step& step);
  absl::Status WaitFor(const Step& step);
  size_t KindOf(const Step& step) const;  // for times_; REQUIRES: it was recorded
  void LearnTime(Step& step);
  void TakeSamples(Step& step);
  void KeepPromises(StepPlan& plan, std::deque<TokenCounts>& counts);
  absl::Status MakeModel();
  StateCapacity StateSizes() const;
  absl::Status Prepare();
  absl::Status PrepareDescriptions(size_t page_slots);
  absl::Status PrepareDescription(size_t bytes, Buffers& buffers);
  absl::Status PrepareResults(Buffers& buffers);
  absl::InlinedVector<Buffers*, kMostDepth + 1> UsedBuffers();
  absl::Status MakeStates(const EngineOptions& options);
  absl::Status FinishStart();
  size_t AllPageSlots() const;
  void Release();
  absl::Status Record();
  absl::Status RecordSteps(bool head_follows, Step& step);
  absl::Status Record(Recording recording, Step& step);
  absl::Status RecordGuesses(uint32_t rows);
  static void ClearRows(const StepDescription& here, size_t rows, size_t places);
  StepDescription DescribeEmptyRows(uint32_t rows, uint32_t passes, const Buffers& buffers);
  DeviceModel::Stream RunDecodeRows(const StepDescription& there, uint32_t rows, bool head_follows,
                                    const Buffers& buffers);
  DeviceModel::Stream RunTokens(const StepDescription& there, uint32_t tokens, bool head_follows);
  void EnqueueAnswers(const DeviceModel::Stream& stream, const StepDescription& there, size_t begin,
                      FloatMatrix logits, const Buffers& buffers);
  absl::Status WarmUp();
  absl::Status WarmUpPrompt(uint32_t tokens);
  absl::Status WarmUpGuesses(uint32_t rows);
  absl::Status AwaitWarmUp();
  void RunInParts(const StepPlan& plan);
  void Run(const StepPlan& plan);
  void SendDescription(const StepPlan& plan, std::span<const Place> places, StepDescription& here);
  void RunDecodes(const StepPlan& plan, std::span<const Place> places, const Recording& recording,
                  StepDescription& here);
  void RunRecorded(const StepPlan& plan, std::span<const Place> places, const Recording& recording,
                   StepDescription& here);
  void RunPlain(const StepPlan& plan, std::span<const Place> places, uint32_t singles,
                StepDescription& here);
  void Answer(const StepPlan& plan, std::span<const Place> places,
              const DeviceModel::Stream& stream, StepDescription& here,
              const StepDescription& there);
  StepDescription::Extents ExtentsOf(size_t tokens, size_t segments) const {
    return {tokens, segments, tokens, capacity().pages.size()};
  }
  StepDescription::Extents ExtentsOf(const StepPlan& plan) const;
  StepDescription Describe(const StepPlan& plan, const Recording* recording, uint32_t singles);
  static uint32_t LeadingSingles(const StepPlan& plan);
  DeviceRows PlainRows(const StepPlan& plan, const StepDescription& there, uint32_t singles) const;
  DeviceRows RowsOf(const StepDescription& there, uint32_t tokens, uint32_t segments,
                    bool single) const;
  DeviceModel::Stream Forward(const StepDescription& there, const DeviceRows& rows,
                              bool head_follows);
  std::array<DevicePages, kMaxPageKinds> PagesOf(const StepDescription& there) const;
  std::vector<size_t> RowsToGuess(const GuessPlan& plan) const;
  size_t GuessRowsThatFit(const GuessPlan& plan, std::span<const size_t> rows) const;
  absl::Status GuessTogether(const GuessPlan& plan, std::span<const size_t> rows,
                             GuessResult& result);
  const GuessRecording& GuessRecordingFor(size_t rows) const;
  StepDescription::Extents GuessExtents(size_t rows) const {
    return ExtentsOf(rows * kMostGuesses, rows * kMostGuesses);
  }
  void DescribeGuesses(const GuessPlan& plan, std::span<const size_t> rows, size_t room,
                       StepDescription& here);
  void EnqueueGuesses(const StepDescription& there, uint32_t rows, size_t pass);
  size_t PageSlots(const Segment& segment) const;
  size_t PageSlots(const StepPlan& plan) const;
  void AddDraws(const StepPlan& plan, std::span<const Place> places, StepDescription& here);
  // Whether confined rows are drawn by themselves, behind the rest of the step. Their logits have
  // to be there until then.
  static bool DrawsLate(std::span<const Place> places) { return places.size() <= kLogitRows; }
  void AddConfinedDraws(const StepPlan& plan, std::span<const Place> places, SampleRow* draws,
                        StepDescription& here);
  std::vector<absl::Status> AddMasks(const StepPlan& plan, std::span<const Place> places,
                                     StepDescription& here);
  void DrawLate(const StepPlan& plan, std::span<const Place> places, FloatMatrix logits,
                StepDescription& here);
  void ExpectAnswer(const StepPlan& plan, Place place, size_t index, SampleRow& draw,
                    const StepDescription& here);
  void EnqueueSampling(FloatMatrix logits, const SampleRow* draws, const StepDescription& there,
                       size_t first, const Buffers& buffers);
  void AnswerOnHost(const StepPlan& plan, std::span<const Place> places, FloatMatrix logits);
  // What everything ends with once the device has failed.
  static absl::Status Failed(const absl::Status& status);
  static void FailRows(Step& step, const absl::Status& status);
  static void NoteTails(const StepPlan& plan, Step& step);
  void GiveUp(const StepPlan& plan, Step& step);
  const Recording* RecordingFor(const StepPlan& plan, uint32_t singles);
  bool IsDecode(const StepPlan& plan);
  static bool HasLongSegments(const StepPlan& plan);

  DeviceOpener open_;  // null: cannot restart
  std::unique_ptr<Device> owned_device_;
  std::shared_ptr<const LoadedModel> loaded_;
  Device* device_;
  const size_t depth_;
  ThreadPool threads_;
  const uint32_t vocab_;
  EditWriter edit_writer_;
  std::unique_ptr<DeviceModel> model_;
  std::unique_ptr<DevicePredictor> predictor_;  // null: the model has none
  DeviceStateMemory* state_memory_ = nullptr;   // of states_
  std::unique_ptr<StatePool> states_;
  absl::Status failure_;
  DeviceMemory memory_;

  size_t page_slots_ = 0;                         // that a description has room for
  uint32_t* last_tokens_ = nullptr;               // [tail slots]
  uint32_t* last_guesses_ = nullptr;              // [tail slots]; null: the model has no predictor
  float* logits_ = nullptr;                       // [kLogitRows, vocab], device
  float* logits_host_ = nullptr;                  // the same, pinned
  std::vector<GuessRecording> guess_recordings_;  // the smallest first
  Buffers guess_buffers_;                         // none where the model has no predictor

  // With the predictor and without.
  StepTimes times_{2 * (kRecordedRows.size() + kRecordedTokens.size())};
  StepTimes::Clock::time_point last_end_;  // when the end of a step was known last
  Step steps_[kMostDepth];
  StepTicket launched_ = 0, awaited_ = 0;
  std::vector<uint32_t> last_sampled_;          // [tail slots]: by steps whose samples are known
  absl::flat_hash_set<uint32_t> failed_tails_;  // of the step that was awaited last
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_DEVICE_ENGINE_CLASS_H_
