if(DTP_HAVE_MPI AND TARGET dtrun)
    foreach(ranks 2 4)
        add_test(NAME verify_mpi_${ranks}
            COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/verify.sh $<TARGET_FILE_DIR:dtrun> ${ranks}
            WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
        set_tests_properties(verify_mpi_${ranks} PROPERTIES LABELS mpi TIMEOUT 300 PROCESSORS 2)
    endforeach()
    set(all_rules_x2 "x:2" 4)
    set(all_rules_x4 "x:4" 3)
    set(all_rules_x2y2 "x:2\\;y:2" 9)
    foreach(case all_rules_x2 all_rules_x4 all_rules_x2y2)
        add_test(NAME verify_mpi_${case}
            COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/verify_all_rules.sh $<TARGET_FILE_DIR:dtrun> ${${case}}
            WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
        set_tests_properties(verify_mpi_${case} PROPERTIES LABELS mpi TIMEOUT 600 PROCESSORS 2)
    endforeach()
    add_test(NAME verify_mpi_tensor
        COMMAND bash ${PROJECT_SOURCE_DIR}/tests/sim/verify_tensor.sh $<TARGET_FILE_DIR:dtrun> mpi x:2 "mlp_digits llama3_8b gpt_bytes"
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(verify_mpi_tensor PROPERTIES LABELS mpi TIMEOUT 300 PROCESSORS 2)
endif()
