# Compiler flags of every target of ours: warnings are errors, and no multiply-add is fused behind
# the back of a codec (bit-exact decodes depend on it).
add_library(plec_flags INTERFACE)
target_compile_options(plec_flags INTERFACE
  -Wall -Wextra -Wshadow -Wpointer-arith -Wundef -Wvla -Werror -ffp-contract=off
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>)
if(PLEC_SANITIZE)
  add_compile_options(-fsanitize=${PLEC_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PLEC_SANITIZE})
endif()
# libFuzzer steers by the coverage of everything it reaches, so the libraries are instrumented too.
if(PLEC_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
