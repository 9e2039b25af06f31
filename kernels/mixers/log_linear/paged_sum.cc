// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear/paged_sum.h"

#include "kernels/base/check.h"

namespace rivulet {

PagedSum::PagedSum(const FenwickShape& shape, size_t heads, StateLayout& layout) : shape_(shape) {
  RIVULET_CHECK(shape.levels >= 1 && shape.levels <= kMaxLevels, "levels out of range");
  const PageRule rule = shape.delta ? PageRule::kRewrittenFenwick : PageRule::kFenwick;
  layout.SetPageKind({.rule = rule, .levels = shape.pages()});
  page_offset_ =
      layout.Add(StatePart::kPage, "S", shape.dtype, {heads, shape.key_dim, shape.padded_value()});
  log_decay_offset_ =
      layout.Add(StatePart::kBase, "page_log_decay", DType::kFloat32, {heads, shape.pages(), 2});
}

void PagedSum::Read(const HeadPiece& piece, const LayerState& state, const FenwickTail& tail,
                    const FenwickQuery& query, FloatMatrix out) const {
  ReadFenwick(shape_, Pages(piece, state, piece.fold, piece.from), tail, query, out);
}

void PagedSum::Fold(const HeadPiece& piece, const LayerState& state,
                    const FenwickTail& tail) const {
  FoldFenwick(shape_, piece.chunk, Pages(piece, state, piece.fold, piece.from),
              Pages(piece, state, piece.fold + 1, piece.to), tail);
}

FenwickPages PagedSum::Pages(const HeadPiece& piece, const LayerState& state, size_t fold,
                             uint32_t slot) const {
  FenwickPages pages;
  const uint32_t* table = piece.pages[state.page_kind].Table(fold);
  const size_t matrix = shape_.matrix_elements() * DTypeSize(shape_.dtype);
  for (uint32_t p = 0; p < shape_.pages(); ++p) {
    pages.matrix[p] = nullptr;
    if (table[p] == kNoPage) continue;
    pages.matrix[p] = state.Page<std::byte>(table[p], page_offset_) + piece.head * matrix;
  }
  pages.log_decay =
      state.Base<float>(slot, log_decay_offset_) + piece.head * size_t{2} * shape_.pages();
  return pages;
}

}  // namespace rivulet
