# What the build needs, declared once more for CMake; tools/deps.sh installs the same list.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson>=2.13)
if(PLEC_STATIC)
  set(OPENSSL_USE_STATIC_LIBS ON)
endif()
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

# Optional: without liburing files are read by threads of pread, without hwloc memory is not bound to
# a NUMA node.
pkg_check_modules(liburing IMPORTED_TARGET liburing>=2.2)
if(PLEC_STATIC)
  set(hwloc_FOUND OFF) # its archive asks for more libraries than it is worth
else()
  pkg_check_modules(hwloc IMPORTED_TARGET hwloc>=2.0)
endif()
set(optional_found "")
foreach(name liburing hwloc)
  if(${name}_FOUND)
    string(APPEND optional_found ", ${name} ${${name}_VERSION}")
  else()
    string(APPEND optional_found ", no ${name}")
  endif()
endforeach()

# PLEC_STATIC: archives instead of shared libraries, and what is left shared is also looked for beside
# the program (tools/gpu_check.sh --pack puts it there).
if(PLEC_STATIC)
  foreach(name jansson liburing)
    string(REGEX REPLACE "^lib" "" base ${name})
    find_library(PLEC_${name}_ARCHIVE lib${base}.a HINTS ${${name}_LIBRARY_DIRS})
    if(${name}_FOUND AND PLEC_${name}_ARCHIVE)
      set_target_properties(PkgConfig::${name} PROPERTIES
        INTERFACE_LINK_LIBRARIES ${PLEC_${name}_ARCHIVE})
    endif()
  endforeach()
  add_link_options(-static-libstdc++ -static-libgcc)
  set(CMAKE_BUILD_RPATH "$ORIGIN")
  set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
endif()

# The CUDA toolkit is optional: without it all builds and all tests pass. The default is the
# architectures of this machine's GPUs, or one, so that a build stays short; the preset `cuda` builds
# all.
set(PLEC_HAVE_CUDA OFF)
include(cmake/gpu_architectures.cmake)
plec_gpu_architectures(found_architectures found_how)
set(PLEC_CUDA_ARCHITECTURES "${found_architectures}" CACHE STRING
  "architectures of the CUDA kernels")
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
    if(NOT PLEC_CUDA_ARCHITECTURES STREQUAL found_architectures)
      set(found_how "as asked for")
    endif()
    string(REPLACE ";" " " architectures "${PLEC_CUDA_ARCHITECTURES}")
    message(STATUS "Plectrum: CUDA kernels for ${architectures} (${found_how})")
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
