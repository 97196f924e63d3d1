dtp_test(NAME tensor_plans
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_tensor_plans.c
            ${CMAKE_CURRENT_LIST_DIR}/../oracle/tensor_cases.c
    LIBS dtp_planner dtp_executor LABELS sim TIMEOUT 300)
dtp_test(NAME plan_choices
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_plan_choices.c
            ${CMAKE_CURRENT_LIST_DIR}/../oracle/tensor_cases.c
    LIBS dtp_planner dtp_executor LABELS sim TIMEOUT 300)
