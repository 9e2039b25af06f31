// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/packed_cache.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "model_loader/loaded_model.h"
#include "model_loader/packed_file.h"
#include "model_loader/packed_file_writer.h"
#include "model_loader/testing.h"

namespace rivulet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kTied[] = "tests/parity/fixtures/upstream_hf_qwen3";
constexpr char kUntied[] = "tests/parity/fixtures/upstream_hf_qwen2";

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

uint64_t HashOf(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

// Stands for some of the numbers that a model computes with.
std::pair<uint64_t, uint64_t> WeightsOf(const LoadedModel& model) {
  const EmbeddingTable& table = model.embeddings;
  const size_t bytes = table.vocab * table.width * DTypeSize(table.dtype);
  return {HashOf(model.lm_head.packed().panels),
          HashOf({static_cast<const std::byte*>(table.data), bytes})};
}

class PackedCacheTest : public testing::Test {
 protected:
  PackedCacheTest() {
    options_.threads = 2;
    options_.packed_cache = cache_;
  }
  // A copy of a fixture, to be changed.
  std::string Copy(const std::string& fixture, const std::string& name) {
    const std::string directory = directory_ + "/" + name;
    fs::create_directory(directory);
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(fixture + "/" + file, directory + "/" + file);
    }
    return directory;
  }
  std::unique_ptr<LoadedModel> Load(const std::string& model) {
    auto loaded = LoadModel(model, options_);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *std::move(loaded) : std::make_unique<LoadedModel>();
  }
  PackedCacheUse Use(const std::string& model) { return Load(model)->packed_cache; }
  void ExpectWritten(const std::string& model) {
    const PackedCacheUse use = Use(model);
    EXPECT_TRUE(use.written && !use.read) << use.unused << use.failed;
  }
  void ExpectRead(const std::string& model) {
    const PackedCacheUse use = Use(model);
    EXPECT_TRUE(use.read && !use.written) << use.unused << use.failed;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(cache_)) names.push_back(entry.path());
    return names;
  }

  const std::string directory_ = TestDirectory();
  const std::string cache_ = directory_ + "/a/new/cache";
  LoadOptions options_;
};

TEST_F(PackedCacheTest, TheSecondLoadMapsWhatTheFirstPacked) {
  for (const char* model : {kTied, kUntied}) {
    const auto first = Load(model);
    EXPECT_TRUE(first->packed_cache.written) << first->packed_cache.failed;
    const auto second = Load(model);
    EXPECT_TRUE(second->packed_cache.read) << second->packed_cache.unused;
    EXPECT_FALSE(second->packed_cache.written);
    EXPECT_EQ(WeightsOf(*first), WeightsOf(*second));
    EXPECT_EQ(first->parameters, second->parameters);
    EXPECT_EQ(first->weight_dtype, second->weight_dtype);
    fs::remove_all(cache_);  // the mapping keeps the file
    EXPECT_EQ(WeightsOf(*first), WeightsOf(*second));
  }
}

TEST_F(PackedCacheTest, WithoutADirectoryThereIsNone) {
  options_.packed_cache.clear();
  EXPECT_EQ(Use(kTied).path, "");
}

TEST_F(PackedCacheTest, AnotherKeyForWhateverThePackedWeightsDependOn) {
  const std::string model = Copy(kTied, "model");
  ExpectWritten(model);
  ExpectRead(model);
  options_.weight_dtype = DType::kBFloat16;
  ExpectWritten(model);
  options_.weight_dtype.reset();
  options_.config_override = R"({"eos_token_id": 1})";
  ExpectWritten(model);
  options_.config_override.clear();
  ExpectRead(model);
  const std::string weights = model + "/model.safetensors";
  fs::last_write_time(weights, fs::last_write_time(weights) + std::chrono::seconds(1));
  ExpectWritten(model);
  // A copy elsewhere with the same time is the same model.
  const std::string copy = Copy(kTied, "copy");
  fs::last_write_time(copy + "/model.safetensors", fs::last_write_time(weights));
  ExpectRead(copy);
  EXPECT_EQ(Files().size(), 4u);
}

TEST_F(PackedCacheTest, RefusesAFileOfAnotherModelUnderThisName) {
  const auto plain = Load(kTied);
  const std::string own = plain->packed_cache.path, other = Use(kUntied).path;
  fs::copy_file(other, own, fs::copy_options::overwrite_existing);
  const auto loaded = Load(kTied);
  EXPECT_THAT(loaded->packed_cache.unused.ToString(), HasSubstr("weights of another key"));
  EXPECT_TRUE(loaded->packed_cache.written);
  EXPECT_EQ(WeightsOf(*loaded), WeightsOf(*plain));
  ExpectRead(kTied);
}

TEST_F(PackedCacheTest, NoticesEveryDamageAndWritesTheFileAnew) {
  std::mt19937 random(TestSeed());
  const auto sound = Load(kTied);
  const std::string path = sound->packed_cache.path, bytes = ReadBytes(path);
  for (int i = 0; i < 200; ++i) {
    std::string damaged = bytes;
    // The rest of the header's page is nothing.
    size_t at = random() % (bytes.size() - kPackedDataStart + sizeof(PackedFileHeader));
    if (at >= sizeof(PackedFileHeader)) at += kPackedDataStart - sizeof(PackedFileHeader);
    damaged[at] ^= static_cast<char>(1 << random() % 8);
    WriteTestFile(path, damaged);
    const auto loaded = Load(kTied);
    EXPECT_FALSE(loaded->packed_cache.read) << "byte " << at;
    EXPECT_FALSE(loaded->packed_cache.unused.ok()) << "byte " << at;
    EXPECT_TRUE(loaded->packed_cache.written);
    EXPECT_EQ(WeightsOf(*loaded), WeightsOf(*sound));
    EXPECT_EQ(ReadBytes(path), bytes);
  }
}

TEST_F(PackedCacheTest, NoticesAFileOfAnotherLength) {
  std::mt19937 random(TestSeed());
  const std::string path = Use(kTied).path, bytes = ReadBytes(path);
  std::vector<std::string> wrong = {"", bytes.substr(0, 1), bytes.substr(0, kPackedDataStart),
                                    bytes + "x", bytes.substr(0, bytes.size() - 1)};
  for (int i = 0; i < 50; ++i) wrong.push_back(bytes.substr(0, random() % bytes.size()));
  for (const std::string& text : wrong) {
    WriteTestFile(path, text);
    const PackedCacheUse use = Use(kTied);
    EXPECT_EQ(use.unused.code(), absl::StatusCode::kDataLoss) << text.size() << use.unused;
    EXPECT_TRUE(use.written);
  }
  ExpectRead(kTied);
}

// A table with the right checksum whose contents were made up.
TEST_F(PackedCacheTest, SurvivesTablesThatNobodyWroteLikeThat) {
  const std::string path = Use(kTied).path;
  const std::string key = fs::path(path).stem();
  for (const char* table :
       {"", "7", "[]", "{}", R"({"maps": 3, "checksums": []})", R"({"maps": [7], "checksums": []})",
        R"({"maps": [], "checksums": [1]})", R"({"maps": [], "checksums": ["x"]})",
        R"({"maps": [{"name": "a", "dtype": "bf16", "inputs": -1, "outputs": 1e9,
            "panels": [4096, 18446744073709551615], "bias": [4096, 0]}], "checksums": []})",
        R"({"maps": [{"name": "a", "dtype": "int4", "inputs": 1, "outputs": 1,
            "panels": [4096, 0], "bias": [4096, 0]}], "checksums": []})"}) {
    auto writer = PackedFileWriter::Create(path, 0);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_EQ((*writer)->Finish(table, key), absl::OkStatus());
    const PackedCacheUse use = Use(kTied);
    EXPECT_FALSE(use.unused.ok()) << table;
    EXPECT_TRUE(use.written);
  }
}

// A new version may ask for a map that an older one did not write.
TEST_F(PackedCacheTest, AddsWhatTheFileLacks) {
  const std::string path = Use(kTied).path;
  const std::string key = fs::path(path).stem(), bytes = ReadBytes(path);
  auto writer = PackedFileWriter::Create(path, 0);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_EQ((*writer)->Finish(R"({"maps": [], "checksums": []})", key), absl::OkStatus());
  const PackedCacheUse use = Use(kTied);
  EXPECT_TRUE(use.read && use.written) << use.unused << use.failed;
  EXPECT_EQ(ReadBytes(path), bytes);
  ExpectRead(kTied);
}

TEST_F(PackedCacheTest, LoadsWhereNothingCanBeWritten) {
  WriteTestFile(directory_ + "/file", "");
  for (const std::string& path :
       {directory_ + "/file/below", std::string("/proc/self"), std::string("/proc/self/status")}) {
    options_.packed_cache = path;
    const auto model = Load(kTied);
    EXPECT_FALSE(model->packed_cache.written) << path;
    EXPECT_FALSE(model->packed_cache.failed.ok()) << path;
    EXPECT_EQ(model->layers.size(), model->spec.layers.size());
  }
}

// The limit on a file's size fails as a full disk does.
TEST_F(PackedCacheTest, LeavesNothingBehindOnAFullDisk) {
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before, small;
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  for (const rlim_t limit : {rlim_t{0}, rlim_t{5000}, rlim_t{20'000}}) {
    small.rlim_cur = limit;
    setrlimit(RLIMIT_FSIZE, &small);
    const PackedCacheUse use = Use(kTied);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_FALSE(use.failed.ok());
    EXPECT_FALSE(use.written);
    EXPECT_TRUE(Files().empty()) << limit;
  }
  std::signal(SIGXFSZ, handler);
  ExpectWritten(kTied);
}

TEST_F(PackedCacheTest, SeveralServersMayStartAtOnce) {
  const auto plain = Load(kUntied);
  fs::remove_all(cache_);
  std::vector<std::thread> servers;
  for (int i = 0; i < 6; ++i) {
    servers.emplace_back([&] {
      for (int j = 0; j < 5; ++j) {
        const auto model = Load(kUntied);
        EXPECT_TRUE(model->packed_cache.read || model->packed_cache.written);
        EXPECT_EQ(model->packed_cache.unused, absl::OkStatus());
        EXPECT_EQ(WeightsOf(*model), WeightsOf(*plain));
      }
    });
  }
  for (std::thread& server : servers) server.join();
  EXPECT_EQ(Files().size(), 1u);
  ExpectRead(kUntied);
}

// A writer that is killed half way.
pid_t StartWriter(const std::string& path, bool dies) {
  const pid_t child = fork();
  if (child != 0) return child;
  auto writer = PackedFileWriter::Create(path, 1 << 20);
  if (!writer.ok()) _exit(1);
  const std::vector<std::byte> data(100'000);
  if (!(*writer)->Append(data).ok()) _exit(1);
  if (dies) raise(SIGKILL);
  close(STDOUT_FILENO);
  raise(SIGSTOP);
  _exit(0);
}

TEST_F(PackedCacheTest, RemovesWhatAKilledWriterLeftAndNothingElse) {
  fs::create_directories(cache_);
  int status = 0;
  ASSERT_EQ(waitpid(StartWriter(cache_ + "/dead.packed", true), &status, 0) > 0, true);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(Files().size(), 1u);
  WriteTestFile(cache_ + "/notes", "of a user");
  const pid_t living = StartWriter(cache_ + "/living.packed", false);
  ASSERT_EQ(waitpid(living, &status, WUNTRACED), living);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_EQ(Files().size(), 3u);
  ExpectWritten(kTied);
  const std::vector<std::string> files = Files();
  EXPECT_EQ(files.size(), 3u);
  for (const std::string& file : files) EXPECT_THAT(file, testing::Not(HasSubstr("/dead")));
  kill(living, SIGKILL);
  waitpid(living, &status, 0);
  ExpectRead(kTied);
}

// Data of several chunks, one of them damaged at its last byte.
TEST_F(PackedCacheTest, ChecksEveryChunk) {
  fs::create_directories(cache_);
  ThreadPool pool(3);
  AlignedBuffer<float> numbers(3 * (kPackedChunk / 4) + 1000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 1000);
  const size_t inputs = numbers.size() / 16;
  PackedLinear map;
  map.inputs = inputs;
  map.outputs = 16;
  map.panels = std::as_bytes(std::span(numbers.data(), 16 * inputs));
  const std::string key(32, 'a');
  PackedCache cache(cache_, key);
  cache.Add("map", map);
  ASSERT_EQ(cache.Write(), absl::OkStatus());
  const auto read = [&] { return PackedCache(cache_, key).Read(pool).ToString(); };
  EXPECT_EQ(read(), "OK");
  for (const size_t chunk : {1, 2, 3}) {
    const auto at = static_cast<std::streamoff>(kPackedDataStart + chunk * kPackedChunk - 1);
    std::fstream file(cache.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char was = static_cast<char>(file.get());
    file.seekp(at).put(static_cast<char>(was ^ 4)).flush();
    EXPECT_THAT(read(), HasSubstr(absl::StrCat("from byte ", at + 1 - kPackedChunk, " is wrong")));
    file.seekp(at).put(was).flush();
  }
  EXPECT_EQ(read(), "OK");
}

}  // namespace
}  // namespace rivulet
