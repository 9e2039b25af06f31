// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A second device for the forward pass: its memory, and the operations that layers are composed of.
// cuda_device.cu implements it for GPUs, fake_device.h on the host for tests. This header has no
// CUDA type, so that layers, the loader and the engine are compiled without the toolkit.
//
// An operation is enqueued and runs later, in the order of the calls. It reads and writes device
// memory only, but for what Sample gives back, which may go to pinned memory of the host; a caller
// that passes other host memory has a bug. Operations do not fail one by one: an error of the
// device is remembered, and Synchronize reports it.
//
// Bits (docs/architecture.md#bit-equality): every product is a chain of k16 steps of bf16 products
// in ascending k with fp32 accumulators, which is one function of its operands, whatever
// instruction, tile, row or neighbour. What is not a product (exp, norms, scans) is written once,
// compiled without contraction, with a fixed order of additions. So a token's numbers depend on its
// own session's tokens alone, and prefill and decode agree bit for bit.
//
// Letters: T tokens, K inputs and N outputs of a linear map, H heads, D key width, E value width;
// Dp and Ep are rounded up to 16.
//
// Threading: one thread.
#ifndef RIVULET_KERNELS_DEVICE_DEVICE_H_
#define RIVULET_KERNELS_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"
#include "kernels/base/linear_source.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

// The arguments of operations: device_operations.h.
struct RowFactor;
struct AddLateCall;
struct AddProductCall;
struct ProjectionCall;
struct AddNormCall;
struct ScaleOperandCall;
struct BlockProductCall;
struct PrepareCall;
struct RotateCall;
struct RecurCall;
struct AttendCall;  // softmax_operations.h
// pool_operations.h
struct PoolKeysCall;
struct ChoosePoolsCall;
struct FenwickCall;  // fenwick_operations.h
struct FinishCall;
struct GatherCall;
// features_operations.h.
struct SplitHeadsCall;
struct FeaturesCall;
// running_state_operations.h
struct SelectiveScanCall;
struct GatedScanCall;
struct FilterCall;
struct ModeScanCall;
// rwkv_operations.h
struct TokenShiftCall;
struct OwnMixturesCall;
struct TimeMixCall;
struct SampleCall;  // sampling_operations.h
// sum_program_operations.h.
struct SumProgramCall;
struct GateCall;  // gate_operations.h
// ngram_operations.h
struct NgramRowsCall;
struct NgramGateCall;
// stream_operations.h
struct CollapseStreamsCall;
struct ExpandStreamsCall;
// experts_operations.h
struct RouteCall;
struct ExpertProductCall;
struct CombineExpertsCall;
// buckets_operations.h
struct HashCall;
struct BucketsCall;

// How exact products are.
enum class ProductPrecision : uint8_t {
  kBFloat16,  // operands are rounded to bf16
  kFloat32,   // operands are split into two bf16 parts; about 16 bits of mantissa, three times the
              // work
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;
  virtual size_t free_bytes() const = 0;
  virtual size_t allocated_bytes() const = 0;  // by Allocate, and not freed
  virtual ProductPrecision precision() const = 0;

  // RESOURCE_EXHAUSTED with what is missing. Freed when the device is destroyed, or by Free.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Memory of the host that the device copies from and to without staging. Null: out of memory.
  virtual void* AllocatePinned(size_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  // In the order of the operations. Host memory must be pinned and must not change before the copy
  // has run.
  virtual void CopyToDevice(void* to, const void* from, size_t bytes) = 0;
  virtual void CopyToHost(void* to, const void* from, size_t bytes) = 0;
  virtual void CopyOnDevice(void* to, const void* from, size_t bytes) = 0;
  // The same for operations after it alone: it may run beside those before, which must not touch
  // `to`.
  virtual void CopyAhead(void* to, const void* from, size_t bytes) = 0;
  // Copies any host memory and waits until it has been read. For loading.
  virtual absl::Status Upload(void* to, const void* from, size_t bytes) = 0;

  // The device's copy of constant numbers. `numbers` must live and keep its contents as long as the
  // device: the copy is made at the first call and found by the address afterwards.
  virtual const float* Constant(std::span<const float> numbers) = 0;

  // Concatenates the sources' outputs as LinearSource and Linear::Pack do.
  virtual absl::StatusOr<DeviceLinear> Pack(const std::vector<LinearSource>& sources,
                                            size_t inputs) = 0;
  // The same with each output's weights rounded to e4m3 times a scale (kernels/base/float8.h). On
  // the GPU products with them need precision() kBFloat16.
  virtual absl::StatusOr<DeviceLinear> PackFloat8(const std::vector<LinearSource>& sources,
                                                  size_t inputs) = 0;

  // A point in the order of the operations. Events are numbered from 0 and are few.
  virtual void Record(size_t event) = 0;
  // Waits for it; the first error of the device since it was opened, if there was one.
  virtual absl::Status Wait(size_t event) = 0;
  // Between two events that have been waited for.
  virtual double SecondsBetween(size_t first, size_t second) = 0;
  virtual absl::Status Synchronize() = 0;

  // Between Begin and End, operations are recorded instead of run. Replay runs a recording.
  virtual void BeginRecording() = 0;
  virtual absl::StatusOr<size_t> EndRecording() = 0;
  virtual void Replay(size_t recording) = 0;

  // For benchmarks.
  virtual DeviceLimits MeasureLimits() = 0;

  // --- operations ------------------------------------------------------------------------------

  // The first operation of a step; it may come again. Those after it may read the step's
  // description, and what earlier steps left in states and pages, before the operations between
  // have ended. So an operation writes only what no later one of the step reads that early.
  virtual void Embed(const DeviceTable& table, const uint32_t* ids, const DeviceRows& rows,
                     const uint32_t* last_tokens, FloatMatrix x) = 0;
  virtual void AddNorm(const AddNormCall& call) = 0;
  virtual void ScaleOperand(const ScaleOperandCall& call) = 0;
  // y [T, N] = x [T, N].
  virtual void CopyColumns(ConstFloatMatrix x, FloatMatrix y) = 0;
  virtual void Product(const DeviceLinear& linear, const Operand& x, FloatMatrix y) = 0;
  // y = factor · x Wᵀ, of a map without a bias, or y = x Wᵀ. False: the latter, with what reads y
  // to multiply by the factor's values; only where it has them and `may_leave` is set. The bits are
  // the same.
  virtual bool ScaledProduct(const DeviceLinear& linear, const Operand& x, const RowFactor& factor,
                             bool may_leave, FloatMatrix y) = 0;
  virtual void AddLate(const AddLateCall& call) = 0;
  // Whether the norm left squares, and not factors. The bits are the same.
  virtual bool AddProduct(const AddProductCall& call) = 0;
  virtual void ProductByBlocks(const BlockProductCall& call) = 0;
  virtual void Prepare(const PrepareCall& call) = 0;
  virtual void Rotate(const RotateCall& call) = 0;
  virtual void Recur(const RecurCall& call) = 0;
  // Both, where `prepare` is of the rows that `recur` reads and nothing else reads them: they may
  // be left unwritten.
  virtual void PrepareAndRecur(const PrepareCall& prepare, const RecurCall& recur) {
    Prepare(prepare);
    Recur(recur);
  }
  // The same behind the product that makes what `prepare` and the gate of `recur` read, and that
  // nothing else reads: its outputs, too, may be left unwritten, or without their factor.
  virtual void ProjectAndRecur(const ProjectionCall& projection, const PrepareCall& prepare,
                               const RecurCall& recur);
  virtual void Attend(const AttendCall& call) = 0;
  virtual void PoolKeys(const PoolKeysCall& call) = 0;
  virtual void ChoosePools(const ChoosePoolsCall& call) = 0;
  virtual void Fenwick(const FenwickCall& call) = 0;
  virtual void RunSumProgram(const SumProgramCall& call) = 0;
  virtual void SplitHeads(const SplitHeadsCall& call) = 0;
  virtual void Features(const FeaturesCall& call) = 0;
  virtual void Finish(const FinishCall& call) = 0;
  virtual void GatherRows(const GatherCall& call) = 0;
  // logits = cap · tanh(logits / cap), in place.
  virtual void CapLogits(FloatMatrix logits, float cap) = 0;
  virtual void SelectiveScan(const SelectiveScanCall& call) = 0;
  virtual void GatedScan(const GatedScanCall& call) = 0;
  virtual void Filter(const FilterCall& call) = 0;
  virtual void ScanModes(const ModeScanCall& call) = 0;
  virtual void TokenShift(const TokenShiftCall& call) = 0;
  virtual void MixOwn(const OwnMixturesCall& call) = 0;
  virtual void TimeMix(const TimeMixCall& call) = 0;
  virtual void Sample(const SampleCall& call) = 0;
  virtual void Gate(const GateCall& call) = 0;
  virtual void CollapseStreams(const CollapseStreamsCall& call) = 0;
  virtual void ExpandStreams(const ExpandStreamsCall& call) = 0;
  virtual void NgramRows(const NgramRowsCall& call) = 0;
  virtual void NgramGate(const NgramGateCall& call) = 0;
  virtual void Route(const RouteCall& call) = 0;
  virtual void ExpertProduct(const ExpertProductCall& call) = 0;
  virtual void CombineExperts(const CombineExpertsCall& call) = 0;
  virtual void Hash(const HashCall& call) = 0;
  virtual void Buckets(const BucketsCall& call) = 0;
};

// Opens device 0. FAILED_PRECONDITION in a build without CUDA, without a GPU, and for a GPU that is
// not of the Hopper generation.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(ProductPrecision precision);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_DEVICE_H_
