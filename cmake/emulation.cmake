# CUDA on the CPU (tests/emu, docs/emulation.md): kernels and host code of device/cuda compiled by the
# C++ compiler against an emulation of the CUDA runtime. It brings its own toolkit headers, so it is
# the same with and without a CUDA toolkit.
#
#   plec_emulated_library(NAME [CHECKED] SOURCES...)
#
# makes the object library NAME of .cu, .c and .cc sources; linking with it links the emulation.
# CHECKED: every memory access of the sources goes through the checker (races, bounds, initialised
# memory, order of streams): slower, for small shapes. A program may hold both kinds.
#
# PLEC_HAVE_EMULATION and PLEC_HAVE_CHECKED_EMULATION say what this build can do:
# - The checker is fed by the calls that -fsanitize=thread compiles in, so it excludes every other
#   user of them: under AddressSanitizer the emulation is plain (its fibers are announced to it), under
#   ThreadSanitizer there is none. Clang compiles struct copies to memcpy, unseen: plain as well.
# - Fuzzers do without.
set(PLEC_HAVE_EMULATION ON)
set(PLEC_HAVE_CHECKED_EMULATION ON)
if(PLEC_FUZZ OR PLEC_SANITIZE MATCHES "thread")
  set(PLEC_HAVE_EMULATION OFF)
endif()
if(NOT PLEC_HAVE_EMULATION OR PLEC_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(PLEC_HAVE_CHECKED_EMULATION OFF)
endif()
message(STATUS "Plectrum: CUDA emulation ${PLEC_HAVE_EMULATION}, "
  "its checked build ${PLEC_HAVE_CHECKED_EMULATION}")

set(plec_emulation_dir ${CMAKE_SOURCE_DIR}/tests/emu)

if(PLEC_HAVE_EMULATION)
  file(GLOB emulator_sources CONFIGURE_DEPENDS ${plec_emulation_dir}/*.cc)
  add_library(plec_emulator STATIC EXCLUDE_FROM_ALL ${emulator_sources})
  target_include_directories(plec_emulator BEFORE PRIVATE ${plec_emulation_dir}/stub)
  target_include_directories(plec_emulator PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(plec_emulator PRIVATE -O2 -fno-strict-aliasing)
  target_link_libraries(plec_emulator PUBLIC Threads::Threads m PRIVATE plec_flags)
endif()

function(plec_emulated_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CHECKED" "" "")
  set(sources "")
  foreach(source ${arg_UNPARSED_ARGUMENTS})
    get_filename_component(path ${source} ABSOLUTE)
    if(path MATCHES "\\.cuh?$")
      # A source of one line: the same .cu may be nvcc's in another target of this folder.
      get_filename_component(base ${path} NAME)
      set(unit ${CMAKE_CURRENT_BINARY_DIR}/${name}/${base}.cc)
      file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${path}\"\n")
      list(APPEND sources ${unit})
    else()
      list(APPEND sources ${path})
    endif()
  endforeach()
  add_library(${name} OBJECT ${sources})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE PLEC_CUDA_EMULATED=1)
  target_include_directories(${name} BEFORE PRIVATE ${plec_emulation_dir}/stub)
  target_compile_options(${name} PRIVATE -O2 -g1 -fno-strict-aliasing
    $<$<COMPILE_LANGUAGE:CXX>:-include ${plec_emulation_dir}/emulation.h>
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas -Wno-psabi>)
  if(arg_CHECKED)
    # Expensive optimisations would merge byte loads into wider, unaligned ones: false reports.
    target_compile_options(${name} PRIVATE -fno-expensive-optimizations
      -fsanitize=thread,alignment,bounds
      --param tsan-instrument-func-entry-exit=0)
  endif()
  target_link_libraries(${name} PUBLIC plec_emulator ${CMAKE_DL_LIBS} PRIVATE plec_flags)
endfunction()
