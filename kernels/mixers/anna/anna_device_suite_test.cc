// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/anna/anna_config.h"
#include "kernels/mixers/anna/anna_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const AnnaShape& shape) {
  return WideStates({std::move(name), [=](DType) { return MakeAnnaSubject(shape); }});
}

// A bucket is a choice: a projection near a border of two falls into one or the other with the
// rounding of its operands. So the outputs of a layer have no bound here; the core's have one, and
// the hash is compared in kernels/device/buckets_test.cc.
DeviceCase Layer(std::string name, const AnnaHashShape& hash, size_t value_dim) {
  DeviceCase one = WideStates(LayerCase(
      std::move(name),
      AnnaConfig{.hash = hash, .shape = {hash.heads, {hash.tables, hash.buckets(), value_dim}}}));
  one.exact = one.rounded = INFINITY;
  return one;
}

std::vector<DeviceCase> Cases() {
  constexpr HashFamily kSim = HashFamily::kSimHash, kCross = HashFamily::kCrossPolytope;
  return {Everywhere(Core("e16_one_table", {3, {1, 4, 16}})),
          Everywhere(Core("e24_strict", {2, {3, 8, 24}, false})),
          Core("e32", {2, {16, 16, 32}}),
          Core("e64", {4, {8, 64, 64}}),
          Core("e100_strict", {1, {5, 27, 100}, false}),
          Core("e128", {2, {4, 64, 128}}),
          Core("e256_strict", {1, {16, 32, 256}, false}),
          Core("e300", {2, {3, 16, 300}}),
          Core("e512", {1, {2, 16, 512}}),
          Core("e16_sparse", {2, {2, 32, 16}}),
          Everywhere(Layer("layer_signs_d16_e24", {kSim, 2, 16, 4, 3}, 24)),
          Layer("layer_signs_d128", {kSim, 2, 128, 8, 5}, 128),
          Layer("layer_polytopes_d24_e40", {kCross, 3, 24, 3, 1}, 40),
          Layer("layer_polytopes_d64", {kCross, 2, 64, 4, 1}, 64)};
}

INSTANTIATE_TEST_SUITE_P(Anna, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
