// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The suite over device memory for every mixer that runs on a device: the cases are in the mixers'
// folders, in *_device_suite_test.cc. On a GPU, from the repository root:
//
//   REQUIRE_GPU=1 build/cuda/test/device_mixers_test --gtest_brief=1
#include "gtest/gtest.h"
#include "kernels/mixers/mixer_suite.h"

namespace rivulet {

// The suite on the CPU is linked with the subjects, and instantiated in the mixers' own tests.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MixerSuite);

}  // namespace rivulet
