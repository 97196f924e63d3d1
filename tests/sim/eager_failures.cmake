# Programs on virtual ranks; tests/mpi/dtensor.cmake runs them under MPI.
foreach(name eager_failures dtensor_items)
    add_executable(test_${name} ${CMAKE_CURRENT_LIST_DIR}/test_${name}.c
        ${CMAKE_CURRENT_LIST_DIR}/misuse_main.c ${CMAKE_CURRENT_LIST_DIR}/dtensor_suite.c)
    target_link_libraries(test_${name} PRIVATE dtp_tensor)
    foreach(ranks 2 4)
        add_test(NAME ${name}_${ranks} COMMAND test_${name} ${ranks})
        set_tests_properties(${name}_${ranks} PROPERTIES LABELS "sim;oracle" TIMEOUT 120
            ENVIRONMENT "ASAN_OPTIONS=allocator_may_return_null=1")
    endforeach()
endforeach()
add_test(NAME eager_failures_1 COMMAND test_eager_failures 1)
set_tests_properties(eager_failures_1 PROPERTIES LABELS "sim;oracle" TIMEOUT 120
    ENVIRONMENT "ASAN_OPTIONS=allocator_may_return_null=1")
