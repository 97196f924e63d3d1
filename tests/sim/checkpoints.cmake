dtp_test(NAME checkpoint_sets SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_checkpoint_sets.c
    ${CMAKE_CURRENT_LIST_DIR}/job_suite.c ${PROJECT_SOURCE_DIR}/tests/unit/data_files.c
    LIBS dtp_executor LABELS sim TIMEOUT 120)
dtp_test(NAME not_finite SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_not_finite.c
    ${CMAKE_CURRENT_LIST_DIR}/job_suite.c ${PROJECT_SOURCE_DIR}/tests/unit/data_files.c
    LIBS dtp_executor LABELS sim TIMEOUT 120)
set_tests_properties(checkpoint_sets not_finite PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1")
add_test(NAME kill_saves COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/kill_saves.py $<TARGET_FILE:dtrun> --kills 24
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(kill_saves PROPERTIES LABELS "sim;mpi" TIMEOUT 300 PROCESSORS 2)
