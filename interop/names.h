/* Names files, dtp.names/1 (docs/formats/names.md): how another framework names and stores the
 * parameters of a model. Names on both sides may be patterns: '*' stands for a number, and the k-th
 * of one side is the k-th of the other. */
#ifndef DTP_INTEROP_NAMES_H
#define DTP_INTEROP_NAMES_H

#include "core/base/arena.h"
#include "core/graph/graph.h"
#include "core/layout/stored.h"

/* An axis of theirs: our dims merged, the outermost first; "heads*d_head". In "heads*3*d_head" the
 * parts of a fused one take turns: there are `turns` of them, before dims[turn_at]. */
typedef struct dtp_name_axis {
    int32_t n;
    const char *dims[DTP_MAX_RANK];
    int32_t turns, turn_at; /* turns 0: they lie one behind the other */
} dtp_name_axis;

typedef struct dtp_name_entry {
    const char *ours, *theirs; /* patterns */
    const char *place;         /* FILE:LINE:COL: path */
    int32_t n_axes;
    dtp_name_axis axes[DTP_MAX_RANK];
    int32_t fused_axis; /* over which parameters of ours lie side by side in one of theirs; -1 */
    int32_t n_parts;    /* which, in their order: patterns with the numbers of `ours` */
    const char **parts;
    bool guessed;   /* `theirs` was not in a file of theirs, but made up after a module */
    bool buffer;    /* theirs is no parameter, and may be in no file of theirs */
    int32_t n_tied; /* other names of the same weight: patterns */
    const char **tied;
    const char *each;                    /* the dim of "{dim}" in `theirs`; NULL */
    const struct dtp_name_entry *stored; /* how files have it; NULL: as this entry says */
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

/* How files of the framework have the parameters of g (docs/formats/names.md), in the order of
 * their tensors. Everything from the arena; `tensor` is borrowed from g. DTP_INVALID as above, and
 * when a part is no parameter or not stored as the parts of one weight are. */
dtp_status dtp_names_stored(const dtp_names *names, const dtp_graph *g, dtp_arena *arena,
                            dtp_stored_params *out, dtp_err *err) DTP_MUST_CHECK;

/* A pattern of the entry with the numbers of a parameter that the entry is of. From `arena`. */
dtp_status dtp_names_fill(const dtp_name_entry *entry, const char *ours, const char *pattern,
                          dtp_arena *arena, const char **out, dtp_err *err) DTP_MUST_CHECK;

/* The length of the module in a name of theirs, all before the last dot: "attn.q" of
 * "attn.q.weight"; 0: it has none. */
size_t dtp_names_module(const char *theirs);

/* A parameter, or pattern of ours, that a key of a style plan means, by its name or that of its
 * module, with `base` by one that lacks the first part of its name ("layers.3.mlp" of
 * "model.layers.3.mlp"): *ours is NULL when it is not. From `arena`. */
dtp_status dtp_names_match(const dtp_name_entry *entry, bool base, const char *key,
                           dtp_arena *arena, const char **ours, dtp_err *err) DTP_MUST_CHECK;
/* Whether such a key means a module that has the parameter under a tied name. */
bool dtp_names_ties(const dtp_name_entry *entry, bool base, const char *key);

#endif
