// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A layer's feed-forward block from its spec and wherever the trained numbers come from: a
// checkpoint, or random ones. Problems with the tensors are the source's to tell
// (kernels/mixers/parameter_source.h).
#ifndef RIVULET_MODEL_LOADER_FEED_FORWARD_LOADER_H_
#define RIVULET_MODEL_LOADER_FEED_FORWARD_LOADER_H_

#include <cstddef>
#include <memory>

#include "kernels/mixers/parameter_source.h"
#include "kernels/ops/feed_forward/feed_forward.h"
#include "model_loader/model_spec.h"

namespace rivulet {

// `parameters` knows the tensors by the spec's names. Null for a block without one.
std::unique_ptr<FeedForward> TakeFeedForward(const FeedForwardSpec& spec, size_t hidden,
                                             ParameterSource& parameters);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_FEED_FORWARD_LOADER_H_
