/* Commands of dtplan. */
#ifndef DTP_TOOLS_DTPLAN_OPTIONS_H
#define DTP_TOOLS_DTPLAN_OPTIONS_H

#include "tools/job.h"

int dtplan_plan(int argc, char **argv);
int dtplan_show(int argc, char **argv);
int dtplan_verify_rules(int argc, char **argv);
int dtplan_viz(int argc, char **argv);
int dtplan_redistribute(int argc, char **argv);
int dtplan_explain(int argc, char **argv);
int dtplan_diff(int argc, char **argv);
int dtplan_pareto(int argc, char **argv);
int dtplan_sensitivity(int argc, char **argv);
int dtplan_regress(int argc, char **argv);
int dtplan_machines(int argc, char **argv);
int dtplan_import(int argc, char **argv);
int dtplan_export(int argc, char **argv);
int dtplan_solve(int argc, char **argv);

#endif
