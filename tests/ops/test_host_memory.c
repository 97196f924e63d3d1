/* Staging copies against their definition, element by element: random shapes, axes, part counts and
 * element sizes, short pieces included. Usage: test_host_moves [seed]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/layout/layout.h"
#include "executor/device/host_memory.h"

enum { ROUNDS = 2000, MAX_BYTES = 1 << 16 };

static uint64_t seed = 99;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static int64_t pick(int64_t low, int64_t high)
{
    return low + (int64_t)(next_random() % (uint64_t)(high - low + 1));
}

static dtp_ttype random_type(void)
{
    static const dtp_dtype dtypes[] = {DTP_F32, DTP_F64, DTP_BF16, DTP_I64, DTP_BOOL};
    dtp_ttype t = {.dtype = dtypes[pick(0, 4)], .rank = (int32_t)pick(1, 4)};
    for (int32_t i = 0; i < t.rank; i++) {
        t.dims[i] = (dtp_tdim){i, pick(1, 6)};
    }
    return t;
}

static void fill_random(unsigned char *data, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)next_random();
    }
}

/* Coordinates of a row-major element, and back. */
static void coords_of(const dtp_ttype *t, int64_t element, int64_t at[DTP_MAX_RANK])
{
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        at[i] = element % t->dims[i].size;
        element /= t->dims[i].size;
    }
}

static int64_t element_at(const dtp_ttype *t, const int64_t at[DTP_MAX_RANK])
{
    int64_t element = 0;
    for (int32_t i = 0; i < t->rank; i++) {
        element = element * t->dims[i].size + at[i];
    }
    return element;
}

/* The chunk that owns index i of n elements over k parts, and the index inside it. */
static int32_t chunk_of(int64_t n, int32_t k, int64_t i, int64_t *inside)
{
    for (int32_t p = 0; p < k; p++) {
        int64_t offset, size;
        dtp_chunk(n, k, p, &offset, &size);
        if (i >= offset && i < offset + size) {
            *inside = i - offset;
            return p;
        }
    }
    fail_msg("no chunk of %d holds %lld", k, (long long)i);
    return -1;
}

/* Where every element of the tensor goes in the staging buffer. */
static void expected_staging(const dtp_ttype *t, const unsigned char *data, int32_t axis,
                             int32_t parts, const dtp_ttype *part, unsigned char *out)
{
    size_t bytes = (size_t)dtp_dtype_bytes(t->dtype);
    memset(out, 0, (size_t)(parts * dtp_ttype_bytes(part)));
    for (int64_t e = 0; e < dtp_ttype_elems(t); e++) {
        int64_t at[DTP_MAX_RANK], inside = 0;
        coords_of(t, e, at);
        int32_t p = chunk_of(t->dims[axis].size, parts, at[axis], &inside);
        at[axis] = inside;
        int64_t to = p * dtp_ttype_elems(part) + element_at(part, at);
        memcpy(out + (size_t)to * bytes, data + (size_t)e * bytes, bytes);
    }
}

static void test_pack__follows_its_definition_and_unpack_undoes_it(void **state)
{
    (void)state;
    dtp_backend b = {.threads = 1};
    unsigned char *data = malloc(MAX_BYTES), *staging = malloc(MAX_BYTES * 2);
    unsigned char *want = malloc(MAX_BYTES * 2), *back = malloc(MAX_BYTES);
    assert_true(data != NULL && staging != NULL && want != NULL && back != NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    for (int32_t round = 0; round < ROUNDS; round++) {
        dtp_ttype largest = random_type();
        int32_t axis = (int32_t)pick(0, largest.rank - 1), parts = (int32_t)pick(1, 4);
        dtp_ttype part = largest, local = largest;
        part.dims[axis].size = (largest.dims[axis].size + parts - 1) / parts;
        local.dims[pick(0, local.rank - 1)].size -= 1; /* a short piece of an uneven split */
        int64_t bytes = dtp_ttype_bytes(&local), flat = parts * dtp_ttype_bytes(&part);
        fill_random(data, bytes);
        memset(staging, 0xee, (size_t)flat);
        memset(back, 0xee, (size_t)bytes);
        dtp_view src = {.local = local, .data = data}, dst = {.local = local, .data = back};
        assert_int_equal(dtp_host_pack(&b, &src, axis, parts, &part, staging, NULL), DTP_OK);
        expected_staging(&local, data, axis, parts, &part, want);
        assert_int_equal(memcmp(staging, want, (size_t)flat), 0);
        assert_int_equal(dtp_host_unpack(&b, staging, axis, parts, &part, &dst, NULL), DTP_OK);
        assert_int_equal(memcmp(back, data, (size_t)bytes), 0);
    }
    free(data);
    free(staging);
    free(want);
    free(back);
}

static void test_slice__takes_a_range_of_one_axis(void **state)
{
    (void)state;
    dtp_backend b = {.threads = 1};
    unsigned char *data = malloc(MAX_BYTES), *out = malloc(MAX_BYTES);
    assert_true(data != NULL && out != NULL);
    for (int32_t round = 0; round < ROUNDS; round++) {
        dtp_ttype whole = random_type(), some = whole;
        int32_t axis = (int32_t)pick(0, whole.rank - 1);
        int64_t start = pick(-2, whole.dims[axis].size);
        some.dims[axis].size = pick(0, whole.dims[axis].size + 4);
        size_t bytes = (size_t)dtp_dtype_bytes(whole.dtype);
        fill_random(data, dtp_ttype_bytes(&whole));
        dtp_view src = {.local = whole, .data = data}, dst = {.local = some, .data = out};
        memset(out, 0x5a, MAX_BYTES);
        assert_int_equal(dtp_host_slice(&b, &src, axis, start, &dst, NULL), DTP_OK);
        for (int64_t e = 0; e < dtp_ttype_elems(&some); e++) {
            int64_t at[DTP_MAX_RANK];
            coords_of(&some, e, at);
            at[axis] += start;
            if (at[axis] < 0 || at[axis] >= whole.dims[axis].size) { /* it stays */
                assert_int_equal(out[(size_t)e * bytes], 0x5a);
                continue;
            }
            size_t from = (size_t)element_at(&whole, at) * bytes;
            assert_int_equal(memcmp(out + (size_t)e * bytes, data + from, bytes), 0);
        }
    }
    free(data);
    free(out);
}

static void test_moves__refuse_shapes_that_do_not_fit(void **state)
{
    (void)state;
    dtp_backend b = {.threads = 1};
    double data[12] = {0}, out[12];
    dtp_ttype type = {.dtype = DTP_F64, .rank = 2, .dims = {{0, 3}, {1, 4}}};
    dtp_ttype small = type;
    small.dims[1].size = 1;
    dtp_view src = {.local = type, .data = data}, dst = {.local = type, .data = out};
    assert_int_equal(dtp_host_pack(&b, &src, 1, 2, &small, out, NULL), DTP_INTERNAL);
    assert_int_equal(dtp_host_unpack(&b, out, 1, 2, &small, &dst, NULL), DTP_INTERNAL);
    assert_int_equal(dtp_host_slice(&b, &src, 0, 1, &(dtp_view){.local = small, .data = out}, NULL),
                     DTP_INTERNAL);
}

static void test_scale__multiplies_floats_only(void **state)
{
    (void)state;
    dtp_backend b = {.threads = 1};
    float f[3] = {1.0F, -2.0F, 0.5F};
    double d[3] = {1.0, -2.0, 0.5};
    int32_t i[3] = {1, 2, 3};
    dtp_ttype type = {.dtype = DTP_F32, .rank = 1, .dims = {{0, 3}}};
    dtp_view v = {.local = type, .data = f};
    assert_int_equal(dtp_host_scale(&b, &v, 0.5, &v, NULL), DTP_OK);
    assert_true(f[0] == 0.5F && f[1] == -1.0F && f[2] == 0.25F);
    v.local.dtype = DTP_F64;
    v.data = d;
    assert_int_equal(dtp_host_scale(&b, &v, 4.0, &v, NULL), DTP_OK);
    assert_true(d[0] == 4.0 && d[1] == -8.0 && d[2] == 2.0);
    v.local.dtype = DTP_I32;
    v.data = i;
    assert_int_equal(dtp_host_scale(&b, &v, 4.0, &v, NULL), DTP_UNSUPPORTED);
}

static void test_alloc__counts_aligned_memory(void **state)
{
    (void)state;
    dtp_backend b = {.threads = 1};
    void *p = NULL, *q = NULL;
    assert_int_equal(dtp_host_alloc(&b, 100, &p, NULL), DTP_OK);
    assert_int_equal(dtp_host_alloc(&b, 0, &q, NULL), DTP_OK);
    assert_non_null(q);
    assert_int_equal((uintptr_t)p % 64, 0);
    assert_int_equal(b.allocated_bytes, 100);
    dtp_host_free(&b, p, 100);
    dtp_host_free(&b, q, 0);
    dtp_host_free(&b, NULL, 0);
    assert_int_equal(b.allocated_bytes, 0);
    assert_int_equal(b.peak_allocated_bytes, 100);
    assert_int_equal(dtp_host_alloc(&b, SIZE_MAX - 3, &p, NULL), DTP_NOMEM);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack__follows_its_definition_and_unpack_undoes_it),
        cmocka_unit_test(test_slice__takes_a_range_of_one_axis),
        cmocka_unit_test(test_moves__refuse_shapes_that_do_not_fit),
        cmocka_unit_test(test_scale__multiplies_floats_only),
        cmocka_unit_test(test_alloc__counts_aligned_memory),
    };
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 10);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
