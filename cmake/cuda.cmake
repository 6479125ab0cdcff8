# The CUDA backend, device/cuda: host side in C, kernels in .cu. A program has a CUDA device when it is
# linked with one of these object libraries (device/device.c refers to the backend weakly):
#
#   plec_cuda       by nvcc, when a toolkit was found
#   plec_cuda_emu   the same sources in the emulation (cmake/emulation.cmake); made where it is needed
#
# plec_cuda_device: what `plectrum` itself is linked with, by PLEC_CUDA.
file(GLOB cuda_sources CONFIGURE_DEPENDS device/cuda/*.c device/cuda/*.cu)
add_library(plec_cuda_device INTERFACE)

if(PLEC_HAVE_CUDA)
  add_library(plec_cuda OBJECT ${cuda_sources})
  target_compile_definitions(plec_cuda PRIVATE _GNU_SOURCE)
  target_include_directories(plec_cuda PRIVATE ${CMAKE_SOURCE_DIR})
  target_include_directories(plec_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_options(plec_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wpointer-arith -Wundef -Wvla -Werror
      -Wstrict-prototypes -Wmissing-prototypes>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings
      -Xptxas=-v,--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error>)
  # Keeps what ptxas says beside each object, and fails where it is slow code (docs/kernels.md).
  set_target_properties(plec_cuda PROPERTIES CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static
    CUDA_COMPILER_LAUNCHER "sh;${CMAKE_SOURCE_DIR}/cmake/nvcc_checked.sh")
  target_link_libraries(plec_cuda PUBLIC CUDA::cudart_static ${CMAKE_DL_LIBS})
  target_link_libraries(plec_cuda_device INTERFACE plec_cuda $<TARGET_OBJECTS:plec_cuda>)
elseif(PLEC_CUDA STREQUAL "EMULATED")
  if(NOT PLEC_HAVE_EMULATION)
    message(FATAL_ERROR "PLEC_CUDA=EMULATED: this build cannot emulate (PLEC_FUZZ, PLEC_SANITIZE)")
  endif()
  set(need_emulated_backend ON)
  target_link_libraries(plec_cuda_device INTERFACE plec_cuda_emu $<TARGET_OBJECTS:plec_cuda_emu>)
endif()
if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
  set(need_emulated_backend ON)
endif()

if(need_emulated_backend AND PLEC_HAVE_EMULATION)
  plec_emulated_library(plec_cuda_emu ${cuda_sources})
  if(PLEC_HAVE_CHECKED_EMULATION)
    plec_emulated_library(plec_cuda_emu_checked CHECKED ${cuda_sources})
    set_target_properties(plec_cuda_emu_checked PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endif()
