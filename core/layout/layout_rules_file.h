/* Reads dtp.rules/1 (docs/formats/rules.md): named layout rules written by hand, for any mesh. */
#ifndef DTP_CORE_LAYOUT_LAYOUT_RULES_FILE_H
#define DTP_CORE_LAYOUT_LAYOUT_RULES_FILE_H

#include <stddef.h>

#include "core/base/arena.h"
#include "core/layout/mesh.h"

/* n names and rule texts for dtp_layout_rules_parse such as "batch:x;d_ff:y". */
typedef struct dtp_layout_rules_file {
    int32_t n;
    const char **names, **rules;
} dtp_layout_rules_file;

/* The rule sets of a file with the mesh dims of `mesh` filled in. Sets with mesh dims which this
 * mesh does not have are left out. The arena owns the texts. DTP_INVALID naming file, line and
 * column. */
dtp_status dtp_layout_rules_file_read(const char *path, const dtp_mesh *mesh, dtp_arena *arena,
                                      dtp_layout_rules_file *out, dtp_err *err) DTP_MUST_CHECK;
/* The same from text; `file` is for messages. */
dtp_status dtp_layout_rules_file_parse(const char *file, const char *text, size_t len,
                                       const dtp_mesh *mesh, dtp_arena *arena,
                                       dtp_layout_rules_file *out, dtp_err *err) DTP_MUST_CHECK;

#endif
