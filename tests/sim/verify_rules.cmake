dtp_test(NAME verify_rules SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_verify_rules.c
    ${CMAKE_CURRENT_LIST_DIR}/verify_case.c LIBS dtp_executor LABELS sim TIMEOUT 600)
