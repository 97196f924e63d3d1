# Standard output that cannot be written to, and paths of output files.
dtp_golden_script(NAME output_streams TIMEOUT 120)
dtp_golden_script(NAME output_paths TIMEOUT 120)
dtp_golden_script(NAME messages TIMEOUT 120)
add_test(NAME output_streams_bench
    COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/output_streams.sh $<TARGET_FILE_DIR:dtrun> bench
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(output_streams_bench PROPERTIES LABELS golden TIMEOUT 300)
if(DTP_HAVE_MPI)
    add_test(NAME output_streams_mpirun
        COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/output_streams.sh $<TARGET_FILE_DIR:dtrun> mpirun
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(output_streams_mpirun PROPERTIES LABELS "golden;mpi" TIMEOUT 120 PROCESSORS 2)
endif()
