# also run under MPI: tests/mpi/settle.cmake
add_executable(test_settle ${CMAKE_CURRENT_LIST_DIR}/test_settle.c
    ${CMAKE_CURRENT_LIST_DIR}/misuse_main.c)
target_link_libraries(test_settle PRIVATE dtp_executor)
foreach(ranks 2 4)
    add_test(NAME settle_${ranks} COMMAND test_settle ${ranks})
    set_tests_properties(settle_${ranks} PROPERTIES LABELS sim TIMEOUT 60)
endforeach()
add_executable(test_dtensor_reasons ${CMAKE_CURRENT_LIST_DIR}/test_dtensor_reasons.c
    ${CMAKE_CURRENT_LIST_DIR}/misuse_main.c)
target_link_libraries(test_dtensor_reasons PRIVATE dtp_tensor)
foreach(ranks 2 4)
    add_test(NAME dtensor_reasons_${ranks} COMMAND test_dtensor_reasons ${ranks})
    set_tests_properties(dtensor_reasons_${ranks} PROPERTIES LABELS sim TIMEOUT 60)
endforeach()
