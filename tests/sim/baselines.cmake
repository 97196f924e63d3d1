dtp_test(NAME baselines SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_baselines.c
    ${CMAKE_CURRENT_LIST_DIR}/small_models.c ${CMAKE_CURRENT_LIST_DIR}/verify_case.c
    LIBS dtp_planner dtp_executor LABELS sim oracle TIMEOUT 300)
