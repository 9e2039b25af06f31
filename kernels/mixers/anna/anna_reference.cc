// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/anna/anna_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rivulet {
namespace {

// One token of one head: adds to o [E] and divides.
void OneToken(const AnnaShape& shape, const AnnaInput& input, size_t head, size_t t, double* o) {
  const size_t tables = shape.head.tables, e = shape.head.value_dim;
  double all = 0;
  for (size_t s = 0; s < t + (shape.include_self ? 1 : 0); ++s) {
    const float* q = input.q_buckets.row(t) + head * tables;
    const float* k = input.k_buckets.row(s) + head * tables;
    double collisions = 0;
    for (size_t i = 0; i < tables; ++i) collisions += q[i] == k[i] ? 1 : 0;
    const float* v = input.v.row(s) + head * e;
    for (size_t j = 0; j < e; ++j) o[j] += collisions * v[j];
    all += collisions;
  }
  for (size_t j = 0; j < e && all > 0; ++j) o[j] /= all;
}

double Dot(const float* a, const float* x, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += double{a[i]} * double{x[i]};
  return sum;
}

// The hash of the projections y, and the distance to another.
AnnaBucket CrossPolytope(const std::vector<double>& y) {
  size_t best = 0;
  double second = 0;
  for (size_t i = 1; i < y.size(); ++i) {
    const bool larger = std::abs(y[i]) > std::abs(y[best]);
    second = std::max(second, std::abs(y[larger ? best : i]));
    if (larger) best = i;
  }
  const double most = std::abs(y[best]);
  return {best + (y[best] < 0 ? y.size() : 0), y.size() == 1 ? most : most - second};
}

AnnaBucket OneHash(const AnnaHashShape& shape, const float* rows, const float* x) {
  const size_t d = shape.key_dim;
  if (shape.family == HashFamily::kSimHash) {
    const double dot = Dot(rows, x, d);
    return {dot >= 0 ? size_t{1} : size_t{0}, std::abs(dot)};
  }
  std::vector<double> y(d);
  for (size_t i = 0; i < d; ++i) y[i] = Dot(rows + i * d, x, d);
  return CrossPolytope(y);
}

}  // namespace

std::vector<double> AnnaReference(const AnnaShape& shape, const AnnaInput& input) {
  const size_t e = shape.head.padded_value();
  std::vector<double> out(input.v.rows * shape.heads * e, 0.0);
  for (size_t t = 0; t < input.v.rows; ++t) {
    for (size_t head = 0; head < shape.heads; ++head) {
      OneToken(shape, input, head, t, &out[(t * shape.heads + head) * e]);
    }
  }
  return out;
}

AnnaBucket AnnaBucketReference(const AnnaHashShape& shape, const float* projections, size_t head,
                               size_t table, const float* x) {
  const size_t hash_floats =
      shape.key_dim * (shape.family == HashFamily::kSimHash ? 1 : shape.key_dim);
  AnnaBucket result{0, std::numeric_limits<double>::infinity()};
  size_t weight = 1;
  for (size_t j = 0; j < shape.hashes; ++j, weight *= shape.radix()) {
    const size_t row = (head * shape.tables + table) * shape.hashes + j;
    const AnnaBucket hash = OneHash(shape, projections + row * hash_floats, x);
    result.bucket += hash.bucket * weight;
    result.margin = std::min(result.margin, hash.margin);
  }
  return result;
}

}  // namespace rivulet
