# Tests of and with the CUDA emulation, label emu: no toolkit, no GPU.
file(GLOB contract_cases CONFIGURE_DEPENDS emu/contract/*.cu)
list(FILTER contract_cases EXCLUDE REGEX "/main\\.cu$")

# plec_emulated_test(NAME SOURCES... [LIBRARIES...])
function(plec_emulated_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES")
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} BEFORE PRIVATE ${plec_emulation_dir}/stub)
  target_link_libraries(${name} PRIVATE plec_flags ${arg_LIBRARIES} GTest::gtest_main)
  set(label emu)
  if(name MATCHES "_slow_test$")
    set(label slow)
  endif()
  gtest_discover_tests(${name} TEST_PREFIX ${name}. PROPERTIES LABELS ${label} DISCOVERY_TIMEOUT 60)
endfunction()

plec_emulated_library(emu_contract ${contract_cases})
plec_emulated_test(emu_contract_test emu_contract_test.cc LIBRARIES emu_contract)
if(PLEC_HAVE_CHECKED_EMULATION)
  plec_emulated_library(emu_contract_checked CHECKED ${contract_cases})
  plec_emulated_test(emu_contract_checked_test emu_contract_test.cc
    LIBRARIES emu_contract_checked)
  # Tests of the emulation itself are kernels and tests in one.
  file(GLOB emulation_tests CONFIGURE_DEPENDS emu_*_test.cu)
  foreach(file ${emulation_tests})
    get_filename_component(name ${file} NAME_WE)
    plec_emulated_library(${name}_objects CHECKED ${file})
    target_compile_options(${name}_objects PRIVATE -O1) # sooner built than run
    plec_emulated_test(${name} LIBRARIES ${name}_objects)
  endforeach()
endif()

# The CUDA backend in the emulation: tests/cuda_<module>_test.cc, each a program plain and, as
# <name>_checked, with every access checked; cuda_<module>_slow_test.cc plain alone.
function(plec_cuda_test name)
  plec_emulated_test(${name} ${name}.cc LIBRARIES plec_cuda_emu plec_device)
  if(PLEC_HAVE_CHECKED_EMULATION AND NOT name MATCHES "_slow_test$")
    plec_emulated_test(${name}_checked ${name}.cc LIBRARIES plec_cuda_emu_checked plec_device)
    target_compile_definitions(${name}_checked PRIVATE PLEC_CHECKED=1)
  endif()
endfunction()

file(GLOB cuda_tests CONFIGURE_DEPENDS cuda_*_test.cc)
foreach(file ${cuda_tests})
  get_filename_component(name ${file} NAME_WE)
  plec_cuda_test(${name})
endforeach()

# Prints what cuda_mm_memory_test holds.
if(PLEC_HAVE_CHECKED_EMULATION)
  add_executable(bench_mm_memory EXCLUDE_FROM_ALL bench_mm_memory.cc)
  target_include_directories(bench_mm_memory BEFORE PRIVATE ${plec_emulation_dir}/stub)
  target_link_libraries(bench_mm_memory PRIVATE plec_flags plec_cuda_emu_checked plec_device
    GTest::gtest)
endif()

# Where there is a toolkit: instructions a weight of mm_sync and mm_bulk, by the compiler's own output.
if(PLEC_HAVE_CUDA)
  add_test(NAME mm_wg_budget COMMAND sh ${CMAKE_SOURCE_DIR}/tools/count_wgmma.sh --check)
  set_tests_properties(mm_wg_budget PROPERTIES LABELS slow
    ENVIRONMENT NVCC=${CMAKE_CUDA_COMPILER})
  add_test(NAME mm_sync_budget COMMAND sh ${CMAKE_SOURCE_DIR}/tools/count_loop.sh --check)
  add_test(NAME mm_bulk_budget COMMAND sh ${CMAKE_SOURCE_DIR}/tools/count_loop.sh --check --bulk)
  set_tests_properties(mm_sync_budget mm_bulk_budget PROPERTIES LABELS slow
    ENVIRONMENT NVCC=${CMAKE_CUDA_COMPILER})
endif()

# The tool with the emulated device, on every fixture.
add_executable(emu_run_test emu_run_test.cc)
target_compile_definitions(emu_run_test PRIVATE
  PLEC_TOOL_EMULATED="$<TARGET_FILE:plectrum_emu>"
  PLEC_TOOL_IS_EMULATED=$<STREQUAL:${PLEC_CUDA},EMULATED>)
target_link_libraries(emu_run_test PRIVATE plec_flags plec_test_support GTest::gtest_main)
add_dependencies(emu_run_test plectrum_emu plectrum)
gtest_discover_tests(emu_run_test PROPERTIES LABELS emu DISCOVERY_TIMEOUT 60)

# The runner on the emulated device, and streaming to it.
plec_emulated_test(cuda_runner_test emu_runner_test.cc LIBRARIES plec_test_support plec_cuda_emu)
plec_emulated_test(emu_streaming_test emu_streaming_test.cc
  LIBRARIES plec_test_support plec_cuda_emu)

# Stands in for cuBLAS, and calls the emulated runtime of the program that opens it.
add_library(cublas_standin MODULE cublas_standin.c)
target_include_directories(cublas_standin BEFORE PRIVATE ${plec_emulation_dir}/stub)
target_link_libraries(cublas_standin PRIVATE plec_flags)
foreach(program cuda_library_test cuda_library_test_checked emu_run_test plectrum_emu bench_matrix_emu)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES ENABLE_EXPORTS ON)
    target_compile_definitions(${program} PRIVATE
      PLEC_CUBLAS_STANDIN="$<TARGET_FILE:cublas_standin>")
    add_dependencies(${program} cublas_standin)
  endif()
endforeach()

# Where there is a toolkit: the constants of the stub headers against the toolkit's own.
if(PLEC_HAVE_CUDA)
  set(assertions "#include <cuda.h>\n#include <cuda_runtime.h>\n")
  foreach(header cuda.h cuda_runtime_api.h)
    file(STRINGS emu/stub/${header} lines REGEX "^    (cuda|CU_?)[A-Za-z0-9_]+ = [0-9]+,?$")
    foreach(line ${lines})
      string(REGEX REPLACE "^ *([A-Za-z0-9_]+) = ([0-9]+),?$" "static_assert((int)\\1 == \\2, \"\\1\");\n"
        assertion "${line}")
      string(APPEND assertions "${assertion}")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT stub_values.cu CONTENT "${assertions}")
  add_library(emu_stub_values OBJECT ${CMAKE_CURRENT_BINARY_DIR}/stub_values.cu)
endif()
