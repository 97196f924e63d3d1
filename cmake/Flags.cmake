# Assertions stay on except in the release preset. Reports of sanitizers name lines, not variables: -g1 compiles faster.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
if(DTP_SANITIZE)
    set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
endif()

# The one place for compiler flags: every target links dtp_flags.
add_library(dtp_flags INTERFACE)
target_include_directories(dtp_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(dtp_flags INTERFACE _POSIX_C_SOURCE=200809L)
target_link_libraries(dtp_flags INTERFACE m)

if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
    set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes
        -Wmissing-prototypes -Wformat=2 -Wundef -Wcast-qual -Wvla -Wdouble-promotion
        -fno-math-errno $<$<BOOL:${DTP_WERROR}>:-Werror>)
    target_compile_options(dtp_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:${warnings}>")
    # Kernels: the host part with the usual warnings; registers that are spilled are a warning of ptxas.
    target_compile_options(dtp_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--std=c++17;--threads=2;-Xcompiler=-Wall,-Wextra;-Xptxas=--warn-on-spills>")
    if(DTP_WERROR)
        target_compile_options(dtp_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--Werror;all-warnings>")
    endif()
    if(DTP_SANITIZE)
        target_compile_options(dtp_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${DTP_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
        if(DTP_SANITIZE MATCHES "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
            # of fences, which order what processes share; the sanitizer sees one process
            target_compile_options(dtp_flags INTERFACE -Wno-tsan)
        endif()
        target_link_options(dtp_flags INTERFACE -fsanitize=${DTP_SANITIZE})
    endif()
    if(DTP_COVERAGE)
        target_compile_options(dtp_flags INTERFACE --coverage)
        target_link_options(dtp_flags INTERFACE --coverage)
    endif()
endif()

# Kernels are compiled for the processor at hand's common vector width through function clones, see
# executor/cpu; everything else is portable.
function(dtp_add_library name)
    add_library(${name} STATIC ${ARGN})
    target_link_libraries(${name} PUBLIC dtp_flags)
    # Shared libraries made of it export what include/dtp declares, and nothing else (DTP_API in dtp/status.h).
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden
        CUDA_VISIBILITY_PRESET hidden)
endfunction()
