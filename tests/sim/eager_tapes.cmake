dtp_test(NAME eager_log SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_eager_log.c
    ${CMAKE_CURRENT_LIST_DIR}/dtensor_suite.c LIBS dtp_tensor LABELS sim oracle TIMEOUT 60)
dtp_test(NAME tape_variables SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_tape_variables.c
    ${CMAKE_CURRENT_LIST_DIR}/dtensor_suite.c LIBS dtp_tensor LABELS sim oracle TIMEOUT 60)
