# SPDX-License-Identifier: Apache-2.0
# Run by cpack after it made the archive of the source: writes the digest file beside the archive, and
# the folder `recipes` with the recipes of packaging/, filled in for this archive.
#
# In: CPACK_PACKAGE_FILES, which cpack copies into CPACK_PACKAGE_DIRECTORY afterwards;
# CPACK_PACKAGE_VERSION, CHEX_SOURCE; CHEX_ARCHIVE_URL, the folder where sites
# fetch the archive (cpack -D CHEX_ARCHIVE_URL=...), by default the one in which it was made.
list(GET CPACK_PACKAGE_FILES 0 archive)
get_filename_component(ARCHIVE ${archive} NAME)
set(folder ${CPACK_PACKAGE_DIRECTORY})
file(SHA256 ${archive} SHA256)
file(WRITE ${folder}/${ARCHIVE}.sha256 "${SHA256}  ${ARCHIVE}\n")

set(URL "${CHEX_ARCHIVE_URL}")
if(NOT URL)
  set(URL "file://${folder}")
endif()
set(VERSION ${CPACK_PACKAGE_VERSION})
file(GLOB_RECURSE recipes RELATIVE ${CHEX_SOURCE}/packaging ${CHEX_SOURCE}/packaging/*.in)
foreach(recipe ${recipes})
  string(REGEX REPLACE "[.]in$" "" to ${recipe})
  string(REPLACE VERSION ${VERSION} to ${to})
  configure_file(${CHEX_SOURCE}/packaging/${recipe} ${folder}/recipes/${to} @ONLY)
endforeach()
