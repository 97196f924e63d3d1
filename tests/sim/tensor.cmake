dtp_test(NAME tensor_plans
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_tensor_plans.c
            ${CMAKE_CURRENT_LIST_DIR}/verify_case.c
            ${CMAKE_CURRENT_LIST_DIR}/../oracle/tensor_cases.c
    LIBS dtp_planner dtp_executor LABELS sim TIMEOUT 300)
dtp_test(NAME plan_choices
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_plan_choices.c
            ${CMAKE_CURRENT_LIST_DIR}/verify_case.c
            ${CMAKE_CURRENT_LIST_DIR}/../oracle/tensor_cases.c
    LIBS dtp_planner dtp_executor LABELS sim TIMEOUT 300)
# Tests of similar length: two run at a time.
function(verify_tensor name mesh models)
    add_test(NAME verify_tensor_${name} COMMAND bash ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/verify_tensor.sh
        ${CMAKE_BINARY_DIR}/bin sim "${mesh}" "${models}" WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(verify_tensor_${name} PROPERTIES LABELS sim TIMEOUT 300)
endfunction()
verify_tensor(2 x:2 all)
verify_tensor(2x2_text "x:2;y:2" "gpt_bytes gpt_bytes_dropout gpt2_small mtf_lm")
verify_tensor(2x2_large "x:2;y:2" "mlp_digits llama3_8b mixtral_8x7b bert_large vit_b16")
verify_tensor(4 x:4 "mlp_digits gpt2_small mixtral_8x7b")
