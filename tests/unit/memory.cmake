# Failing allocations, and memory that an input asks for.
# A library that lets allocations fail; loaded with LD_PRELOAD, which sanitized programs refuse.
add_library(alloc_fail MODULE ${CMAKE_CURRENT_LIST_DIR}/alloc_fail.c)
target_link_libraries(alloc_fail PRIVATE dtp_flags ${CMAKE_DL_LIBS})
target_compile_options(alloc_fail PRIVATE -fno-builtin)
set_target_properties(alloc_fail PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Sanitizers multiply memory: there only the answer to a large input is looked at.
set(sweep_options --sample 5)
set(bound_options)
if(DTP_SANITIZE)
    set(sweep_options --sanitized)
    set(bound_options --small)
endif()
add_test(NAME alloc_sweep
    COMMAND /usr/bin/env python3 ${CMAKE_CURRENT_LIST_DIR}/alloc_sweep.py ${CMAKE_BINARY_DIR}/bin
            $<TARGET_FILE:alloc_fail> ${sweep_options}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(alloc_sweep PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77)
add_test(NAME memory_bound
    COMMAND /usr/bin/env python3 ${CMAKE_CURRENT_LIST_DIR}/memory_bound.py ${CMAKE_BINARY_DIR}/bin
            ${bound_options}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(memory_bound PROPERTIES LABELS unit TIMEOUT 300)
