dtp_test(NAME comm_sim SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_comm_sim.c
    ${CMAKE_CURRENT_LIST_DIR}/comm_suite.c LIBS dtp_executor LABELS sim TIMEOUT 120)
dtp_test(NAME session_sim SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_session_sim.c
    ${CMAKE_CURRENT_LIST_DIR}/job_suite.c ${PROJECT_SOURCE_DIR}/tests/unit/data_files.c
    LIBS dtp_executor LABELS sim TIMEOUT 300)
set_tests_properties(comm_sim session_sim PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1")
add_executable(test_comm_misuse ${CMAKE_CURRENT_LIST_DIR}/test_comm_misuse.c
    ${CMAKE_CURRENT_LIST_DIR}/comm_misuse.c ${CMAKE_CURRENT_LIST_DIR}/misuse_main.c)
target_link_libraries(test_comm_misuse PRIVATE dtp_executor)
foreach(ranks 2 4)
    add_test(NAME comm_misuse_${ranks} COMMAND test_comm_misuse ${ranks})
    set_tests_properties(comm_misuse_${ranks} PROPERTIES LABELS sim TIMEOUT 120)
endforeach()
