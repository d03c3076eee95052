# SPDX-License-Identifier: Apache-2.0
# What cpack makes of the install rules: packages of Debian (-G DEB) or of the Red Hat family (-G RPM),
# one for each component, and one tarball that runs from any folder (-G TGZ). The target
# package_source makes the archive of the source. Included last.
#
# Components: chexnet (every rule without a COMPONENT), mpi, mpich, cuda, dicom, slurm, and
# modulefiles. No package holds modulefiles: commands in the system's path need none.
set(CPACK_PACKAGE_VENDOR chexnet)
set(CPACK_PACKAGE_CONTACT "packager of this site <root@localhost>" CACHE STRING
  "Maintainer of the packages")
set(CPACK_PACKAGE_FILE_NAME
  chexnet-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_CHEXNET_PACKAGE_NAME chexnet)
set(CPACK_DEBIAN_CHEXNET_PACKAGE_SUGGESTS "chexnet-mpi, chexnet-slurm")
set(CPACK_COMPONENT_CHEXNET_DESCRIPTION
  "The commands chex-shard, chex-train, chex-eval and chex-env.")
set(CPACK_COMPONENT_SLURM_DESCRIPTION
  "Batch files, prolog and health check, SPANK plugin for the Slurm release it was built with.")
set(CPACK_COMPONENT_MPI_DESCRIPTION "The loadable part for several processes, by Open MPI.")
set(CPACK_COMPONENT_MPICH_DESCRIPTION
  "The loadable part for several processes, by MPICH, Cray MPICH or Intel MPI.")
set(CPACK_DEBIAN_MPICH_PACKAGE_RECOMMENDS libmpich12)
set(CPACK_COMPONENT_CUDA_DESCRIPTION
  "The loadable part for GPUs. Needs the driver, and cuDNN 9 if it was built with it.")
set(CPACK_COMPONENT_DICOM_DESCRIPTION "The loadable part that reads DICOM images, by DCMTK.")
set(CPACK_COMPONENTS_ALL chexnet slurm)
foreach(part mpi mpich cuda dicom)
  if(TARGET chexnet-${part})
    list(APPEND CPACK_COMPONENTS_ALL ${part})
  endif()
endforeach()
foreach(part slurm mpi mpich cuda dicom)
  string(TOUPPER ${part} PART)
  set(CPACK_DEBIAN_${PART}_PACKAGE_NAME chexnet-${part})
  set(CPACK_DEBIAN_${PART}_PACKAGE_DEPENDS "chexnet (= ${PROJECT_VERSION})")
endforeach()

# Debian has no such packages. These are the names of NVIDIA's, of which apt takes what it finds.
if(CHEX_HAVE_CUDNN)
  string(REGEX MATCH "^[0-9]+" major "${CUDA_VERSION}")
  set(CPACK_DEBIAN_CUDA_PACKAGE_RECOMMENDS "libcudnn9-cuda-${major}, libnccl2")
else()
  set(CPACK_DEBIAN_CUDA_PACKAGE_RECOMMENDS libnccl2)
endif()

# Packages of RHEL 9 and EPEL 9. rpmbuild finds the sonames, which say the versions. It leaves out
# two: libmpi, which Open MPI's package provides under another name (its module file has the folder),
# and cuDNN, without which chexnet-cuda.so says itself what is missing.
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_MAIN_COMPONENT chexnet)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_PACKAGE_RELEASE_DIST ON)
set(CPACK_PACKAGE_RELOCATABLE OFF)
set(CPACK_RPM_PACKAGE_AUTOPROV OFF)
set(CPACK_RPM_SPEC_MORE_DEFINE "%global __requires_exclude ^lib(mpi|cudnn)[.]so
%define _build_id_links none")
# Folders of other packages. In a prefix of its own the package has all.
if(CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?$")
  list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION ${CMAKE_INSTALL_PREFIX}
    ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR} ${CMAKE_INSTALL_FULL_DATADIR})
  foreach(folder doc bash-completion bash-completion/completions fish fish/vendor_completions.d man
      man/man1 man/man5 man/man7 zsh zsh/site-functions zsh/vendor-completions)
    list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION ${CMAKE_INSTALL_FULL_DATADIR}/${folder})
  endforeach()
endif()
set(names "hdf5, pmix, hwloc-libs, libpng, libjpeg-turbo, zlib, jansson")
foreach(pair ISAL:isa-l LIBDEFLATE:libdeflate ARCHIVE:libarchive)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 part)
  if(CHEX_HAVE_${part})
    list(GET pair 1 name)
    string(APPEND names ", ${name}")
  endif()
endforeach()
set(CPACK_RPM_CHEXNET_PACKAGE_REQUIRES "${names}")
set(same "chexnet = ${PROJECT_VERSION}-%{release}")
set(CPACK_RPM_MPI_PACKAGE_REQUIRES "${same}, openmpi")
set(CPACK_RPM_MPICH_PACKAGE_REQUIRES "${same}, mpich")
set(CPACK_RPM_CUDA_PACKAGE_REQUIRES "${same}")
set(CPACK_RPM_CUDA_PACKAGE_SUGGESTS "${CPACK_DEBIAN_CUDA_PACKAGE_RECOMMENDS}")
string(REPLACE "libnccl2" "libnccl" CPACK_RPM_CUDA_PACKAGE_SUGGESTS "${CPACK_RPM_CUDA_PACKAGE_SUGGESTS}")
set(CPACK_RPM_SLURM_PACKAGE_REQUIRES "${same}, slurm")
set(CPACK_RPM_DICOM_PACKAGE_REQUIRES "${same}, dcmtk")
if(CHEX_HAVE_OPENJPEG)
  string(APPEND CPACK_RPM_DICOM_PACKAGE_REQUIRES ", openjpeg2")
endif()

# The archive of the source: the files of the commit, and nothing that lies beside them.
set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_PACKAGE_FILE_NAME chexnet-${PROJECT_VERSION})
set(CPACK_SOURCE_INSTALLED_DIRECTORIES "")

# The SPANK plugin and the sample for slurm.conf name the configured prefix: packages install there.
# The preset package configures /usr.
file(WRITE ${CMAKE_BINARY_DIR}/cpack_project.cmake "if(CPACK_GENERATOR MATCHES \"^(DEB|RPM)$\")
  set(CPACK_PACKAGING_INSTALL_PREFIX \"${CMAKE_INSTALL_PREFIX}\")
endif()
if(CPACK_PACKAGE_FILE_NAME STREQUAL \"${CPACK_SOURCE_PACKAGE_FILE_NAME}\")
  set(CHEX_SOURCE \"${PROJECT_SOURCE_DIR}\")
  set(CPACK_INSTALL_SCRIPTS \"${PROJECT_SOURCE_DIR}/cmake/source_files.cmake\")
  set(CPACK_POST_BUILD_SCRIPTS \"${PROJECT_SOURCE_DIR}/cmake/source_recipes.cmake\")
endif()
")
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/cpack_project.cmake)
include(CPack)
