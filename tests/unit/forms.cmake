dtp_test(NAME layout_forms SOURCES test_layout_forms.c layout_list.c LIBS dtp_core LABELS unit)
dtp_test(NAME op_set SOURCES test_op_set.c LIBS dtp_core LABELS unit)
dtp_test(NAME layout_draw SOURCES test_layout_draw.c layout_list.c LIBS dtp_core LABELS unit)
dtp_test(NAME layout_notations SOURCES test_layout_notations.c layout_list.c LIBS dtp_core
    LABELS unit)
