if(DTP_HAVE_MPI)
    dtp_mpi_test(NAME settle_mpi_4 PROGRAM test_settle RANKS 4)
    dtp_mpi_test(NAME dtensor_reasons_mpi_4 PROGRAM test_dtensor_reasons RANKS 4)
endif()
