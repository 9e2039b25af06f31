// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/float8.h"
#include "kernels/base/status.h"
#include "kernels/base/widen.h"
#include "kernels/device/buckets_operations.h"
#include "kernels/device/device.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/experts_operations.h"
#include "kernels/device/fp8_products.h"
#include "kernels/device/large_products.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/product_outputs.cuh"
#include "kernels/device/sampling_operations.h"
#include "kernels/device/timeline.h"

namespace rivulet {
namespace {

constexpr size_t kEvents = 16;
constexpr uint32_t kInputAlignment = 64;  // of K: a stage of products.cu

absl::Status CudaError(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("CUDA: ", what, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error)));
}

// A row of a source as bf16 high parts and, if wanted, what is left.
void PackRow(const LinearSource& source, size_t row, size_t inputs, uint16_t* high, uint16_t* low) {
  if (source.dtype == DType::kBFloat16 && low == nullptr) {
    std::memcpy(high, static_cast<const std::byte*>(source.data) + row * inputs * 2, inputs * 2);
    return;
  }
  for (size_t i = 0; i < inputs; ++i) {
    const float x =
        NumberAt(static_cast<const std::byte*>(source.data), source.dtype, row * inputs + i);
    high[i] = FloatToBFloat16(x);
    if (low != nullptr) low[i] = FloatToBFloat16(x - BFloat16ToFloat(high[i]));
  }
}

cuda::ProductOutputs OutputsOf(const DeviceLinear& linear, const Operand& x, FloatMatrix y) {
  return {.y = y,
          .bias = linear.bias,
          .scale = linear.scale,
          .rows = x.rows,
          .outputs = linear.outputs,
          .pairs = linear.bias == nullptr && linear.outputs % 2 == 0 && y.stride % 2 == 0 &&
                   reinterpret_cast<uintptr_t>(y.data) % 8 == 0};
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(ProductPrecision precision) : precision_(precision) {
    context_.first_error = &error_;
    context_.overlaps = &overlaps_;
  }
  ~CudaDevice() override;

  absl::Status Open();

  std::string name() const override { return name_; }
  size_t free_bytes() const override;
  size_t allocated_bytes() const override { return allocated_; }
  ProductPrecision precision() const override { return precision_; }

  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* memory) override;
  void* AllocatePinned(size_t bytes) override;
  void FreePinned(void* memory) override { cudaFreeHost(memory); }
  void CopyToDevice(void* to, const void* from, size_t bytes) override {
    context_.Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, context_.stream));
  }
  void CopyToHost(void* to, const void* from, size_t bytes) override {
    context_.Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, context_.stream));
  }
  void CopyOnDevice(void* to, const void* from, size_t bytes) override {
    context_.Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, context_.stream));
  }
  void CopyAhead(void* to, const void* from, size_t bytes) override;
  absl::Status Upload(void* to, const void* from, size_t bytes) override;
  const float* Constant(std::span<const float> numbers) override;
  absl::StatusOr<DeviceLinear> Pack(const std::vector<LinearSource>& sources,
                                    size_t inputs) override;
  absl::StatusOr<DeviceLinear> PackFloat8(const std::vector<LinearSource>& sources,
                                          size_t inputs) override;

  void Record(size_t event) override {
    context_.Check(cudaEventRecord(events_[event], context_.stream));
  }
  absl::Status Wait(size_t event) override;
  double SecondsBetween(size_t first, size_t second) override;
  absl::Status Synchronize() override;

  void BeginRecording() override {
    recording_ = true;
    others_.clear();
    context_.others = &others_;
    context_.Check(cudaStreamBeginCapture(context_.stream, cudaStreamCaptureModeThreadLocal));
  }
  absl::StatusOr<size_t> EndRecording() override;
  void Replay(size_t recording) override {
    context_.Check(cudaGraphLaunch(recordings_[recording], context_.stream));
  }

  DeviceLimits MeasureLimits() override { return cuda::MeasureLimits(context_); }

  void Embed(const DeviceTable& table, const uint32_t* ids, const DeviceRows& rows,
             const uint32_t* last_tokens, FloatMatrix x) override {
    cuda::LaunchEmbed(table, ids, rows, last_tokens, x, context_);
  }
  void AddNorm(const AddNormCall& call) override {
    cuda::LaunchAddNorm(call, NextWeights(call.x.rows), context_);
  }
  void Product(const DeviceLinear& linear, const Operand& x, FloatMatrix y) override {
    if (!FinishedProduct(linear, x, OutputsOf(linear, x, y))) PlainProduct(linear, x, y);
  }
  bool ScaledProduct(const DeviceLinear& linear, const Operand& x, const RowFactor& factor,
                     bool may_leave, FloatMatrix y) override;
  void AddLate(const AddLateCall& call) override {
    cuda::LaunchAddLate(call, NextWeights(call.x.rows), context_);
  }
  bool AddProduct(const AddProductCall& call) override;
  void Prepare(const PrepareCall& call) override {
    cuda::LaunchPrepare(call, fp32_rows(), context_);
  }
  void Rotate(const RotateCall& call) override { cuda::LaunchRotate(call, context_); }
  void Recur(const RecurCall& call) override {
    cuda::LaunchRecur(call, NextWeights(call.rows.tokens), fp32_rows(), context_);
  }
  void PrepareAndRecur(const PrepareCall& prepare, const RecurCall& recur) override {
    cuda::LaunchPrepareAndRecur(prepare, recur, NextWeights(recur.rows.tokens), fp32_rows(),
                                context_);
  }
  void ProjectAndRecur(const ProjectionCall& projection, const PrepareCall& prepare,
                       const RecurCall& recur) override;
  void Attend(const AttendCall& call) override { cuda::LaunchAttend(call, fp32_rows(), context_); }
  void PoolKeys(const PoolKeysCall& call) override { cuda::LaunchPoolKeys(call, context_); }
  void ChoosePools(const ChoosePoolsCall& call) override {
    cuda::LaunchChoosePools(call, context_);
  }
  void Fenwick(const FenwickCall& call) override {
    cuda::LaunchFenwick(call, fp32_rows(), context_);
  }
  void RunSumProgram(const SumProgramCall& call) override {
    cuda::LaunchSumProgram(call, fp32_rows(), context_);
  }
  void ScaleOperand(const ScaleOperandCall& call) override {
    cuda::LaunchScaleOperand(call, context_);
  }
  void CopyColumns(ConstFloatMatrix x, FloatMatrix y) override {
    cuda::LaunchCopyColumns(x, y, context_);
  }
  void CapLogits(FloatMatrix logits, float cap) override {
    cuda::LaunchCapLogits(logits, cap, context_);
  }
  void ProductByBlocks(const BlockProductCall& call) override {
    cuda::LaunchBlockProduct(call, context_);
  }
  void SplitHeads(const SplitHeadsCall& call) override { cuda::LaunchSplitHeads(call, context_); }
  void Features(const FeaturesCall& call) override { cuda::LaunchFeatures(call, context_); }
  void Finish(const FinishCall& call) override {
    cuda::LaunchFinish(call, NextWeights(call.o.rows), context_);
  }
  void GatherRows(const GatherCall& call) override { cuda::LaunchGatherRows(call, context_); }
  void SelectiveScan(const SelectiveScanCall& call) override {
    cuda::LaunchSelectiveScan(call, context_);
  }
  void GatedScan(const GatedScanCall& call) override { cuda::LaunchGatedScan(call, context_); }
  void Filter(const FilterCall& call) override { cuda::LaunchFilter(call, fp32_rows(), context_); }
  void ScanModes(const ModeScanCall& call) override { cuda::LaunchModeScan(call, context_); }
  void TokenShift(const TokenShiftCall& call) override {
    cuda::LaunchTokenShift(call, fp32_rows(), context_);
  }
  void MixOwn(const OwnMixturesCall& call) override { cuda::LaunchOwnMixtures(call, context_); }
  void TimeMix(const TimeMixCall& call) override {
    cuda::LaunchTimeMix(call, fp32_rows(), context_);
  }
  void Sample(const SampleCall& call) override { cuda::LaunchSample(call, context_); }
  void Gate(const GateCall& call) override { cuda::LaunchGate(call, context_); }
  void CollapseStreams(const CollapseStreamsCall& call) override {
    cuda::LaunchCollapseStreams(call, context_);
  }
  void ExpandStreams(const ExpandStreamsCall& call) override {
    cuda::LaunchExpandStreams(call, context_);
  }
  void NgramRows(const NgramRowsCall& call) override { cuda::LaunchNgramRows(call, context_); }
  void NgramGate(const NgramGateCall& call) override { cuda::LaunchNgramGate(call, context_); }
  void Route(const RouteCall& call) override { cuda::LaunchRoute(call, context_); }
  void ExpertProduct(const ExpertProductCall& call) override {
    cuda::LaunchExpertProduct(call, context_);
  }
  void CombineExperts(const CombineExpertsCall& call) override {
    cuda::LaunchCombineExperts(call, context_);
  }
  void Hash(const HashCall& call) override { cuda::LaunchHash(call, context_); }
  void Buckets(const BucketsCall& call) override {
    cuda::LaunchBuckets(call, fp32_rows(), context_);
  }

 private:
  bool fp32_rows() const { return precision_ == ProductPrecision::kFloat32; }
  void OverlapWithOthers(cudaGraph_t graph);
  cuda::WeightsAhead Follow(const DeviceLinear& linear, uint32_t rows);
  const DeviceLinear* NextProduct() const;
  cuda::NextWeights NextWeights(size_t rows) const;
  bool FinishedProduct(const DeviceLinear& linear, const Operand& x,
                       const cuda::ProductOutputs& out);
  void PlainProduct(const DeviceLinear& linear, const Operand& x, FloatMatrix y);
  void ProductFloat8(const DeviceLinear& linear, const Operand& x, FloatMatrix y);
  absl::StatusOr<const float*> PackBias(const std::vector<LinearSource>& sources);
  absl::Status PackFloat8Rows(const std::vector<LinearSource>& sources, size_t inputs,
                              const DeviceLinear& linear);
  bool KeepWideMemory(size_t bytes);
  absl::Status PackRows(const std::vector<LinearSource>& sources, size_t inputs,
                        DeviceLinear& linear);
  absl::Status FirstError() const { return CudaError(error_, "an operation failed"); }

  const ProductPrecision precision_;
  std::string name_;
  cuda::LaunchContext context_;
  cudaError_t error_ = cudaSuccess;
  bool overlaps_ = false;
  cudaEvent_t events_[kEvents] = {};
  cudaStream_t copies_ = nullptr;  // of CopyAhead
  cudaEvent_t copied_ = nullptr;
  std::unordered_map<void*, size_t> memory_;  // with its bytes
  size_t allocated_ = 0;
  std::unordered_map<const float*, std::pair<size_t, const float*>> constants_;
  std::vector<cudaGraphExec_t> recordings_;
  bool recording_ = false;
  std::vector<cudaGraphNode_t> others_;                  // of the recording
  std::unique_ptr<cuda::LargeProducts> large_products_;  // null: no cuBLASLt
  // The map whose product came after that of a map with these weights.
  std::unordered_map<const void*, DeviceLinear> followers_;
  const void* last_product_ = nullptr;
  // For the weights of one map in fp8 as bf16.
  uint16_t* wide_ = nullptr;
  size_t wide_bytes_ = 0;
};

CudaDevice::~CudaDevice() {
  cuda::PrintTimeline();
  if (context_.stream != nullptr) cudaStreamSynchronize(context_.stream);
  if (copies_ != nullptr) cudaStreamSynchronize(copies_);
  if (copied_ != nullptr) cudaEventDestroy(copied_);
  if (copies_ != nullptr) cudaStreamDestroy(copies_);
  for (cudaGraphExec_t recording : recordings_) cudaGraphExecDestroy(recording);
  for (cudaEvent_t event : events_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  large_products_.reset();
  for (const auto& [memory, bytes] : memory_) cudaFree(memory);
  if (context_.counter != nullptr) cudaFree(context_.counter);
  if (context_.stream != nullptr) cudaStreamDestroy(context_.stream);
  // After an error of the device its context is of no use to anyone: the next one gets a new one.
  if (error_ != cudaSuccess) cudaDeviceReset();
}

absl::Status CudaDevice::Open() {
  cudaDeviceProp properties;
  RIVULET_RETURN_IF_ERROR(CudaError(cudaGetDeviceProperties(&properties, 0), "device 0"));
  name_ = properties.name;
  if (properties.major != 9) {
    return absl::FailedPreconditionError(
        absl::StrCat("the GPU ", name_, " has compute capability ", properties.major, ".",
                     properties.minor, "; the kernels need 9.0 (H100, H200); use --device cpu"));
  }
  context_.processors = properties.multiProcessorCount;
  RIVULET_RETURN_IF_ERROR(
      CudaError(cudaStreamCreateWithFlags(&context_.stream, cudaStreamNonBlocking), "a stream"));
  for (cudaEvent_t& event : events_) {
    RIVULET_RETURN_IF_ERROR(CudaError(cudaEventCreate(&event), "an event"));
  }
  RIVULET_RETURN_IF_ERROR(
      CudaError(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "a stream"));
  RIVULET_RETURN_IF_ERROR(
      CudaError(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming), "an event"));
  RIVULET_RETURN_IF_ERROR(CudaError(cudaMalloc(&context_.counter, sizeof(uint32_t)), "a counter"));
  RIVULET_RETURN_IF_ERROR(
      CudaError(cudaMemset(context_.counter, 0, sizeof(uint32_t)), "a counter"));
  large_products_ = cuda::OpenLargeProducts();
  cuda::StartTimeline();
  return absl::OkStatus();
}

size_t CudaDevice::free_bytes() const {
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return free;
}

absl::StatusOr<void*> CudaDevice::Allocate(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, std::max<size_t>(bytes, 1));
  if (error == cudaSuccess) {
    memory_[memory] = bytes;
    allocated_ += bytes;
    return memory;
  }
  cudaGetLastError();
  if (error != cudaErrorMemoryAllocation) return CudaError(error, "an allocation");
  return absl::ResourceExhaustedError(
      absl::StrCat(name_, " has ", free_bytes(), " bytes free, ", bytes, " are needed"));
}

void CudaDevice::Free(void* memory) {
  const auto found = memory_.find(memory);
  RIVULET_CHECK(found != memory_.end(), "freed memory that is not the device's");
  allocated_ -= found->second;
  memory_.erase(found);
  last_product_ = nullptr;
  followers_.clear();  // they may name weights in it
  context_.Check(cudaStreamSynchronize(context_.stream));
  context_.Check(cudaFree(memory));
}

void* CudaDevice::AllocatePinned(size_t bytes) {
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, std::max<size_t>(bytes, 1), cudaHostAllocDefault) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return memory;
}

void CudaDevice::CopyAhead(void* to, const void* from, size_t bytes) {
  context_.Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, copies_));
  context_.Check(cudaEventRecord(copied_, copies_));
  context_.Check(cudaStreamWaitEvent(context_.stream, copied_));
}

absl::Status CudaDevice::Upload(void* to, const void* from, size_t bytes) {
  // On the stream, since a copy of plain memory may return before the device has it all.
  const cudaError_t error =
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, context_.stream);
  if (error != cudaSuccess) return CudaError(error, "an upload");
  return CudaError(cudaStreamSynchronize(context_.stream), "an upload");
}

const float* CudaDevice::Constant(std::span<const float> numbers) {
  if (numbers.empty()) return nullptr;
  const auto found = constants_.find(numbers.data());
  if (found != constants_.end() && found->second.first >= numbers.size()) {
    return found->second.second;
  }
  // Some kernels copy a number with its neighbours, up to a multiple of four.
  const absl::StatusOr<void*> memory = Allocate((numbers.size_bytes() + 63) / 64 * 64);
  if (!memory.ok() || !Upload(*memory, numbers.data(), numbers.size_bytes()).ok()) {
    context_.Check(cudaErrorMemoryAllocation);
    return nullptr;
  }
  const auto* copy = static_cast<const float*>(*memory);
  constants_[numbers.data()] = {numbers.size(), copy};
  return copy;
}

absl::StatusOr<DeviceLinear> CudaDevice::Pack(const std::vector<LinearSource>& sources,
                                              size_t inputs) {
  DeviceLinear linear;
  linear.inputs = static_cast<uint32_t>(inputs);
  linear.stride = (linear.inputs + kInputAlignment - 1) / kInputAlignment * kInputAlignment;
  for (const LinearSource& source : sources) {
    linear.outputs += static_cast<uint32_t>(source.outputs);
  }
  const size_t bytes = size_t{linear.outputs} * linear.stride * 2;
  RIVULET_ASSIGN_OR_RETURN(void* high, Allocate(bytes));
  linear.high = static_cast<const uint16_t*>(high);
  if (fp32_rows()) {
    RIVULET_ASSIGN_OR_RETURN(void* low, Allocate(bytes));
    linear.low = static_cast<const uint16_t*>(low);
  }
  RIVULET_ASSIGN_OR_RETURN(linear.bias, PackBias(sources));
  RIVULET_RETURN_IF_ERROR(PackRows(sources, inputs, linear));
  return linear;
}

// Null: no source has one.
absl::StatusOr<const float*> CudaDevice::PackBias(const std::vector<LinearSource>& sources) {
  bool any = false;
  std::vector<float> numbers;
  for (const LinearSource& source : sources) {
    any = any || source.bias != nullptr;
    for (size_t i = 0; i < source.outputs; ++i) {
      numbers.push_back(source.bias == nullptr ? 0.0f : source.bias[i]);
    }
  }
  if (!any) return nullptr;
  RIVULET_ASSIGN_OR_RETURN(void* copy, Allocate(numbers.size() * sizeof(float)));
  RIVULET_RETURN_IF_ERROR(Upload(copy, numbers.data(), numbers.size() * sizeof(float)));
  return static_cast<const float*>(copy);
}

absl::StatusOr<DeviceLinear> CudaDevice::PackFloat8(const std::vector<LinearSource>& sources,
                                                    size_t inputs) {
  RIVULET_CHECK(!fp32_rows(), "products with fp8 weights take bf16 operands");
  DeviceLinear linear;
  linear.inputs = static_cast<uint32_t>(inputs);
  linear.stride = (linear.inputs + cuda::kFloat8Alignment - 1) / cuda::kFloat8Alignment *
                  cuda::kFloat8Alignment;
  for (const LinearSource& source : sources) {
    linear.outputs += static_cast<uint32_t>(source.outputs);
  }
  RIVULET_ASSIGN_OR_RETURN(void* float8, Allocate(size_t{linear.outputs} * linear.stride));
  RIVULET_ASSIGN_OR_RETURN(void* scale, Allocate(linear.outputs * sizeof(float)));
  linear.float8 = static_cast<const uint8_t*>(float8);
  linear.scale = static_cast<const float*>(scale);
  RIVULET_ASSIGN_OR_RETURN(linear.bias, PackBias(sources));
  RIVULET_RETURN_IF_ERROR(PackFloat8Rows(sources, inputs, linear));
  return linear;
}

// Some rows at a time, as PackRows.
absl::Status CudaDevice::PackFloat8Rows(const std::vector<LinearSource>& sources, size_t inputs,
                                        const DeviceLinear& linear) {
  const size_t stride = linear.stride, block = std::max<size_t>(1, (size_t{16} << 20) / stride);
  std::vector<uint8_t> codes(block * stride);
  std::vector<float> scales, row(inputs);
  size_t first = 0;
  for (const LinearSource& source : sources) {
    for (size_t begin = 0; begin < source.outputs; begin += block) {
      const size_t rows = std::min(block, source.outputs - begin);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t i = 0; i < inputs; ++i) {
          row[i] = NumberAt(static_cast<const std::byte*>(source.data), source.dtype,
                            (begin + r) * inputs + i);
        }
        scales.push_back(RoundToFloat8(row.data(), inputs, codes.data() + r * stride));
      }
      RIVULET_RETURN_IF_ERROR(Upload(const_cast<uint8_t*>(linear.float8) + first * stride,
                                     codes.data(), rows * stride));
      first += rows;
    }
  }
  return Upload(const_cast<float*>(linear.scale), scales.data(), scales.size() * sizeof(float));
}

// Memory for the widened weights of the largest map that is multiplied by many rows, which the
// first of an engine's steps are; experts' maps are never widened. False: there is none.
bool CudaDevice::KeepWideMemory(size_t bytes) {
  if (bytes <= wide_bytes_) return true;
  if (recording_ || !recordings_.empty()) return false;  // a recording holds its address
  if (wide_ != nullptr) Free(wide_);
  wide_ = nullptr, wide_bytes_ = 0;
  const absl::StatusOr<void*> memory = Allocate(bytes);
  if (!memory.ok()) return false;
  wide_ = static_cast<uint16_t*>(*memory), wide_bytes_ = bytes;
  return true;
}

const void* WeightsOf(const DeviceLinear& linear) {
  return linear.float8 != nullptr ? static_cast<const void*>(linear.float8) : linear.high;
}

// What came behind the last product before; null: not known. Steps run the same products in the
// same order: what came next once will come next again. Nothing but speed depends on it.
const DeviceLinear* CudaDevice::NextProduct() const {
  const auto found = followers_.find(last_product_);
  return found == followers_.end() ? nullptr : &found->second;
}

// Products of LaunchFewOutputs count as products of LaunchTensOfTokens. Reckoned by their own
// rings, which hold less, nothing would be asked for ahead: then 24 and 32 rows of Mamba-2 2.7B
// take up to 1 % longer. LaunchHundredTokens asks for nothing.
cuda::WeightsAhead CudaDevice::Follow(const DeviceLinear& linear, uint32_t rows) {
  if (last_product_ != nullptr) followers_[last_product_] = linear;
  last_product_ = WeightsOf(linear);
  const DeviceLinear* const next = NextProduct();
  if (next == nullptr) return {};
  const bool few = rows <= cuda::MostFewTokens(linear);
  if (few != (rows <= cuda::MostFewTokens(*next))) return {};  // each knows its own rings
  if (few) return cuda::AheadOf(linear, *next, rows, context_);
  return linear.float8 != nullptr ? cuda::AheadOfFloat8(linear, *next, rows, context_)
                                  : cuda::AheadOfTens(linear, *next, rows, context_);
}

// For kernels between products of so many rows: with fewer, steps are as fast or faster without it,
// since most products ask for their own weights while such a kernel runs; with more, memory is
// busy. More than so many bytes made steps slower (docs/gpu_notes.md#the-next-products-weights).
cuda::NextWeights CudaDevice::NextWeights(size_t rows) const {
  constexpr size_t kLeastRows = 129, kMostRows = 256, kMostBytes = size_t{8} << 20;
  if (rows < kLeastRows || rows > kMostRows) return {};
  const DeviceLinear* const next = NextProduct();
  if (next == nullptr || next->low != nullptr) return {};
  const size_t bytes = size_t{next->outputs} * next->stride * (next->float8 != nullptr ? 1 : 2);
  return {static_cast<const std::byte*>(WeightsOf(*next)),
          static_cast<uint32_t>(std::min(bytes, kMostBytes) / 16 * 16)};
}

// By a kernel for few rows. False: nothing is launched.
bool CudaDevice::FinishedProduct(const DeviceLinear& linear, const Operand& x,
                                 const cuda::ProductOutputs& out) {
  const cuda::WeightsAhead ahead = Follow(linear, x.rows);
  if (cuda::LaunchHeldTokens(linear, x, out, ahead, context_)) return true;
  if (cuda::LaunchFewTokens(linear, x, out, ahead, context_)) return true;
  if (linear.float8 != nullptr) {
    return cuda::LaunchFloat8Tokens(linear, x, out, ahead, context_);
  }
  return cuda::LaunchFewOutputs(linear, x, out, ahead, context_) ||
         cuda::LaunchTensOfTokens(linear, x, out, ahead, context_) ||
         cuda::LaunchHundredTokens(linear, x, out, context_);
}

// By the others.
void CudaDevice::PlainProduct(const DeviceLinear& linear, const Operand& x, FloatMatrix y) {
  if (x.rows == 0) return;
  if (linear.float8 != nullptr) return ProductFloat8(linear, x, y);
  if (large_products_ != nullptr && large_products_->Run(linear, x, y, recording_, context_)) {
    return;
  }
  cuda::LaunchChain(linear, x, y, context_);
}

// With fewer rows, kernels that prepare and gate rows with factors are slower than another pass:
// the recurrence then prepares and gates its rows itself (prepare_and_recur.cu).
constexpr uint32_t kLeastLeftRows = 65;

bool CudaDevice::ScaledProduct(const DeviceLinear& linear, const Operand& x,
                               const RowFactor& factor, bool may_leave, FloatMatrix y) {
  cuda::ProductOutputs out = OutputsOf(linear, x, y);
  out.factor = factor;
  if (FinishedProduct(linear, x, out)) return true;
  PlainProduct(linear, x, y);
  if (may_leave && factor.values != nullptr && x.rows >= kLeastLeftRows) return false;
  cuda::LaunchScaleRows(factor, y, context_);
  return true;
}

void CudaDevice::ProjectAndRecur(const ProjectionCall& projection, const PrepareCall& prepare,
                                 const RecurCall& recur) {
  if (!fp32_rows() && cuda::LaunchProjectAndRecur(projection, prepare, recur, context_)) {
    Follow(projection.linear, projection.x.rows);
    return;
  }
  Device::ProjectAndRecur(projection, prepare, recur);
}

// With more rows, blocks take longer to add up the squares of all of them than another kernel
// takes: 64 rows of Mamba-2 130M took 0.79 instead of 0.74 ms. Longer chains leave time for more:
// 64 rows of 2.7B took 5.52 instead of 5.56 ms.
uint32_t MostAddedRows(const DeviceLinear& linear) {
  constexpr uint32_t kLongChain = 2048;
  return linear.stride < kLongChain ? 48 : 64;
}

bool CudaDevice::AddProduct(const AddProductCall& call) {
  cuda::ProductOutputs out = OutputsOf(call.linear, call.input, call.x);
  out.factor = call.factor;
  out.norm = call.norm;
  if (call.input.rows <= MostAddedRows(call.linear) && !call.input.two_parts) {
    if (FinishedProduct(call.linear, call.input, out)) return true;
    PlainProduct(call.linear, call.input, call.update);
  } else {
    Product(call.linear, call.input, call.update);
  }
  AddLate({call.x, call.update, call.factor, call.norm});
  return false;
}

// By cuBLASLt, for which the weights are widened first, or else by a kernel that does that on the
// way; the bits are the same.
void CudaDevice::ProductFloat8(const DeviceLinear& linear, const Operand& x, FloatMatrix y) {
  const size_t wide_bytes = size_t{linear.outputs} * linear.stride * sizeof(uint16_t);
  if (large_products_ == nullptr || !KeepWideMemory(wide_bytes)) {
    return cuda::LaunchFloat8Product(linear, x, y, context_);
  }
  cuda::LaunchWiden(linear, wide_, context_);
  DeviceLinear wide = linear;
  wide.high = wide_, wide.float8 = nullptr, wide.scale = nullptr, wide.bias = nullptr;
  if (!large_products_->Run(wide, x, y, recording_, context_)) {
    cuda::LaunchChain(wide, x, y, context_);
  }
  cuda::LaunchScale(linear, x.rows, y, context_);
}

// Some rows at a time, so that packing takes little memory on the host.
absl::Status CudaDevice::PackRows(const std::vector<LinearSource>& sources, size_t inputs,
                                  DeviceLinear& linear) {
  const size_t stride = linear.stride, block = std::max<size_t>(1, (size_t{16} << 20) / stride);
  std::vector<uint16_t> high(block * stride), low(linear.low == nullptr ? 0 : block * stride);
  size_t first = 0;
  for (const LinearSource& source : sources) {
    for (size_t begin = 0; begin < source.outputs; begin += block) {
      const size_t rows = std::min(block, source.outputs - begin);
      for (size_t r = 0; r < rows; ++r) {
        PackRow(source, begin + r, inputs, high.data() + r * stride,
                low.empty() ? nullptr : low.data() + r * stride);
      }
      const size_t offset = (first + begin) * stride, bytes = rows * stride * 2;
      RIVULET_RETURN_IF_ERROR(
          Upload(const_cast<uint16_t*>(linear.high) + offset, high.data(), bytes));
      if (low.empty()) continue;
      RIVULET_RETURN_IF_ERROR(
          Upload(const_cast<uint16_t*>(linear.low) + offset, low.data(), bytes));
    }
    first += source.outputs;
  }
  return absl::OkStatus();
}

// For tests of what follows an error: RIVULET_FAIL_CUDA_AT=n makes the n-th wait of the process
// fail, by a kernel that traps; n,m: the n-th, and then the m-th of the process that replaces it.
__global__ void TrapKernel() { __trap(); }

bool FailsNow() {
  static const char* const value = std::getenv("RIVULET_FAIL_CUDA_AT");
  static const long at = value == nullptr ? 0 : std::atol(value);
  static long waits = 0;
  return at > 0 && ++waits == at;
}

absl::Status CudaDevice::Wait(size_t event) {
  if (FailsNow()) {
    TrapKernel<<<1, 1, 0, context_.stream>>>();
    context_.Check(cudaStreamSynchronize(context_.stream));
  }
  context_.Check(cudaEventSynchronize(events_[event]));
  return FirstError();
}

double CudaDevice::SecondsBetween(size_t first, size_t second) {
  float milliseconds = 0.0f;
  if (cudaEventElapsedTime(&milliseconds, events_[first], events_[second]) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return milliseconds * 1e-3;
}

absl::Status CudaDevice::Synchronize() {
  context_.Check(cudaStreamSynchronize(context_.stream));
  context_.Check(cudaGetLastError());
  return FirstError();
}

// A library's kernel does not allow the next kernel to begin before it has ended. Kernels of ours
// wait for themselves, so they may begin when all of its blocks have begun.
void CudaDevice::OverlapWithOthers(cudaGraph_t graph) {
  size_t count = 0;
  context_.Check(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> edges(count);
  context_.Check(cudaGraphGetEdges(graph, from.data(), to.data(), edges.data(), &count));
  for (size_t i = 0; i < count; ++i) {
    const bool other = std::find(others_.begin(), others_.end(), from[i]) != others_.end();
    if (!other || edges[i].type != cudaGraphDependencyTypeProgrammatic) continue;
    cudaGraphEdgeData edge = edges[i];
    edge.from_port = cudaGraphKernelNodePortLaunchCompletion;
    context_.Check(cudaGraphRemoveDependencies(graph, &from[i], &to[i], &edges[i], 1));
    context_.Check(cudaGraphAddDependencies(graph, &from[i], &to[i], &edge, 1));
  }
}

absl::StatusOr<size_t> CudaDevice::EndRecording() {
  recording_ = false;
  context_.others = nullptr;
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(context_.stream, &graph);
  RIVULET_RETURN_IF_ERROR(FirstError());  // what a recording ends with says less
  RIVULET_RETURN_IF_ERROR(CudaError(ended, "recording a step"));
  OverlapWithOthers(graph);
  cudaGraphExec_t recording = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&recording, graph, 0);
  cudaGraphDestroy(graph);
  RIVULET_RETURN_IF_ERROR(CudaError(error, "preparing a recorded step"));
  // Or its first replay would do that, milliseconds later than others.
  RIVULET_RETURN_IF_ERROR(
      CudaError(cudaGraphUpload(recording, context_.stream), "preparing a recorded step"));
  recordings_.push_back(recording);
  return recordings_.size() - 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(ProductPrecision precision) {
  auto device = std::make_unique<CudaDevice>(precision);
  RIVULET_RETURN_IF_ERROR(device->Open());
  return device;
}

}  // namespace rivulet
