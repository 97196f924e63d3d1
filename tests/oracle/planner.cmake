dtp_test(NAME rules_ilp_vs_bruteforce SOURCES rules_ilp_vs_bruteforce.c rules_ilp_graphs.c
         LIBS dtp_planner LABELS oracle TIMEOUT 300)
dtp_test(NAME select_vs_bruteforce SOURCES select_vs_bruteforce.c select_random.c
         LIBS dtp_planner LABELS oracle TIMEOUT 300)
dtp_test(NAME select_dual SOURCES select_dual.c select_random.c
         LIBS dtp_planner LABELS oracle)
dtp_test(NAME select_primal SOURCES select_primal.c select_random.c
         LIBS dtp_planner LABELS oracle)
dtp_test(NAME select_marginals SOURCES select_marginals.c select_random.c
         LIBS dtp_planner LABELS oracle)
