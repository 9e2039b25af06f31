// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/safetensors.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<std::vector<StoredTensor>> Parse(const std::string& file) {
  return ParseSafetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "x.st");
}

std::string Refused(const std::string& file,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const auto result = Parse(file);
  EXPECT_EQ(result.status().code(), code) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("x.st"));
  return std::string(result.status().message());
}

std::string WithHeader(const std::string& header, size_t data_bytes = 0) {
  return Refused(RawSafetensors(header, std::string(data_bytes, '\0')));
}

// One tensor "t" with these fields, before `data_bytes` of data.
std::string WithTensor(const std::string& fields, size_t data_bytes = 0) {
  return WithHeader(absl::StrCat("{\"t\":{", fields, "}}"), data_bytes);
}

std::string Entries(const std::string& first, const std::string& second = "") {
  return absl::StrCat("{", first, second.empty() ? "" : ",", second, "}");
}

const std::vector<TestTensor>& Samples() {
  static const std::vector<TestTensor>* const tensors = new std::vector<TestTensor>{
      FloatTensor("a.weight", {2, 3}, 1.5f),
      {"b", "BF16", {1, 1, 2}, std::string("\x80\x3f\0\0", 4)},
      {"empty", "F16", {0, 5}, ""},
      {"scalar", "F16", {}, std::string("\0\x3c", 2)},
      {"ids", "I64", {1}, "12345678"},
  };
  return *tensors;
}

TEST(SafetensorsTest, ReadsEveryTensor) {
  const std::string file = MakeSafetensors(Samples());
  const auto tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), Samples().size());
  for (const TestTensor& expected : Samples()) {
    const auto found = std::find_if(tensors->begin(), tensors->end(),
                                    [&](const StoredTensor& t) { return t.name == expected.name; });
    ASSERT_NE(found, tensors->end()) << expected.name;
    EXPECT_EQ(found->dtype, expected.dtype);
    EXPECT_EQ(found->shape, expected.shape);
    EXPECT_EQ(found->elements, Elements(expected.shape));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(found->data), found->bytes),
              expected.bytes);
  }
}

TEST(SafetensorsTest, TakesMetadataAndPadding) {
  EXPECT_TRUE(Parse(RawSafetensors(R"({"__metadata__":{"format":"pt"}}   )")).ok());
  EXPECT_TRUE(Parse(RawSafetensors("{}")).ok());
}

TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string file = MakeSafetensors(Samples());
  for (size_t size = 0; size < file.size(); ++size) {
    const auto result = Parse(file.substr(0, size));
    ASSERT_EQ(result.status().code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("truncated"));
  }
}

TEST(SafetensorsTest, RefusesBadHeaders) {
  EXPECT_THAT(Refused(std::string(8, '\xff')), HasSubstr("limit is 100000000"));
  EXPECT_THAT(Refused(std::string(7, 'x'), absl::StatusCode::kDataLoss), HasSubstr("7 bytes"));
  std::string longer = RawSafetensors("{}");
  longer[0] = 100;
  EXPECT_THAT(Refused(longer, absl::StatusCode::kDataLoss),
              HasSubstr("offset 108, the file at 10"));
  EXPECT_THAT(Refused(RawSafetensors("")), HasSubstr("does not start with {"));
  EXPECT_THAT(WithHeader("[]"), HasSubstr("does not start with {"));
  EXPECT_THAT(WithHeader("{\"t\":"), HasSubstr("not valid JSON at offset"));
  EXPECT_THAT(WithHeader("{}{}"), HasSubstr("not valid JSON at offset 10"));
  EXPECT_THAT(WithHeader("{\"t\":1}"), HasSubstr("the number 1"));
  EXPECT_THAT(WithHeader("{\"t\":[1]}"), HasSubstr("an array"));
  EXPECT_THAT(WithHeader("{\"\xff\":{}}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(WithHeader("{\"t\":" + std::string(1000000, '[')), HasSubstr("an array"));
  EXPECT_THAT(WithHeader(R"({"__metadata__":{"a":{}}})"), HasSubstr("an object"));
}

TEST(SafetensorsTest, RefusesBadTensors) {
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  EXPECT_THAT(WithHeader(absl::StrCat("{\"t\":{", good, "},\"t\":{", good, "}}"), 4),
              HasSubstr("t stands twice"));
  EXPECT_THAT(WithTensor(R"("dtype":"F32","shape":[1])"), HasSubstr("needs dtype, shape"));
  EXPECT_THAT(WithTensor(good + ",\"dtype\":\"F32\"", 4), HasSubstr("repeated key dtype"));
  EXPECT_THAT(WithTensor(good + ",\"other\":1", 4), HasSubstr("key other"));
  EXPECT_THAT(WithTensor(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])", 4),
              HasSubstr("unknown dtype F31"));
  EXPECT_THAT(WithTensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", 4),
              HasSubstr("the number -1"));
  EXPECT_THAT(WithTensor(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])", 4),
              HasSubstr("the number 1.5"));
  EXPECT_THAT(WithTensor(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4])", 4),
              HasSubstr("the number"));
  EXPECT_THAT(
      WithTensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])", 4),
      HasSubstr("more bytes than 2^64"));
  EXPECT_THAT(WithTensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"),
              HasSubstr("more bytes than 2^64"));
}

TEST(SafetensorsTest, RefusesBadOffsets) {
  const auto tensor = [](const std::string& name, size_t from, size_t to) {
    return TensorJson({name, "F32", {1}, ""}, from, to);
  };
  EXPECT_THAT(WithHeader(Entries(tensor("t", 0, 8)), 8), HasSubstr("expected 4 bytes for F32 [1]"));
  EXPECT_THAT(WithHeader(Entries(tensor("t", 4, 0)), 8), HasSubstr("[4, 0]"));
  EXPECT_THAT(WithHeader(Entries(tensor("a", 0, 4), tensor("b", 0, 4)), 4),
              HasSubstr("inside of tensor a"));
  EXPECT_THAT(WithHeader(Entries(tensor("a", 0, 4), tensor("b", 2, 6)), 6),
              AllOf(HasSubstr("tensor b starts at data offset 2"), HasSubstr("ends at 4")));
  EXPECT_THAT(WithHeader(Entries(tensor("a", 0, 4), tensor("b", 8, 12)), 12),
              HasSubstr("leaving a hole after tensor a"));
  EXPECT_THAT(WithHeader(Entries(tensor("a", 4, 8)), 8), HasSubstr("hole after the header"));
  EXPECT_THAT(WithHeader(Entries(tensor("a", 0, 4)), 5), HasSubstr("1 more bytes follow"));
  EXPECT_THAT(
      Refused(RawSafetensors(Entries(tensor("a", 0, 4)), "abc"), absl::StatusCode::kDataLoss),
      HasSubstr("ends at data offset 4, the data at 3"));
}

// With any bytes flipped or lost, the result is a table inside the file or a status.
TEST(SafetensorsTest, SurvivesRandomDamage) {
  std::mt19937 random(TestSeed());
  const std::string file = MakeSafetensors(Samples());
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = file;
    for (unsigned flips = random() % 4; flips-- > 0;) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    }
    if (random() % 4 == 0) damaged[8 + random() % 300] = "0123456789[]{},:\" "[random() % 18];
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    const auto tensors = Parse(damaged);
    if (!tensors.ok()) continue;
    ++accepted;
    const auto* start = reinterpret_cast<const uint8_t*>(damaged.data());
    for (const StoredTensor& tensor : *tensors) {
      ASSERT_LE(start + 8, tensor.data);
      ASSERT_LE(tensor.data + tensor.bytes, start + damaged.size());
    }
  }
  EXPECT_GT(accepted, 0);  // flips in data and names do not damage the table
}

TEST(SafetensorsCheckpointTest, OpensASingleFile) {
  const std::string directory = TestDirectory();
  WriteTestFile(directory + "/model.safetensors", MakeSafetensors(Samples()));
  const auto checkpoint = SafetensorsCheckpoint::Open(directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_NE((*checkpoint)->Find("a.weight"), nullptr);
  EXPECT_EQ((*checkpoint)->Find("c"), nullptr);
  EXPECT_EQ((*checkpoint)->bytes(), 24u + 4 + 2 + 8);
}

TEST(SafetensorsCheckpointTest, NoticesAChangedFile) {
  const std::string path = TestDirectory() + "/model.safetensors";
  WriteTestFile(path, MakeSafetensors(Samples()));
  const auto checkpoint = SafetensorsCheckpoint::OpenFile(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE((*checkpoint)->CheckUnchanged().ok());
  ASSERT_EQ(truncate(path.c_str(), 100), 0);
  EXPECT_EQ((*checkpoint)->CheckUnchanged().code(), absl::StatusCode::kDataLoss);
}

class ShardedTest : public testing::Test {
 protected:
  void Write(const std::string& weight_map) {
    WriteTestFile(directory_ + "/one.safetensors", MakeSafetensors({FloatTensor("a", {1})}));
    WriteTestFile(directory_ + "/two.safetensors", MakeSafetensors({FloatTensor("b", {2})}));
    WriteTestFile(directory_ + "/model.safetensors.index.json",
                  "{\"metadata\":{\"total_size\":12},\"weight_map\":" + weight_map + "}");
  }
  std::string Error(const std::string& weight_map) {
    Write(weight_map);
    const auto result = SafetensorsCheckpoint::Open(directory_);
    EXPECT_FALSE(result.ok());
    return result.status().ToString();
  }
  const std::string directory_ = TestDirectory();
};

TEST_F(ShardedTest, OpensAllShards) {
  Write(R"({"a":"one.safetensors","b":"two.safetensors"})");
  const auto checkpoint = SafetensorsCheckpoint::Open(directory_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->tensors().size(), 2u);
  EXPECT_EQ((*checkpoint)->Find("b")->shape, std::vector<size_t>{2});
}

TEST_F(ShardedTest, RefusesAnIndexThatDisagrees) {
  EXPECT_THAT(Error(R"({"a":"one.safetensors","b":"three.safetensors"})"),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("1 of 2 shards are missing"),
                    HasSubstr("three.safetensors")));
  EXPECT_THAT(Error(R"({"a":"one.safetensors","c":"two.safetensors"})"),
              HasSubstr("has tensor b, but the index does not list it"));
  EXPECT_THAT(Error(R"({"a":"two.safetensors","b":"one.safetensors"})"),
              HasSubstr("has tensor a, but the index says it is in two.safetensors"));
  EXPECT_THAT(Error(R"({"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"})"),
              HasSubstr("tensor c is in two.safetensors, which does not have it"));
  EXPECT_THAT(Error(R"({"a":"../one.safetensors"})"), HasSubstr("same directory"));
  EXPECT_THAT(Error(R"({"a":7})"), HasSubstr("same directory"));
  EXPECT_THAT(Error("[]"), HasSubstr("has no weight_map"));
  EXPECT_THAT(Error("{"), HasSubstr("not valid JSON"));
}

TEST(SafetensorsCheckpointTest, SaysWhatIsMissing) {
  const std::string directory = TestDirectory();
  EXPECT_THAT(SafetensorsCheckpoint::Open(directory).status().ToString(),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("expected model.safetensors")));
  WriteTestFile(directory + "/pytorch_model.bin", "x");
  EXPECT_THAT(SafetensorsCheckpoint::Open(directory).status().ToString(),
              HasSubstr("convert_mamba_ssm.py"));
  std::filesystem::create_directory(directory + "/model.safetensors");
  EXPECT_THAT(SafetensorsCheckpoint::Open(directory).status().ToString(),
              HasSubstr("not a regular file"));
  EXPECT_EQ(MappedFile::Open("/no/such/file").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace rivulet
