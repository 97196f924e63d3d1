/* Runs one op on the CPU backend and on the reference backend, on random operands. */
#include "tests/ops/cpu_harness.h"
#include "core/base/arena.h"
#include "executor/device/backend.h"
#include "core/graph/ops/op_table.h"
#include "spmd/target/target.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include "dtp/device_mesh.h"

static double draw(cpu_case *c)
{
    c->random = c->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(c->random >> 11) * 0x1p-53;
}

void cpu_case_start(cpu_case *c, const char *op)
{
    memset(c, 0, sizeof *c);
    assert_int_equal(dtp_graph_create("test", dtp_builtin_ops(), &c->graph, NULL), DTP_OK);
    c->spec = dtp_node_spec_init("node", op);
    c->call.op = dtp_op_find(op);
    c->random = 12345;
    c->seed = 7;
    if (c->call.op == NULL) {
        fail_msg("no op '%s'", op);
    }
}

void cpu_case_free(cpu_case *c)
{
    for (int32_t i = 0; i < c->n_in; i++) {
        free(c->data[i]);
    }
    dtp_graph_destroy(c->graph);
}

static dtp_attr *add_attr(cpu_case *c)
{
    return &c->attrs[c->spec.n_attrs++];
}

static dtp_dim_id intern(cpu_case *c, const char *name)
{
    dtp_dim_id id;
    assert_int_equal(dtp_dims_intern(&c->graph->dims, name, 0, &id, NULL), DTP_OK);
    return id;
}

void cpu_attr_int(cpu_case *c, const char *key, int64_t value)
{
    *add_attr(c) = dtp_attr_int(key, value);
}

void cpu_attr_float(cpu_case *c, const char *key, double value)
{
    *add_attr(c) = dtp_attr_float(key, value);
}

void cpu_attr_dim(cpu_case *c, const char *key, const char *name)
{
    *add_attr(c) = dtp_attr_dim(key, intern(c, name));
}

/* Reads "a=2 b=3" (sizes may be left out). */
static int32_t read_dims(cpu_case *c, const char *text, dtp_tdim out[DTP_MAX_RANK])
{
    char copy[256];
    int32_t n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *save, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        out[n].size = equals != NULL ? atoll(equals + 1) : 0;
        if (equals != NULL) {
            *equals = '\0';
        }
        out[n++].id = intern(c, word);
    }
    return n;
}

void cpu_attr_dims(cpu_case *c, const char *key, const char *names)
{
    dtp_tdim dims[DTP_MAX_RANK];
    int32_t n = read_dims(c, names, dims), at = c->spec.n_attrs;
    for (int32_t i = 0; i < n; i++) {
        c->ids[at][i] = dims[i].id;
    }
    *add_attr(c) = dtp_attr_dims(key, n, c->ids[at]);
}

static dtp_ttype *add_operand(cpu_case *c, dtp_dtype dtype, const char *dims)
{
    dtp_ttype *t = &c->in[c->n_in];
    t->dtype = dtype;
    t->rank = read_dims(c, dims, t->dims);
    c->data[c->n_in++] = calloc(1, (size_t)dtp_ttype_bytes(t) + 64);
    return t;
}

void cpu_floats(cpu_case *c, const char *dims)
{
    dtp_ttype *t = add_operand(c, DTP_F32, dims);
    float *x = c->data[c->n_in - 1];
    for (int64_t i = 0, n = dtp_ttype_elems(t); i < n; i++) {
        x[i] = (float)(2.0 * draw(c) - 1.0);
    }
}

void cpu_ints(cpu_case *c, dtp_dtype dtype, const char *dims, int64_t below)
{
    dtp_ttype *t = add_operand(c, dtype, dims);
    void *x = c->data[c->n_in - 1];
    for (int64_t i = 0, n = dtp_ttype_elems(t); i < n; i++) {
        int64_t v = (int64_t)(draw(c) * (double)below);
        if (dtype == DTP_I32) {
            ((int32_t *)x)[i] = (int32_t)v;
        } else if (dtype == DTP_I64) {
            ((int64_t *)x)[i] = v;
        } else {
            ((uint8_t *)x)[i] = (uint8_t)v;
        }
    }
}

static void fill_attrs(cpu_case *c)
{
    const dtp_attr_spec *s = c->call.op->attrs;
    int32_t n = 0;
    for (; s != NULL && s->key != NULL; s++, n++) {
        dtp_attr *a = &c->filled[n];
        *a = (dtp_attr){.key = s->key, .kind = s->kind, .i = (int64_t)s->def, .f = s->def};
        for (int32_t i = 0; i < c->spec.n_attrs; i++) {
            const dtp_attr *given = &c->attrs[i];
            if (strcmp(given->key, s->key) != 0) {
                continue;
            }
            a->i = given->i;
            a->f = given->f;
            a->n = given->n;
            a->ids = given->ids;
        }
    }
    c->call.attrs = c->filled;
    c->call.n_attrs = n;
}

void cpu_infer(cpu_case *c, const char *out_dims)
{
    dtp_err err;
    dtp_dim_id stat;
    assert_int_equal(dtp_dims_intern(&c->graph->dims, "_stat", 2, &stat, NULL), DTP_OK);
    dtp_err_clear(&err);
    fill_attrs(c);
    c->call.dims = &c->graph->dims;
    c->call.n_in = c->n_in;
    c->call.n_out = c->call.op->n_out;
    c->n_out = c->call.n_out;
    c->call.in = c->in;
    c->call.out = c->out;
    if (out_dims != NULL) {
        c->out[0].rank = read_dims(c, out_dims, c->out[0].dims);
    }
    if (c->call.op->infer(&c->call, out_dims != NULL, c->out, &err) != DTP_OK) {
        fail_msg("%s: %s", c->call.op->name, err.msg);
    }
}

static void view_of(dtp_view *v, const dtp_ttype *type, void *data)
{
    memset(v, 0, sizeof *v);
    v->local = *type;
    v->data = data;
    for (int32_t i = 0; i < type->rank; i++) {
        v->global[i] = type->dims[i].size;
    }
}

static dtp_status run(const cpu_case *c, const char *name, int32_t threads, void *out[8],
                      dtp_err *err)
{
    dtp_backend *b = NULL;
    assert_int_equal(dtp_backend_create(name, threads, &b, err), DTP_OK);
    dtp_view in[CPU_MAX], outs[8];
    for (int32_t i = 0; i < c->n_in; i++) {
        view_of(&in[i], &c->in[i], c->data[i]);
    }
    for (int32_t i = 0; i < c->n_out; i++) {
        out[i] = malloc((size_t)dtp_ttype_bytes(&c->out[i]) + 64);
        memset(out[i], 0xFF, (size_t)dtp_ttype_bytes(&c->out[i])); /* NaN: all must be written */
        view_of(&outs[i], &c->out[i], out[i]);
    }
    int64_t bytes = dtp_target_workspace(&dtp_target_cpu, &c->call);
    void *workspace = NULL;
    assert_int_equal(b->ops->alloc(b, (size_t)bytes, &workspace, err), DTP_OK);
    dtp_step_record record = dtp_step_record_init(c->seed, c->step);
    record.microbatch = 1; /* `accumulate` adds */
    const dtp_kernel_args args = {.call = &c->call,
                                  .in = in,
                                  .out = outs,
                                  .workspace = workspace,
                                  .workspace_bytes = bytes,
                                  .record = &record};
    dtp_arena *arena = dtp_arena_create();
    dtp_bound_kernel kernel;
    dtp_status status = dtp_backend_bind(b, &args, arena, &kernel, err);
    status = status == DTP_OK ? dtp_bound_kernel_run(&kernel, err) : status;
    dtp_arena_destroy(arena);
    b->ops->free(b, workspace, (size_t)bytes);
    dtp_backend_destroy(b);
    return status;
}

void cpu_run(const cpu_case *c, const char *backend, int32_t threads, void *out[8])
{
    dtp_err err;
    dtp_err_clear(&err);
    if (run(c, backend, threads, out, &err) != DTP_OK) {
        fail_msg("%s on %s: %s", c->call.op->name, backend, err.msg);
    }
}

dtp_status cpu_try(const cpu_case *c, const char *backend, void *out[8], dtp_err *err)
{
    return run(c, backend, CPU_TEAM, out, err);
}

void cpu_release(const cpu_case *c, void *out[8])
{
    for (int32_t i = 0; i < c->n_out; i++) {
        free(out[i]);
    }
}

/* The case with f64 in place of f32, operands converted; those have memory of their own. */
static void widen(const cpu_case *c, cpu_case *wide)
{
    *wide = *c;
    wide->call.in = wide->in;
    wide->call.out = wide->out;
    for (int32_t i = 0; i < c->n_in; i++) {
        int64_t n = dtp_ttype_elems(&c->in[i]);
        if (c->in[i].dtype == DTP_F32) {
            double *x = malloc((size_t)n * sizeof *x + 8);
            for (int64_t k = 0; k < n; k++) {
                x[k] = (double)((const float *)c->data[i])[k];
            }
            wide->in[i].dtype = DTP_F64;
            wide->data[i] = x;
        }
    }
    for (int32_t i = 0; i < c->n_out; i++) {
        wide->out[i].dtype = c->out[i].dtype == DTP_F32 ? DTP_F64 : c->out[i].dtype;
    }
}

static void compare_floats(const cpu_case *c, int32_t output, const float *got, const double *want,
                           double tolerance)
{
    int64_t n = dtp_ttype_elems(&c->out[output]);
    double largest = 1e-30;
    if (got == NULL || want == NULL) {
        fail_msg("%s: output %d is missing", c->call.op->name, output);
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        largest = fmax(largest, fabs(want[k]));
    }
    for (int64_t k = 0; k < n; k++) {
        if (!(fabs((double)got[k] - want[k]) <= tolerance * largest)) {
            fail_msg("%s: output %d element %lld: %.9g, expected %.9g (largest %.3g)",
                     c->call.op->name, output, (long long)k, (double)got[k], want[k], largest);
        }
    }
}

static void compare_with_reference(const cpu_case *c, void *const got[8], double tolerance)
{
    cpu_case wide;
    void *want[8] = {NULL};
    widen(c, &wide);
    cpu_run(&wide, "ref", 1, want);
    for (int32_t i = 0; i < c->n_out; i++) {
        if (c->out[i].dtype == DTP_F32) {
            compare_floats(c, i, got[i], want[i], tolerance);
        } else {
            assert_memory_equal(got[i], want[i], (size_t)dtp_ttype_bytes(&c->out[i]));
        }
    }
    for (int32_t i = 0; i < c->n_in; i++) {
        if (wide.data[i] != c->data[i]) {
            free(wide.data[i]);
        }
    }
    cpu_release(&wide, want);
}

void cpu_check(const cpu_case *c, double tolerance)
{
    void *one[8] = {NULL}, *more[8] = {NULL};
    bool same_bits = (c->call.op->flags & DTP_OP_CONTRACTION) == 0;
    cpu_run(c, "cpu", 1, one);
    for (int32_t threads = 2; threads < CPU_TEAM; threads++) {
        cpu_run(c, "cpu", threads, more);
        for (int32_t i = 0; same_bits && i < c->n_out; i++) {
            assert_memory_equal(one[i], more[i], (size_t)dtp_ttype_bytes(&c->out[i]));
        }
        if (!same_bits) {
            compare_with_reference(c, more, tolerance);
        }
        cpu_release(c, more);
    }
    compare_with_reference(c, one, tolerance);
    cpu_release(c, one);
}
