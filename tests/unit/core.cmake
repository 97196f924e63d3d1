dtp_test(NAME core SOURCES test_core.c LIBS dtp_core LABELS unit)
dtp_test(NAME sort SOURCES test_sort.c LIBS dtp_core LABELS unit)
dtp_test(NAME file_lock SOURCES test_file_lock.c data_files.c LIBS dtp_core LABELS unit)
dtp_test(NAME index_table SOURCES test_index_table.c LIBS dtp_core LABELS unit)
