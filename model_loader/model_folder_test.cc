// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/model_folder.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/loaded_model.h"
#include "model_loader/testing.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const std::string kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4990000000\n";

class ModelFolderTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& bytes) {
    fs::create_directories(fs::path(root_ + "/" + path).parent_path());
    WriteTestFile(root_ + "/" + path, bytes);
  }
  // A file of a snapshot: a link to a blob.
  void WriteBlob(const std::string& commit, const std::string& name, const std::string& bytes) {
    Write(kModel + "/blobs/" + commit + name, bytes);
    const fs::path link = root_ + "/" + kModel + "/snapshots/" + commit + "/" + name;
    fs::create_directories(link.parent_path());
    fs::create_symlink("../../blobs/" + commit + name, link);
  }
  std::string Refusal(const std::string& path) {
    const auto folder = FindModelFolder(root_ + "/" + path);
    EXPECT_FALSE(folder.ok()) << folder->directory;
    return folder.status().ToString();
  }

  const std::string kModel = "hub/models--org--na.me-8B";
  const std::string root_ = TestDirectory();
};

TEST_F(ModelFolderTest, IsTheDirectoryItself) {
  Write("some/model/config.json", "{}");
  for (const std::string path : {"/some/model", "/some/model/", "/some/../some/model/."}) {
    const auto folder = FindModelFolder(root_ + path);
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_EQ(folder->directory, root_ + path);
    EXPECT_EQ(folder->name, "model");
    EXPECT_EQ(folder->commit, "");
  }
  EXPECT_THAT(Refusal("none"), AllOf(HasSubstr("NOT_FOUND"), HasSubstr("does not exist")));
  EXPECT_THAT(Refusal("some/model/config.json"), HasSubstr("is not a directory"));
}

TEST_F(ModelFolderTest, IsTheSnapshotThatMainNames) {
  WriteBlob("aaa", "config.json", "{}");
  WriteBlob("bbb", "config.json", "{}");
  Write(kModel + "/refs/main", "bbb\n");
  const auto folder = FindModelFolder(root_ + "/" + kModel);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_TRUE(fs::equivalent(folder->directory, root_ + "/" + kModel + "/snapshots/bbb"));
  EXPECT_EQ(folder->name, "org/na.me-8B");
  EXPECT_EQ(folder->commit, "bbb");
  const auto other = FindModelFolder(root_ + "/" + kModel + "/snapshots/aaa");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->name, "org/na.me-8B");
  EXPECT_EQ(other->commit, "aaa");
}

TEST_F(ModelFolderTest, WithoutMainTheOnlySnapshot) {
  WriteBlob("aaa", "config.json", "{}");
  const auto folder = FindModelFolder(root_ + "/" + kModel);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->commit, "aaa");
  WriteBlob("bbb", "config.json", "{}");
  EXPECT_THAT(Refusal(kModel), AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("several snapshots"),
                                     HasSubstr("aaa, bbb")));
}

TEST_F(ModelFolderTest, NamesWhatIsMissingInTheCache) {
  fs::create_directories(root_ + "/" + kModel + "/snapshots");
  EXPECT_THAT(Refusal(kModel), AllOf(HasSubstr("NOT_FOUND"), HasSubstr("has no snapshot")));
  WriteBlob("aaa", "config.json", "{}");
  for (const char* const commit : {"ccc", "../..", ".."}) {
    Write(kModel + "/refs/main", commit);
    EXPECT_THAT(Refusal(kModel),
                AllOf(HasSubstr(std::string("names the snapshot ") + commit), HasSubstr("aaa")));
  }
  Write(kModel + "/refs/main", "aaa");
  WriteBlob("aaa", "model.safetensors", "x");
  fs::remove(root_ + "/" + kModel + "/blobs/aaamodel.safetensors");
  EXPECT_THAT(Refusal(kModel), AllOf(HasSubstr("aaa/model.safetensors is a link to"),
                                     HasSubstr("the download is not complete")));
}

TEST_F(ModelFolderTest, AsksForOneModelOfACache) {
  WriteBlob("aaa", "config.json", "{}");
  EXPECT_THAT(Refusal("hub"), AllOf(HasSubstr("a cache of 1 model"), HasSubstr("na.me-8B")));
  EXPECT_THAT(Refusal(""), AllOf(HasSubstr("a cache of 1 model"), HasSubstr("/hub/MODEL")));
}

TEST_F(ModelFolderTest, NamesGitLfsPointers) {
  for (const char* const name :
       {"config.json", "model.safetensors", "tokenizer.json", "model-00001-of-00002.safetensors",
        "tokenizer.model", "model.safetensors.index.json", "chat_template.jinja"}) {
    Write(std::string("lfs/") + name, kPointer);
    EXPECT_THAT(Refusal("lfs"), AllOf(HasSubstr("NOT_FOUND"),
                                      HasSubstr(std::string(name) + " is a Git LFS pointer"),
                                      HasSubstr("4990000000 bytes"), HasSubstr("git lfs pull")));
    fs::remove(root_ + "/lfs/" + name);
  }
  Write("lfs/pytorch_model.bin", kPointer);  // it is not read
  EXPECT_TRUE(FindModelFolder(root_ + "/lfs").ok());
}

TEST_F(ModelFolderTest, RefusesOtherFormsByName) {
  Write("gguf/model-q4.gguf", "GGUF");
  Write("gguf/config.json", "{}");
  EXPECT_THAT(Refusal("gguf"), AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("model-q4.gguf"),
                                     HasSubstr("GGUF (llama.cpp)"), HasSubstr("safetensors")));
  EXPECT_THAT(Refusal("gguf/model-q4.gguf"), HasSubstr("is GGUF (llama.cpp)"));
  Write("gguf/model.safetensors", "");
  EXPECT_TRUE(FindModelFolder(root_ + "/gguf").ok()) << "both: the safetensors are served";
  Write("other", "GGUF...");
  EXPECT_THAT(Refusal("other"), HasSubstr("is GGUF (llama.cpp)"));
  Write("gptq/quantize_config.json", "{}");
  EXPECT_THAT(Refusal("gptq"), HasSubstr("quantize_config.json"));
  Write("lora/adapter_config.json", "{}");
  EXPECT_THAT(Refusal("lora"), HasSubstr("an adapter"));
}

TEST_F(ModelFolderTest, RefusesQuantisedWeightsByName) {
  for (const char* const method :
       {"gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors", "mxfp4"}) {
    const nlohmann::json config = {{"quantization_config", {{"quant_method", method}}}};
    const std::string outer = CheckNotQuantised(config).ToString();
    EXPECT_THAT(outer, AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr(method), HasSubstr("bfloat16")));
    EXPECT_EQ(CheckNotQuantised({{"text_config", config}}).ToString(), outer);
  }
  EXPECT_THAT(CheckNotQuantised({{"quantization", {{"bits", 4}, {"group_size", 64}}}}).ToString(),
              HasSubstr("mlx"));
  EXPECT_TRUE(CheckNotQuantised({{"quantization_config", nullptr}}).ok());
  EXPECT_TRUE(CheckNotQuantised({{"text_config", 3}}).ok());
}

// All of it through LoadModel.
TEST_F(ModelFolderTest, TheLoaderUsesIt) {
  EXPECT_THAT(LoadModel(root_ + "/none", {}).status().ToString(), HasSubstr("does not exist"));
  Write("awq/config.json", R"({"model_type": "llama", "quantization_config": {"quant_method":
                               "awq", "bits": 4}})");
  EXPECT_THAT(LoadModel(root_ + "/awq", {}).status().ToString(), HasSubstr("quantised by awq"));
  const fs::path fixture = fs::absolute("tests/parity/fixtures/mamba2_hf");
  for (const auto& entry : fs::directory_iterator(fixture)) {
    const fs::path link =
        root_ + "/" + kModel + "/snapshots/abc/" + entry.path().filename().string();
    fs::create_directories(link.parent_path());
    fs::create_symlink(entry.path(), link);
  }
  const auto model = LoadModel(root_ + "/" + kModel, {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->name, "org/na.me-8B");
}

}  // namespace
}  // namespace rivulet
