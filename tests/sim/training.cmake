dtp_test(NAME training SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_training.c
    ${PROJECT_SOURCE_DIR}/tests/unit/data_files.c LIBS dtp_executor
    LABELS sim TIMEOUT 600)
