# The programs of examples/, on virtual ranks; tests/mpi/examples.cmake runs them on MPI ranks.
foreach(name tensors eager_training tensorflow_guide tensor_parallel_mlp ring_attention own_op own_op_gradient)
    if(TARGET example_${name})
        add_test(NAME example_${name} COMMAND example_${name})
        set_tests_properties(example_${name} PROPERTIES LABELS sim TIMEOUT 60)
    endif()
endforeach()
# a document that shows an example in full shows it as it is
foreach(shown tensors:tensors eager_training:eager)
    string(REPLACE ":" ";" pair ${shown})
    list(GET pair 0 name)
    list(GET pair 1 doc)
    add_test(NAME example_${name}_shown COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/example_shown.sh
        examples/${name}.c docs/${doc}.md WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(example_${name}_shown PROPERTIES LABELS golden TIMEOUT 20)
endforeach()
