// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How a device's engine starts, and starts again: everything is allocated here.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/device/device_operations.h"
#include "server/engine/device_engine_class.h"

namespace rivulet {
namespace {

absl::Status NoPinnedMemory(size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the host has no ", bytes, " bytes that can be pinned"));
}

template <typename T>
absl::Status Pin(Device& device, size_t bytes, T*& memory) {
  memory = static_cast<T*>(device.AllocatePinned(bytes));
  return memory == nullptr ? NoPinnedMemory(bytes) : absl::OkStatus();
}

}  // namespace

// Gives back what belongs to the device, which may have failed.
void DeviceEngine::Release() {
  if (device_ == nullptr) return;
  device_->Synchronize().IgnoreError();
  const auto free = [this](auto*& memory) {
    if (memory != nullptr) device_->FreePinned(memory);
    memory = nullptr;
  };
  free(logits_host_);
  for (Buffers* const buffers : UsedBuffers()) {
    free(buffers->here);
    free(buffers->results);
    free(buffers->logprobs);
    buffers->there = nullptr;
  }
  predictor_.reset();
  model_.reset();
  last_tokens_ = last_guesses_ = nullptr;
  logits_ = nullptr;
  for (Step& step : steps_) {
    step.recording = nullptr;
    step.recordings.clear();
  }
  guess_recordings_.clear();
}

absl::Status DeviceEngine::Start(const EngineOptions& options) {
  RIVULET_CHECK(depth_ == 1 || depth_ == kMostDepth, "an engine runs one step ahead at most");
  RIVULET_RETURN_IF_ERROR(NoRoomFor("embeddings", MakeModel()));
  auto small = SmallPool(StateSizes(), options.state_context, device_, state_memory_);
  RIVULET_RETURN_IF_ERROR(NoRoomFor("the states of a session", small.status()));
  states_ = *std::move(small);
  RIVULET_RETURN_IF_ERROR(NoRoomFor("the buffers of steps", Prepare()));
  // With the states: what temporaries take is not known before.
  RIVULET_RETURN_IF_ERROR(NoRoomFor("the temporaries of steps", WarmUp()));
  state_memory_->Free();
  RIVULET_RETURN_IF_ERROR(MakeStates(options));
  last_sampled_.resize(capacity().tail_slots);
  return NoRoomFor("the recordings of steps", FinishStart());
}

absl::Status DeviceEngine::Restart() {
  if (open_ == nullptr) return failure_;
  const std::string files_key = loaded_->files_key;
  Release();
  loaded_.reset();
  device_ = nullptr;
  owned_device_.reset();
  RIVULET_ASSIGN_OR_RETURN(DeviceAndModel opened, open_());
  owned_device_ = std::move(opened.device);
  device_ = owned_device_.get();
  loaded_ = std::move(opened.model);
  // State slots, tokenizer and name of this process are those of the files as they were.
  if (loaded_->files_key != files_key) {
    return absl::FailedPreconditionError("the model's files have changed since the server started");
  }
  RIVULET_RETURN_IF_ERROR(MakeModel());
  RIVULET_RETURN_IF_ERROR(Prepare());
  RIVULET_RETURN_IF_ERROR(NoRoomFor("session states", state_memory_->MoveTo(device_)));
  RIVULET_RETURN_IF_ERROR(WarmUp());
  RIVULET_RETURN_IF_ERROR(FinishStart());
  failure_ = absl::OkStatus();
  return failure_;
}

absl::Status DeviceEngine::MakeModel() {
  RIVULET_ASSIGN_OR_RETURN(model_, DeviceModel::Make(loaded_, device_));
  if (loaded_->predictor != nullptr) {
    predictor_ = std::make_unique<DevicePredictor>(*model_, device_);
  }
  memory_ = {.weights = device_->allocated_bytes()};
  return absl::OkStatus();
}

// Of the model's layers, and behind them of its predictor.
StateCapacity DeviceEngine::StateSizes() const {
  std::vector<const StateLayout*> layouts = model_->StateLayouts();
  if (predictor_ != nullptr) {
    for (const StateLayout* layout : predictor_->StateLayouts()) layouts.push_back(layout);
  }
  return AddUpLayouts(layouts);
}

// Splits what is left, or --state-memory, into slots.
absl::Status DeviceEngine::MakeStates(const EngineOptions& options) {
  uint64_t bytes = options.state_memory;
  const uint64_t free = device_->free_bytes();
  if (bytes == 0) bytes = free > kLeftFree ? free - kLeftFree : 0;
  auto memory = std::make_unique<DeviceStateMemory>(device_);
  state_memory_ = memory.get();
  auto states = StatePool::Make(StateSizes(), bytes, options.state_context, std::move(memory));
  if (!states.ok() && options.state_memory == 0 && absl::IsResourceExhausted(states.status())) {
    return NoRoomForStates(*device_, memory_.weights, bytes, kLeftFree, options.state_context,
                           states.status());
  }
  RIVULET_RETURN_IF_ERROR(NoRoomFor("session states", states.status()));
  states_ = *std::move(states);
  return absl::OkStatus();
}

// What needs the slots.
absl::Status DeviceEngine::FinishStart() {
  RIVULET_RETURN_IF_ERROR(PrepareDescriptions(AllPageSlots()));
  RIVULET_ASSIGN_OR_RETURN(void* last, device_->Allocate(capacity().tail_slots * sizeof(uint32_t)));
  last_tokens_ = static_cast<uint32_t*>(last);
  if (predictor_ != nullptr) {
    RIVULET_ASSIGN_OR_RETURN(void* guesses,
                             device_->Allocate(capacity().tail_slots * sizeof(uint32_t)));
    last_guesses_ = static_cast<uint32_t*>(guesses);
  }
  RIVULET_RETURN_IF_ERROR(Record());
  memory_.bases = capacity().base_slots * capacity().base_bytes;
  memory_.tails = capacity().tail_slots * capacity().tail_bytes;
  for (const PageCapacity& pages : capacity().pages)
    memory_.pages += pages.slots * pages.page_bytes;
  const uint64_t known = memory_.weights + memory_.bases + memory_.tails + memory_.pages;
  memory_.temporaries = device_->allocated_bytes() - known;
  memory_.free = device_->free_bytes();
  return absl::OkStatus();
}

// The most entries of page tables that a pass may have.
size_t DeviceEngine::AllPageSlots() const {
  size_t count = 0;
  for (const PageCapacity& pages : capacity().pages) {
    // Fenwick: a table for each segment and one for each fold. Appended: every slot once; sessions
    // that share pages may need more, then a step takes several passes.
    count += pages.kind.fenwick() ? (kMostTokens + kMostTokens / pages.kind.fold_interval + 1) *
                                        size_t{2} * pages.kind.levels
                                  : size_t{2} * pages.slots + kMostTokens;
  }
  return count;
}

// Descriptions of steps with `page_slots` entries of page tables, in the place of smaller ones.
absl::Status DeviceEngine::PrepareDescriptions(size_t page_slots) {
  page_slots_ = page_slots;
  StepDescription::Extents extents = ExtentsOf(kMostPlaces, kMostPlaces);
  extents.fold_bases = true;
  for (Buffers* const buffers : UsedBuffers()) {
    const bool masks = buffers != &guess_buffers_;  // guesses have none
    const size_t bytes = StepDescription::Bytes(extents, page_slots_, kMostEdits,
                                                masks ? kMostMasks * MaskWords(vocab_) : 0);
    RIVULET_RETURN_IF_ERROR(PrepareDescription(bytes, *buffers));
  }
  return absl::OkStatus();
}

absl::Status DeviceEngine::PrepareDescription(size_t bytes, Buffers& buffers) {
  if (buffers.here != nullptr) device_->FreePinned(buffers.here);
  RIVULET_RETURN_IF_ERROR(Pin(*device_, bytes, buffers.here));
  if (buffers.there != nullptr) device_->Free(buffers.there);
  buffers.there = nullptr;
  RIVULET_ASSIGN_OR_RETURN(void* there, device_->Allocate(bytes));
  buffers.there = static_cast<std::byte*>(there);
  return absl::OkStatus();
}

absl::Status DeviceEngine::PrepareResults(Buffers& buffers) {
  RIVULET_RETURN_IF_ERROR(Pin(*device_, kMostPlaces * sizeof(SampleResult), buffers.results));
  return Pin(*device_, kMostPlaces * sizeof(LogprobResult), buffers.logprobs);
}

absl::InlinedVector<DeviceEngine::Buffers*, DeviceEngine::kMostDepth + 1>
DeviceEngine::UsedBuffers() {
  absl::InlinedVector<Buffers*, kMostDepth + 1> all;
  for (size_t i = 0; i < depth_; ++i) all.push_back(&steps_[i].buffers);
  if (loaded_ != nullptr && loaded_->predictor != nullptr) all.push_back(&guess_buffers_);
  return all;
}

// The buffers of a step.
absl::Status DeviceEngine::Prepare() {
  RIVULET_CHECK(capacity().pages.size() <= kMaxPageKinds, "too many kinds of pages");
  RIVULET_RETURN_IF_ERROR(PrepareDescriptions(0));
  for (size_t i = 0; i < depth_; ++i) {
    steps_[i].begin_event = 2 * i;
    steps_[i].end_event = 2 * i + 1;
  }
  for (Buffers* const buffers : UsedBuffers()) RIVULET_RETURN_IF_ERROR(PrepareResults(*buffers));
  const size_t logit_bytes = kLogitRows * loaded_->spec.vocab * sizeof(float);
  RIVULET_RETURN_IF_ERROR(Pin(*device_, logit_bytes, logits_host_));
  RIVULET_ASSIGN_OR_RETURN(void* logits, device_->Allocate(logit_bytes));
  logits_ = static_cast<float*>(logits);
  return absl::OkStatus();
}

// Rows without tokens at all places, those of a row `rows` apart.
void DeviceEngine::ClearRows(const StepDescription& here, size_t rows, size_t places) {
  std::memset(here.segments(), 0, here.bytes());
  for (size_t i = 0; i < places; ++i) {
    here.segment_of()[i] = static_cast<uint32_t>(i % rows);
    here.place_tokens()[i] = static_cast<uint32_t>(i);
    here.draws()[i] = {};
  }
}

// Describes `rows` decode rows without sessions, on the device; for so many passes.
StepDescription DeviceEngine::DescribeEmptyRows(uint32_t rows, uint32_t passes,
                                                const Buffers& buffers) {
  const size_t places = size_t{rows} * passes;
  const StepDescription here(buffers.here, ExtentsOf(places, places));
  ClearRows(here, rows, places);
  device_->CopyToDevice(buffers.there, buffers.here, here.bytes());
  return {buffers.there, ExtentsOf(places, places)};
}

DeviceModel::Stream DeviceEngine::RunDecodeRows(const StepDescription& there, uint32_t rows,
                                                bool head_follows, const Buffers& buffers) {
  model_->Reset();
  const DeviceModel::Stream stream = Forward(there, RowsOf(there, rows, rows, true), head_follows);
  if (rows <= kLogitRows) {
    const FloatMatrix logits{logits_, rows, model_->vocab(), model_->vocab()};
    model_->Logits(stream, logits);
    EnqueueSampling(logits, there.draws(), there, 0, buffers);
    return stream;
  }
  model_->AddUp(stream);
  for (size_t begin = 0; begin < rows; begin += kLogitRows) {
    const size_t count = std::min(kLogitRows, rows - begin);
    EnqueueAnswers(stream, there, begin, {logits_, count, model_->vocab(), model_->vocab()},
                   buffers);
  }
  return stream;
}

// Everything before the logits, for segments of any length with `tokens` tokens in all.
DeviceModel::Stream DeviceEngine::RunTokens(const StepDescription& there, uint32_t tokens,
                                            bool head_follows) {
  model_->Reset();
  const DeviceModel::Stream stream =
      Forward(there, RowsOf(there, tokens, tokens, false), head_follows);
  model_->AddUp(stream);
  return stream;
}

// A recording holds addresses of temporaries and uses products that were chosen before: WarmUp has
// run the same. Few decode rows come last: their products bring weights of the next product into
// L2, which the device knows from the step before.
absl::Status DeviceEngine::Record() {
  for (size_t i = kGuessRows.size(); predictor_ != nullptr && i-- > 0;) {
    RIVULET_RETURN_IF_ERROR(RecordGuesses(kGuessRows[i]));
  }
  std::reverse(guess_recordings_.begin(), guess_recordings_.end());
  for (size_t i = 0; i < depth_; ++i) {
    Step& step = steps_[i];
    if (predictor_ != nullptr) RIVULET_RETURN_IF_ERROR(RecordSteps(/*head_follows=*/true, step));
    RIVULET_RETURN_IF_ERROR(RecordSteps(/*head_follows=*/false, step));
    std::reverse(step.recordings.begin(), step.recordings.end());
  }
  return absl::OkStatus();
}

absl::Status DeviceEngine::RecordSteps(bool head_follows, Step& step) {
  const auto record = [&](uint32_t tokens, bool decodes) {
    return Record({.tokens = tokens, .decodes = decodes, .head_follows = head_follows}, step);
  };
  for (size_t i = kRecordedTokens.size(); i-- > 0;) {
    RIVULET_RETURN_IF_ERROR(record(kRecordedTokens[i], false));
  }
  for (size_t i = kRecordedRows.size(); i-- > 0;) {
    RIVULET_RETURN_IF_ERROR(record(kRecordedRows[i], true));
  }
  return absl::OkStatus();
}

absl::Status DeviceEngine::Record(Recording recording, Step& step) {
  const StepDescription there = DescribeEmptyRows(recording.tokens, 1, step.buffers);
  RIVULET_RETURN_IF_ERROR(device_->Synchronize());
  device_->BeginRecording();
  recording.stream = recording.decodes ? RunDecodeRows(there, recording.tokens,
                                                       recording.head_follows, step.buffers)
                                       : RunTokens(there, recording.tokens, recording.head_follows);
  recording.workspace = model_->workspace().mark();
  RIVULET_ASSIGN_OR_RETURN(recording.number, device_->EndRecording());
  RIVULET_RETURN_IF_ERROR(model_->status());
  step.recordings.push_back(recording);
  return absl::OkStatus();
}

// Steps without sessions, the largest first: later ones find their temporaries, and the library's
// products are chosen. With the predictor: without it, steps take less and have no other products.
absl::Status DeviceEngine::WarmUp() {
  const bool head_follows = predictor_ != nullptr;
  const Buffers& buffers = steps_[0].buffers;
  for (uint32_t tokens = kMostTokens; tokens >= 64; tokens -= 64) {
    RIVULET_RETURN_IF_ERROR(WarmUpPrompt(tokens));
  }
  for (size_t i = kRecordedRows.size(); i-- > 0;) {
    const uint32_t rows = kRecordedRows[i];
    RunDecodeRows(DescribeEmptyRows(rows, 1, buffers), rows, head_follows, buffers);
    RIVULET_RETURN_IF_ERROR(AwaitWarmUp());
  }
  for (size_t i = kRecordedTokens.size(); i-- > 0;) {
    const uint32_t tokens = kRecordedTokens[i];
    RunTokens(DescribeEmptyRows(tokens, 1, buffers), tokens, head_follows);
    RIVULET_RETURN_IF_ERROR(AwaitWarmUp());
  }
  for (size_t i = kGuessRows.size(); predictor_ != nullptr && i-- > 0;) {
    RIVULET_RETURN_IF_ERROR(WarmUpGuesses(kGuessRows[i]));
  }
  return absl::OkStatus();
}

absl::Status DeviceEngine::WarmUpPrompt(uint32_t tokens) {
  const Buffers& buffers = steps_[0].buffers;
  const StepDescription here(buffers.here, ExtentsOf(tokens, 1));
  std::memset(buffers.here, 0, here.bytes());
  const StepDescription there(buffers.there, ExtentsOf(tokens, 1));
  device_->CopyToDevice(buffers.there, buffers.here, here.bytes());
  model_->Reset();
  model_->AddUp(Forward(there, RowsOf(there, tokens, 1, false), predictor_ != nullptr));
  for (size_t places = 0; places < tokens; places += kLogitRows) {  // as RunPlain takes them
    model_->workspace().Take(kLogitRows, model_->hidden());
    model_->workspace().TakeOperand(kLogitRows, model_->hidden());
  }
  return AwaitWarmUp();
}

// Memory that was missing comes first: operations on what was taken instead may fail, too.
absl::Status DeviceEngine::AwaitWarmUp() {
  RIVULET_RETURN_IF_ERROR(model_->status());
  return device_->Synchronize();
}

absl::StatusOr<std::unique_ptr<Engine>> MakeDeviceEngine(std::shared_ptr<const LoadedModel> model,
                                                         Device* device,
                                                         const EngineOptions& options,
                                                         size_t depth) {
  auto engine = std::make_unique<DeviceEngine>(std::move(model), device, options.threads, depth);
  RIVULET_RETURN_IF_ERROR(engine->Start(options));
  return engine;
}

absl::StatusOr<std::unique_ptr<Engine>> MakeDeviceEngine(const DeviceOpener& open,
                                                         const EngineOptions& options,
                                                         size_t depth) {
  RIVULET_ASSIGN_OR_RETURN(DeviceAndModel opened, open());
  auto engine = std::make_unique<DeviceEngine>(std::move(opened.model), opened.device.get(),
                                               options.threads, depth);
  engine->Own(std::move(opened.device), open);
  RIVULET_RETURN_IF_ERROR(engine->Start(options));
  return engine;
}

}  // namespace rivulet
