// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Executes a RecurrenceDeclaration on the CPU: lays out its planes, appends each token's rows,
// makes its reads and folds its sums. The arithmetic is in recurrence.h, delta.h and fenwick.h;
// here is the order of the calls, resolved once from the declaration's names to offsets.
//
// A unit of work is one group of heads of one session, or one head where the heads of a group share
// only q and k (Mamba-2): its chunk pieces in order, units in parallel. In each piece the rows come
// first, then the reads, then the folds, because a fold may write the base that the reads use.
//
// It knows no config and no weights but the declaration's constants.
//
// Threading: constant after construction; Run is safe from several threads on disjoint segments.
// A step of few tokens allocates nothing once the workspace has grown.
#ifndef RIVULET_KERNELS_RECURRENCE_SUM_RECURRENCE_H_
#define RIVULET_KERNELS_RECURRENCE_SUM_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/recurrence/declaration.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/layer_step.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct DeviceStep;
struct GatedOutputs;
struct PrepareCall;
struct ProjectionCall;
struct SumProgramCall;

class SumRecurrence {
 public:
  // Adds the declaration's planes to `layout`, and its kind of pages if it has levels. An
  // inconsistent declaration is a bug of the mixer and ends the process.
  SumRecurrence(RecurrenceDeclaration declaration, StateLayout& layout);

  const RecurrenceDeclaration& declaration() const { return declaration_; }
  const HeadShape& shape() const { return declaration_.shape; }

  // out [T, H·Ep]; advances the segments' slots.
  void Run(const LayerStep& step, const TokenInputs& inputs, FloatMatrix out) const;

  // The same on a device, whose layout it was made with. REQUIRES: RunsOnDevice(declaration).
  // gated: what becomes of the outputs then, where GatesOnDevice(); null: they are stored.
  // prepare: what makes the inputs, and is done as well; null: they are there. It needs `gated`.
  // projection: the product before that, likewise. It needs `prepare`.
  void Enqueue(const DeviceStep& step, const TokenInputs& inputs, FloatMatrix out,
               const GatedOutputs* gated = nullptr, const PrepareCall* prepare = nullptr,
               const ProjectionCall* projection = nullptr) const;
  bool GatesOnDevice() const;
  // A device has sums in a base, with one read or with several one after the other. What only one
  // read has been used with (delta rule, decays that are inputs, skips) needs one.
  static bool RunsOnDevice(const RecurrenceDeclaration& declaration);

 private:
  using Input = ConstFloatMatrix TokenInputs::*;
  struct Source {
    Input input;
    size_t padded;  // columns of one head or group
  };
  struct Row {
    std::string_view name;
    size_t padded;
    bool per_head;
    bool times_step;
    std::vector<Source> copies = {};
    bool extra = false;  // a normalised read writes the row
    size_t offset = 0, extra_offset = 0;
  };
  struct Sum {
    std::string_view name;
    SumShape shape;
    bool per_head;
    size_t key, value;  // indices of rows
    size_t value_column;
    float decay_power;
    size_t offset = 0, normaliser_offset = 0;
  };
  enum class Target : uint8_t { kOutput, kSummand, kRow, kTemporary };
  struct Read {
    size_t sum;
    Input query;  // null: a temporary
    bool strict;
    float ridge, add;
    bool query_per_head = true;
    size_t temporary = 0;  // the query's
    Target target = Target::kOutput;
    size_t to = 0;  // row or temporary
  };
  struct Temporary {
    std::string_view name;
    size_t columns;  // of one head
  };
  static constexpr size_t kMaxTemporaries = 4;
  struct Call;
  class Unit;

  void AddRow(const DeclaredRow& declared);
  void AddSum(const DeclaredSum& declared);
  void AddRead(const DeclaredRead& declared);
  void CheckLowRank() const;
  size_t TemporaryCalled(std::string_view name, size_t columns);
  void AddPlanes(StateLayout& layout);
  void AddDevicePlanes(StateLayout& layout);
  void AddProgramPlanes(StateLayout& layout);
  void EnqueueProgram(const DeviceStep& step, const TokenInputs& inputs, FloatMatrix out) const;
  SumProgramCall ProgramOf(const DeviceStep& step) const;
  void AddVectors(const DeviceStep& step, const TokenInputs& inputs, FloatMatrix out,
                  SumProgramCall& call) const;
  // Units of a program, each with a part of every plane.
  size_t ProgramUnits() const;
  void AddPagePlanes(StateLayout& layout);
  // The same for a declaration with levels (fenwick_device.cc).
  static bool PagesRunOnDevice(const RecurrenceDeclaration& declaration);
  void AddDevicePagePlanes(StateLayout& layout);
  void EnqueuePages(const DeviceStep& step, const TokenInputs& inputs, FloatMatrix out) const;

  size_t HeadCount(bool per_head) const { return per_head ? shape().heads : shape().groups; }
  bool queries_per_head() const { return declaration_.sharing == Sharing::kKeysAndValues; }
  // Rows of the sum that a token has in the tail.
  size_t rows_a_token() const { return declaration_.low_rank ? 2 : 1; }
  bool scalar_decay() const { return declaration_.decay.kind == Decay::kScalar; }
  bool decay_per_head() const { return scalar_decay() || !queries_per_head(); }
  bool appends_decay() const {
    return declaration_.decay.kind != Decay::kNone && constant_decay_.empty();
  }
  size_t decay_columns() const { return scalar_decay() ? 1 : shape().padded_key(); }
  // Whether each head is a unit of its own. The value heads of a delta rule share the products of
  // their keys instead.
  bool heads_apart() const {
    return !queries_per_head() && !declaration_.delta && !declaration_.low_rank;
  }
  size_t UnitWork() const;
  void KeepGroupRows(const Call& call, bool before_reads) const;

  RecurrenceDeclaration declaration_;
  size_t fold_interval_;                 // C
  AlignedBuffer<float> constant_decay_;  // [H, C]; empty unless the decay is a constant
  std::vector<Row> rows_;
  std::vector<Sum> sums_;
  std::vector<Read> reads_;
  std::vector<Temporary> temporaries_;
  size_t decay_offset_ = 0;
  size_t page_decay_offset_ = 0, beta_offset_ = 0, overlap_offset_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_RECURRENCE_SUM_RECURRENCE_H_
