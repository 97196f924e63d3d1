/* Pins written by hand. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

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
        while (++out->node < g->n_nodes && strcmp(g->nodes[out->node].name, node) != 0) {
        }
        if (out->node == g->n_nodes) {
            return DTP_FAIL(err, DTP_INVALID, "the model '%s' has no node '%.100s'", g->name, node);
        }
        bool reads = false;
        for (int32_t i = 0; i < g->nodes[out->node].n_in; i++) {
            reads = reads || g->nodes[out->node].in[i] == out->tensor;
        }
        if (!reads) {
            return DTP_FAIL(err, DTP_INVALID, "node '%.100s' does not read '%.100s'", node, name);
        }
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
