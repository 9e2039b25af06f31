// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/hla/ahla/ahla_reference.h"
#include "kernels/mixers/hla/hla_config.h"
#include "kernels/mixers/hla/hla_reference.h"
#include "kernels/mixers/hla/hla_subject.h"
#include "kernels/mixers/hla/third_order/third_order_reference.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

HeadReference ReferenceOf(const HlaConfig& config) {
  switch (config.variant) {
    case HlaVariant::kAsymmetric:
      return AhlaReference;
    case HlaVariant::kThird:
      return [paper = config.form == HlaForm::kPaper](const HeadSequence& sequence) {
        return ThirdOrderReference({sequence, paper});
      };
    case HlaVariant::kSymmetric:
      break;
  }
  return [form = config.form, ridge = config.ridge_lambda](const HeadSequence& sequence) {
    return HlaReference({sequence, form, ridge});
  };
}

// Slow and fast heads in turn. Queries and keys of a normalised sum are positive, so that it is not
// near zero.
HlaParameters Parameters(const HlaConfig& config) {
  HlaParameters p;
  p.config = config;
  for (size_t h = 0; config.use_decay && h < config.shape.heads; ++h) {
    p.log_gamma.push_back(std::log(1.0 - std::exp2(-3.0 - static_cast<double>(h % 4))));
  }
  if (config.normalize) p.low = 0.1, p.high = 1.1;
  return p;
}

DeviceCase Core(std::string name, const HlaConfig& config) {
  DeviceCase one = CoreCase(std::move(name), config.shape, [=](const HeadShape& own) {
    HlaParameters p = Parameters(config);
    p.config.shape = own;
    return MakeHlaSubject(p, ReferenceOf(config));
  });
  // The paper's form subtracts sums that nearly cancel, and states must be fp32.
  one.narrow_states = config.form != HlaForm::kPaper;
  return one;
}

DeviceCase Layer(std::string name, const HlaConfig& config) {
  return LayerCase(std::move(name), config);
}

constexpr auto kAhla = HlaVariant::kAsymmetric;
constexpr auto kThird = HlaVariant::kThird;
constexpr float kRidge = 0.3f;

std::vector<DeviceCase> SecondOrder() {
  const HeadShape narrow{4, 2, 40, 72};
  return {
      Everywhere(Core("masked_d16", {.shape = {3, 3, 16, 16}, .use_decay = true})),
      Everywhere(Core("masked_d24_e40_grouped", {.shape = {4, 2, 24, 40}, .use_decay = true})),
      Core("masked_d32", {.shape = {4, 4, 32, 32}, .use_decay = true}),
      Core("masked_d64", {.shape = {4, 4, 64, 64}, .use_decay = true}),
      Core("masked_d64_ridge",
           {.shape = {2, 2, 64, 64}, .use_decay = true, .ridge_lambda = kRidge}),
      Core("masked_d64_grouped", {.shape = {4, 2, 64, 64}, .use_decay = true}),
      Core("masked_d64_no_decay", {.shape = {4, 4, 64, 64}}),
      Core("masked_d64_e80", {.shape = {2, 2, 64, 80}, .use_decay = true}),
      Core("masked_d64_e384", {.shape = {1, 1, 64, 384}, .use_decay = true}),
      Core("masked_grouped_ridge", {.shape = narrow, .use_decay = true, .ridge_lambda = kRidge}),
      EveryMode(Core("masked_d96", {.shape = {2, 2, 96, 96}, .use_decay = true})),
      Core("masked_d128", {.shape = {2, 2, 128, 128}, .use_decay = true}),
      Core("masked_d128_norm",
           {.shape = {2, 2, 128, 128}, .normalize = true, .use_decay = true, .ridge_lambda = 1}),
      Core("masked_d256", {.shape = {2, 2, 256, 256}, .use_decay = true}),
      Core("masked_d300_e72", {.shape = {1, 1, 300, 72}, .use_decay = true}),
      Core("masked_d512", {.shape = {1, 1, 512, 512}, .use_decay = true}),
      Core("serial_d64", {.form = HlaForm::kSerial, .shape = {2, 2, 64, 64}, .use_decay = true}),
      Core("serial_d128", {.form = HlaForm::kSerial, .shape = {2, 2, 128, 128}, .use_decay = true}),
      Core("serial_grouped_ridge",
           {.form = HlaForm::kSerial, .shape = narrow, .use_decay = true, .ridge_lambda = kRidge}),
      Everywhere(Core("none_d16_norm", {.form = HlaForm::kUnmasked,
                                        .shape = {2, 2, 16, 16},
                                        .normalize = true,
                                        .use_decay = true})),
      Core("none_d64", {.form = HlaForm::kUnmasked, .shape = {2, 2, 64, 64}, .use_decay = true}),
      Core("none_d256", {.form = HlaForm::kUnmasked, .shape = {1, 1, 256, 64}, .use_decay = true})};
}

std::vector<DeviceCase> OtherOrders() {
  const HeadShape narrow{4, 2, 40, 72};
  return {
      Everywhere(Core("ahla_d16", {.variant = kAhla, .shape = {2, 2, 16, 16}, .use_decay = true})),
      Core("ahla_d48_norm", {.variant = kAhla, .shape = {2, 2, 48, 48}, .normalize = true}),
      Core("ahla_d64", {.variant = kAhla, .shape = {4, 4, 64, 64}, .use_decay = true}),
      Core("ahla_d64_e16", {.variant = kAhla, .shape = {2, 2, 64, 16}, .use_decay = true}),
      Core("ahla_grouped_norm", {.variant = kAhla, .shape = narrow, .normalize = true}),
      Core("ahla_d128", {.variant = kAhla, .shape = {2, 2, 128, 128}, .use_decay = true}),
      Core("ahla_d256", {.variant = kAhla, .shape = {2, 2, 256, 256}, .use_decay = true}),
      Everywhere(
          Core("third_d16", {.variant = kThird, .shape = {2, 2, 16, 16}, .use_decay = true})),
      Core("third_grouped", {.variant = kThird, .shape = narrow, .use_decay = true}),
      Core("third_d64", {.variant = kThird, .shape = {2, 2, 64, 64}, .use_decay = true}),
      Core("third_d64_e48", {.variant = kThird, .shape = {2, 2, 64, 48}, .use_decay = true}),
      Core("third_d128_norm", {.variant = kThird, .shape = {1, 1, 128, 128}, .normalize = true}),
      Core("third_d256", {.variant = kThird, .shape = {1, 1, 256, 64}, .use_decay = true}),
      Core(
          "paper_d64",
          {.variant = kThird, .form = HlaForm::kPaper, .shape = {2, 2, 64, 64}, .use_decay = true}),
      Core("paper_grouped", {.variant = kThird,
                             .form = HlaForm::kPaper,
                             .shape = {2, 1, 24, 40},
                             .use_decay = true})};
}

std::vector<DeviceCase> Layers() {
  return {
      Everywhere(Layer("layer_masked_d16_e24",
                       {.shape = {4, 2, 16, 24}, .use_decay = true, .conv_size = 4})),
      Layer("layer_serial_d64",
            {.form = HlaForm::kSerial, .shape = {2, 2, 64, 64}, .use_decay = true}),
      Layer("layer_ahla_d128", {.variant = kAhla, .shape = {2, 2, 128, 128}, .use_decay = true}),
      Layer("layer_third_d32", {.variant = kThird, .shape = {2, 2, 32, 32}, .use_decay = true})};
}

std::vector<DeviceCase> Cases() {
  std::vector<DeviceCase> all = SecondOrder();
  for (const auto& more : {OtherOrders(), Layers()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Hla, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
