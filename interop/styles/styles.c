/* The list of styles: the table, reading "GLOB: STYLE(OPTIONS)", and applying each to a graph. */
#include "interop/styles/styles.h"

#include <ctype.h>
#include <string.h>

#include "core/base/strbuf.h"
#include "core/graph/ops/op_table.h"
#include "core/base/glob.h"
#include "interop/styles/style_internal.h"

static const dtp_style_def TABLE[] = {
    {.name = "colwise", /* parameters split over output features */
     .mesh_dim = "tp",
     .node = dtp_style__weights,
     .wants = "reads a parameter",
     .finish = dtp_style__weights_finish},
    {.name = "rowwise", /* parameters split over contracted dims, outputs reduced */
     .mesh_dim = "tp",
     .rows = true,
     .node = dtp_style__weights,
     .wants = "reads a parameter"},
    {.name = "sequence", /* activations split over the sequence, parameters replicated */
     .mesh_dim = "tp",
     .node = dtp_style__sequence,
     .wants = "reads an activation with that sequence dim"},
    {.name = "replicate", .mesh_dim = "tp", .apply = dtp_style__replicate},
    {.name = "loss_parallel", /* logits stay split over classes */
     .mesh_dim = "tp",
     .node = dtp_style__loss_parallel,
     .wants = "is a cross_entropy"},
    {.name = "prepare_input", /* what is read is brought to a layout */
     .mesh_dim = "tp",
     .takes_layout = true,
     .node = dtp_style__prepare_input,
     .wants = "reads an activation from outside"},
    {.name = "prepare_output", /* what is made is left in a layout */
     .mesh_dim = "tp",
     .takes_layout = true,
     .node = dtp_style__prepare_output,
     .wants = "makes something that is read outside"},
    {.name = "context", /* attention over a split sequence */
     .mesh_dim = "cp",
     .node = dtp_style__context,
     .wants = "is an attention node",
     .op = "attention",
     .attr = "context"},
    {.name = "data", .mesh_dim = "dp", .apply = dtp_style__data}, /* inputs split over the batch */
    {.name = "zero1", .mesh_dim = "dp", .late = true, .stage = 1, .apply = dtp_style__zero},
    {.name = "zero2", .mesh_dim = "dp", .late = true, .stage = 2, .apply = dtp_style__zero},
    {.name = "zero3", .mesh_dim = "dp", .late = true, .stage = 3, .apply = dtp_style__zero},
    {.name = "fsdp", .mesh_dim = "dp", .late = true, .stage = 3, .apply = dtp_style__zero},
    {.name = NULL},
};

void dtp_styles_init(dtp_styles *list, dtp_arena *arena)
{
    *list = (dtp_styles){.arena = arena};
}

/* ---- reading ---- */

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
    for (const dtp_style_def *d = TABLE; d->name != NULL; d++) {
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

/* In parentheses: "tp", "dim=heads", "output=length" or, for context, "ring". */
static dtp_status read_options(const char *open, dtp_arena *arena, dtp_style *style, dtp_err *err)
{
    static const char DIM[] = "dim=", OUTPUT[] = "output=";
    const char *close = strchr(open, ')');
    const char *rest = close == NULL ? NULL : close + 1 + strspn(close + 1, " \t");
    if (rest == NULL || *rest != '\0') {
        return DTP_FAIL(err, DTP_INVALID,
                        "the options of a style end with ')' and nothing follows");
    }
    for (const char *at = open + 1; at <= close;) {
        const char *end = at + strcspn(at, ",)");
        char *option = copy_range(arena, at, end);
        DTP_TRY(DTP_MEMORY(err, option));
        const char **to = &style->mesh_dim;
        const char *value = option;
        if (strncmp(option, DIM, sizeof DIM - 1) == 0) {
            to = &style->dim;
            value = option + sizeof DIM - 1;
        } else if (strncmp(option, OUTPUT, sizeof OUTPUT - 1) == 0) {
            to = &style->output;
            value = option + sizeof OUTPUT - 1;
        } else if (style->def->attr != NULL &&
                   dtp_attr_choice(
                       dtp_implementation_spec(dtp_op_find(style->def->op), style->def->attr),
                       option) >= 0) { /* a choice of the attribute that the style may set */
            to = &style->implementation;
        }
        if (*value == '\0' || strchr(value, '=') != NULL || *to != NULL) {
            return DTP_FAIL(
                err, DTP_INVALID,
                "option '%.60s' of a style: expected one mesh dim, dim=NAME or output=NAME",
                option);
        }
        *to = value;
        at = end + 1;
    }
    return DTP_OK;
}

/* "GLOB: STYLE", where STYLE is "colwise", "colwise(tp)", "prepare_input(tp)=batch@x" or
 * "prepare_input=batch@x". */
static dtp_status read_assignment(const char *text, dtp_arena *arena, dtp_style *style,
                                  dtp_err *err)
{
    const char *colon = strchr(text, ':');
    if (colon == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "expected GLOB: STYLE");
    }
    style->glob = copy_range(arena, text, colon);
    style->text = copy_range(arena, text, text + strlen(text));
    DTP_TRY(DTP_MEMORY(err, style->glob, style->text));
    DTP_TRY(dtp_glob_check(style->glob, err));
    const char *said = colon + 1;
    const char *end = said + strlen(said), *equals = NULL;
    const size_t name_len = strcspn(said, "(=");
    char *name = copy_range(arena, said, said + name_len);
    DTP_TRY(DTP_MEMORY(err, name));
    DTP_TRY(find_def(name, &style->def, err));
    if (style->def->takes_layout) {
        const char *behind = said[name_len] == '(' ? strchr(said, ')') : said;
        equals = behind == NULL ? NULL : strchr(behind, '=');
        if (equals == NULL) {
            return DTP_FAIL(err, DTP_INVALID, "style %s needs a layout: %s=LAYOUT", name, name);
        }
        style->layout = copy_range(arena, equals + 1, end);
        end = equals;
    }
    char *head = copy_range(arena, said, end);
    DTP_TRY(DTP_MEMORY(err, head, equals != NULL ? style->layout : head));
    const char *open = strchr(head, '(');
    if (open == NULL && strchr(head, '=') != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "style %s takes no layout", name);
    }
    return open == NULL ? DTP_OK : read_options(open, arena, style, err);
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

/* ---- applying ---- */

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

/* The group's nodes in order; DTP_INVALID when none of them is one that the style applies to. */
static dtp_status each_node(dtp_style_job *job, dtp_style_node node, dtp_err *err)
{
    bool any = false;
    for (dtp_node_id n = 0; n < job->g->n_nodes; n++) {
        if (dtp_style__in_group(job, n)) {
            DTP_TRY(node(job, n, &any, err));
        }
    }
    return any ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "nothing that is matched %s", job->style->def->wants);
}

static dtp_status apply(dtp_style_job *job, const dtp_style *style, dtp_style_node node,
                        dtp_err *err)
{
    job->style = style;
    dtp_status s = choose_mesh_dim(job, err);
    s = s == DTP_OK ? dtp_style__match(job, err) : s;
    if (s == DTP_OK) {
        s = node != NULL ? each_node(job, node, err) : style->def->apply(job, err);
    }
    if (s != DTP_OK) {
        dtp_err_prefix(err, "style '%.200s'", style->text);
    }
    return s;
}

dtp_status dtp_styles_pins(const dtp_graph *g, const dtp_mesh *mesh, dtp_styles *list, int32_t *n,
                           dtp_pin **out, dtp_err *err)
{
    dtp_style_job job = {.g = g, .mesh = mesh, .arena = list->arena, .even = list->even};
    const int32_t n_tensors = g->n_tensors + 1;
    DTP_TRY(DTP_NEW(job.arena, job.first_pin, n_tensors, err));
    DTP_TRY(DTP_NEW(job.arena, job.param, n_tensors, err));
    DTP_TRY(DTP_NEW(job.arena, job.grad, n_tensors, err));
    DTP_TRY(DTP_NEW(job.arena, job.node, g->n_nodes + 1, err));
    DTP_TRY(DTP_NEW(job.arena, job.implementations, g->n_nodes, err));
    for (int32_t t = 0; t < g->n_tensors; t++) {
        job.first_pin[t] = job.grad[t] = -1;
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        job.grad[g->grads[i].param] = g->grads[i].grad;
    }
    DTP_TRY(dtp_style__index(&job, err));
    for (int32_t late = 0; late <= 1; late++) {
        for (int32_t i = 0; i < list->n; i++) {
            if (list->items[i].def->late == (late == 1)) {
                DTP_TRY(apply(&job, &list->items[i], list->items[i].def->node, err));
            }
        }
    }
    for (int32_t i = 0; i < list->n; i++) {
        if (list->items[i].def->finish != NULL) {
            DTP_TRY(apply(&job, &list->items[i], list->items[i].def->finish, err));
        }
    }
    dtp_pin *pins;
    DTP_TRY(DTP_NEW(list->arena, pins, job.n_pins, err));
    for (int32_t i = 0; i < job.n_pins; i++) {
        pins[i] = job.pins[i].pin;
    }
    list->n_implementations = job.n_implementations;
    list->implementations = job.implementations;
    *n = job.n_pins;
    *out = pins;
    return DTP_OK;
}
