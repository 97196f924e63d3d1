/* Files by name: the models and machines that come with the tools. */
#ifndef DTP_TOOLS_SHIPPED_H
#define DTP_TOOLS_SHIPPED_H

#include "dtp/plan.h"
#include "tools/options.h"

/* Where they lie, beside the folder of this program. */
#define SHIPPED_MODELS "../share/dtp"
#define SHIPPED_MACHINES "../share/dtp/machines"

/* PATH beside the folder of this program: "dtrun", "../share/dtp/machines". */
dtp_status tool_beside_program(const char *path, tool_path *out, dtp_err *err) DTP_MUST_CHECK;

/* Names of the files NAME.json of a folder in order, ended by NULL, without those that belong to
 * another one (NAME.rules.json); free with tool_shipped_free. */
dtp_status tool_shipped_names(const char *folder, char ***out, dtp_err *err) DTP_MUST_CHECK;
void tool_shipped_free(char **names);

/* The path of a file by its name. `name` is a path when it has a '/' or ends with .json, else a
 * file of the folder without .json, else a path: files of the working directory do not hide what
 * comes with the tools. DTP_INVALID naming what is near, and DTP_IO for a path, when there is none;
 * `what` is "machine" or "model". */
dtp_status tool_shipped_find(const char *folder, const char *what, const char *name, tool_path *out,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
