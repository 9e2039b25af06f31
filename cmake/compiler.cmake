# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
# Language standard, warnings, sanitizers, ccache and output folders of all targets.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# -g1 keeps file and line in backtraces at a third of the cost of full debug information.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")

set(RIVULET_BIN_DIR "${PROJECT_BINARY_DIR}/bin")
set(RIVULET_LIB_DIR "${PROJECT_BINARY_DIR}/lib")
set(RIVULET_TEST_DIR "${PROJECT_BINARY_DIR}/test")
set(RIVULET_BENCH_DIR "${PROJECT_BINARY_DIR}/bench")
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

# Compiler options are for C++ only: nvcc takes its own in cuda.cmake.
function(rivulet_add_cxx_options)
  foreach(option IN LISTS ARGN)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${option}>")
  endforeach()
endfunction()

rivulet_add_cxx_options(-Wall -Wextra -Wno-psabi -fno-omit-frame-pointer)
# Bit equality: the compiler must not fuse a multiply and an add; kernels call fused multiply-add where they need it.
rivulet_add_cxx_options(-ffp-contract=off)
# Paths in messages and debug information start at the repository root, and ccache hits from any checkout.
rivulet_add_cxx_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
if(RIVULET_WERROR)
  rivulet_add_cxx_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  rivulet_add_cxx_options(-Wthread-safety -Werror=thread-safety)
endif()

if(RIVULET_SANITIZE)
  if(RIVULET_SANITIZE MATCHES "thread" AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "RIVULET_SANITIZE=thread needs clang++: g++'s changes the layout of protobuf's map fields. Use the tsan preset.")
  endif()
  rivulet_add_cxx_options("-fsanitize=${RIVULET_SANITIZE}" -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    rivulet_add_cxx_options(-Wno-maybe-uninitialized)  # g++ 12 finds one in its own <regex>, only in instrumented code
  endif()
  add_link_options("-fsanitize=${RIVULET_SANITIZE}")
endif()

find_program(RIVULET_CCACHE ccache)
if(RIVULET_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(_launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${RIVULET_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER ${_launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${_launcher})
endif()

if(RIVULET_CLANG_TIDY)
  find_program(RIVULET_CLANG_TIDY_EXE NAMES clang-tidy-14 clang-tidy REQUIRED)
endif()
