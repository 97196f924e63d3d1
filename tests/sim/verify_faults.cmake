dtp_test(NAME verify_faults SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_verify_faults.c
    ${CMAKE_CURRENT_LIST_DIR}/job_suite.c ${CMAKE_CURRENT_LIST_DIR}/small_models.c
    LIBS dtp_planner dtp_executor LABELS sim TIMEOUT 120)
set_tests_properties(verify_faults PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1")
add_test(NAME verify_models COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/verify_models.sh ${CMAKE_BINARY_DIR}/bin quick
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(verify_models PROPERTIES LABELS sim TIMEOUT 300)
