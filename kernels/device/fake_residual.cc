// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/device/device_operations.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"

namespace rivulet {
namespace {

using namespace fake;

// The norm of `row` in its place.
void Norm(std::vector<float>& row, const float* weight, const float* bias, float eps) {
  const auto count = static_cast<float>(row.size());
  float mean = 0.0f, squares = 0.0f;
  if (bias != nullptr) {
    for (const float x : row) mean += x / count;
  }
  for (const float x : row) squares += (x - mean) * (x - mean);
  const float scale = 1.0f / std::sqrt(squares / count + eps);
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = (row[i] - mean) * scale * weight[i] + (bias == nullptr ? 0.0f : bias[i]);
  }
}

float FactorOf(const RowFactor& factor, size_t token) {
  if (factor.values != nullptr) return factor.values[token];
  if (factor.squares == nullptr) return 1.0f;
  float sum = 0.0f;
  for (uint32_t i = 0; i < factor.count; ++i) sum += factor.squares[token * factor.stride + i];
  return 1.0f / std::sqrt(sum / static_cast<float>(factor.width) + factor.eps);
}

void AddNormRow(const AddNormCall& call, size_t token) {
  float* x = call.x.row(token);
  const size_t columns = call.x.columns;
  if (call.update.data != nullptr) {
    const float* update = call.update.row(token);
    std::vector<float> row(update, update + columns);
    const float factor = FactorOf(call.update_factor, token);
    for (float& number : row) number *= factor;
    if (call.update_weight != nullptr) {
      Norm(row, call.update_weight, call.update_bias, call.update_eps);
    }
    for (size_t i = 0; i < columns; ++i) x[i] = call.keep * x[i] + call.add * row[i];
  } else {
    for (size_t i = 0; i < columns; ++i) x[i] *= call.keep;
  }
  if (call.y.data == nullptr && !call.keeps_normed) return;
  std::vector<float> row(x, x + columns);
  if (call.weight != nullptr) Norm(row, call.weight, call.bias, call.eps);
  if (call.keeps_normed) std::copy(row.begin(), row.end(), x);
  for (size_t i = 0; call.y.data != nullptr && i < call.y.columns; ++i) {
    StoreOperand(call.y, token, i, i < columns ? row[i] : 0.0f);
  }
}

void ScaleRows(const RowFactor& factor, FloatMatrix y) {
  for (size_t t = 0; t < y.rows; ++t) {
    const float scale = FactorOf(factor, t);
    for (size_t i = 0; i < y.columns; ++i) y.row(t)[i] *= scale;
  }
}

// Leaves squares and factors.
void AddLateRow(const AddLateCall& call, size_t token) {
  const LateNorm& norm = call.norm;
  float* x = call.x.row(token);
  const float factor = FactorOf(call.factor, token);
  float* const squares = norm.squares + token * norm.stride;
  for (size_t i = 0; i < call.x.columns; ++i) {
    if (call.update.data != nullptr) x[i] = std::fma(factor, call.update.row(token)[i], x[i]);
    float& sum = squares[i / LateNorm::kSquares];
    sum = x[i] * x[i] + (i % LateNorm::kSquares == 0 ? 0.0f : sum);
    StoreOperand(norm.y, token, i, norm.weight[i] * x[i]);
  }
  norm.factors[token] = FactorOf(norm.Factor(call.x.columns, /*of_squares=*/true), token);
}

}  // namespace

bool FakeDevice::ScaledProduct(const DeviceLinear& linear, const Operand& x,
                               const RowFactor& factor, bool may_leave, FloatMatrix y) {
  Product(linear, x, y);
  if (may_leave && factor.values != nullptr) return false;
  Do([=] { ScaleRows(factor, y); });
  return true;
}

void FakeDevice::AddLate(const AddLateCall& call) {
  Do([=] {
    for (size_t t = 0; t < call.x.rows; ++t) AddLateRow(call, t);
  });
}

bool FakeDevice::AddProduct(const AddProductCall& call) {
  Product(call.linear, call.input, call.update);
  AddLate({call.x, call.update, call.factor, call.norm});
  return call.input.rows <= 2;
}

void FakeDevice::AddNorm(const AddNormCall& call) {
  Do([=] {
    for (size_t t = 0; t < call.x.rows; ++t) AddNormRow(call, t);
  });
}

void FakeDevice::ScaleOperand(const ScaleOperandCall& call) {
  Do([=] {
    for (uint32_t t = 0; t < call.x.rows; ++t) {
      for (uint32_t i = 0; i < call.x.columns; ++i) {
        StoreOperand(call.y, t, i, call.factor * OperandAt(call.x, t, i));
      }
    }
  });
}

void FakeDevice::CopyColumns(ConstFloatMatrix x, FloatMatrix y) {
  Do([=] {
    for (size_t t = 0; t < x.rows; ++t) std::copy_n(x.row(t), x.columns, y.row(t));
  });
}

void FakeDevice::CapLogits(FloatMatrix logits, float cap) {
  Do([=] {
    for (size_t t = 0; t < logits.rows; ++t) {
      float* row = logits.row(t);
      for (size_t i = 0; i < logits.columns; ++i) row[i] = cap * std::tanh(row[i] / cap);
    }
  });
}

}  // namespace rivulet
