/* Names files, dtp.names/1 (docs/formats/names.md): how another framework names and stores the
 * parameters of a model. Names on both sides may be patterns: '*' stands for a number, and the k-th
 * of one side is the k-th of the other. */
#ifndef DTP_INTEROP_NAMES_H
#define DTP_INTEROP_NAMES_H

#include "core/base/arena.h"
#include "core/graph/graph.h"

/* An axis of theirs: our dims merged, the outermost first; "heads*d_head". */
typedef struct dtp_name_axis {
    int32_t n;
    const char *dims[DTP_MAX_RANK];
} dtp_name_axis;

typedef struct dtp_name_entry {
    const char *ours, *theirs; /* patterns */
    const char *place;         /* FILE:LINE:COL: path */
    int32_t n_axes;
    dtp_name_axis axes[DTP_MAX_RANK];
    int32_t fused_axis; /* over which parameters of ours lie side by side in one of theirs; -1 */
    int32_t n_parts;    /* which, in their order: patterns with the numbers of `ours` */
    const char **parts;
} dtp_name_entry;

typedef struct dtp_names {
    const char *file, *framework;
    int32_t n;
    dtp_name_entry *entries;
} dtp_names;

/* Everything from an arena but `path`, which is borrowed. The axes are held against a model by
 * dtp_names_find. DTP_INVALID naming FILE:LINE:COL. */
dtp_status dtp_names_read(const char *path, dtp_arena *arena, dtp_names *out,
                          dtp_err *err) DTP_MUST_CHECK;

/* What the file says of a parameter of g: the entry and *theirs, the name with its numbers, from
 * `arena`. DTP_INVALID when it says nothing of it, or its axes are not the parameter's dims. */
dtp_status dtp_names_find(const dtp_names *names, const dtp_graph *g, dtp_tensor_id param,
                          dtp_arena *arena, const dtp_name_entry **entry, const char **theirs,
                          dtp_err *err) DTP_MUST_CHECK;

/* The length of the module in a name of theirs, all before the last dot: "attn.q" of
 * "attn.q.weight"; 0: it has none. */
size_t dtp_names_module(const char *theirs);

/* A parameter, or pattern of ours, whose module is meant by a key of a style plan: *ours is NULL
 * when it is not. From `arena`. */
dtp_status dtp_names_match(const dtp_name_entry *entry, const char *key, dtp_arena *arena,
                           const char **ours, dtp_err *err) DTP_MUST_CHECK;

#endif
