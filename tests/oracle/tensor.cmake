dtp_test(NAME tensor_problem SOURCES test_tensor_problem.c tensor_cases.c LIBS dtp_planner
         LABELS oracle TIMEOUT 300)
dtp_test(NAME tensor_exact SOURCES tensor_exact.c tensor_cases.c LIBS dtp_planner
         LABELS oracle TIMEOUT 300)
dtp_test(NAME tensor_folding SOURCES tensor_folding.c tensor_cases.c LIBS dtp_planner
         LABELS oracle TIMEOUT 300)
