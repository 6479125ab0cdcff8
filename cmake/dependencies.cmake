# What the build needs, declared once more for CMake; tools/deps.sh installs the same list.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson>=2.13)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

# The CUDA toolkit is optional: without it all builds and all tests pass.
set(PLEC_HAVE_CUDA OFF)
if(PLEC_CUDA AND NOT PLEC_FUZZ AND NOT PLEC_SANITIZE)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES 80)
    enable_language(CUDA)
    set(PLEC_HAVE_CUDA ON)
  endif()
endif()
message(STATUS "Plectrum: CUDA toolkit ${PLEC_HAVE_CUDA}, jansson ${jansson_VERSION}, "
  "OpenSSL ${OPENSSL_VERSION}")
