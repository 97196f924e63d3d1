dtp_test(NAME styles_sim SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_styles.c
    ${CMAKE_CURRENT_LIST_DIR}/verify_case.c LIBS dtp_planner dtp_executor LABELS sim TIMEOUT 120)
