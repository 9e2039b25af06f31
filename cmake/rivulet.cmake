# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#
# The helpers that every folder's CMakeLists.txt is written with.
#
# One target per folder, named rivulet_ + its path with underscores:
#
#   proto                      rivulet_proto                 kernels/mixers          rivulet_kernels_mixers
#   kernels/base               rivulet_kernels_base          kernels/mixers/hla      rivulet_kernels_mixers_hla
#   kernels/ops/linear         rivulet_kernels_ops_linear    model_loader            rivulet_model_loader
#   kernels/recurrence         rivulet_kernels_recurrence    server/engine           rivulet_server_engine
#   client                     rivulet_client                server/rpc              rivulet_server_rpc
#
# Exceptions: rivulet_version (kernels/base/version.h; only binaries and the metrics need it), rivulet_sentencepiece (the shared
# library in model_loader/sentencepiece), and the programs rivulet_server_main (bin/rivulet-server) and rivulet_cli (bin/rivulet).
# A test is named after its file: kernels/ops/linear/linear_test.cc → linear_test. Names of tests are global, so choose specific ones.
#
# A folder, complete:
#
#   rivulet_library(rivulet_kernels_ops_linear
#     SRCS linear_cpu.cc
#     HDRS linear.h
#     DEPS rivulet_kernels_base absl::status hwy::hwy)
#   rivulet_test(linear_test SRCS linear_test.cc DEPS rivulet_kernels_ops_linear)
#   rivulet_bench(linear_bench SRCS linear_bench.cc DEPS rivulet_kernels_ops_linear)
#
# Includes are written from the repository root ("kernels/base/status.h"); the helpers add that include path, nothing else.
# DEPS are targets; dependents inherit them. List every target whose headers the folder includes, also where another dependency
# would bring it along.
#
# External targets: see the list in cmake/dependencies.cmake. Warnings are errors, floating-point contraction is off, for all.

# rivulet_library(<name> [SRCS ...] HDRS ... [DEPS ...] [CUDA_SRCS x.cu ...] [NO_CUDA_SRCS x_cpu.cc ...])
#   A static library; header-only when no SRCS are given. CUDA_SRCS are compiled with RIVULET_CUDA=ON and NO_CUDA_SRCS without, so
#   that headers need no build flag: each function of an x.cu that others call is also in NO_CUDA_SRCS, where it returns an error.
function(rivulet_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;HDRS;DEPS;CUDA_SRCS;NO_CUDA_SRCS" ${ARGN})
  _rivulet_check_arguments(${name} "${ARG_UNPARSED_ARGUMENTS}")
  if(RIVULET_CUDA)
    list(APPEND ARG_SRCS ${ARG_CUDA_SRCS})
  else()
    list(APPEND ARG_SRCS ${ARG_NO_CUDA_SRCS})
  endif()
  if(ARG_SRCS)
    add_library(${name} STATIC ${ARG_SRCS} ${ARG_HDRS})
    _rivulet_setup(${name} PUBLIC "${ARG_DEPS}")
    _rivulet_tidy(${name})
    if(RIVULET_CUDA AND ARG_CUDA_SRCS)
      set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY Static)
      # Linked without its include folder: host code then compiles as it does without CUDA, and from the same compiler cache.
      target_link_libraries(${name} PUBLIC $<LINK_ONLY:CUDA::cudart_static> ${CMAKE_DL_LIBS})
      set_property(GLOBAL APPEND PROPERTY RIVULET_CUDA_TARGETS ${name})
    endif()
    set_property(GLOBAL APPEND PROPERTY RIVULET_LIBRARY_TARGETS ${name})
  else()
    add_library(${name} INTERFACE ${ARG_HDRS})
    _rivulet_setup(${name} INTERFACE "${ARG_DEPS}")
  endif()
  set_property(GLOBAL APPEND PROPERTY RIVULET_PRODUCTION_TARGETS ${name})
endfunction()

# rivulet_test_library(<name> ...)
#   The same for code that only tests and benchmarks link: fp64 references, fakes, random weights. Defined when one of them is built.
#   It is an error if a library of rivulet_library or an installed program links it, or compiles such sources.
function(rivulet_test_library name)
  if(NOT RIVULET_TESTS AND NOT RIVULET_BENCH)
    return()
  endif()
  rivulet_library(${name} ${ARGN})
  set_property(GLOBAL APPEND PROPERTY RIVULET_TEST_LIBRARIES ${name})
endfunction()

# rivulet_binary(<name> OUTPUT <file name> SRCS ... [DEPS ...] [NO_INSTALL])
#   A program in build/<preset>/bin, installed to bin/ by cmake --install unless NO_INSTALL. It finds our shared libraries in ../lib
#   beside it.
function(rivulet_binary name)
  cmake_parse_arguments(ARG "NO_INSTALL" "OUTPUT" "SRCS;DEPS" ${ARGN})
  _rivulet_check_arguments(${name} "${ARG_UNPARSED_ARGUMENTS}")
  add_executable(${name} ${ARG_SRCS})
  _rivulet_setup(${name} PRIVATE "${ARG_DEPS}")
  _rivulet_tidy(${name})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME "${ARG_OUTPUT}" RUNTIME_OUTPUT_DIRECTORY "${RIVULET_BIN_DIR}"
                                           INSTALL_RPATH "$ORIGIN/../lib")
  if(NOT ARG_NO_INSTALL)
    set_property(GLOBAL APPEND PROPERTY RIVULET_PRODUCTION_TARGETS ${name})
    install(TARGETS ${name} RUNTIME DESTINATION bin)
  endif()
endfunction()

# rivulet_test(<name> SRCS ... [DEPS ...] [LABELS unit|e2e|gpu ...] [TIMEOUT seconds] [SHARDS number] [ENVIRONMENT NAME=value ...] [NEEDS target ...])
#   A googletest program (gtest, gmock and a main are linked), run by ctest as one test, or as SHARDS tests that divide its cases:
#   for programs that take minutes. TIMEOUT is each one's, 300 seconds by default. LABELS defaults to unit. NEEDS are programs that
#   must be built first, for example rivulet_server_main. Compiled with -O1: put code that has to be fast into a library.
#   While it runs:
#     working directory   the repository root, so "kernels/mixers/hla/vectors/a.json" opens
#     RIVULET_SOURCE_DIR  the repository root            RIVULET_BIN_DIR  build/<preset>/bin
#     RIVULET_TEST_SEED   passed on: a random test prints its seed, which is fixed by default, "random" for a new one, or the number given
#     TEST_TMPDIR         build/<preset>/test_files/<name>, which testing::TempDir() returns; write temporary files there
#   Exit 77 means "skipped".
function(rivulet_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;SHARDS" "SRCS;DEPS;LABELS;ENVIRONMENT;NEEDS" ${ARGN})
  _rivulet_check_arguments(${name} "${ARG_UNPARSED_ARGUMENTS}")
  if(NOT RIVULET_TESTS)
    return()
  endif()
  add_executable(${name} ${ARG_SRCS})
  _rivulet_setup(${name} PRIVATE "${ARG_DEPS}")
  # Tests compile in half the time this way, and what they test was compiled with full optimisation.
  target_compile_options(${name} PRIVATE "$<$<CONFIG:RelWithDebInfo>:-O1>")
  target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest GTest::gtest_main Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${RIVULET_TEST_DIR}")
  if(ARG_NEEDS)
    add_dependencies(${name} ${ARG_NEEDS})
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  _rivulet_test_environment(environment "${ARG_DEPS}" "${ARG_LABELS}")
  list(APPEND environment ${ARG_ENVIRONMENT})
  if(NOT ARG_SHARDS)
    _rivulet_add_test(${name} ${name} "${ARG_LABELS}" ${ARG_TIMEOUT} "${environment}")
    return()
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    math(EXPR index "${shard} - 1")
    _rivulet_add_test(${name}_${shard}_of_${ARG_SHARDS} ${name} "${ARG_LABELS}" ${ARG_TIMEOUT}
      "${environment};GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

function(_rivulet_add_test test program labels timeout environment)
  add_test(NAME ${test} COMMAND ${program} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  # In /tmp, files of these names may belong to another user of the machine or to a test of another build that runs now.
  set(files "${PROJECT_BINARY_DIR}/test_files/${test}")
  file(MAKE_DIRECTORY "${files}")
  set_tests_properties(${test} PROPERTIES
    LABELS "${labels}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77 ENVIRONMENT "${environment};TEST_TMPDIR=${files}")
endfunction()

# rivulet_bench(<name> SRCS ... [DEPS ...])
#   A google-benchmark program in build/<preset>/bench. Built with everything else, so that it keeps compiling; run by hand.
function(rivulet_bench name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  _rivulet_check_arguments(${name} "${ARG_UNPARSED_ARGUMENTS}")
  if(NOT RIVULET_BENCH)
    return()
  endif()
  add_executable(${name} ${ARG_SRCS})
  _rivulet_setup(${name} PRIVATE "${ARG_DEPS}")
  target_link_libraries(${name} PRIVATE benchmark::benchmark_main benchmark::benchmark Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${RIVULET_BENCH_DIR}")
endfunction()

# rivulet_proto_library(<name> ROOT <folder> PROTOS <path below ROOT> ... [DEPS ...])
#   Messages and gRPC stubs of .proto files; protoc's root is ROOT, so rivulet/v1/inference.proto gives
#   #include "rivulet/v1/inference.grpc.pb.h". The generated code is a system include: our warnings do not reach it.
function(rivulet_proto_library name)
  cmake_parse_arguments(ARG "" "ROOT" "PROTOS;DEPS" ${ARGN})
  _rivulet_check_arguments(${name} "${ARG_UNPARSED_ARGUMENTS}")
  set(generated_dir "${CMAKE_CURRENT_BINARY_DIR}/${name}")
  file(MAKE_DIRECTORY "${generated_dir}")
  set(generated "")
  foreach(proto IN LISTS ARG_PROTOS)
    string(REGEX REPLACE "\\.proto$" "" stem "${generated_dir}/${proto}")
    set(outputs "${stem}.pb.cc" "${stem}.pb.h" "${stem}.grpc.pb.cc" "${stem}.grpc.pb.h")
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc -I "${ARG_ROOT}" "--cpp_out=${generated_dir}" "--grpc_out=${generated_dir}"
              "--plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>" "${ARG_ROOT}/${proto}"
      DEPENDS "${ARG_ROOT}/${proto}" VERBATIM)
    list(APPEND generated ${outputs})
  endforeach()
  add_library(${name} STATIC ${generated})
  target_compile_options(${name} PRIVATE -w)
  target_include_directories(${name} SYSTEM PUBLIC "${generated_dir}")
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} gRPC::grpc++ protobuf::libprotobuf)
endfunction()

# Called once at the end of the top CMakeLists.txt: reports DEPS that no folder defines (at link time they would only be an
# unreadable "cannot find -lrivulet_...") and production code that links test libraries. Defines three targets: rivulet_libraries
# builds all libraries without tests, rivulet_cuda_objects those that have CUDA sources, rivulet_threaded those that have threads.
function(rivulet_check_dependencies)
  get_property(dependencies GLOBAL PROPERTY RIVULET_DEPENDENCIES)
  list(REMOVE_DUPLICATES dependencies)
  foreach(dependency IN LISTS dependencies)
    if(dependency MATCHES "^rivulet_" AND NOT TARGET ${dependency})
      get_property(users GLOBAL PROPERTY RIVULET_USERS_OF_${dependency})
      list(JOIN users ", " users)
      message(SEND_ERROR "no folder defines ${dependency}, which DEPS of ${users} name")
    endif()
  endforeach()
  _rivulet_check_test_libraries()
  get_property(libraries GLOBAL PROPERTY RIVULET_LIBRARY_TARGETS)
  add_custom_target(rivulet_libraries DEPENDS ${libraries})
  set(threaded ${libraries})
  list(FILTER threaded INCLUDE REGEX "^rivulet_(kernels_base|server|client)")
  add_custom_target(rivulet_threaded DEPENDS ${threaded})
  get_property(cuda_targets GLOBAL PROPERTY RIVULET_CUDA_TARGETS)
  add_custom_target(rivulet_cuda_objects DEPENDS ${cuda_targets})
endfunction()

# Reports each library of rivulet_library and each installed program that has test sources (by their names) or names a test library in
# its DEPS. Checking direct dependencies is enough: everything in between is one of the two itself.
function(_rivulet_check_test_libraries)
  get_property(test_libraries GLOBAL PROPERTY RIVULET_TEST_LIBRARIES)
  get_property(production GLOBAL PROPERTY RIVULET_PRODUCTION_TARGETS)
  list(REMOVE_ITEM production ${test_libraries})
  foreach(target IN LISTS production)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "(^(fake|random|test)_[a-z]+|_(reference|subject|fixture|test|bench)|^testing)\\.(cc|h)$")
    if(sources)
      message(SEND_ERROR "${target} is production code and has test sources: ${sources}")
    endif()
  endforeach()
  foreach(library IN LISTS test_libraries)
    get_property(users GLOBAL PROPERTY RIVULET_USERS_OF_${library})
    foreach(user IN LISTS users)
      if(user IN_LIST production)
        message(SEND_ERROR "${user} is production code and links ${library}, which is for tests and benchmarks")
      endif()
    endforeach()
  endforeach()
endfunction()

function(_rivulet_check_arguments name unparsed)
  if(unparsed)
    message(FATAL_ERROR "${name}: arguments not understood: ${unparsed}")
  endif()
endfunction()

function(_rivulet_setup name visibility dependencies)
  target_include_directories(${name} ${visibility} "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} ${visibility} ${dependencies})
  set_property(GLOBAL APPEND PROPERTY RIVULET_DEPENDENCIES ${dependencies})
  foreach(dependency IN LISTS dependencies)
    set_property(GLOBAL APPEND PROPERTY RIVULET_USERS_OF_${dependency} ${name})
  endforeach()
endfunction()

function(_rivulet_tidy name)
  if(RIVULET_CLANG_TIDY)
    set_target_properties(${name} PROPERTIES CXX_CLANG_TIDY "${RIVULET_CLANG_TIDY_EXE};--quiet")
  endif()
endfunction()

# Debian's gRPC is not instrumented, so a test that links it needs suppressions under TSan. Those also hide real races inside
# gRPC callbacks, so no other test gets them.
function(_rivulet_test_environment result dependencies labels)
  set(environment "RIVULET_SOURCE_DIR=${PROJECT_SOURCE_DIR}" "RIVULET_BIN_DIR=${RIVULET_BIN_DIR}")
  set(tsan "halt_on_error=1:second_deadlock_stack=1")
  set(lsan "print_suppressions=0")
  if("${dependencies};${labels}" MATCHES "gRPC::|rivulet_proto|rivulet_server_rpc|rivulet_client|e2e")
    string(APPEND tsan ":suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
    string(APPEND lsan ":suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp")
  else()
    string(APPEND tsan ":suppressions=${PROJECT_SOURCE_DIR}/tests/tsan_absl.supp")
  endif()
  list(APPEND environment "TSAN_OPTIONS=${tsan}" "LSAN_OPTIONS=${lsan}" "UBSAN_OPTIONS=print_stacktrace=1")
  set(${result} "${environment}" PARENT_SCOPE)
endfunction()
