dtp_test(NAME propagate SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_propagate.c
    ${CMAKE_CURRENT_LIST_DIR}/rules_ilp_graphs.c ${PROJECT_SOURCE_DIR}/tests/sim/verify_case.c
    LIBS dtp_executor LABELS oracle TIMEOUT 300)
dtp_test(NAME propagate_models SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_propagate_models.c
    LIBS dtp_executor LABELS oracle TIMEOUT 120)
