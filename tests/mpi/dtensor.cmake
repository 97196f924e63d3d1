if(DTP_HAVE_MPI)
    dtp_mpi_test(NAME dtensor_guides_mpi_4 PROGRAM test_dtensor_guides RANKS 4)
    dtp_mpi_test(NAME dtensor_meshes_mpi_4 PROGRAM test_dtensor_meshes RANKS 4)
    foreach(ranks 2 4)
        dtp_mpi_test(NAME eager_optimizer_mpi_${ranks} PROGRAM test_eager_optimizer RANKS ${ranks})
        dtp_mpi_test(NAME eager_failures_mpi_${ranks} PROGRAM test_eager_failures RANKS ${ranks})
        dtp_mpi_test(NAME dtensor_items_mpi_${ranks} PROGRAM test_dtensor_items RANKS ${ranks})
        set_tests_properties(eager_failures_mpi_${ranks} PROPERTIES ENVIRONMENT
            "OMP_NUM_THREADS=1;ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1")
        dtp_mpi_test(NAME dtensor_misuse_mpi_${ranks} PROGRAM test_dtensor_misuse RANKS ${ranks})
        set_tests_properties(dtensor_misuse_mpi_${ranks} PROPERTIES ENVIRONMENT
            "OMP_NUM_THREADS=1;ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1")
    endforeach()
endif()
