dtp_test(NAME dtensor_values SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_dtensor_values.c
    ${CMAKE_CURRENT_LIST_DIR}/dtensor_suite.c LIBS dtp_tensor LABELS sim TIMEOUT 120)
dtp_test(NAME dtensor_moves SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_dtensor_moves.c
    ${CMAKE_CURRENT_LIST_DIR}/dtensor_suite.c LIBS dtp_tensor LABELS sim TIMEOUT 120)
dtp_test(NAME dtensor_guides SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_dtensor_guides.c
    ${CMAKE_CURRENT_LIST_DIR}/dtensor_suite.c LIBS dtp_tensor LABELS sim TIMEOUT 120)
dtp_test(NAME dtensor_meshes SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_dtensor_meshes.c
    ${CMAKE_CURRENT_LIST_DIR}/dtensor_suite.c LIBS dtp_tensor LABELS sim TIMEOUT 60)
# also run under MPI: tests/mpi/dtensor.cmake
add_executable(test_dtensor_misuse ${CMAKE_CURRENT_LIST_DIR}/test_dtensor_misuse.c
    ${CMAKE_CURRENT_LIST_DIR}/misuse_main.c ${CMAKE_CURRENT_LIST_DIR}/dtensor_misuse.c
    ${CMAKE_CURRENT_LIST_DIR}/dtensor_suite.c)
target_link_libraries(test_dtensor_misuse PRIVATE dtp_tensor)
foreach(ranks 2 4)
    add_test(NAME dtensor_misuse_${ranks} COMMAND test_dtensor_misuse ${ranks})
    set_tests_properties(dtensor_misuse_${ranks} PROPERTIES LABELS sim TIMEOUT 120
        ENVIRONMENT "ASAN_OPTIONS=allocator_may_return_null=1")
endforeach()
dtp_test(NAME storage SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_storage.c LIBS dtp_tensor LABELS sim
    TIMEOUT 60)
