# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
# nvcc, when RIVULET_CUDA asks for it: Hopper only (sm_90a), C++20, static cudart. Never link libcuda or cuBLASLt: a
# binary must start on a machine that has neither (open them at run time, after a device was found).

if(NOT RIVULET_CUDA)
  return()
endif()

include(CheckLanguage)
# nvcc is often installed but not on PATH; CUDACXX and -DCMAKE_CUDA_COMPILER still win.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(RIVULET_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(RIVULET_NVCC)
    set(CMAKE_CUDA_COMPILER "${RIVULET_NVCC}")
  endif()
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "RIVULET_CUDA=ON needs nvcc (CUDA 13) on PATH, in /usr/local/cuda/bin or in CUDACXX. Configure without it for CPU only.")
endif()

set(CMAKE_CUDA_ARCHITECTURES 90a-real)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
  message(FATAL_ERROR "RIVULET_CUDA=ON needs CUDA 13; ${CMAKE_CUDA_COMPILER} is ${CMAKE_CUDA_COMPILER_VERSION}.")
endif()
if(CMAKE_VERSION VERSION_LESS 3.26)
  # CMake 3.25 does not know how nvcc spells C++20. Must come after enable_language.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -lineinfo -DNDEBUG")
find_package(CUDAToolkit REQUIRED)
# The library is opened at run time; its header is compiled in.
find_path(RIVULET_CUBLASLT_HEADERS cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_CACHE)
if(NOT RIVULET_CUBLASLT_HEADERS)
  message(FATAL_ERROR "RIVULET_CUDA=ON needs cublasLt.h: install libcublas-dev-13-0, or the whole toolkit (cuda-toolkit-13-0).")
endif()

add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-ffp-contract=off>")
if(RIVULET_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>" "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Werror>")
endif()
