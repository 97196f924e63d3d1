/* The list of styles: the table, reading "GLOB: STYLE(OPTIONS)", and applying each to a graph. */
#include "interop/styles/styles.h"

#include <ctype.h>
#include <string.h>

#include "core/base/strbuf.h"
#include "core/graph/ops/op_table.h"
#include "interop/styles/glob.h"
#include "interop/styles/style_internal.h"

const dtp_style_def *dtp_style__table(void)
{
    static const dtp_style_def table[] = {
        {"colwise", "parameters split over output features", "tp", false, false, dtp_style__colwise,
         dtp_style__colwise_finish, NULL, NULL},
        {"rowwise", "parameters split over contracted dims, outputs reduced", "tp", false, false,
         dtp_style__rowwise, NULL, NULL, NULL},
        {"sequence", "activations split over the sequence, parameters replicated", "tp", false,
         false, dtp_style__sequence, NULL, NULL, NULL},
        {"replicate", "parameters and activations replicated", "tp", false, false,
         dtp_style__replicate, NULL, NULL, NULL},
        {"loss_parallel", "logits stay split over classes", "tp", false, false,
         dtp_style__loss_parallel, NULL, NULL, NULL},
        {"prepare_input", "what is read is brought to a layout", "tp", false, true,
         dtp_style__prepare_input, NULL, NULL, NULL},
        {"prepare_output", "what is made is left in a layout", "tp", false, true,
         dtp_style__prepare_output, NULL, NULL, NULL},
        {"context", "attention over a split sequence", "cp", false, false, dtp_style__context, NULL,
         "attention", "context"},
        {"data", "inputs split over the batch", "dp", false, false, dtp_style__data, NULL, NULL,
         NULL},
        {"zero1", "optimizer states split", "dp", true, false, dtp_style__zero1, NULL, NULL, NULL},
        {"zero2", "optimizer states and gradients split", "dp", true, false, dtp_style__zero2, NULL,
         NULL, NULL},
        {"zero3", "parameters split and gathered at each use", "dp", true, false, dtp_style__zero3,
         NULL, NULL, NULL},
        {"fsdp", "the same as zero3", "dp", true, false, dtp_style__zero3, NULL, NULL, NULL},
        {NULL, NULL, NULL, false, false, NULL, NULL, NULL, NULL},
    };
    return table;
}

void dtp_styles_init(dtp_styles *list, dtp_arena *arena)
{
    *list = (dtp_styles){.arena = arena};
}

/* ---- reading ------------------------------------------------------------------------------------
 */

static char *copy_range(dtp_arena *arena, const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at)) {
        at++;
    }
    while (end > at && isspace((unsigned char)end[-1])) {
        end--;
    }
    char *copy = dtp_arena_alloc(arena, (size_t)(end - at) + 1, 1);
    if (copy != NULL) {
        memcpy(copy, at, (size_t)(end - at));
    }
    return copy;
}

static dtp_status find_def(const char *name, const dtp_style_def **out, dtp_err *err)
{
    dtp_strbuf known = {0};
    for (const dtp_style_def *d = dtp_style__table(); d->name != NULL; d++) {
        if (strcmp(d->name, name) == 0) {
            *out = d;
            dtp_strbuf_free(&known);
            return DTP_OK;
        }
        dtp_strbuf_addf(&known, "%s%s", known.len > 0 ? ", " : "", d->name);
    }
    dtp_status s = known.failed
                       ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a list of styles")
                       : DTP_FAIL(err, DTP_INVALID, "there is no style '%.60s'; there are %s", name,
                                  dtp_strbuf_text(&known));
    dtp_strbuf_free(&known);
    return s;
}

/* A choice of the attribute that the style may set. */
static bool is_implementation(const dtp_style_def *def, const char *option)
{
    return def->attr != NULL &&
           dtp_implementation_choice(dtp_implementation_spec(dtp_op_find(def->op), def->attr),
                                     option) >= 0;
}

/* "tp", "dim=heads", "output=length" or, for context, "ring". */
static dtp_status read_option(char *option, dtp_style *style, dtp_err *err)
{
    static const char DIM[] = "dim=", OUTPUT[] = "output=";
    const char **to = &style->mesh_dim;
    const char *value = option;
    if (strncmp(option, DIM, sizeof DIM - 1) == 0) {
        to = &style->dim;
        value = option + sizeof DIM - 1;
    } else if (strncmp(option, OUTPUT, sizeof OUTPUT - 1) == 0) {
        to = &style->output;
        value = option + sizeof OUTPUT - 1;
    } else if (is_implementation(style->def, option)) {
        to = &style->implementation;
    }
    if (*value == '\0' || strchr(value, '=') != NULL || *to != NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "option '%.60s' of a style: expected one mesh dim, dim=NAME or output=NAME",
                        option);
    }
    *to = value;
    return DTP_OK;
}

static dtp_status read_options(const char *open, dtp_arena *arena, dtp_style *style, dtp_err *err)
{
    const char *close = strchr(open, ')');
    const char *rest = close == NULL ? NULL : close + 1 + strspn(close + 1, " \t");
    if (rest == NULL || *rest != '\0') {
        return DTP_FAIL(err, DTP_INVALID,
                        "the options of a style end with ')' and nothing follows");
    }
    for (const char *at = open + 1; at <= close;) {
        const char *end = at + strcspn(at, ",)");
        char *option = copy_range(arena, at, end);
        if (option == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for a style");
        }
        DTP_TRY(read_option(option, style, err));
        at = end + 1;
    }
    return DTP_OK;
}

/* "colwise", "colwise(tp)", "prepare_input(tp)=batch@x", "prepare_input=batch@x". */
static dtp_status read_style(const char *text, dtp_arena *arena, dtp_style *style, dtp_err *err)
{
    const char *end = text + strlen(text), *equals = NULL;
    const size_t name_len = strcspn(text, "(=");
    char *name = copy_range(arena, text, text + name_len);
    if (name == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a style");
    }
    DTP_TRY(find_def(name, &style->def, err));
    if (style->def->takes_layout) {
        const char *behind = text[name_len] == '(' ? strchr(text, ')') : text;
        equals = behind == NULL ? NULL : strchr(behind, '=');
        if (equals == NULL) {
            return DTP_FAIL(err, DTP_INVALID, "style %s needs a layout: %s=LAYOUT", name, name);
        }
        style->layout = copy_range(arena, equals + 1, end);
        end = equals;
    }
    char *head = copy_range(arena, text, end);
    if (head == NULL || (equals != NULL && style->layout == NULL)) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a style");
    }
    const char *open = strchr(head, '(');
    if (open == NULL && strchr(head, '=') != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "style %s takes no layout", name);
    }
    return open == NULL ? DTP_OK : read_options(open, arena, style, err);
}

static dtp_status read_assignment(const char *text, dtp_arena *arena, dtp_style *style,
                                  dtp_err *err)
{
    const char *colon = strchr(text, ':');
    if (colon == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "expected GLOB: STYLE");
    }
    style->glob = copy_range(arena, text, colon);
    style->text = copy_range(arena, text, text + strlen(text));
    if (style->glob == NULL || style->text == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a style");
    }
    DTP_TRY(dtp_glob_check(style->glob, err));
    return read_style(colon + 1, arena, style, err);
}

dtp_status dtp_styles_parse(const char *text, dtp_styles *list, dtp_err *err)
{
    dtp_style style = {0};
    dtp_status s = read_assignment(text, list->arena, &style, err);
    if (s != DTP_OK) {
        dtp_err_prefix(err, "style '%.200s'", text);
        return s;
    }
    DTP_TRY(dtp_arena_grow(list->arena, &list->items, list->n, list->n + 1, &list->capacity,
                           sizeof *list->items, err));
    list->items[list->n++] = style;
    return DTP_OK;
}

/* ---- applying -----------------------------------------------------------------------------------
 */

/* "x", or for the styles of the data mesh dim also "x+y". */
static dtp_status find_mesh_dims(dtp_style_job *job, const char *text, dtp_err *err)
{
    char mesh[DTP_MESH_TEXT_BYTES];
    const bool several = strcmp(job->style->def->mesh_dim, "dp") == 0;
    job->n_ms = 0;
    for (const char *at = text; at != NULL;) {
        const char *plus = several ? strchr(at, '+') : NULL;
        const size_t len = plus != NULL ? (size_t)(plus - at) : strlen(at);
        int32_t m = 0, before = 0;
        while (m < job->mesh->n_dims &&
               (strncmp(job->mesh->names[m], at, len) != 0 || job->mesh->names[m][len] != '\0')) {
            m++;
        }
        while (before < job->n_ms && job->ms[before] != m) {
            before++;
        }
        if (m == job->mesh->n_dims) {
            dtp_mesh_print(job->mesh, mesh);
            return DTP_FAIL(err, DTP_INVALID, "the mesh '%s' has no dim '%.*s'", mesh,
                            (int)(len < 60 ? len : 60), at);
        }
        if (before < job->n_ms) {
            return DTP_FAIL(err, DTP_INVALID, "'%.60s' names a mesh dim twice", text);
        }
        job->ms[job->n_ms++] = m;
        at = plus != NULL ? plus + 1 : NULL;
    }
    job->m = job->ms[0];
    return DTP_OK;
}

static dtp_status choose_mesh_dim(dtp_style_job *job, dtp_err *err)
{
    const dtp_style *s = job->style;
    char text[DTP_MESH_TEXT_BYTES];
    if (s->mesh_dim != NULL) {
        return find_mesh_dims(job, s->mesh_dim, err);
    }
    job->m = job->mesh->n_dims == 1 ? 0 : dtp_mesh_find(job->mesh, s->def->mesh_dim);
    job->n_ms = 1;
    job->ms[0] = job->m;
    if (job->m >= 0) {
        return DTP_OK;
    }
    dtp_mesh_print(job->mesh, text);
    return DTP_FAIL(err, DTP_INVALID,
                    "which dim of the mesh '%s'? There is none called '%s'; say %s(DIM)", text,
                    s->def->mesh_dim, s->def->name);
}

static dtp_status apply(dtp_style_job *job, const dtp_style *style,
                        dtp_status (*what)(dtp_style_job *, dtp_err *), dtp_err *err)
{
    job->style = style;
    dtp_status s = choose_mesh_dim(job, err);
    s = s == DTP_OK ? dtp_style__match(job, err) : s;
    s = s == DTP_OK ? what(job, err) : s;
    if (s != DTP_OK) {
        dtp_err_prefix(err, "style '%.200s'", style->text);
    }
    return s;
}

static dtp_status prepare(dtp_style_job *job, dtp_err *err)
{
    const dtp_graph *g = job->g;
    const size_t n = (size_t)g->n_tensors + 1;
    job->first_pin = dtp_arena_alloc(job->arena, n, sizeof *job->first_pin);
    job->param = dtp_arena_alloc(job->arena, n, sizeof *job->param);
    job->grad = dtp_arena_alloc(job->arena, n, sizeof *job->grad);
    job->node = dtp_arena_alloc(job->arena, (size_t)g->n_nodes + 1, sizeof *job->node);
    job->implementations =
        dtp_arena_alloc(job->arena, (size_t)g->n_nodes, sizeof *job->implementations);
    if (job->first_pin == NULL || job->param == NULL || job->grad == NULL || job->node == NULL ||
        job->implementations == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the pins of %d tensors", g->n_tensors);
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        job->first_pin[t] = job->grad[t] = -1;
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        job->grad[g->grads[i].param] = g->grads[i].grad;
    }
    return dtp_style__index(job, err);
}

static dtp_status apply_all(dtp_style_job *job, const dtp_styles *list, dtp_err *err)
{
    for (int32_t late = 0; late <= 1; late++) {
        for (int32_t i = 0; i < list->n; i++) {
            if (list->items[i].def->late == (late == 1)) {
                DTP_TRY(apply(job, &list->items[i], list->items[i].def->apply, err));
            }
        }
    }
    for (int32_t i = 0; i < list->n; i++) {
        if (list->items[i].def->finish != NULL) {
            DTP_TRY(apply(job, &list->items[i], list->items[i].def->finish, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_styles_pins(const dtp_graph *g, const dtp_mesh *mesh, dtp_styles *list, int32_t *n,
                           dtp_pin **out, dtp_err *err)
{
    dtp_style_job job = {.g = g, .mesh = mesh, .arena = list->arena};
    DTP_TRY(prepare(&job, err));
    DTP_TRY(apply_all(&job, list, err));
    dtp_pin *pins = dtp_arena_alloc(list->arena, (size_t)job.n_pins, sizeof *pins);
    if (pins == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d pins", job.n_pins);
    }
    for (int32_t i = 0; i < job.n_pins; i++) {
        pins[i] = job.pins[i].pin;
    }
    list->n_implementations = job.n_implementations;
    list->implementations = job.implementations;
    *n = job.n_pins;
    *out = pins;
    return DTP_OK;
}
