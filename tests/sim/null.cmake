dtp_test(NAME null SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_null.c LIBS dtp_tensor LABELS unit TIMEOUT 120)
add_test(NAME null_rows COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/null_rows.sh
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(null_rows PROPERTIES LABELS lint TIMEOUT 60)
