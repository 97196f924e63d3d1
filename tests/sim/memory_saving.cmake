dtp_test(NAME memory_saving SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_memory_saving.c LIBS dtp_executor
    LABELS sim TIMEOUT 300)
