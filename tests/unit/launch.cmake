dtp_test(NAME launch SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_launch.c LIBS dtp_executor LABELS unit)
dtp_test(NAME cpu_small SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_cpu_small.c LIBS dtp_executor LABELS unit)
