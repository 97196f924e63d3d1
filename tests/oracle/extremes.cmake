# Numbers at the ends of their ranges: of machines, and of selection problems.
dtp_test(NAME machine_extremes SOURCES machine_extremes.c LIBS dtp_planner LABELS oracle TIMEOUT 300)
dtp_test(NAME select_extremes SOURCES select_extremes.c LIBS dtp_planner LABELS oracle)
