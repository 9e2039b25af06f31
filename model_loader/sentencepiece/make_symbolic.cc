// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// make_symbolic IN OUT: copies a 64-bit ELF shared library and sets DF_SYMBOLIC in the copy's
// dynamic section, so that the copy binds its symbols to itself first. A build tool: Debian's
// libsentencepiece carries protobuf-lite 3.14 with public symbols, and beside gRPC's
// libprotobuf 3.21 one of the two would otherwise call into the other and abort.
#include <elf.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

bool IsElf64(const std::vector<char>& file) {
  return file.size() >= sizeof(Elf64_Ehdr) && std::memcmp(file.data(), ELFMAG, SELFMAG) == 0 &&
         file[EI_CLASS] == ELFCLASS64;
}

// The dynamic section's program header, or one with size 0.
Elf64_Phdr FindDynamic(const std::vector<char>& file) {
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof(header));
  for (size_t i = 0; i < header.e_phnum; ++i) {
    const size_t offset = header.e_phoff + i * header.e_phentsize;
    Elf64_Phdr segment;
    if (offset + sizeof(segment) > file.size()) break;
    std::memcpy(&segment, file.data() + offset, sizeof(segment));
    if (segment.p_type == PT_DYNAMIC && segment.p_offset + segment.p_filesz <= file.size()) {
      return segment;
    }
  }
  return Elf64_Phdr{};
}

// Sets the flag in DT_FLAGS; without a DT_FLAGS, in one of the spare entries that linkers
// leave after DT_NULL.
bool SetSymbolic(std::vector<char>& file, const Elf64_Phdr& dynamic) {
  const size_t count = dynamic.p_filesz / sizeof(Elf64_Dyn);
  for (size_t i = 0; i < count; ++i) {
    char* const place = file.data() + dynamic.p_offset + i * sizeof(Elf64_Dyn);
    Elf64_Dyn entry;
    std::memcpy(&entry, place, sizeof(entry));
    const bool spare = entry.d_tag == DT_NULL && i + 1 < count;
    if (entry.d_tag == DT_FLAGS || spare) {
      entry.d_tag = DT_FLAGS;
      entry.d_un.d_val |= DF_SYMBOLIC;
      std::memcpy(place, &entry, sizeof(entry));
      return true;
    }
    if (entry.d_tag == DT_NULL) break;
  }
  return false;
}

int Fail(const char* path, const char* what) {
  std::fprintf(stderr, "make_symbolic: %s: %s\n", path, what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return Fail(argv[0], "usage: make_symbolic IN OUT");
  std::ifstream in(argv[1], std::ios::binary);
  std::vector<char> file{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!IsElf64(file)) return Fail(argv[1], "cannot be read, or is not a 64-bit ELF file");
  const Elf64_Phdr dynamic = FindDynamic(file);
  if (dynamic.p_filesz == 0) return Fail(argv[1], "has no dynamic section");
  if (!SetSymbolic(file, dynamic)) return Fail(argv[1], "has no room for DT_FLAGS");
  std::ofstream out(argv[2], std::ios::binary | std::ios::trunc);
  out.write(file.data(), static_cast<std::streamsize>(file.size()));
  return out.flush() ? 0 : Fail(argv[2], "cannot be written");
}
