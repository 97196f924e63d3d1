dtp_golden_script(NAME plan_reports_cli TIMEOUT 120)
