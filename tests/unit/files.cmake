dtp_test(NAME file_out SOURCES test_file_out.c LIBS dtp_core LABELS unit)
dtp_test(NAME one_line SOURCES test_one_line.c LIBS dtp_core LABELS unit)
