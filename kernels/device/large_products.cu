// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/dtype.h"
#include "kernels/device/large_products.h"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {
namespace {

constexpr int kAlgorithms = 16;  // that are tried
// A later algorithm of the library's list may take so much of an earlier one's time: trials differ
// by a few percent.
constexpr double kFasterThanEarlier = 0.96;
constexpr size_t kWorkspace = size_t{32} << 20;

// The functions that are used, by the names that the header declares.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;

  template <typename Function>
  static bool Find(void* handle, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    return function != nullptr;
  }

  bool Open() {
    void* const handle = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return false;
    return Find(handle, create, "cublasLtCreate") && Find(handle, destroy, "cublasLtDestroy") &&
           Find(handle, matmul, "cublasLtMatmul") &&
           Find(handle, desc_create, "cublasLtMatmulDescCreate") &&
           Find(handle, desc_destroy, "cublasLtMatmulDescDestroy") &&
           Find(handle, desc_set, "cublasLtMatmulDescSetAttribute") &&
           Find(handle, layout_create, "cublasLtMatrixLayoutCreate") &&
           Find(handle, layout_destroy, "cublasLtMatrixLayoutDestroy") &&
           Find(handle, preference_create, "cublasLtMatmulPreferenceCreate") &&
           Find(handle, preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
           Find(handle, preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
           Find(handle, heuristic, "cublasLtMatmulAlgoGetHeuristic");
  }
};

// One product with everything that describes it.
struct Shape {
  uint32_t outputs, inputs, stride, rows, row_stride, result_stride;
  bool operator==(const Shape&) const = default;
};

struct Plan {
  Shape shape = {};
  bool usable = false;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t weights = nullptr, rows = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

// Memory that fills L2: once it is read, a product finds its weights where a step does.
constexpr size_t kEvicted = size_t{128} << 20;

__global__ void ReadKernel(const float4* numbers, size_t count, float* never) {
  float sum = 0.0f;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const float4 x = __ldcg(numbers + i);
    sum += x.x + x.y + x.z + x.w;
  }
  if (isnan(sum)) *never = sum;  // so that the loads are needed
}

// Products of a shape on random rows, timed and compared.
class Trial {
 public:
  Trial(const Shape& shape, const LaunchContext& context) : shape_(shape), context_(context) {
    std::vector<uint16_t> random(size_t{shape.rows} * shape.row_stride);
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (uint16_t& number : random) number = FloatToBFloat16(normal(generator));
    const size_t bytes = row_bytes();
    ok_ = cudaMalloc(&rows_, bytes) == cudaSuccess &&
          cudaMalloc(&results_, results() * sizeof(float)) == cudaSuccess &&
          cudaEventCreate(&begin_) == cudaSuccess && cudaEventCreate(&end_) == cudaSuccess;
    if (ok_ && cudaMalloc(&evicted_, kEvicted) != cudaSuccess) evicted_ = nullptr;
    cudaGetLastError();  // a trial without memory is no failure of the device
    if (!ok_) return;
    cudaMemcpyAsync(rows_, random.data(), bytes, cudaMemcpyHostToDevice, context.stream);
    if (evicted_ != nullptr) cudaMemsetAsync(evicted_, 0, kEvicted, context.stream);
    cudaStreamSynchronize(context.stream);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() {
    cudaFree(rows_);
    cudaFree(results_);
    cudaFree(evicted_);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }

  bool ok() const { return ok_; }
  Operand x() const { return {rows_, shape_.rows, shape_.inputs, shape_.row_stride, false}; }

  // Of one product with weights in device memory, which `enqueue` puts into a matrix; infinite if
  // it cannot.
  template <typename Enqueue>
  double Seconds(const Enqueue& enqueue) {
    constexpr int kTimes = 3;
    const FloatMatrix y = {results_, shape_.rows, shape_.outputs, shape_.result_stride};
    cudaMemsetAsync(results_, 0, results() * sizeof(float), context_.stream);
    if (!enqueue(y)) return INFINITY;
    double best = INFINITY;
    for (int i = 0; i < kTimes; ++i) best = std::min(best, SecondsOnce([&] { enqueue(y); }));
    numbers_.resize(results());
    cudaMemcpyAsync(numbers_.data(), results_, results() * sizeof(float), cudaMemcpyDeviceToHost,
                    context_.stream);
    if (cudaStreamSynchronize(context_.stream) != cudaSuccess) return INFINITY;
    if (first_.empty()) first_ = numbers_;
    return best;
  }

  // Whether the last product has the bits of the first.
  bool IsTheFirst() const {
    return std::memcmp(first_.data(), numbers_.data(), first_.size() * sizeof(float)) == 0;
  }

 private:
  size_t results() const { return size_t{shape_.rows} * shape_.result_stride; }
  size_t row_bytes() const { return size_t{shape_.rows} * shape_.row_stride * sizeof(uint16_t); }

  // The weights to memory and the rows to L2, as a step has them.
  void Evict() {
    if (evicted_ == nullptr) return;
    const auto read = [&](const void* numbers, size_t bytes) {
      ReadKernel<<<8 * context_.processors, 256, 0, context_.stream>>>(
          static_cast<const float4*>(numbers), bytes / sizeof(float4), results_);
      context_.Check(cudaGetLastError());
    };
    read(evicted_, kEvicted);
    read(rows_, row_bytes());
  }

  template <typename Enqueue>
  double SecondsOnce(const Enqueue& enqueue) {
    Evict();
    cudaEventRecord(begin_, context_.stream);
    enqueue();
    cudaEventRecord(end_, context_.stream);
    float milliseconds = 0.0f;
    if (cudaStreamSynchronize(context_.stream) != cudaSuccess ||
        cudaEventElapsedTime(&milliseconds, begin_, end_) != cudaSuccess) {
      return INFINITY;
    }
    return milliseconds * 1e-3;
  }

  const Shape shape_;
  const LaunchContext& context_;
  bool ok_ = false;
  uint16_t* rows_ = nullptr;
  float* results_ = nullptr;
  std::byte* evicted_ = nullptr;  // null: there is no memory for it
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<float> first_, numbers_;
};

class CublasLt final : public LargeProducts {
 public:
  ~CublasLt() override {
    for (const auto& plan : plans_) Free(*plan);
    if (handle_ != nullptr) library_.destroy(handle_);
    if (workspace_ != nullptr) cudaFree(workspace_);
  }

  bool Open() {
    return library_.Open() && library_.create(&handle_) == CUBLAS_STATUS_SUCCESS &&
           cudaMalloc(&workspace_, kWorkspace) == cudaSuccess;
  }

  bool Run(const DeviceLinear& linear, const Operand& x, FloatMatrix y, bool recording,
           const LaunchContext& context) override {
    if (linear.low != nullptr) return false;
    const uint32_t rows = ProductRows(x.rows);
    const Shape shape = {linear.outputs, x.columns, linear.stride,
                         rows,           x.stride,  static_cast<uint32_t>(y.stride)};
    const Plan* plan = Find(shape);
    if (plan == nullptr && !recording) {
      plans_.push_back(std::make_unique<Plan>(MakePlan(linear, shape, context)));
      plan = Find(shape);
      RIVULET_CHECK(plan != nullptr, "a plan would be made again for each product");
    }
    return plan != nullptr && plan->usable && Enqueue(*plan, linear, x, y, context);
  }

 private:
  const Plan* Find(const Shape& shape) const {
    for (const auto& plan : plans_) {
      if (plan->shape == shape) return plan.get();
    }
    return nullptr;
  }

  void Free(const Plan& plan) const {
    if (plan.desc != nullptr) library_.desc_destroy(plan.desc);
    for (const cublasLtMatrixLayout_t layout : {plan.weights, plan.rows, plan.result}) {
      if (layout != nullptr) library_.layout_destroy(layout);
    }
  }

  // cuBLAS counts columns first: y^T [N, M] = W [N, K] · x^T [K, M], with W stored as K x N.
  bool Enqueue(const Plan& plan, const DeviceLinear& linear, const Operand& x, FloatMatrix y,
               const LaunchContext& context) {
    const float one = 1.0f, zero = 0.0f;
    const cublasStatus_t status = library_.matmul(
        handle_, plan.desc, &one, linear.high, plan.weights, x.data, plan.rows, &zero, y.data,
        plan.result, y.data, plan.result, &plan.algorithm, workspace_, kWorkspace, context.stream);
    if (status != CUBLAS_STATUS_SUCCESS) return false;
    context.AfterOther();
    if (linear.bias != nullptr) LaunchAddBias(linear, x.rows, y, context);
    return true;
  }

  Plan MakePlan(const DeviceLinear& linear, const Shape& shape, const LaunchContext& context) {
    Plan plan{.shape = shape};
    const cublasOperation_t transposed = CUBLAS_OP_T;
    if (library_.desc_create(&plan.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
        library_.desc_set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                          sizeof(transposed)) != CUBLAS_STATUS_SUCCESS ||
        library_.layout_create(&plan.weights, CUDA_R_16BF, shape.inputs, shape.outputs,
                               shape.stride) != CUBLAS_STATUS_SUCCESS ||
        library_.layout_create(&plan.rows, CUDA_R_16BF, shape.inputs, shape.rows,
                               shape.row_stride) != CUBLAS_STATUS_SUCCESS ||
        library_.layout_create(&plan.result, CUDA_R_32F, shape.outputs, shape.rows,
                               shape.result_stride) != CUBLAS_STATUS_SUCCESS) {
      return plan;
    }
    Choose(plan, linear, shape, context);
    return plan;
  }

  // The fastest algorithm whose bits are those of our kernel; none if our kernel is faster. What
  // the library thinks best can take ten times as long.
  void Choose(Plan& plan, const DeviceLinear& linear, const Shape& shape,
              const LaunchContext& context) {
    Trial trial(shape, context);
    if (!trial.ok()) return;
    double best = trial.Seconds([&](FloatMatrix y) {
      LaunchChain(linear, trial.x(), y, context);
      return true;
    });
    if (std::isinf(best)) return;  // there are no bits to compare with
    cublasLtMatmulHeuristicResult_t found[kAlgorithms];
    const int count = Algorithms(plan, found);
    for (int i = 0; i < count; ++i) {
      Plan candidate = plan;
      candidate.algorithm = found[i].algo;
      const double seconds = trial.Seconds(
          [&](FloatMatrix y) { return Enqueue(candidate, linear, trial.x(), y, context); });
      if (seconds >= (plan.usable ? kFasterThanEarlier : 1.0) * best || !trial.IsTheFirst())
        continue;
      best = seconds;
      plan.algorithm = candidate.algorithm;
      plan.usable = true;
    }
  }

  // The number found, best first.
  int Algorithms(const Plan& plan, cublasLtMatmulHeuristicResult_t* results) {
    cublasLtMatmulPreference_t preference = nullptr;
    if (library_.preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return 0;
    const size_t workspace = kWorkspace;
    const uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
    library_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                            sizeof(workspace));
    library_.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split,
                            sizeof(no_split));
    int count = 0;
    const cublasStatus_t status =
        library_.heuristic(handle_, plan.desc, plan.weights, plan.rows, plan.result, plan.result,
                           preference, kAlgorithms, results, &count);
    library_.preference_destroy(preference);
    return status == CUBLAS_STATUS_SUCCESS ? count : 0;
  }

  Library library_ = {};
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace

std::unique_ptr<LargeProducts> OpenLargeProducts() {
  auto products = std::make_unique<CublasLt>();
  if (!products->Open()) return nullptr;
  return products;
}

}  // namespace rivulet::cuda
