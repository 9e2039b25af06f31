// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A Device on the host, for tests of everything above it on machines without a GPU: each operation
// is written down plainly, a token after the other, in fp32. It is the definition that the kernels
// are compared with, and it is slow.
//
// Operations run when they are called, and those of a recording when it is replayed; or all of them
// as late as a GPU may run them (`late`).
#ifndef RIVULET_KERNELS_DEVICE_FAKE_DEVICE_H_
#define RIVULET_KERNELS_DEVICE_FAKE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device/device.h"

namespace rivulet {

class FakeDevice final : public Device {
 public:
  std::string name() const override { return "fake"; }
  size_t free_bytes() const override { return memory_bytes - allocated_; }
  size_t allocated_bytes() const override { return allocated_; }
  ProductPrecision precision() const override { return ProductPrecision::kFloat32; }

  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* memory) override;
  void* AllocatePinned(size_t bytes) override { return NewMemory(bytes); }
  void FreePinned(void* memory) override;
  void CopyToDevice(void* to, const void* from, size_t bytes) override { Copy(to, from, bytes); }
  void CopyToHost(void* to, const void* from, size_t bytes) override { Copy(to, from, bytes); }
  void CopyOnDevice(void* to, const void* from, size_t bytes) override { Copy(to, from, bytes); }
  void CopyAhead(void* to, const void* from, size_t bytes) override;
  absl::Status Upload(void* to, const void* from, size_t bytes) override;
  const float* Constant(std::span<const float> numbers) override {
    return numbers.empty() ? nullptr : numbers.data();
  }
  absl::StatusOr<DeviceLinear> Pack(const std::vector<LinearSource>& sources,
                                    size_t inputs) override;
  absl::StatusOr<DeviceLinear> PackFloat8(const std::vector<LinearSource>& sources,
                                          size_t inputs) override;

  void Record(size_t event) override { events_[event] = called_; }
  absl::Status Wait(size_t event) override;
  double SecondsBetween(size_t /*first*/, size_t /*second*/) override { return 0.001; }
  absl::Status Synchronize() override;
  void BeginRecording() override { recording_ = true; }
  absl::StatusOr<size_t> EndRecording() override;
  void Replay(size_t recording) override;
  DeviceLimits MeasureLimits() override { return {}; }

  void Embed(const DeviceTable& table, const uint32_t* ids, const DeviceRows& rows,
             const uint32_t* last_tokens, FloatMatrix x) override;
  void AddNorm(const AddNormCall& call) override;
  void ScaleOperand(const ScaleOperandCall& call) override;
  void CopyColumns(ConstFloatMatrix x, FloatMatrix y) override;
  void Product(const DeviceLinear& linear, const Operand& x, FloatMatrix y) override;
  // Leaves the values of factors wherever it may.
  bool ScaledProduct(const DeviceLinear& linear, const Operand& x, const RowFactor& factor,
                     bool may_leave, FloatMatrix y) override;
  void AddLate(const AddLateCall& call) override;
  bool AddProduct(const AddProductCall& call) override;  // leaves squares for up to two rows
  void ProductByBlocks(const BlockProductCall& call) override;
  void Prepare(const PrepareCall& call) override;
  void Rotate(const RotateCall& call) override;
  void Recur(const RecurCall& call) override;
  void Attend(const AttendCall& call) override;
  void PoolKeys(const PoolKeysCall& call) override;
  void ChoosePools(const ChoosePoolsCall& call) override;
  void Fenwick(const FenwickCall& call) override;
  void RunSumProgram(const SumProgramCall& call) override;
  void SplitHeads(const SplitHeadsCall& call) override;
  void Features(const FeaturesCall& call) override;
  void Finish(const FinishCall& call) override;
  void GatherRows(const GatherCall& call) override;
  void CapLogits(FloatMatrix logits, float cap) override;
  void SelectiveScan(const SelectiveScanCall& call) override;
  void GatedScan(const GatedScanCall& call) override;
  void Filter(const FilterCall& call) override;
  void ScanModes(const ModeScanCall& call) override;
  void TokenShift(const TokenShiftCall& call) override;
  void MixOwn(const OwnMixturesCall& call) override;
  void TimeMix(const TimeMixCall& call) override;
  void Sample(const SampleCall& call) override;
  void Gate(const GateCall& call) override;
  void CollapseStreams(const CollapseStreamsCall& call) override;
  void ExpandStreams(const ExpandStreamsCall& call) override;
  void NgramRows(const NgramRowsCall& call) override;
  void NgramGate(const NgramGateCall& call) override;
  void Route(const RouteCall& call) override;
  void ExpertProduct(const ExpertProductCall& call) override;
  void CombineExperts(const CombineExpertsCall& call) override;
  void Hash(const HashCall& call) override;
  void Buckets(const BucketsCall& call) override;

  size_t replays() const { return replays_; }
  size_t steps_in_parts() const { return steps_in_parts_; }  // DeviceRows::decodes
  size_t allocations() const { return allocations_; }        // calls of Allocate

  // What products do to their operands first, as a GPU does: nothing, or round them to bf16 or to
  // two bf16 parts. How far the result is from the exact one says what rounding costs a model.
  std::optional<ProductPrecision> rounding;
  size_t memory_bytes = size_t{8} << 30;
  // Operations run when something behind them is waited for or memory is freed, and copies ahead
  // run when they are called. So an operation finds what was written too early, and a copy ahead
  // finds memory that is still in use. To be set before the first operation.
  bool late = false;
  // If set: called by Wait. What it returns stays, as an error of a GPU does.
  std::function<absl::Status()> on_wait;

 private:
  struct FromCalloc {
    void operator()(void* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<void, FromCalloc>;
  void* NewMemory(size_t bytes);
  using Work = std::function<void()>;
  void Do(Work work);
  void RunUntil(uint64_t called);
  void Copy(void* to, const void* from, size_t bytes);

  std::map<void*, Memory> memory_;
  std::deque<Work> waiting_;           // if they run late; the last of `called_`
  uint64_t called_ = 0;                // operations that were to run late
  std::map<size_t, uint64_t> events_;  // how many had been called
  bool recording_ = false;
  std::vector<Work> recorded_;
  std::vector<std::vector<Work>> recordings_;
  size_t replays_ = 0;
  size_t steps_in_parts_ = 0;
  size_t allocations_ = 0;
  size_t allocated_ = 0;
  std::map<void*, size_t> sizes_;  // of what Allocate returned
  absl::Status error_;
};

// One whose operations run late.
std::unique_ptr<FakeDevice> LateFakeDevice();

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_FAKE_DEVICE_H_
