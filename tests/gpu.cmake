# The programs of tools/gpu_check.sh. Where there is a toolkit, for a GPU: made on request (target
# `gpu_check`), and with everything else under PLEC_GPU_CHECK (the preset `cuda`), when ctest runs
# them too, label gpu; without a GPU they skip. And for the emulation, with which the script itself is
# tested. Most are the same sources as the emulated tests.
set(gpu_programs plectrum bench_matrix)

# plec_gpu_test(NAME SOURCES... [LIBRARIES...]): exit status 77 without a GPU.
function(plec_gpu_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES")
  add_executable(${name} EXCLUDE_FROM_ALL ${arg_UNPARSED_ARGUMENTS})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE PLEC_ON_GPU=1)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_include_directories(${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(${name} PRIVATE plec_flags ${arg_LIBRARIES} CUDA::cudart_static)
  if(PLEC_GPU_CHECK)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL OFF)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 RUN_SERIAL ON
      ENVIRONMENT PLEC_TOOL=$<TARGET_FILE:plectrum>)
  endif()
  set(gpu_programs ${gpu_programs} ${name} PARENT_SCOPE)
endfunction()

if(PLEC_HAVE_CUDA)
  # In every build with a toolkit, so that nvcc keeps compiling it.
  add_executable(gpu_contract ${contract_cases} emu/contract/main.cu)
  target_include_directories(gpu_contract PRIVATE ${CMAKE_SOURCE_DIR})
  set_target_properties(gpu_contract PROPERTIES CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static)
  list(APPEND gpu_programs gpu_contract)

  plec_gpu_test(gpu_ceilings gpu/ceilings.cc LIBRARIES ${CMAKE_DL_LIBS})
  foreach(module device arrival experts graph library plan route mm_fma mm_bulk mm_sync mm_wg
      mm_fma_slow mm_bulk_slow mm_sync_slow mm_wg_slow)
    plec_gpu_test(cuda_${module}_gpu_test cuda_${module}_test.cc gpu/main.cc
      LIBRARIES plec_cuda plec_device GTest::gtest)
  endforeach()
  plec_gpu_test(cuda_run_gpu_test emu_run_test.cc gpu/main.cc
    LIBRARIES plec_test_support plec_cuda plec_device GTest::gtest)
  plec_gpu_test(cuda_runner_gpu_test emu_runner_test.cc gpu/main.cc
    LIBRARIES plec_test_support plec_cuda plec_device GTest::gtest)
  add_custom_target(gpu_check DEPENDS ${gpu_programs})
endif()

plec_emulated_library(gpu_contract_main emu/contract/main.cu)
add_executable(gpu_contract_emu EXCLUDE_FROM_ALL)
target_link_libraries(gpu_contract_emu PRIVATE emu_contract gpu_contract_main)
plec_emulated_library(gpu_ceilings_main gpu/ceilings.cc)
add_executable(gpu_ceilings_emu EXCLUDE_FROM_ALL)
target_link_libraries(gpu_ceilings_emu PRIVATE gpu_ceilings_main ${CMAKE_DL_LIBS})
set_target_properties(gpu_contract_emu gpu_ceilings_emu PROPERTIES LINKER_LANGUAGE CXX)

add_executable(emu_gpu_check_test emu_gpu_check_test.cc)
target_compile_definitions(emu_gpu_check_test PRIVATE PLEC_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
  PLEC_BINARY_DIR="${CMAKE_BINARY_DIR}")
target_link_libraries(emu_gpu_check_test PRIVATE plec_flags plec_test_support GTest::gtest_main)
add_dependencies(emu_gpu_check_test cublas_standin cuda_library_test cuda_runner_test
  gpu_contract_emu gpu_ceilings_emu bench_matrix_emu plectrum_emu
  emu_run_test cuda_device_test cuda_arrival_test cuda_experts_test cuda_graph_test cuda_plan_test
  cuda_route_test cuda_mm_fma_test cuda_mm_bulk_test cuda_mm_sync_test
  cuda_mm_wg_test)
gtest_discover_tests(emu_gpu_check_test PROPERTIES LABELS emu DISCOVERY_TIMEOUT 60)

add_test(NAME gpu_architectures COMMAND ${CMAKE_COMMAND} -D FOLDER=${CMAKE_CURRENT_BINARY_DIR}
  -P ${CMAKE_CURRENT_SOURCE_DIR}/gpu_architectures.cmake)
set_tests_properties(gpu_architectures PROPERTIES LABELS cpu)
