dtp_test(NAME memory_saving SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_memory_saving.c LIBS dtp_executor
    LABELS sim TIMEOUT 300)
add_test(NAME verify_saving COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/verify_saving.sh ${CMAKE_BINARY_DIR}/bin
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(verify_saving PROPERTIES LABELS sim TIMEOUT 300)
