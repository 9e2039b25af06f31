// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_MODEL_LOADER_SENTENCEPIECE_NORMALIZER_CHECK_H_
#define RIVULET_MODEL_LOADER_SENTENCEPIECE_NORMALIZER_CHECK_H_

#include <string_view>

namespace rivulet {

// Whether the normalisation table of a serialized SentencePiece model (ModelProto: normalizer_spec
// and denormalizer_spec, precompiled_charsmap) can be walked without leaving it. The library
// follows the table's offsets unchecked, so that one flipped bit in a model file would end the
// process at some later Encode. Also false for bytes that do not parse. Does not look at
// anything else; the library's own checks do.
bool NormalizersAreSound(std::string_view model);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_SENTENCEPIECE_NORMALIZER_CHECK_H_
