dtp_test(NAME spmd_redistribute SOURCES test_spmd_redistribute.c spmd_sim.c layout_list.c LIBS dtp_spmd
         LABELS unit TIMEOUT 120)
dtp_test(NAME spmd_memplan SOURCES test_spmd_memplan.c spmd_sim.c LIBS dtp_spmd LABELS unit
         TIMEOUT 120)
dtp_test(NAME spmd_lower SOURCES test_spmd_lower.c spmd_fixture.c spmd_kernels.c spmd_sim.c
         LIBS dtp_cost_models LABELS unit TIMEOUT 120)
dtp_test(NAME spmd_check SOURCES test_spmd_check.c spmd_fixture.c spmd_kernels.c spmd_sim.c
         LIBS dtp_spmd LABELS unit TIMEOUT 120)
dtp_test(NAME redistribute_print SOURCES test_redistribute_print.c layout_list.c LIBS dtp_spmd
         LABELS unit)
dtp_test(NAME spmd_external SOURCES test_spmd_external.c spmd_sim.c layout_list.c LIBS dtp_spmd
         LABELS unit TIMEOUT 120)
