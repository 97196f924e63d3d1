dtp_test(NAME own_ops SOURCES test_own_ops.c own_ops.c job_suite.c verify_case.c LIBS dtp_tensor dtp_planner dtp_executor
    LABELS sim)
