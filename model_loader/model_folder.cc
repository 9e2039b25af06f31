// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostListed = 10;
constexpr std::string_view kModelPrefix = "models--";
constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/";
constexpr const char* kAdvice =
    "use the folder of the model that was not quantised (float32, float16 or bfloat16 in "
    "safetensors)";

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Names of what is in a folder, sorted.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

template <typename Matches>
std::vector<std::string> NamesIn(const fs::path& folder, const Matches& matches) {
  std::vector<std::string> names = NamesIn(folder);
  std::erase_if(names, [&](const std::string& name) { return !matches(name); });
  return names;
}

std::string ListOf(const std::vector<std::string>& names) {
  const size_t listed = std::min(names.size(), kMostListed);
  std::string list =
      absl::StrJoin(names.begin(), names.begin() + static_cast<int64_t>(listed), ", ");
  if (listed < names.size()) absl::StrAppend(&list, " and ", names.size() - listed, " more");
  return list;
}

// At most `most` bytes; empty if it is no regular file.
std::string FirstBytes(const fs::path& path, size_t most) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::string bytes(most, 0);
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(most));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

// ---- Files that are not there

// What the loader may read.
bool IsModelFile(const fs::path& path) {
  const fs::path extension = path.extension();
  return extension == ".json" || extension == ".safetensors" || extension == ".jinja" ||
         path.filename() == "tokenizer.model";
}

// "oid sha256:...\nsize 4990000000\n" → " of 4990000000 bytes".
std::string SizeInPointer(std::string_view pointer) {
  const size_t place = pointer.find("\nsize ");
  if (place == std::string_view::npos) return "";
  const std::string_view digits = pointer.substr(place + 6);
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  return end == 0 ? "" : absl::StrCat(" of ", ToAbsl(digits.substr(0, end)), " bytes");
}

absl::Status CheckPointer(const fs::path& path) {
  const std::string bytes = FirstBytes(path, 400);
  if (!bytes.starts_with(kPointer)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      path.string(), " is a Git LFS pointer to a file", SizeInPointer(bytes),
      " that was not downloaded; run `git lfs pull` in the repository, or download it again"));
}

absl::Status CheckLink(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error) || fs::exists(path, error)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(path.string(), " is a link to ", fs::read_symlink(path, error).string(),
                   ", which does not exist: the download is not complete; run it again"));
}

absl::Status CheckFilesAreThere(const fs::path& directory) {
  for (const std::string& name : NamesIn(directory, IsModelFile)) {
    RIVULET_RETURN_IF_ERROR(CheckLink(directory / name));
    RIVULET_RETURN_IF_ERROR(CheckPointer(directory / name));
  }
  return absl::OkStatus();
}

// ---- Other forms of weights

absl::Status RefuseGguf(const std::string& what) {
  return absl::UnimplementedError(
      absl::StrCat(what,
                   " GGUF (llama.cpp), which is not read; use the folder of the model that "
                   "it was made from, with config.json and safetensors"));
}

bool IsGguf(const fs::path& path) {
  return absl::EndsWithIgnoreCase(path.string(), ".gguf") || FirstBytes(path, 4) == "GGUF";
}

bool HasWeights(const fs::path& directory) {
  return Exists(directory / "model.safetensors") ||
         Exists(directory / "model.safetensors.index.json");
}

absl::Status CheckForm(const fs::path& directory) {
  const auto gguf =
      NamesIn(directory, [](const fs::path& name) { return name.extension() == ".gguf"; });
  if (!gguf.empty() && !HasWeights(directory)) {
    return RefuseGguf(absl::StrCat(directory.string(), " has its weights (", ListOf(gguf), ") in"));
  }
  if (Exists(directory / "adapter_config.json") && !Exists(directory / "config.json")) {
    return absl::UnimplementedError(
        absl::StrCat(directory.string(),
                     " is an adapter (adapter_config.json) and no model of its own; merge "
                     "it into the model that it belongs to, and use that folder"));
  }
  // What AutoGPTQ and AutoAWQ wrote before config.json had it.
  for (const char* const name : {"quantize_config.json", "quant_config.json"}) {
    if (!Exists(directory / name)) continue;
    return absl::UnimplementedError(absl::StrCat(directory.string(), " has quantised weights (",
                                                 name, "), which are not read; ", kAdvice));
  }
  return absl::OkStatus();
}

// ---- The hub's cache

bool IsCachedModel(const fs::path& path) {
  return IsFolder(path / "snapshots") && !Exists(path / "config.json");
}

// "models--org--name" → "org/name".
std::string NameOfCachedModel(std::string name) {
  if (name.starts_with(kModelPrefix)) name.erase(0, kModelPrefix.size());
  return absl::StrReplaceAll(name, {{"--", "/"}});
}

absl::StatusOr<std::string> OnlySnapshot(const fs::path& model) {
  const fs::path folder = model / "snapshots";
  const auto commits =
      NamesIn(folder, [&](const std::string& name) { return IsFolder(folder / name); });
  if (commits.size() == 1) return commits[0];
  if (commits.empty()) {
    return absl::NotFoundError(absl::StrCat(
        model.string(), " has no snapshot: the download is not complete; run it again"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      model.string(), " has several snapshots and no refs/main that chooses one; name ",
      folder.string(), "/COMMIT, COMMIT one of ", ListOf(commits)));
}

// refs/main counts, else the only snapshot.
absl::StatusOr<ModelFolder> ChooseSnapshot(const fs::path& model) {
  constexpr size_t kLongestCommit = 200;
  ModelFolder folder;
  folder.name = NameOfCachedModel(model.filename().string());
  folder.commit = FirstBytes(model / "refs" / "main", kLongestCommit);
  absl::StripAsciiWhitespace(&folder.commit);
  if (folder.commit.empty()) {
    RIVULET_ASSIGN_OR_RETURN(folder.commit, OnlySnapshot(model));
  }
  folder.directory = (model / "snapshots" / folder.commit).string();
  const bool inside = folder.commit.find('/') == std::string::npos && folder.commit != "..";
  if (inside && IsFolder(folder.directory)) return folder;
  return absl::NotFoundError(absl::StrCat(
      model.string(), "/refs/main names the snapshot ", folder.commit.substr(0, 100),
      ", which does not exist: the download is not complete; run it again, or name another one of ",
      ListOf(NamesIn(model / "snapshots"))));
}

// A folder with the models of the hub's cache, as ~/.cache/huggingface/hub.
absl::Status CheckNotCache(const fs::path& directory) {
  if (Exists(directory / "config.json")) return absl::OkStatus();
  const fs::path hub = IsFolder(directory / "hub") ? directory / "hub" : directory;
  const auto models =
      NamesIn(hub, [](const std::string& name) { return name.starts_with(kModelPrefix); });
  if (models.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(directory.string(), " is a cache of ", models.size(),
                   models.size() == 1 ? " model" : " models", "; name one of them: ", hub.string(),
                   "/MODEL, MODEL one of ", ListOf(models)));
}

absl::Status CheckFolder(const std::string& path) {
  if (IsFolder(path)) return absl::OkStatus();
  if (IsGguf(path)) return RefuseGguf(absl::StrCat(path, " is"));
  RIVULET_RETURN_IF_ERROR(CheckLink(path));
  return absl::NotFoundError(absl::StrCat(
      "the model directory \"", path, "\" ", Exists(path) ? "is not a directory" : "does not exist",
      "; expected a directory with config.json and model.safetensors"));
}

// The last component, also of "models/tales/" and "."; of a snapshot, the model's name.
ModelFolder Describe(const std::string& directory) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(directory, error);
  if (error || path.filename().empty()) return {directory, directory, ""};
  const fs::path model = path.parent_path().parent_path();
  const bool snapshot = path.parent_path().filename() == "snapshots" &&
                        model.filename().string().starts_with(kModelPrefix);
  if (!snapshot) return {directory, path.filename().string(), ""};
  return {directory, NameOfCachedModel(model.filename().string()), path.filename().string()};
}

// What `quantization_config` or `quantization` (MLX) says; empty: nothing.
std::string QuantisationOf(const nlohmann::json& config) {
  const auto found = config.find("quantization_config");
  if (found != config.end() && found->is_object()) {
    const auto method = found->find("quant_method");
    const bool named = method != found->end() && method->is_string();
    return named ? method->get<std::string>().substr(0, 100) : "a method that it does not name";
  }
  const auto mlx = config.find("quantization");
  return mlx != config.end() && mlx->is_object() && mlx->contains("bits") ? "mlx" : "";
}

}  // namespace

absl::Status CheckNotQuantised(const nlohmann::json& config) {
  std::string method = QuantisationOf(config);
  const auto text = config.find("text_config");
  if (method.empty() && text != config.end() && text->is_object()) method = QuantisationOf(*text);
  if (method.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the weights are quantised by ", method,
                                               " (quantization_config), which is not read; ",
                                               kAdvice));
}

absl::StatusOr<ModelFolder> FindModelFolder(const std::string& path) {
  RIVULET_RETURN_IF_ERROR(CheckFolder(path));
  ModelFolder folder = Describe(path);
  if (IsCachedModel(path)) {
    std::error_code error;
    RIVULET_ASSIGN_OR_RETURN(folder, ChooseSnapshot(fs::weakly_canonical(path, error)));
  }
  RIVULET_RETURN_IF_ERROR(CheckNotCache(folder.directory));
  RIVULET_RETURN_IF_ERROR(CheckFilesAreThere(folder.directory));
  RIVULET_RETURN_IF_ERROR(CheckForm(folder.directory));
  return folder;
}

}  // namespace rivulet
