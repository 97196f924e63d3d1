dtp_test(NAME tensor_plans
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_tensor_plans.c
            ${CMAKE_CURRENT_LIST_DIR}/verify_case.c
            ${CMAKE_CURRENT_LIST_DIR}/../oracle/tensor_cases.c
    LIBS dtp_planner dtp_executor LABELS sim TIMEOUT 300)
dtp_test(NAME plan_choices
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_plan_choices.c
            ${CMAKE_CURRENT_LIST_DIR}/verify_case.c
            ${CMAKE_CURRENT_LIST_DIR}/../oracle/tensor_cases.c
    LIBS dtp_planner dtp_executor LABELS sim TIMEOUT 300)
add_test(NAME verify_tensor_2 COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/verify_tensor.sh ${CMAKE_BINARY_DIR}/bin sim x:2 all
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
add_test(NAME verify_tensor_2x2 COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/verify_tensor.sh ${CMAKE_BINARY_DIR}/bin sim "x:2;y:2" all
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
add_test(NAME verify_tensor_4 COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/verify_tensor.sh ${CMAKE_BINARY_DIR}/bin sim x:4
    "mlp_digits gpt2_small mixtral_8x7b" WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(verify_tensor_2 verify_tensor_2x2 verify_tensor_4 PROPERTIES LABELS sim TIMEOUT 300)
