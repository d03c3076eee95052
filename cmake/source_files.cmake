# SPDX-License-Identifier: Apache-2.0
# Run by cpack for the archive of the source: puts the files of the commit that is checked out into
# CMAKE_INSTALL_PREFIX. What differs from the commit stays out, and one line says so.
#
# In: CHEX_SOURCE, the top folder of a clone.
function(chex_git out)
  execute_process(COMMAND git -C ${CHEX_SOURCE} ${ARGN}
    OUTPUT_VARIABLE text ERROR_VARIABLE why RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${CHEX_SOURCE}: the source archive is made of a git commit, and git says: ${status} ${why}")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# A tree without .git may lie in a folder of another repository.
chex_git(top rev-parse --show-toplevel)
file(REAL_PATH ${CHEX_SOURCE} source)
if(NOT top STREQUAL source)
  message(FATAL_ERROR "${CHEX_SOURCE}: the source archive is made of a git commit, and this folder is no clone of its own")
endif()
chex_git(commit rev-parse HEAD)
chex_git(changed status --porcelain)
if(changed)
  message(NOTICE "warning: files that differ from commit ${commit} are not in the archive:\n${changed}")
endif()
set(archive ${CMAKE_INSTALL_PREFIX}.tar)
chex_git(ignored archive --format=tar -o ${archive} HEAD)
file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${CMAKE_INSTALL_PREFIX})
file(REMOVE ${archive})
message(STATUS "source archive of commit ${commit}")
