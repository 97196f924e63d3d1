set(elimination elimination.c elimination_drop.c elimination_tables.c)
dtp_test(NAME tensor_problem SOURCES test_tensor_problem.c tensor_cases.c LIBS dtp_planner
         LABELS oracle TIMEOUT 300)
dtp_test(NAME tensor_programs SOURCES tensor_programs.c tensor_cases.c LIBS dtp_planner
         LABELS oracle TIMEOUT 300)
dtp_test(NAME tensor_exact SOURCES tensor_exact.c ${elimination} limit_search.c tensor_cases.c
         LIBS dtp_planner LABELS oracle TIMEOUT 600)
dtp_test(NAME tensor_unfolded SOURCES tensor_unfolded.c ${elimination} tensor_cases.c
         LIBS dtp_planner LABELS oracle TIMEOUT 300)
dtp_test(NAME elimination SOURCES test_elimination.c ${elimination} limit_search.c select_random.c
         LIBS dtp_planner LABELS oracle TIMEOUT 300)
dtp_test(NAME plan_prices SOURCES plan_prices.c tensor_cases.c LIBS dtp_planner
         LABELS oracle TIMEOUT 300)
dtp_test(NAME tensor_folding SOURCES tensor_folding.c tensor_cases.c LIBS dtp_planner
         LABELS oracle TIMEOUT 300)
dtp_test(NAME tensor_option_bounds SOURCES tensor_option_bounds.c ${elimination} tensor_cases.c
         LIBS dtp_planner LABELS oracle TIMEOUT 300)
