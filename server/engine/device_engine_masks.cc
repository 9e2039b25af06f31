// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What rows with a grammar draw from. The step is launched without their draws. While the device
// runs it, the host finds their masks; these follow with the draws in a second copy. Rows whose
// texts are at the same place of a grammar share a mask.
#include <new>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "kernels/base/check.h"
#include "server/engine/device_engine_class.h"

namespace rivulet {

// Calls `work`(i), which returns a status, for each i below the size of `statuses` in any thread,
// and notes what fails.
template <typename Work>
static void InParallel(ThreadPool& threads, std::vector<absl::Status>& statuses, Work&& work) {
  threads.ParallelFor(statuses.size(), [&](size_t i) {
    try {
      statuses[i] = work(i);
    } catch (const std::bad_alloc&) {  // no exception may leave a task of the pool
      statuses[i] = NoMemory("while sampling");
    }
  });
}

// Finds what may come at the step's confined draws, and gives each a mask.
std::vector<absl::Status> DeviceEngine::AddMasks(const StepPlan& plan,
                                                 std::span<const Place> places,
                                                 StepDescription& here) {
  std::vector<ConfinedDraw>& confined = current().confined;
  RIVULET_CHECK(confined.size() <= kMostMasks, "more masks than a description has room for");
  std::vector<RowMask> found(confined.size());
  std::vector<absl::Status> statuses(confined.size());
  InParallel(threads_, statuses, [&](size_t k) {
    absl::StatusOr<RowMask> mask = FindMask(plan, places[confined[k].index]);
    if (mask.ok()) found[k] = *std::move(mask);
    return mask.status();
  });
  const size_t words = MaskWords(vocab_);
  absl::flat_hash_map<RowMask, size_t> number_of;
  std::vector<size_t> numbers(confined.size());
  std::vector<size_t> owners;  // the first draw that has it, of each mask
  for (size_t k = 0; k < confined.size(); ++k) {
    if (!statuses[k].ok()) continue;
    const auto [entry, is_new] = number_of.try_emplace(found[k], owners.size());
    numbers[k] = entry->second;
    if (is_new) {
      owners.push_back(k);
      here.AddMask(confined[k].draw, words);
    }
    confined[k].draw.mask = confined[owners[entry->second]].draw.mask;
  }
  std::vector<absl::Status> written(owners.size());
  InParallel(threads_, written, [&](size_t i) {
    const size_t k = owners[i];
    return WriteMask(found[k], vocab_, here.MaskOf(confined[k].draw, words));
  });
  for (size_t k = 0; k < confined.size(); ++k) {
    if (statuses[k].ok()) statuses[k] = written[numbers[k]];
  }
  return statuses;
}

// Puts the confined draws among `draws`, which are of all places. Where it cannot be said what may
// come, nothing is drawn.
void DeviceEngine::AddConfinedDraws(const StepPlan& plan, std::span<const Place> places,
                                    SampleRow* draws, StepDescription& here) {
  Step& step = current();
  if (step.confined.empty()) return;
  const std::vector<absl::Status> statuses = AddMasks(plan, places, here);
  for (size_t k = 0; k < statuses.size(); ++k) {
    const auto& [index, draw] = step.confined[k];
    const Place& place = places[index];
    draws[index] = draw;
    if (!statuses[k].ok()) {
      const uint64_t position = PositionOf(plan.rows[place.row], place);
      NoteFailure(At(statuses[k], place, position), place, step.result.rows[place.row]);
      draws[index].samples = 0;
      draws[index].mask = kNoMask;
    }
    ExpectAnswer(plan, place, index, draws[index], here);
  }
}

// REQUIRES: `here` is on the device or on its way there, and `logits` are or will be the places'.
void DeviceEngine::DrawLate(const StepPlan& plan, std::span<const Place> places, FloatMatrix logits,
                            StepDescription& here) {
  if (current().confined.empty() || !DrawsLate(places)) return;
  const size_t begin = here.LateBegin();
  AddConfinedDraws(plan, places, here.AddLateDraws(), here);
  const Buffers& buffers = current().buffers;
  // What is in flight does not look behind the rest of the description.
  device_->CopyAhead(buffers.there + begin, buffers.here + begin, here.bytes() - begin);
  const StepDescription there(buffers.there, ExtentsOf(0, 0));
  const auto* const draws = reinterpret_cast<const SampleRow*>(buffers.there + begin);
  EnqueueSampling(logits, draws, there, 0, buffers);
}

}  // namespace rivulet
