# dtp_mpi_example(NAME RANKS [ARGS]): a program of examples/ on MPI processes.
function(dtp_mpi_example name ranks)
    add_test(NAME example_${name}_mpi COMMAND ${DTP_MPIRUN} -n ${ranks}
        $<TARGET_FILE:example_${name}> ${ARGN})
    set_tests_properties(example_${name}_mpi PROPERTIES LABELS mpi TIMEOUT 120 PROCESSORS 2
        ENVIRONMENT "OMP_NUM_THREADS=1;ASAN_OPTIONS=detect_leaks=0")
endfunction()

if(DTP_HAVE_MPI)
    dtp_mpi_example(tensors 4)
    dtp_mpi_example(eager_training 4)
    dtp_mpi_example(tensorflow_guide 6)
    dtp_mpi_example(tensor_parallel_mlp 2 2)
    dtp_mpi_example(ring_attention 2 2)
    dtp_mpi_example(own_op 4)
    dtp_mpi_example(own_op_gradient 2 2)
endif()
