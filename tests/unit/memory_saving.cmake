dtp_test(NAME remat SOURCES test_remat.c LIBS dtp_core LABELS unit)
dtp_test(NAME microbatch SOURCES test_microbatch.c LIBS dtp_planner LABELS unit)
