/* Pins written by hand. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/transform/microbatch.h"
#include "interop/layout_forms.h"
#include "interop/styles/styles.h"

enum { NAME_BYTES = 640 };

/* Copies [at, end) without surrounding blanks. */
static dtp_status take(const char *at, const char *end, char out[NAME_BYTES], dtp_err *err)
{
    while (at < end && isspace((unsigned char)*at)) {
        at++;
    }
    while (end > at && isspace((unsigned char)end[-1])) {
        end--;
    }
    if (end - at >= NAME_BYTES) {
        return DTP_FAIL(err, DTP_RANGE, "a name of %td characters", end - at);
    }
    memcpy(out, at, (size_t)(end - at));
    out[end - at] = '\0';
    return DTP_OK;
}

static bool reads(const dtp_graph *g, dtp_node_id n, dtp_tensor_id t)
{
    bool found = false;
    for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
        found = found || g->nodes[n].in[i] == t;
    }
    return found;
}

/* The node of this name that reads the pin's tensor. Two nodes may have the name: in the model, and
 * in the graph of microbatches. */
static dtp_status find_reader(const dtp_graph *g, const char *name, dtp_pin *out, dtp_err *err)
{
    out->node = dtp_microbatch_node(g, name);
    if (out->node < 0) {
        return DTP_FAIL(err, DTP_INVALID, "the model '%s' has no node '%.100s'", g->name, name);
    }
    if (!reads(g, out->node, out->tensor)) {
        for (out->node = g->n_nodes - 1;
             out->node >= 0 &&
             (strcmp(g->nodes[out->node].name, name) != 0 || !reads(g, out->node, out->tensor));) {
            out->node--;
        }
    }
    return out->node >= 0 ? DTP_OK
                          : DTP_FAIL(err, DTP_INVALID, "node '%.100s' does not read '%.100s'", name,
                                     g->tensors[out->tensor].name);
}

static dtp_status parse_pin(const char *text, const dtp_graph *g, const dtp_mesh *mesh,
                            dtp_pin *out, dtp_err *err)
{
    char name[NAME_BYTES], node[NAME_BYTES];
    const char *colon = strchr(text, ':');
    if (colon == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "expected TENSOR: LAYOUT or TENSOR at NODE: LAYOUT");
    }
    const char *at = strstr(text, " at ");
    at = at != NULL && at < colon ? at : NULL;
    DTP_TRY(take(text, at != NULL ? at : colon, name, err));
    out->tensor = dtp_graph_find(g, name);
    out->node = -1;
    out->dims = 0;
    if (out->tensor < 0) {
        return DTP_FAIL(err, DTP_INVALID, "the model '%s' has no tensor '%.100s'", g->name, name);
    }
    if (at != NULL) {
        DTP_TRY(take(at + 4, colon, node, err));
        DTP_TRY(find_reader(g, node, out, err));
    }
    const dtp_ttype *type = &g->tensors[out->tensor].type;
    DTP_TRY(dtp_layout_parse_any(colon + 1 + strspn(colon + 1, " \t"), mesh, type, &g->dims,
                                 &out->layout, err));
    return dtp_layout_check(&out->layout, mesh, type, err);
}

dtp_status dtp_pin_parse(const char *text, const dtp_graph *g, const dtp_mesh *mesh, dtp_pin *out,
                         dtp_err *err)
{
    dtp_status s = parse_pin(text, g, mesh, out, err);
    if (s != DTP_OK) {
        dtp_err_prefix(err, "pin '%.200s'", text);
    }
    return s;
}
