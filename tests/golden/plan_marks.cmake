add_test(NAME plan_marks COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/plan_marks_cli.sh ${CMAKE_BINARY_DIR}/bin
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(plan_marks PROPERTIES LABELS golden TIMEOUT 120)
