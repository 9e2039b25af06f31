// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// From a declaration's names to planes and indices. The execution is sum_recurrence_run.cc.
#include "kernels/recurrence/sum_recurrence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/recurrence/fenwick.h"

namespace rivulet {
namespace {

// The index of the element called `name`, or the number of elements.
template <typename Named>
size_t Find(const std::vector<Named>& elements, std::string_view name) {
  const auto found = std::find_if(elements.begin(), elements.end(),
                                  [&](const Named& element) { return element.name == name; });
  return static_cast<size_t>(found - elements.begin());
}

ConstFloatMatrix TokenInputs::*InputCalled(std::string_view name) {
  if (name == "q") return &TokenInputs::q;
  if (name == "k") return &TokenInputs::k;
  if (name == "b") return &TokenInputs::b;
  return name == "v" ? &TokenInputs::v : nullptr;
}

// [H, C]: the cumulative log decays (a + 1) log γ of a chunk, which are the same in every chunk.
AlignedBuffer<float> ConstantDecays(const std::vector<double>& log_gamma, size_t fold_interval) {
  AlignedBuffer<float> table(log_gamma.size() * fold_interval);
  for (size_t i = 0; i < table.size(); ++i) {
    const double tokens = static_cast<double>(i % fold_interval + 1);
    table[i] = static_cast<float>(tokens * log_gamma[i / fold_interval]);
  }
  return table;
}

}  // namespace

SumRecurrence::SumRecurrence(RecurrenceDeclaration declaration, StateLayout& layout)
    : declaration_(std::move(declaration)),
      fold_interval_(layout.fold_interval()),
      constant_decay_(ConstantDecays(declaration_.decay.constant, fold_interval_)) {
  RIVULET_CHECK(fold_interval_ == 16 || fold_interval_ == 32, "the fold interval is 16 or 32");
  for (const DeclaredRow& row : declaration_.rows) AddRow(row);
  for (const DeclaredSum& sum : declaration_.sums) AddSum(sum);
  for (const DeclaredRead& read : declaration_.reads) AddRead(read);
  const bool one_read = sums_.size() == 1 && reads_.size() == 1;
  const bool delta = declaration_.delta || declaration_.low_rank;
  RIVULET_CHECK(one_read || (!delta && declaration_.levels == 0),
                "a delta rule and a sum in pages have one sum and one read");
  if (declaration_.low_rank) CheckLowRank();
  layout.device() ? AddDevicePlanes(layout) : AddPlanes(layout);
}

void SumRecurrence::AddRow(const DeclaredRow& declared) {
  Row row{.name = declared.name,
          .padded = PaddedColumns(declared.width),
          .per_head = declared.copies.empty(),
          .times_step = declared.times_step};
  for (const std::string_view input : declared.copies) {
    const bool value = input == "v";
    row.copies.push_back(
        {InputCalled(input), value ? shape().padded_value() : shape().padded_key()});
    row.per_head |= input == "q" ? queries_per_head() : value && !queries_per_head();
  }
  rows_.push_back(std::move(row));
}

void SumRecurrence::AddSum(const DeclaredSum& declared) {
  const size_t key = Find(rows_, declared.key), value = Find(rows_, declared.value);
  RIVULET_CHECK(key < rows_.size() && value < rows_.size(), "a sum of rows that are not declared");
  const size_t width = declaration_.low_rank ? shape().value_dim : declaration_.rows[value].width;
  const SumShape sum{shape().key_dim, width - declared.value_column, declaration_.decay.kind,
                     declared.normaliser, shape().state_dtype};
  sums_.push_back({.name = declared.name,
                   .shape = sum,
                   .per_head = rows_[key].per_head || rows_[value].per_head || decay_per_head(),
                   .key = key,
                   .value = value,
                   .value_column = declared.value_column,
                   .decay_power = declared.decay_power});
}

void SumRecurrence::CheckLowRank() const {
  const Sum& sum = sums_[0];
  RIVULET_CHECK(!declaration_.delta && declaration_.levels == 0 && !sum.shape.normaliser &&
                    declaration_.decay.kind == Decay::kChannel && decay_per_head() &&
                    shape().heads == shape().groups,
                "a low-rank form is one sum in a base that decays by channel, of heads alone");
  RIVULET_CHECK(rows_[sum.key].padded == 2 * shape().padded_key() &&
                    rows_[sum.value].padded == 2 * shape().padded_value(),
                "the rows of a low-rank form are k | b and v | u");
}

void SumRecurrence::AddRead(const DeclaredRead& declared) {
  Read read{.sum = Find(sums_, declared.sum),
            .query = InputCalled(declared.query),
            .strict = declared.strict,
            .ridge = declared.ridge,
            .add = declared.add};
  RIVULET_CHECK(read.sum < sums_.size(), "a read of a sum that is not declared");
  const SumShape& sum = sums_[read.sum].shape;
  if (read.query == nullptr) {
    read.temporary = TemporaryCalled(declared.query, shape().padded_key());
  } else {
    read.query_per_head = declared.query == "q" && queries_per_head();
  }
  const size_t row = Find(rows_, declared.to);
  if (declared.to == "o") {
    read.target = declared.add == 0.0f ? Target::kOutput : Target::kSummand;
    if (declared.add != 0.0f) read.to = TemporaryCalled("summand", sum.padded_value());
  } else if (row < rows_.size()) {
    read.target = Target::kRow;
    read.to = row;
    rows_[row].extra |= sum.normaliser;
  } else {
    read.target = Target::kTemporary;
    read.to = TemporaryCalled(declared.to, sum.padded_value());
  }
  reads_.push_back(read);
}

size_t SumRecurrence::TemporaryCalled(std::string_view name, size_t columns) {
  const size_t index = Find(temporaries_, name);
  if (index == temporaries_.size()) temporaries_.push_back({name, columns});
  RIVULET_CHECK(temporaries_.size() <= kMaxTemporaries, "too many temporaries");
  return index;
}

void SumRecurrence::AddPlanes(StateLayout& layout) {
  const DType fp32 = DType::kFloat32;
  for (Sum& sum : sums_) {
    const SumShape& s = sum.shape;
    const size_t count = HeadCount(sum.per_head);
    const StatePart part = declaration_.levels != 0 ? StatePart::kPage : StatePart::kBase;
    sum.offset = layout.Add(part, sum.name, s.dtype, {count, s.key_dim, s.padded_value()});
    if (!s.normaliser) continue;
    sum.normaliser_offset = layout.Add(StatePart::kBase, std::string(sum.name) + "_normaliser",
                                       fp32, {count, s.padded_key()});
  }
  for (Row& row : rows_) {
    const size_t count = HeadCount(row.per_head);
    row.offset = layout.Add(StatePart::kTail, row.name, fp32, {count, fold_interval_, row.padded});
    if (!row.extra) continue;
    row.extra_offset = layout.Add(StatePart::kTail, std::string(row.name) + "_extra", fp32,
                                  {count, fold_interval_});
  }
  if (appends_decay()) {
    decay_offset_ = layout.Add(StatePart::kTail, "log_decay", fp32,
                               {HeadCount(decay_per_head()), fold_interval_, decay_columns()});
  }
  if (declaration_.levels != 0) AddPagePlanes(layout);
}

void SumRecurrence::AddPagePlanes(StateLayout& layout) {
  const DType fp32 = DType::kFloat32;
  const size_t heads = shape().heads;
  RIVULET_CHECK(declaration_.levels <= kMaxLevels, "levels out of range");
  RIVULET_CHECK(sums_[0].per_head && appends_decay() && scalar_decay(),
                "a sum in pages decays, head by head");
  const uint32_t pages = FenwickPageCount(declaration_.levels, fold_interval_);
  const bool delta = declaration_.delta;
  layout.SetPageKind(
      {.rule = delta ? PageRule::kRewrittenFenwick : PageRule::kFenwick, .levels = pages});
  page_decay_offset_ = layout.Add(StatePart::kBase, "page_log_decay", fp32, {heads, pages, 2});
  if (!delta) return;
  beta_offset_ = layout.Add(StatePart::kTail, "beta", fp32, {heads, fold_interval_});
  overlap_offset_ =
      layout.Add(StatePart::kTail, "overlap", fp32, {heads, fold_interval_, fold_interval_});
}

}  // namespace rivulet
