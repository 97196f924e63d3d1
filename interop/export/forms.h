/* The forms in which a plan leaves: each a small writer over the placements
 * (interop/export/placements.h). */
#ifndef DTP_INTEROP_EXPORT_FORMS_H
#define DTP_INTEROP_EXPORT_FORMS_H

#include "core/base/json_writer.h"
#include "interop/export/placements.h"

typedef struct dtp_export_form {
    const char *name; /* NULL ends the table */
    const char *about;
    /* Bit k: what placements lose of kind k the form loses, too; it may, which it adds itself. */
    uint32_t loses, may_lose;
    bool has_modules; /* a plan is said by styles of modules, or by placements alone */
    bool terms_apart; /* programs are those of a target with terms_apart (spmd/target/target.h) */
    /* Appends the text up to the list "lost", to which it adds what is lost of its own. */
    dtp_status (*write)(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost, dtp_err *err);
} dtp_export_form;

extern const dtp_export_form dtp_export_forms[];

/* DTP_INVALID naming the forms there are. */
dtp_status dtp_export_form_find(const char *name, const dtp_export_form **out,
                                dtp_err *err) DTP_MUST_CHECK;

/* Appends the whole text; *lost: what it lists as lost, in the arena of p. */
dtp_status dtp_export_write(const dtp_export_form *form, const dtp_placements *p,
                            dtp_json_writer *w, dtp_lost *lost, dtp_err *err) DTP_MUST_CHECK;
/* The degrees of torchtitan, "dp_shard=4 dp_replicate=1 tp=2 cp=1", in the arena of p; NULL: the
 * plan is not one of fully_shard, styles of modules and context parallelism. */
dtp_status dtp_export_degrees(const dtp_placements *p, const char **out,
                              dtp_err *err) DTP_MUST_CHECK;
/* Whether a form says all that a plan says: its list "lost" is empty. */
typedef enum dtp_said {
    DTP_SAID_NOT,
    DTP_SAID,           /* of a form with has_modules: by styles of modules */
    DTP_SAID_PLACEMENTS /* of such a form: by placements alone */
} dtp_said;
/* names NULL: none. */
dtp_status dtp_export_says_all(const dtp_export_form *form, const dtp_plan *plan,
                               const dtp_graph *graph, const dtp_names *names, dtp_said *how,
                               dtp_err *err) DTP_MUST_CHECK;
/* Why PyTorch is known to fail with the placements alone of a model, on devices of a kind
 * ("cpu"); NULL: it is not. Static. */
const char *dtp_export_placements_fail(const dtp_graph *model, const char *kind);

/* The writers. */
dtp_status dtp_export__placements(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost,
                                  dtp_err *err);
dtp_status dtp_export__torch(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost,
                             dtp_err *err);
dtp_status dtp_export__jax(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost,
                           dtp_err *err);
dtp_status dtp_export__hf(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost,
                          dtp_err *err);
dtp_status dtp_export__rules(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost,
                             dtp_err *err);

/* What they share. The head: format, model, framework, mesh. */
void dtp_export__begin(const dtp_placements *p, const char *format, dtp_json_writer *w);
/* All of dtp.placements/1 between them. */
void dtp_export__body(const dtp_placements *p, dtp_json_writer *w);
/* A list of placements, and one: "R", "P" or, in `out`, "S(0)". */
void dtp_export__layout(dtp_json_writer *w, const char *key, const dtp_layout *layout);
const char *dtp_export__placement(const dtp_placement *p, char out[8]);
/* The module of a numbered list that a parameter is in, "layers.3" of "layers.3.attn.q.weight";
 * NULL: no part of its name is a number. */
dtp_status dtp_export__numbered(const dtp_placed *of, dtp_arena *arena, const char **out,
                                dtp_err *err) DTP_MUST_CHECK;
/* What of the model's variant a framework sets itself: precision, microbatches, recomputed blocks.
 */
void dtp_export__variant(const dtp_placements *p, dtp_json_writer *w);

#endif
