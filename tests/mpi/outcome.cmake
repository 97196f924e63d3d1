# The end of a job, on virtual ranks and on processes: tests/sim/test_outcome.c, and of dtrun.
add_executable(test_outcome ${PROJECT_SOURCE_DIR}/tests/sim/test_outcome.c)
target_link_libraries(test_outcome PRIVATE dtp_executor)
add_test(NAME outcome_sim COMMAND test_outcome)
set_tests_properties(outcome_sim PROPERTIES LABELS sim TIMEOUT 60)
if(DTP_HAVE_MPI)
    dtp_mpi_test(NAME outcome_mpi PROGRAM test_outcome RANKS 4)
    if(TARGET dtrun)
        foreach(script outcome interrupt)
            add_test(NAME ${script}_dtrun
                COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/${script}.sh $<TARGET_FILE_DIR:dtrun> ${DTP_MPIRUN}
                WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
            set_tests_properties(${script}_dtrun PROPERTIES LABELS mpi TIMEOUT 300 PROCESSORS 2)
        endforeach()
    endif()
endif()
