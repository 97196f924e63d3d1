/* The hash that ranks compare covers every field in which their programs could differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lower/lower_fixture.h"

static const int64_t SIZES[4] = {8, 6, 8, 4};

typedef struct field {
    const char *name;
    void *at;
} field;

/* Changes the first byte of each field, one at a time: another hash; changed back: the old one. */
static void check_fields(const dtp_program *p, const field *fields, size_t n)
{
    const uint64_t hash = dtp_program_hash(p);
    for (size_t i = 0; i < n; i++) {
        unsigned char *byte = fields[i].at;
        *byte ^= 1U;
        if (dtp_program_hash(p) == hash) {
            fail_msg("a change of %s is not seen", fields[i].name);
        }
        *byte ^= 1U;
        assert_true(dtp_program_hash(p) == hash);
    }
}

static dtp_instr *find(dtp_program *p, dtp_instr_kind kind, bool attrs)
{
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].kind == kind && (!attrs || p->instrs[i].n_attrs > 0)) {
            return &p->instrs[i];
        }
    }
    fail_msg("no instruction of kind %d", (int)kind);
    return NULL;
}

#define FIELD(base, member)                                                                        \
    {                                                                                              \
#member, &(base)->member                                                                   \
    }

static void check_instrs(dtp_program *p)
{
    dtp_instr *coll = find(p, DTP_INSTR_START, false), *copy = &p->instrs[0];
    int32_t in = coll->in[0], out = coll->out[0];
    assert_true(copy->kind == DTP_INSTR_KERNEL);
    copy->kind = DTP_INSTR_COPY;
    dtp_instr *kernel = find(p, DTP_INSTR_KERNEL, false);
    const dtp_value_id *const lists[] = {coll->in, coll->out};
    coll->in = &in;
    coll->out = &out;
    const field fields[] = {
        FIELD(coll, node),
        FIELD(coll, phase),
        {"in", &in},
        {"out", &out},
        FIELD(coll, coll.kind),
        FIELD(coll, coll.set),
        FIELD(coll, coll.op),
        FIELD(coll, coll.dtype),
        FIELD(coll, coll.count),
        FIELD(coll, coll.in_outer),
        FIELD(coll, coll.out_outer),
        FIELD(coll, coll.shift),
        FIELD(coll, pair),
        FIELD(copy, move.kind),
        FIELD(copy, move.axis),
        FIELD(copy, move.set),
        FIELD(copy, move.factor),
        {"workspace", &kernel->workspace},
    };
    check_fields(p, fields, sizeof fields / sizeof *fields);
    coll->in = lists[0];
    coll->out = lists[1];
}

static void check_bucket(dtp_program *p)
{
    dtp_coll colls[DTP_MAX_BUCKET];
    int32_t i = 0;
    while (i < p->n_instrs && p->instrs[i].coll.n_bucket == 0) {
        i++;
    }
    assert_true(i < p->n_instrs);
    dtp_coll *bucket = &p->instrs[i].coll;
    memcpy(colls, bucket->bucket, (size_t)bucket->n_bucket * sizeof *colls);
    bucket->bucket = colls;
    dtp_coll *last = &colls[bucket->n_bucket - 1];
    const field fields[] = {FIELD(last, kind),      FIELD(last, set),   FIELD(last, op),
                            FIELD(last, dtype),     FIELD(last, count), FIELD(last, in_outer),
                            FIELD(last, out_outer), FIELD(last, shift)};
    check_fields(p, fields, sizeof fields / sizeof *fields);
    bucket->n_bucket = 0; /* it ends here */
}

static void check_attributes(dtp_program *p)
{
    dtp_instr *instr = find(p, DTP_INSTR_KERNEL, true);
    dtp_attr attrs[8];
    dtp_dim_id ids[1] = {0};
    assert_true(instr->n_attrs <= 8);
    memcpy(attrs, instr->attrs, (size_t)instr->n_attrs * sizeof *attrs);
    instr->attrs = attrs;
    attrs[0].n = 1;
    attrs[0].ids = ids;
    const field fields[] = {FIELD(&attrs[0], i), FIELD(&attrs[0], f), {"ids", ids}};
    check_fields(p, fields, sizeof fields / sizeof *fields);
    instr->n_attrs = 0; /* they end here */
}

static void test_program_hash__sees_every_field(void **state)
{
    (void)state;
    spmd_fixture f = spmd_fixture_mlp(SIZES);
    dtp_sharding s = spmd_fixture_rules(&f, "x:2;y:2", "batch:x;cls:y");
    const dtp_lower_options passes = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_program *p, *same;
    assert_int_equal(dtp_lower(f.graph, &s, &passes, &p, NULL), DTP_OK);
    assert_int_equal(dtp_lower(f.graph, &s, &passes, &same, NULL), DTP_OK);
    assert_true(dtp_program_hash(p) == dtp_program_hash(same));
    dtp_value *v = &p->values[p->n_values - 1];
    const field fields[] = {
        FIELD(p, mesh.sizes),
        FIELD(p, mesh.names),
        FIELD(p, peak_bytes),
        FIELD(v, kind),
        FIELD(v, tensor),
        FIELD(v, type.dtype),
        FIELD(v, type.dims[0].id),
        FIELD(v, type.dims[0].size),
        FIELD(v, layout.placement),
        FIELD(v, bytes),
        FIELD(v, offset),
        FIELD(v, parent),
        FIELD(v, keep),
        FIELD(v, external),
        FIELD(&p->updates[0], target),
        FIELD(&p->updates[0], value),
        {"tensor_value", p->tensor_value},
        {"graph.tf32", &f.graph->tf32},
    };
    assert_true(v->type.rank > 0 && p->n_updates > 0);
    check_fields(p, fields, sizeof fields / sizeof *fields);
    check_attributes(p);
    check_bucket(p);
    check_instrs(p);
    p->target = &dtp_target_ref;
    assert_true(dtp_program_hash(p) != dtp_program_hash(same));
    p->target = same->target;
    dtp_program_destroy(p);
    dtp_program_destroy(same);
    spmd_fixture_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program_hash__sees_every_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
