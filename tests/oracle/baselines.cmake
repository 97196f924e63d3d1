dtp_test(NAME baselines_counts SOURCES ${CMAKE_CURRENT_LIST_DIR}/baselines_counts.c
    ${PROJECT_SOURCE_DIR}/tests/sim/small_models.c LIBS dtp_planner LABELS oracle TIMEOUT 60)
