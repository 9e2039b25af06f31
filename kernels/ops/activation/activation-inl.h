// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The activation functions on one Block, for every CPU kernel that applies one: what Activate
// computes for a number and what a fused kernel computes for it are the same bits. NaN in, NaN out.

#if defined(RIVULET_KERNELS_OPS_ACTIVATION_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIVULET_KERNELS_OPS_ACTIVATION_ACTIVATION_INL_H_
#undef RIVULET_KERNELS_OPS_ACTIVATION_ACTIVATION_INL_H_
#else
#define RIVULET_KERNELS_OPS_ACTIVATION_ACTIVATION_INL_H_
#endif

#include <type_traits>

#include "kernels/base/simd-inl.h"
#include "kernels/ops/activation/activation.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// e^x for every float: 0 below the range, infinity above it. Highway's Exp by itself is undefined
// above 104 and turns NaN into 0. Between ln(FLT_MAX) and 104 its result is infinity already.
HWY_INLINE FloatVector FullExp(FloatVector x) {
  const FloatTag tag;
  const FloatVector limited =
      hn::IfThenElse(hn::Gt(x, hn::Set(tag, 104.0f)), hn::Set(tag, 104.0f), x);
  return hn::IfThenElse(hn::Eq(x, x), hn::Exp(tag, limited), x);
}

// 1 / (1 + e^-x). e^-x is infinite for x < -88.7, where σ(x) < 2^-127 rounds to 0.
HWY_INLINE FloatVector SigmoidVector(FloatVector x) {
  const FloatVector one = hn::Set(FloatTag(), 1.0f);
  return hn::Div(one, hn::Add(one, FullExp(hn::Neg(x))));
}

// max(x, 0) + log(1 + e^-|x|): no overflow on either side. Above 20 the second term is below half a
// unit in the last place of x, so PyTorch's switch to x itself is the same function.
HWY_INLINE FloatVector SoftplusVector(FloatVector x) {
  const FloatTag tag;
  const FloatVector small = hn::Log1p(tag, FullExp(hn::Neg(hn::Abs(x))));
  const FloatVector positive = hn::IfThenElse(hn::Lt(x, hn::Zero(tag)), hn::Zero(tag), x);
  return hn::IfThenElse(hn::Eq(x, x), hn::Add(positive, small), x);
}

// (1 + tanh(z)) / 2 is σ(2z). Where x³ overflows, σ is 0 or 1 as it should be.
HWY_INLINE FloatVector GeluTanhVector(FloatVector x) {
  const FloatTag tag;
  const FloatVector square = hn::Mul(x, x);
  const FloatVector inner = hn::MulAdd(hn::Mul(square, x), hn::Set(tag, 0.044715f), x);
  const FloatVector sigma = SigmoidVector(hn::Mul(inner, hn::Set(tag, 1.5957691216057308f)));
  return hn::Mul(x, sigma);
}

// erfc(z), z >= 0: t e^{P(t) - z²} with t = 1 / (1 + z/2) and P fitted at Chebyshev points of z in
// [0, 20]; within 1e-7 of the value.
HWY_INLINE FloatVector ErfcVector(FloatVector z) {
  constexpr float kFit[] = {0.18296783821f, -0.88065938859f, 1.6082061579f,  -1.2699457488f,
                            0.36984524066f, -0.22394879165f, 0.10616185714f, 0.37277156466f,
                            1.0001159355f,  -1.2655145678f};
  const FloatTag tag;
  const FloatVector one = hn::Set(tag, 1.0f);
  const FloatVector t = hn::Div(one, hn::MulAdd(z, hn::Set(tag, 0.5f), one));
  FloatVector exponent = hn::Set(tag, kFit[0]);
  for (size_t i = 1; i < 10; ++i) exponent = hn::MulAdd(exponent, t, hn::Set(tag, kFit[i]));
  return hn::Mul(t, FullExp(hn::NegMulAdd(z, z, exponent)));
}

// x/2 erfc(-x/√2), by erfc(-z) = 2 - erfc(z) for x > 0.
HWY_INLINE FloatVector GeluVector(FloatVector x) {
  const FloatTag tag;
  const FloatVector tail =
      hn::Mul(hn::Set(tag, 0.5f), ErfcVector(hn::Mul(hn::Abs(x), hn::Set(tag, 0.70710678118f))));
  const FloatVector share =
      hn::IfThenElse(hn::Gt(x, hn::Zero(tag)), hn::Sub(hn::Set(tag, 1.0f), tail), tail);
  return hn::Mul(x, share);
}

template <Activation f>
HWY_INLINE FloatVector ActivateVector(FloatVector x) {
  const FloatVector zero = hn::Zero(FloatTag());
  const FloatVector one = hn::Set(FloatTag(), 1.0f);
  if constexpr (f == Activation::kIdentity) return x;
  if constexpr (f == Activation::kSilu) return hn::Mul(x, SigmoidVector(x));
  if constexpr (f == Activation::kSigmoid) return SigmoidVector(x);
  if constexpr (f == Activation::kRelu) return hn::IfThenElse(hn::Lt(x, zero), zero, x);
  if constexpr (f == Activation::kEluPlusOne) {
    return hn::IfThenElse(hn::Gt(x, zero), hn::Add(x, one), FullExp(x));
  }
  if constexpr (f == Activation::kExp) return FullExp(x);
  if constexpr (f == Activation::kSoftplus) return SoftplusVector(x);
  if constexpr (f == Activation::kLogSigmoid) return hn::Neg(SoftplusVector(hn::Neg(x)));
  if constexpr (f == Activation::kGeluTanh) return GeluTanhVector(x);
  if constexpr (f == Activation::kGelu) return GeluVector(x);
  if constexpr (f == Activation::kReluSquared) {
    const FloatVector positive = hn::IfThenElse(hn::Lt(x, zero), zero, x);
    return hn::Mul(positive, positive);
  }
  if constexpr (f == Activation::kTanh) return hn::Tanh(FloatTag(), x);
}

template <Activation f>
HWY_INLINE Block ActivateBlock(const Block& x) {
  return MapBlock([](auto v) HWY_ATTR { return ActivateVector<f>(v); }, x);
}
HWY_INLINE Block SiluBlock(const Block& x) { return ActivateBlock<Activation::kSilu>(x); }

// Calls visit(std::integral_constant<Activation, f>()), so that the choice is made outside of
// loops.
template <typename Visit>
HWY_INLINE void VisitActivation(Activation f, Visit&& visit) {
  switch (f) {
    case Activation::kIdentity:
      return visit(std::integral_constant<Activation, Activation::kIdentity>());
    case Activation::kSilu:
      return visit(std::integral_constant<Activation, Activation::kSilu>());
    case Activation::kSigmoid:
      return visit(std::integral_constant<Activation, Activation::kSigmoid>());
    case Activation::kRelu:
      return visit(std::integral_constant<Activation, Activation::kRelu>());
    case Activation::kEluPlusOne:
      return visit(std::integral_constant<Activation, Activation::kEluPlusOne>());
    case Activation::kExp:
      return visit(std::integral_constant<Activation, Activation::kExp>());
    case Activation::kSoftplus:
      return visit(std::integral_constant<Activation, Activation::kSoftplus>());
    case Activation::kLogSigmoid:
      return visit(std::integral_constant<Activation, Activation::kLogSigmoid>());
    case Activation::kGeluTanh:
      return visit(std::integral_constant<Activation, Activation::kGeluTanh>());
    case Activation::kGelu:
      return visit(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kReluSquared:
      return visit(std::integral_constant<Activation, Activation::kReluSquared>());
    case Activation::kTanh:
      return visit(std::integral_constant<Activation, Activation::kTanh>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#endif  // RIVULET_KERNELS_OPS_ACTIVATION_ACTIVATION_INL_H_
