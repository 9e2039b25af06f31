# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
# Run by every build (cmake -P): writes OUTPUT from TEMPLATE when the commit has changed, else leaves it alone, so that nothing is
# rebuilt. SOURCE_DIR must itself be the top of the git checkout: an unpacked archive inside another repository has no commit.
function(ask_git result)
  execute_process(COMMAND git -C "${SOURCE_DIR}" ${ARGN} OUTPUT_VARIABLE output ERROR_QUIET RESULT_VARIABLE status
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    set(output "")
  endif()
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

set(RIVULET_COMMIT "")
if(EXISTS "${SOURCE_DIR}/.git")
  ask_git(RIVULET_COMMIT describe --always --dirty --abbrev=12 --exclude=*)
endif()
# The container image is built without .git: the variable says what was checked out.
if(NOT RIVULET_COMMIT)
  set(RIVULET_COMMIT "$ENV{RIVULET_COMMIT}")
endif()
if(NOT RIVULET_COMMIT)
  set(RIVULET_COMMIT "unknown")
endif()
configure_file("${TEMPLATE}" "${OUTPUT}" @ONLY)
