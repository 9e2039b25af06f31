// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The format: PKWARE's APPNOTE.TXT, sections 4.3.7 (a file's header), 4.3.12 (the directory) and
// 4.3.16 (its end). Numbers are little-endian.
#include "server/vllm/zip_archive.h"

#include <zlib.h>

#include "absl/strings/str_cat.h"

namespace rivulet::vllm_engine {
namespace {

constexpr size_t kMostBytes = size_t{1} << 31;
constexpr uint16_t kVersion = 20;  // 2.0: deflate
constexpr uint16_t kUtf8Names = 1 << 11;
constexpr uint16_t kDeflated = 8;
constexpr uint16_t kDate = (1 << 5) | 1;  // 1 January 1980

void Append16(uint16_t value, std::string& out) {
  out += static_cast<char>(value & 0xFF);
  out += static_cast<char>(value >> 8);
}
void Append32(uint32_t value, std::string& out) {
  Append16(static_cast<uint16_t>(value & 0xFFFF), out);
  Append16(static_cast<uint16_t>(value >> 16), out);
}

// Without zlib's own header. Empty if zlib has no memory.
std::string Deflate(std::string_view content) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, MAX_MEM_LEVEL,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return "";
  }
  std::string out(deflateBound(&stream, static_cast<uLong>(content.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const bool done = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(done ? stream.total_out : 0);
  deflateEnd(&stream);
  return out;
}

}  // namespace

absl::Status ZipArchive::Add(std::string_view name, std::string_view content) {
  if (content.size() > kMostBytes - files_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(std::string(name), " has ", content.size(), " bytes: too large to be sent"));
  }
  const std::string packed = Deflate(content);
  if (packed.empty()) return absl::ResourceExhaustedError("there is no memory to pack a file");
  const uint32_t checksum = static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
  std::string common;  // of the file's header and the directory's
  Append16(kVersion, common);
  Append16(kUtf8Names, common);
  Append16(kDeflated, common);
  Append16(0, common);  // midnight
  Append16(kDate, common);
  Append32(checksum, common);
  Append32(static_cast<uint32_t>(packed.size()), common);
  Append32(static_cast<uint32_t>(content.size()), common);
  Append16(static_cast<uint16_t>(name.size()), common);
  Append16(0, common);  // no extra field

  directory_ += "PK\x01\x02";
  Append16(kVersion, directory_);
  directory_ += common;
  Append16(0, directory_);  // no comment
  Append16(0, directory_);  // the first disk
  Append16(0, directory_);  // no attributes
  Append32(0, directory_);
  Append32(static_cast<uint32_t>(files_.size()), directory_);
  directory_ += name;

  files_ += "PK\x03\x04";
  files_ += common;
  files_ += name;
  files_ += packed;
  ++count_;
  return absl::OkStatus();
}

std::string ZipArchive::Finish() {
  std::string archive = std::move(files_);
  const auto begin = static_cast<uint32_t>(archive.size());
  archive += directory_;
  archive += "PK\x05\x06";
  Append32(0, archive);  // one disk
  Append16(count_, archive);
  Append16(count_, archive);
  Append32(static_cast<uint32_t>(directory_.size()), archive);
  Append32(begin, archive);
  Append16(0, archive);  // no comment
  return archive;
}

}  // namespace rivulet::vllm_engine
