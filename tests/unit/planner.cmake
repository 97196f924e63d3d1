dtp_test(NAME planner_glpk_fence SOURCES planner_glpk_fence.c LIBS dtp_planner LABELS unit)
dtp_test(NAME planner_plan_rules SOURCES planner_plan_rules.c ${PROJECT_SOURCE_DIR}/tests/oracle/rules_ilp_graphs.c
         LIBS dtp_planner LABELS unit TIMEOUT 120)
dtp_test(NAME select_files SOURCES test_select_files.c bad_files.c LIBS dtp_planner ZLIB::ZLIB LABELS unit)
dtp_test(NAME planner_plan_tensor SOURCES planner_plan_tensor.c plan_fixture.c
         ${PROJECT_SOURCE_DIR}/tests/oracle/rules_ilp_graphs.c LIBS dtp_planner LABELS unit TIMEOUT 300)
dtp_test(NAME explain SOURCES test_explain.c plan_fixture.c LIBS dtp_planner LABELS unit TIMEOUT 300)
dtp_test(NAME plan_reports SOURCES test_plan_reports.c plan_fixture.c
         ${PROJECT_SOURCE_DIR}/tests/oracle/rules_ilp_graphs.c LIBS dtp_planner LABELS unit TIMEOUT 120)
dtp_test(NAME planner_planning SOURCES planner_planning.c LIBS dtp_planner LABELS unit)
dtp_test(NAME planner_exposure SOURCES planner_exposure.c plan_fixture.c LIBS dtp_planner LABELS unit)
dtp_test(NAME planner_timeline_moves SOURCES planner_timeline_moves.c plan_fixture.c
         ${PROJECT_SOURCE_DIR}/tests/oracle/rules_ilp_graphs.c LIBS dtp_planner LABELS unit TIMEOUT 120)
