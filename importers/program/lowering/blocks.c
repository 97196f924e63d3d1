/* Repeated blocks: nodes of the instances of a numbered list of modules ("layers.0", "layers.1",
 * ..) that are the same but for the number. */
#include "importers/program/lowering/blocks.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dtp_block_local(const dtp_block *b, int32_t k, const char *name)
{
    const size_t n = strlen(b->prefix);
    if (strncmp(name, b->prefix, n) != 0 || name[n] != '.') {
        return NULL;
    }
    char *end;
    const long number = strtol(name + n + 1, &end, 10);
    return isdigit((unsigned char)name[n + 1]) && number == k && *end == '.' ? end + 1 : NULL;
}

/* The first component of a path that is a number: its place and the number; -1. */
static int32_t number_in(const char *path, size_t *prefix)
{
    for (const char *c = path; *c != '\0'; c++) {
        if (c > path && c[-1] == '.' && isdigit((unsigned char)*c)) {
            char *end;
            const long k = strtol(c, &end, 10);
            if ((*end == '.' || *end == '\0') && k < 1000000) {
                *prefix = (size_t)(c - path) - 1;
                return (int32_t)k;
            }
        }
    }
    return -1;
}

const char *dtp_block_tail(const char *name)
{
    size_t n;
    const char *dot = number_in(name, &n) < 0 ? NULL : strchr(name + n + 1, '.');
    return dot == NULL ? NULL : dot + 1;
}

/* The first node behind those of instance k that begin at `at`. */
static int32_t end_of(const dtp_importer *m, int32_t at, const char *prefix, int32_t k)
{
    size_t n;
    const size_t len = strlen(prefix);
    while (at < m->n && number_in(m->nodes[at].path, &n) == k && n == len &&
           memcmp(m->nodes[at].path, prefix, n) == 0) {
        at++;
    }
    return at;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static int32_t find_text(int32_t n, const char *const *list, const char *text)
{
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(list[i], text) == 0) {
            return i;
        }
    }
    return -1;
}

/* The node that makes a tensor, or the first that reads an input or a parameter. */
static int32_t place_of(const dtp_importer *m, const char *name)
{
    const int32_t node = dtp_name_find(&m->ids, name);
    const int32_t value = node >= 0 ? -1 : dtp_name_find(&m->g->sources, name);
    return value < 0 ? node : m->read_by[value];
}

static bool is_frozen(const dtp_importer *m, const char *name)
{
    const int32_t value =
        dtp_name_find(&m->ids, name) >= 0 ? -1 : dtp_name_find(&m->g->sources, name);
    return value >= 0 && m->g->values[value].frozen;
}

bool dtp_block_has(const dtp_importer *m, const dtp_block *b, const char *name)
{
    const int32_t at = place_of(m, name);
    return dtp_block_local(b, 0, name) != NULL && at >= b->begin && at < b->begin + b->length;
}

const char *dtp_block_inner(const dtp_importer *m, const dtp_block *b, const char *name)
{
    if (b == NULL || dtp_block_has(m, b, name)) {
        return b == NULL ? name : dtp_block_local(b, 0, name);
    }
    const int32_t carried = find_text(b->n_carry, b->carry_from, name);
    const int32_t seen = find_text(b->n_with, b->with, name);
    return carried >= 0 ? dtp_arena_printf(m->arena, "carry.%d", carried)
           : seen >= 0  ? dtp_arena_printf(m->arena, "with.%d", seen)
                        : name;
}

const dtp_block *dtp_block_of(const dtp_importer *m, int32_t n, const dtp_block *blocks,
                              const char *name, int32_t *k)
{
    const int32_t at = place_of(m, name);
    int32_t low = 0;
    while (low < n) { /* the last that begins at or before `at` */
        const int32_t middle = low + (n - low) / 2;
        if (blocks[middle].begin <= at) {
            low = middle + 1;
        } else {
            n = middle;
        }
    }
    const dtp_block *b = low == 0 ? NULL : &blocks[low - 1];
    if (b == NULL || at >= b->begin + b->length * b->count) {
        return NULL;
    }
    *k = (at - b->begin) / b->length;
    return dtp_block_local(b, *k, name) == NULL ? NULL : b;
}

/* Dims of a tensor as far as nodes say them, "a,b"; NULL: an input's, or not said. */
static const char *dims_said(const dtp_importer *m, const char *name)
{
    for (int32_t node; (node = dtp_name_find(&m->ids, name)) >= 0; name = m->nodes[node].in[0]) {
        const dtp_out_node *o = &m->nodes[node];
        if (o->out != NULL || o->n_in == 0) {
            return o->out;
        }
    }
    return NULL;
}

/* An operand of instance k against that of instance 0: of the instance itself, carried from the
 * instance before, or the same for all. */
static bool same_operand(const dtp_importer *m, dtp_block *b, int32_t k, const char *one,
                         const char *other)
{
    if (dtp_block_has(m, b, one)) {
        return same_text(dtp_block_local(b, 0, one), dtp_block_local(b, k, other)) &&
               is_frozen(m, one) == is_frozen(m, other);
    }
    const char *before = dtp_block_local(b, k - 1, other);
    if (before == NULL || strcmp(one, other) == 0) {
        if (strcmp(one, other) != 0 || find_text(b->n_carry, b->carry_from, one) >= 0) {
            return false;
        }
        if (find_text(b->n_with, b->with, one) < 0 && b->n_with < DTP_MOST_CARRIED) {
            b->with[b->n_with++] = one;
        }
        return find_text(b->n_with, b->with, one) >= 0;
    }
    const int32_t at = find_text(b->n_carry, b->carry_from, one);
    if (at >= 0) {
        return strcmp(b->carry_out[at], before) == 0;
    }
    if (b->n_carry == DTP_MOST_CARRIED || find_text(b->n_with, b->with, one) >= 0) {
        return false;
    }
    const char *out = dtp_arena_printf(m->arena, "%s.0.%s", b->prefix, before);
    const char *in_dims = dims_said(m, one), *dims = out == NULL ? NULL : dims_said(m, out);
    if (in_dims != NULL && dims != NULL && strcmp(in_dims, dims) != 0) {
        return false; /* what comes out does not go in */
    }
    b->carry_from[b->n_carry] = one;
    b->carry_out[b->n_carry++] = before;
    return true;
}

static bool same_instance(const dtp_importer *m, dtp_block *b, int32_t k)
{
    for (int32_t i = 0; i < b->length; i++) {
        const dtp_out_node *x = &m->nodes[b->begin + i], *y = x + (ptrdiff_t)k * b->length;
        const char *mine = dtp_block_local(b, 0, x->id);
        if (mine == NULL || !same_text(mine, dtp_block_local(b, k, y->id)) ||
            strcmp(x->op, y->op) != 0 || x->n_in != y->n_in || !same_text(x->out, y->out) ||
            strcmp(x->attrs, y->attrs) != 0) {
            return false;
        }
        for (int32_t o = 0; o < x->n_in; o++) {
            if (!same_operand(m, b, k, x->in[o], y->in[o])) {
                return false;
            }
        }
    }
    return true;
}

/* The instances of the list of modules to which the nodes from `at` on belong. Those of instance 0
 * are as many as those of instance 1: what stands before them is made once. *end: behind all. */
static dtp_status block_at(dtp_importer *m, int32_t at, dtp_block *b, int32_t *end, dtp_err *err)
{
    size_t n = 0;
    *b = (dtp_block){.begin = at, .count = 1};
    *end = at + 1;
    if (number_in(m->nodes[at].path, &n) != 0) {
        return DTP_OK;
    }
    b->prefix = dtp_arena_printf(m->arena, "%.*s", (int)n, m->nodes[at].path);
    DTP_TRY(DTP_MEMORY(err, b->prefix));
    *end = end_of(m, at, b->prefix, 0);
    b->length = end_of(m, *end, b->prefix, 1) - *end;
    b->begin = *end - b->length;
    while (b->length > 0 && b->begin >= at &&
           end_of(m, *end, b->prefix, b->count) - *end == b->length) {
        dtp_block with = *b;
        if (!same_instance(m, &with, b->count)) {
            break;
        }
        *b = with;
        b->count++;
        *end += b->length;
    }
    return DTP_OK;
}

dtp_status dtp_blocks_find(dtp_importer *m, int32_t *n, dtp_block **out, dtp_err *err)
{
    int32_t capacity = 0, end;
    *n = 0;
    *out = NULL;
    for (int32_t at = 0; at < m->n; at = end) {
        dtp_block b;
        DTP_TRY(block_at(m, at, &b, &end, err));
        if (b.count > 1) {
            DTP_TRY(dtp_arena_grow(m->arena, out, *n, *n + 1, &capacity, sizeof **out, err));
            (*out)[(*n)++] = b;
        }
    }
    return DTP_OK;
}
