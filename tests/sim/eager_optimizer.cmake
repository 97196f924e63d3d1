# also run under MPI: tests/mpi/dtensor.cmake
dtp_test(NAME eager_optimizer SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_eager_optimizer.c
    ${CMAKE_CURRENT_LIST_DIR}/dtensor_suite.c LIBS dtp_tensor LABELS sim oracle TIMEOUT 120)
