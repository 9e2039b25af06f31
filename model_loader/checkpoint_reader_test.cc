// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/checkpoint_reader.h"

#include <cmath>
#include <random>

#include "gmock/gmock.h"
#include "model_loader/testing.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

constexpr size_t kMebibyte = size_t{1} << 20;

// Bytes of mapped files that are in this process's memory.
size_t MappedBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "RssFile:") continue;
    size_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  ADD_FAILURE() << "no RssFile";
  return 0;
}

// A tensor of 64 MiB between two small ones, which is read in several stretches.
class CheckpointReaderTest : public testing::Test {
 protected:
  CheckpointReaderTest() {
    std::vector<TestTensor> tensors = {FloatTensor("before", {3}), FloatTensor("large", kShape),
                                       FloatTensor("after", {5})};
    for (const auto& [index, value] : planted_) SetNumber(tensors[1], index, value);
    file_ = MakeSafetensors(tensors);
  }
  static void SetNumber(TestTensor& tensor, size_t index, float value) {
    std::memcpy(tensor.bytes.data() + 4 * index, &value, 4);
  }
  std::shared_ptr<const SafetensorsCheckpoint> Open() {
    WriteTestFile(path_, file_);
    auto files = SafetensorsCheckpoint::OpenFile(path_);
    EXPECT_TRUE(files.ok()) << files.status();
    return *std::move(files);
  }
  void Plant(size_t index, float value) {
    const size_t at = file_.size() - 4 * (5 + Elements(kShape)) + 4 * index;
    std::memcpy(file_.data() + at, &value, 4);
  }

  static inline const std::vector<size_t> kShape = {4096, 4096};
  const std::string path_ = TestDirectory() + "/model.safetensors";
  const std::vector<std::pair<size_t, float>> planted_ = {{0, 1.0f}, {7'777'777, 2.0f}};
  std::string file_;
  ThreadPool pool_{3};
};

TEST_F(CheckpointReaderTest, GivesUpWhatWasChecked) {
  const auto files = Open();
  CheckpointReader reader(*files, &pool_);
  const size_t before = MappedBytes();
  const TensorView view = reader.Take("large", kShape, TensorUse::kLinear);
  EXPECT_LT(MappedBytes(), before + 24 * kMebibyte);
  EXPECT_EQ(reader.bytes_taken(), 64 * kMebibyte);
  ASSERT_EQ(reader.Problems(), absl::OkStatus());
  // It can still be read.
  const auto* numbers = reinterpret_cast<const char*>(view.data);
  const std::string copy(numbers, 64 * kMebibyte);
  EXPECT_GT(MappedBytes(), before + 48 * kMebibyte);
  float number = 0;
  std::memcpy(&number, copy.data() + 4 * 7'777'777, 4);
  EXPECT_EQ(number, 2.0f);
  reader.DoneWith(view.data, copy.size());
  EXPECT_LT(MappedBytes(), before + 8 * kMebibyte);
  EXPECT_EQ(copy, std::string(numbers, copy.size()));
}

TEST_F(CheckpointReaderTest, CopiesATableAndKeepsNothingMapped) {
  const auto files = Open();
  CheckpointReader reader(*files, &pool_);
  const size_t before = MappedBytes();
  AlignedBuffer<std::byte> rows;
  const EmbeddingTable table = reader.TakeTable("large", kShape[0], kShape[1], rows);
  EXPECT_LT(MappedBytes(), before + 8 * kMebibyte);
  ASSERT_EQ(table.data, rows.data());
  const StoredTensor& tensor = *files->Find("large");
  EXPECT_EQ(std::memcmp(rows.data(), tensor.data, tensor.bytes), 0);
}

// The first of several is named; where the pieces of threads end does not matter.
TEST_F(CheckpointReaderTest, NamesTheFirstNumberThatIsNone) {
  std::mt19937 random(TestSeed());
  const auto some = [&] { return random() % Elements(kShape); };
  const std::string sound = file_;
  for (int i = 0; i < 8; ++i) {
    file_ = sound;
    const size_t one = some(), other = some(), first = std::min(one, other);
    Plant(one, NAN);
    Plant(other, NAN);
    const auto files = Open();
    CheckpointReader reader(*files, &pool_);
    reader.Take("large", kShape, TensorUse::kLinear);
    const std::string place = ShapeString({first / kShape[1], first % kShape[1]});
    EXPECT_THAT(reader.Problems().ToString(), HasSubstr("large is NaN at " + place + ","));
  }
}

TEST_F(CheckpointReaderTest, IgnoresHintsAboutOtherMemory) {
  const auto files = Open();
  CheckpointReader reader(*files, &pool_);
  std::vector<float> own(100'000, 3.0f);
  reader.DoneWith(own.data(), 400'000);
  EXPECT_EQ(own, std::vector<float>(100'000, 3.0f));
}

}  // namespace
}  // namespace rivulet
