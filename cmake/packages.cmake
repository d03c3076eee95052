# SPDX-License-Identifier: Apache-2.0
# What cpack makes of the install rules: Debian packages, one for each component (-G DEB), and one
# tarball that runs from any folder (-G TGZ). Included last.
#
# Components: chexnet (every rule without a COMPONENT), mpi, cuda, dicom, slurm, and modulefiles. No
# Debian package holds modulefiles: commands in the system's path need none.
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
set(CPACK_COMPONENT_CUDA_DESCRIPTION
  "The loadable part for GPUs. Needs the driver, and cuDNN 9 if it was built with it.")
set(CPACK_COMPONENT_DICOM_DESCRIPTION "The loadable part that reads DICOM images, by DCMTK.")
set(CPACK_COMPONENTS_ALL chexnet slurm)
foreach(part mpi cuda dicom)
  if(TARGET chexnet-${part})
    list(APPEND CPACK_COMPONENTS_ALL ${part})
  endif()
endforeach()
foreach(part slurm mpi cuda dicom)
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

# The SPANK plugin and the sample for slurm.conf name the configured prefix: Debian packages install
# there. The preset package configures /usr.
file(WRITE ${CMAKE_BINARY_DIR}/cpack_project.cmake "if(CPACK_GENERATOR STREQUAL \"DEB\")
  set(CPACK_PACKAGING_INSTALL_PREFIX \"${CMAKE_INSTALL_PREFIX}\")
endif()
")
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/cpack_project.cmake)
include(CPack)
