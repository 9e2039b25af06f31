// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <dlfcn.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/device/large_products.h"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {
namespace {

constexpr int kAlgorithms = 4;  // that are tried
constexpr size_t kWorkspace = size_t{32} << 20;

// The functions that are used, by the names that the header declares.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
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
           Find(handle, desc_set, "cublasLtMatmulDescSetAttribute") &&
           Find(handle, layout_create, "cublasLtMatrixLayoutCreate") &&
           Find(handle, preference_create, "cublasLtMatmulPreferenceCreate") &&
           Find(handle, preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
           Find(handle, preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
           Find(handle, heuristic, "cublasLtMatmulAlgoGetHeuristic");
  }
};

// One product with everything that describes it. Descriptions live as long as the process: there
// are as many as shapes of maps times sizes of steps.
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

class CublasLt final : public LargeProducts {
 public:
  ~CublasLt() override {
    if (handle_ != nullptr) library_.destroy(handle_);
    if (workspace_ != nullptr) cudaFree(workspace_);
    for (const Plan* plan : plans_) delete plan;
  }

  bool Open() {
    return library_.Open() && library_.create(&handle_) == CUBLAS_STATUS_SUCCESS &&
           cudaMalloc(&workspace_, kWorkspace) == cudaSuccess;
  }

  bool Run(const DeviceLinear& linear, const Operand& x, FloatMatrix y, bool recording,
           const LaunchContext& context) override {
    if (linear.low != nullptr) return false;
    const Shape shape = {linear.outputs,      x.columns, linear.stride,
                         ProductRows(x.rows), x.stride,  static_cast<uint32_t>(y.stride)};
    const Plan* plan = Find(shape);
    if (plan == nullptr && !recording) {
      plans_.push_back(new Plan(MakePlan(linear, shape, context)));
      plans_.back()->shape = shape;
      plan = plans_.back();
    }
    return plan != nullptr && plan->usable && Enqueue(*plan, linear, x, y, context);
  }

 private:
  const Plan* Find(const Shape& shape) const {
    for (const Plan* plan : plans_) {
      if (plan->shape == shape) return plan;
    }
    return nullptr;
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
    Plan plan;
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
    cublasLtMatmulHeuristicResult_t found[kAlgorithms];
    const int count = Algorithms(plan, found);
    for (int i = 0; i < count && !plan.usable; ++i) {
      plan.algorithm = found[i].algo;
      plan.usable = IsTheChain(plan, linear, shape, context);
    }
    return plan;
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

  // Compares with our kernel on random rows.
  bool IsTheChain(const Plan& plan, const DeviceLinear& linear, const Shape& shape,
                  const LaunchContext& context) {
    const size_t numbers = size_t{shape.rows} * shape.row_stride;
    const size_t results = size_t{shape.rows} * shape.result_stride;
    uint16_t* rows = nullptr;
    float* y = nullptr;
    bool same = false;
    if (cudaMalloc(&rows, numbers * sizeof(uint16_t)) == cudaSuccess &&
        cudaMalloc(&y, 2 * results * sizeof(float)) == cudaSuccess) {
      std::vector<uint16_t> random(numbers);
      std::mt19937 generator(1);
      std::normal_distribution<float> normal;
      for (uint16_t& number : random) number = FloatToBFloat16(normal(generator));
      cudaMemcpyAsync(rows, random.data(), numbers * sizeof(uint16_t), cudaMemcpyHostToDevice,
                      context.stream);
      cudaMemsetAsync(y, 0, 2 * results * sizeof(float), context.stream);
      const Operand x = {rows, shape.rows, shape.inputs, shape.row_stride, false};
      const FloatMatrix ours = {y, shape.rows, shape.outputs, shape.result_stride};
      const FloatMatrix theirs = {y + results, shape.rows, shape.outputs, shape.result_stride};
      LaunchChain(linear, x, ours, context);
      std::vector<float> both(2 * results);
      const bool ran = Enqueue(plan, linear, x, theirs, context);
      cudaMemcpyAsync(both.data(), y, 2 * results * sizeof(float), cudaMemcpyDeviceToHost,
                      context.stream);
      cudaStreamSynchronize(context.stream);
      same = ran && std::memcmp(both.data(), both.data() + results, results * sizeof(float)) == 0;
    }
    cudaFree(rows);
    cudaFree(y);
    return same;
  }

  Library library_ = {};
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::vector<Plan*> plans_;
};

}  // namespace

std::unique_ptr<LargeProducts> OpenLargeProducts() {
  auto products = std::make_unique<CublasLt>();
  if (!products->Open()) return nullptr;
  return products;
}

}  // namespace rivulet::cuda
