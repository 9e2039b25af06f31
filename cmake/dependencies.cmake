# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
# Finds the libraries that deploy/setup installs. Folders name their targets in DEPS:
#
#   absl::status absl::statusor absl::strings absl::flat_hash_map absl::flags absl::flags_parse ...
#   gRPC::grpc++ gRPC::grpc++_reflection    protobuf::libprotobuf
#   hwy::hwy                                Highway, the portable SIMD library
#   nlohmann_json::nlohmann_json            model_loader/json.h parses without letting an exception out
#   prometheus-cpp::core prometheus-cpp::pull
#   Boost::headers                          Asio and Beast: the HTTP port; headers only
#   PkgConfig::libedit                      line editing; no CMake file of its own
#   PkgConfig::pcre2                        regular expressions of tokenizers
#   PkgConfig::utf8proc                     Unicode: categories, case, normal forms
#   PkgConfig::xxhash                       checksums of packed weights
#   spdlog::spdlog CLI11::CLI11             slow to compile: one .cc each
#   GTest::gtest GTest::gmock benchmark::benchmark   (rivulet_test and rivulet_bench add them)
#   Threads::Threads ZLIB::ZLIB OpenSSL::SSL OpenSSL::Crypto

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)  # module mode: Debian ships no CONFIG file
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)  # sets no version, so none may be asked for
find_package(Boost 1.74 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(libedit REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
if(RIVULET_TESTS OR RIVULET_BENCH)  # benchmarks borrow the mixer suite's generated numbers
  find_package(GTest CONFIG REQUIRED)
endif()
if(RIVULET_BENCH)
  find_package(benchmark CONFIG REQUIRED)
endif()
