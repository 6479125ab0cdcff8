# What the build needs, declared once more for CMake; tools/deps.sh installs the same list.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson>=2.13)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

# Optional: without liburing files are read by threads of pread, without hwloc memory is not bound to
# a NUMA node.
pkg_check_modules(liburing IMPORTED_TARGET liburing>=2.2)
pkg_check_modules(hwloc IMPORTED_TARGET hwloc>=2.0)
set(optional_found "")
foreach(name liburing hwloc)
  if(${name}_FOUND)
    string(APPEND optional_found ", ${name} ${${name}_VERSION}")
  else()
    string(APPEND optional_found ", no ${name}")
  endif()
endforeach()

# The CUDA toolkit is optional: without it all builds and all tests pass. The default is one
# architecture, so that a build stays short; the preset `cuda` builds all.
set(PLEC_HAVE_CUDA OFF)
set(PLEC_CUDA_ARCHITECTURES "90a-real" CACHE STRING "architectures of the CUDA kernels")
if(PLEC_CUDA STREQUAL "EMULATED")
  # Nothing of a toolkit: tests/emu brings its own headers.
elseif(PLEC_CUDA AND NOT PLEC_FUZZ AND NOT PLEC_SANITIZE)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${PLEC_CUDA_ARCHITECTURES})
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(PLEC_HAVE_CUDA ON)
  endif()
endif()
# NVTX 3 is headers alone, of the toolkit or of a package of their own.
set(PLEC_NVTX_INCLUDE "")
if(PLEC_CUDA AND NOT PLEC_FUZZ)
  find_package(CUDAToolkit QUIET)
  find_path(PLEC_NVTX_FOUND nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
    PATHS /usr/local/cuda/include)
  if(PLEC_NVTX_FOUND)
    set(PLEC_NVTX_INCLUDE ${PLEC_NVTX_FOUND})
  endif()
endif()
message(STATUS "Plectrum: CUDA toolkit ${PLEC_HAVE_CUDA}, jansson ${jansson_VERSION}, "
  "OpenSSL ${OPENSSL_VERSION}${optional_found}")
