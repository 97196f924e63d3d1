/* Graphs from short texts, for tests of ops. */
#include "tests/support/op_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ATTRS = 8, WORD = 64 };

/* Cuts the next word off *text at any of `separators`; false at the end. */
static bool next_word(const char **text, const char *separators, char out[WORD])
{
    *text += strspn(*text, separators);
    const size_t n = strcspn(*text, separators);
    if (n == 0) {
        return false;
    }
    assert_true(n < WORD);
    memcpy(out, *text, n);
    out[n] = '\0';
    *text += n;
    return true;
}

static dtp_dim_id dim_of(dtp_graph *g, const char *name, int64_t size)
{
    dtp_dim_id d;
    assert_int_equal(dtp_dims_intern(&g->dims, name, size, &d, NULL), DTP_OK);
    return d;
}

static void read_dims(dtp_graph *g, const char *text, int32_t *rank, dtp_tdim dims[DTP_MAX_RANK])
{
    char word[WORD];
    *rank = 0;
    while (next_word(&text, " ", word)) {
        char *equals = strchr(word, '=');
        assert_non_null(equals);
        *equals = '\0';
        const int64_t size = strtoll(equals + 1, NULL, 10);
        assert_true(*rank < DTP_MAX_RANK);
        dims[(*rank)++] = (dtp_tdim){dim_of(g, word, size), size};
    }
}

dtp_ttype fx_type(dtp_graph *g, const char *text)
{
    dtp_ttype t = {.rank = 0};
    char word[WORD];
    assert_true(next_word(&text, " ", word));
    assert_int_equal(dtp_dtype_parse(word, &t.dtype, NULL), DTP_OK);
    read_dims(g, text, &t.rank, t.dims);
    return t;
}

dtp_tensor_id fx_tensor(dtp_graph *g, const char *name, dtp_tensor_kind kind, const char *type)
{
    const dtp_graph_tensor spec = {.name = name, .kind = kind, .type = fx_type(g, type)};
    dtp_tensor_id id;
    assert_int_equal(dtp_graph_add_tensor(g, &spec, &id, NULL), DTP_OK);
    return id;
}

/* One attribute "kind:key=value"; `key` and `ids` are its storage. */
static dtp_attr read_attr(dtp_graph *g, char *word, dtp_dim_id ids[DTP_MAX_RANK])
{
    char *key = strchr(word, ':');
    assert_non_null(key);
    *key++ = '\0';
    char *value = strchr(key, '=');
    assert_non_null(value);
    *value++ = '\0';
    if (strcmp(word, "int") == 0) {
        return dtp_attr_int(key, strtoll(value, NULL, 10));
    }
    if (strcmp(word, "float") == 0) {
        return dtp_attr_float(key, strtod(value, NULL));
    }
    if (strcmp(word, "dim") == 0) {
        return dtp_attr_dim(key, dim_of(g, value, 0));
    }
    const bool ints = strcmp(word, "ints") == 0;
    const char *rest = value;
    char entry[WORD];
    int32_t n = 0;
    assert_true(ints || strcmp(word, "dims") == 0);
    while (next_word(&rest, ",", entry)) {
        assert_true(n < DTP_MAX_RANK);
        ids[n++] = ints ? (int32_t)strtol(entry, NULL, 10) : dim_of(g, entry, 0);
    }
    return ints ? dtp_attr_ints(key, n, ids) : dtp_attr_dims(key, n, ids);
}

dtp_status fx_try(dtp_graph *g, const char *name, fx_node node, int32_t n_in,
                  const dtp_tensor_id *in, dtp_tensor_id *outs, dtp_err *err)
{
    char words[MAX_ATTRS][WORD];
    dtp_dim_id ids[MAX_ATTRS][DTP_MAX_RANK];
    dtp_attr attrs[MAX_ATTRS];
    dtp_node_spec spec = dtp_node_spec_init(name, node.op);
    const char *text = node.attrs == NULL ? "" : node.attrs;
    while (next_word(&text, " ", words[spec.n_attrs])) {
        attrs[spec.n_attrs] = read_attr(g, words[spec.n_attrs], ids[spec.n_attrs]);
        spec.n_attrs++;
        assert_true(spec.n_attrs < MAX_ATTRS);
    }
    spec.n_in = n_in;
    spec.in = in;
    spec.attrs = attrs;
    dtp_ttype out;
    if (node.out != NULL) {
        spec.out = &out;
        read_dims(g, node.out, &out.rank, out.dims);
    }
    return dtp_graph_add_node(g, &spec, outs, err);
}

dtp_tensor_id fx_add(dtp_graph *g, const char *name, fx_node node, int32_t n_in,
                     const dtp_tensor_id *in)
{
    dtp_tensor_id outs[DTP_MAX_OP_OUT];
    dtp_err err;
    dtp_err_clear(&err);
    if (fx_try(g, name, node, n_in, in, outs, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return outs[0];
}
