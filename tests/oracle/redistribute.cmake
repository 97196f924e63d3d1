dtp_test(NAME redistribute_exact SOURCES redistribute_exact.c
    ${PROJECT_SOURCE_DIR}/tests/unit/layout_list.c ${PROJECT_SOURCE_DIR}/tests/unit/spmd_sim.c
    LIBS dtp_cost_models LABELS oracle TIMEOUT 120)
dtp_test(NAME redistribute_pairs SOURCES redistribute_pairs.c
    ${PROJECT_SOURCE_DIR}/tests/unit/layout_list.c ${PROJECT_SOURCE_DIR}/tests/unit/spmd_sim.c
    LIBS dtp_cost_models LABELS oracle TIMEOUT 600)
dtp_test(NAME redistribute_costs SOURCES redistribute_costs.c
    ${PROJECT_SOURCE_DIR}/tests/unit/layout_list.c ${PROJECT_SOURCE_DIR}/tests/unit/spmd_sim.c
    LIBS dtp_cost_models LABELS oracle TIMEOUT 120)
