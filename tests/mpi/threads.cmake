add_executable(test_threads ${PROJECT_SOURCE_DIR}/tests/sim/test_threads.c)
target_link_libraries(test_threads PRIVATE dtp_executor)
if(DTP_HAVE_MPI AND TARGET dtrun)
    add_test(NAME threads_mpi COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/threads.sh $<TARGET_FILE:test_threads>
        $<TARGET_FILE:dtrun> ${DTP_MPIRUN})
    set_tests_properties(threads_mpi PROPERTIES LABELS mpi TIMEOUT 60 PROCESSORS 2
        ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0") # of Open MPI
endif()
