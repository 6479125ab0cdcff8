# Which architectures a configure step chooses, by what a stand-in for nvidia-smi says.
# Usage: cmake -D FOLDER=... -P gpu_architectures.cmake
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/gpu_architectures.cmake)

function(expect_architectures body want)
  file(WRITE ${FOLDER}/nvidia-smi "#!/bin/sh\n${body}\n")
  file(CHMOD ${FOLDER}/nvidia-smi PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(PLEC_NVIDIA_SMI ${FOLDER}/nvidia-smi)
  plec_gpu_architectures(got how)
  if(NOT got STREQUAL want)
    message(SEND_ERROR "nvidia-smi \"${body}\": ${got} (${how}), not ${want}")
  endif()
endfunction()

expect_architectures("echo 9.0" "90a-real")
expect_architectures("echo 10.0" "100a-real")
expect_architectures("echo 12.0" "120a-real")
expect_architectures("echo 8.9; echo 8.9; echo 8.0" "89-real;80-real")
expect_architectures("echo 8.6; echo 12.1" "86-real;121-real")
expect_architectures("[ \"$1\" = --query-gpu=compute_cap ] && echo 7.5" "75-real")
expect_architectures("echo 9.0; exit 9" "90a-real")
expect_architectures("echo 8.0; exit 9" "90a-real")
expect_architectures("echo '[N/A]'" "90a-real")
