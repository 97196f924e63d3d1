/* Pieces, conversions, .npy: round trips and hostile files. */
#include "core/files/file_in.h"
#include "executor/device/convert.h"
#include "executor/files/npy.h"
#include "executor/device/shard.h"
#include "tests/support/data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* ---- pieces ---- */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

static dtp_shard random_piece(uint32_t *state, const dtp_shard *whole)
{
    dtp_shard p = *whole;
    for (int32_t d = 0; d < p.rank; d++) {
        p.offset[d] = (int64_t)(next_random(state) % (uint32_t)p.global[d]);
        p.size[d] = 1 + (int64_t)(next_random(state) % (uint32_t)(p.global[d] - p.offset[d]));
    }
    return p;
}

/* Element index of a multi-index in the storage of a piece. */
static int64_t index_in(const dtp_shard *p, const int64_t *at)
{
    int64_t i = 0;
    for (int32_t d = 0; d < p->rank; d++) {
        i = i * p->size[d] + at[d] - p->offset[d];
    }
    return i;
}

/* Calls for every element of a piece, with an odometer: the oracle of the run walkers. */
static bool advance(const dtp_shard *p, int64_t *at)
{
    for (int32_t d = p->rank - 1; d >= 0; d--) {
        if (++at[d] < p->offset[d] + p->size[d]) {
            return true;
        }
        at[d] = p->offset[d];
    }
    return false;
}

static void check_copy(uint32_t *state, const dtp_shard *whole)
{
    dtp_shard a = random_piece(state, whole), b = random_piece(state, whole), common;
    if (!dtp_shard_intersect(&a, &b, &common)) {
        return;
    }
    int64_t n_a = dtp_shard_elems(&a), n_b = dtp_shard_elems(&b);
    int32_t *src = malloc((size_t)n_a * sizeof *src), *dst = malloc((size_t)n_b * sizeof *dst);
    assert_true(src != NULL && dst != NULL);
    for (int64_t i = 0; i < n_a; i++) {
        src[i] = (int32_t)i;
    }
    for (int64_t i = 0; i < n_b; i++) {
        dst[i] = -1;
    }
    dtp_shard_copy(&common, &a, src, &b, dst, 4);
    int64_t at[DTP_MAX_RANK], copied = 0;
    memcpy(at, common.offset, sizeof at);
    do {
        assert_int_equal(dst[index_in(&b, at)], src[index_in(&a, at)]);
    } while (advance(&common, at));
    for (int64_t i = 0; i < n_b; i++) {
        copied += dst[i] >= 0;
    }
    assert_int_equal(copied, dtp_shard_elems(&common));
    free(src);
    free(dst);
}

static void test_piece__copies_equal_the_odometer(void **unused)
{
    (void)unused;
    uint32_t state = 12345;
    print_message("seed %u\n", (unsigned)state);
    for (int round = 0; round < 3000; round++) {
        dtp_shard whole = {.rank = (int32_t)(next_random(&state) % 5)};
        for (int32_t d = 0; d < whole.rank; d++) {
            whole.global[d] = whole.size[d] = 1 + (int64_t)(next_random(&state) % 5);
        }
        check_copy(&state, &whole);
    }
}

enum { PARTS = 12 };

/* Cuts one part in two along a dim, where it can be cut. */
static void cut(uint32_t *state, dtp_shard *parts, int32_t *n)
{
    dtp_shard *p = &parts[next_random(state) % (uint32_t)*n], *q = &parts[*n];
    const int32_t d = (int32_t)(next_random(state) % (uint32_t)p->rank);
    if (p->size[d] > 1) {
        *q = *p;
        p->size[d] = 1 + (int64_t)(next_random(state) % (uint32_t)(p->size[d] - 1));
        q->offset[d] += p->size[d];
        q->size[d] -= p->size[d];
        ++*n;
    }
}

/* How many parts hold each element, counted one by one. */
static void check_cover(const dtp_shard *whole, const dtp_shard *parts, int32_t n, int32_t *found)
{
    const dtp_shard *list[PARTS];
    int64_t at[DTP_MAX_RANK], element[DTP_MAX_RANK];
    int32_t held[4096] = {0};
    bool once = true, cover = false;
    dtp_err err = {0};
    assert_in_range(dtp_shard_elems(whole), 1, 4096);
    for (int32_t i = 0; i < n; i++) {
        list[i] = &parts[i];
        memcpy(at, parts[i].offset, sizeof at);
        do {
            held[index_in(whole, at)]++;
        } while (advance(&parts[i], at));
    }
    for (int64_t i = 0; i < dtp_shard_elems(whole); i++) {
        once = once && held[i] == 1;
    }
    must(dtp_shards_cover(list, n, &cover, element, &err), &err);
    assert_int_equal(cover, once);
    assert_true(cover || held[index_in(whole, element)] != 1);
    found[cover]++;
}

static void test_piece__cover_equals_counting(void **unused)
{
    (void)unused;
    uint32_t state = 777;
    int32_t found[2] = {0};
    for (int round = 0; round < 4000; round++) {
        dtp_shard whole = {.rank = 1 + (int32_t)(next_random(&state) % 5)}, parts[PARTS];
        int32_t n = 1;
        for (int32_t d = 0; d < whole.rank; d++) {
            whole.global[d] = whole.size[d] = 1 + (int64_t)(next_random(&state) % 4);
        }
        parts[0] = whole;
        for (uint32_t cuts = next_random(&state) % 11; cuts > 0; cuts--) {
            cut(&state, parts, &n);
        }
        const int32_t other = (int32_t)(next_random(&state) % (uint32_t)n);
        switch (next_random(&state) % 4) {
        case 0: /* another place or size */
            parts[other] = random_piece(&state, &whole);
            break;
        case 1: /* one less */
            parts[other] = parts[n - 1];
            n -= n > 1 ? 1 : 0;
            break;
        case 2: /* one more */
            parts[n++] = random_piece(&state, &whole);
            break;
        default:
            break;
        }
        check_cover(&whole, parts, n, found);
    }
    assert_true(found[false] > 500 && found[true] > 500);
}

/* A pinwheel has no cut through all of it. */
static void test_piece__cover_without_a_cut(void **unused)
{
    (void)unused;
    static const int64_t boxes[5][4] = {
        {0, 0, 2, 1}, {2, 0, 1, 2}, {1, 2, 2, 1}, {0, 1, 1, 2}, {1, 1, 1, 1}};
    dtp_shard whole = {.rank = 2, .global = {3, 3}, .size = {3, 3}}, parts[5];
    int32_t found[2] = {0};
    for (int32_t i = 0; i < 5; i++) {
        parts[i] = whole;
        memcpy(parts[i].offset, boxes[i], 2 * sizeof(int64_t));
        memcpy(parts[i].size, &boxes[i][2], 2 * sizeof(int64_t));
    }
    check_cover(&whole, parts, 5, found);
    check_cover(&whole, parts, 4, found);
    assert_int_equal(found[true], 1);
}

/* So many that looking at every pair would take hours: rows, columns, a grid, and one that is off
 * by one. */
static void test_piece__cover_of_many(void **unused)
{
    (void)unused;
    enum { SIDE = 700, MANY = SIDE * SIDE };
    dtp_shard *parts = calloc(MANY, sizeof *parts);
    const dtp_shard **list = calloc(MANY, sizeof *list);
    assert_true(parts != NULL && list != NULL);
    for (int kind = 0; kind < 4; kind++) {
        int64_t element[DTP_MAX_RANK];
        bool cover = false;
        dtp_err err = {0};
        for (int32_t i = 0; i < MANY; i++) {
            const bool grid = kind >= 2;
            const dtp_shard row = {
                .rank = 2, .global = {MANY, 3}, .offset = {i, 0}, .size = {1, 3}};
            const dtp_shard column = {
                .rank = 2, .global = {3, MANY}, .offset = {0, i}, .size = {3, 1}};
            const dtp_shard cell = {.rank = 2,
                                    .global = {2 * SIDE, SIDE},
                                    .offset = {2 * (i / SIDE), i % SIDE},
                                    .size = {2, 1}};
            parts[i] = grid ? cell : kind == 0 ? row : column;
            list[(int64_t)i * 7919 % MANY] = &parts[i];
        }
        parts[MANY / 2].offset[0] -= kind == 3 ? 1 : 0;
        must(dtp_shards_cover(list, MANY, &cover, element, &err), &err);
        assert_int_equal(cover, kind < 3);
    }
    free(parts);
    free(list);
}

static void test_piece__runs_are_whole_where_they_can_be(void **unused)
{
    (void)unused;
    dtp_shard whole = {.rank = 3, .global = {4, 5, 6}, .size = {4, 5, 6}}, part = whole;
    dtp_shard_runs it = dtp_shard_runs_of(&whole, &whole);
    assert_int_equal(it.run, 120);
    part.offset[0] = 1;
    part.size[0] = 2;
    it = dtp_shard_runs_of(&whole, &part);
    assert_int_equal(it.run, 60);
    assert_true(dtp_shard_next(&it));
    assert_int_equal(it.in_whole, 30);
    assert_false(dtp_shard_next(&it));
    part.size[2] = 0;
    it = dtp_shard_runs_of(&whole, &part);
    assert_false(dtp_shard_next(&it));
}

/* ---- conversions ---- */

static void test_convert__half_and_bfloat_round_trip_all_bits(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t h = (uint16_t)bits, back;
        float f;
        must(dtp_convert(DTP_STORE_F16, &h, DTP_F32, &f, 1, &err), &err);
        must(dtp_convert(DTP_STORE_F32, &f, DTP_F16, &back, 1, &err), &err);
        assert_true(isnan(f) ? (back & 0x7c00) == 0x7c00 && (back & 0x3ff) != 0 : back == h);
        must(dtp_convert(DTP_STORE_BF16, &h, DTP_F32, &f, 1, &err), &err);
        must(dtp_convert(DTP_STORE_F32, &f, DTP_BF16, &back, 1, &err), &err);
        assert_true(isnan(f) ? (back & 0x7f80) == 0x7f80 && (back & 0x7f) != 0 : back == h);
    }
}

static void test_convert__half_rounds_to_nearest_even(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    const double in[] = {1.0 + 0x1p-11, 1.0 + 3 * 0x1p-11, 65519.0, 65520.0,
                         0x1p-25,       0x1.8p-25,         -0.0};
    const uint16_t want[] = {0x3c00, 0x3c02, 0x7bff, 0x7c00, 0x0000, 0x0001, 0x8000};
    uint16_t got[7];
    must(dtp_convert(DTP_STORE_F64, in, DTP_F16, got, 7, &err), &err);
    assert_memory_equal(got, want, sizeof want);
}

static void test_convert__integers_must_fit(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    const int64_t big[2] = {7, INT64_C(1) << 31};
    const uint64_t huge = UINT64_MAX;
    int32_t out[2];
    int64_t wide;
    assert_int_equal(dtp_convert(DTP_STORE_I64, big, DTP_I32, out, 1, &err), DTP_OK);
    assert_int_equal(out[0], 7);
    assert_int_equal(dtp_convert(DTP_STORE_I64, big, DTP_I32, out, 2, &err), DTP_RANGE);
    assert_non_null(strstr(err.msg, "2147483648"));
    assert_int_equal(dtp_convert(DTP_STORE_U64, &huge, DTP_I64, &wide, 1, &err), DTP_RANGE);
    const float f = 1;
    assert_int_equal(dtp_convert(DTP_STORE_F32, &f, DTP_I32, out, 1, &err), DTP_UNSUPPORTED);
    const int32_t labels[3] = {0, 9, 10};
    assert_int_equal(dtp_check_below(DTP_I32, labels, 2, 10, NULL, &err), DTP_OK);
    assert_int_equal(dtp_check_below(DTP_I32, labels, 3, 10, NULL, &err), DTP_RANGE);
    assert_non_null(strstr(err.msg, "element 2 is 10"));
}

/* ---- npy ---- */

static void test_npy__round_trips_every_type(void **unused)
{
    (void)unused;
    static const dtp_dtype types[] = {DTP_F32, DTP_F64, DTP_I32, DTP_I64, DTP_BOOL};
    dtp_err err = {0};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        for (int32_t rank = 0; rank <= 3; rank++) {
            dtp_ttype type = {.dtype = types[k], .rank = rank, .dims = {{0, 3}, {1, 4}, {2, 5}}};
            char data[60 * 8], back[60 * 8];
            int64_t n = dtp_ttype_elems(&type);
            for (int64_t i = 0; i < n; i++) {
                dtp_element_set(types[k], data, i,
                                (double)(i % 2 + (types[k] == DTP_BOOL ? 0 : i)));
            }
            const char *path = data_path("round.npy");
            must(dtp_npy_write(path, &type, data, &err), &err);
            dtp_npy npy;
            must(dtp_npy_open(path, &npy, &err), &err);
            assert_int_equal(npy.store, types[k]);
            assert_int_equal(npy.rank, rank);
            dtp_shard whole = dtp_shard_whole(&type);
            must(dtp_npy_read(&npy, path, &whole, back, &err), &err);
            assert_memory_equal(data, back, (size_t)dtp_ttype_bytes(&type));
            assert_int_equal(npy.data_at % 64, 0);
            dtp_npy_close(&npy);
            assert_true(dtp_npy_is(path));
        }
    }
}

/* Element types of .npy files, those of all bytes twice. */
typedef struct npy_type {
    const char *descr;
    dtp_store store;
} npy_type;

static const npy_type npy_types[] = {
    {"<f2", DTP_STORE_F16}, {"<f4", DTP_STORE_F32}, {"<f8", DTP_STORE_F64}, {"|i1", DTP_STORE_I8},
    {"<i2", DTP_STORE_I16}, {"<i4", DTP_STORE_I32}, {"<i8", DTP_STORE_I64}, {"|u1", DTP_STORE_U8},
    {"<u2", DTP_STORE_U16}, {"<u4", DTP_STORE_U32}, {"<u8", DTP_STORE_U64}, {"|b1", DTP_STORE_BOOL},
    {">f2", DTP_STORE_F16}, {">f4", DTP_STORE_F32}, {">f8", DTP_STORE_F64}, {">i2", DTP_STORE_I16},
    {">i4", DTP_STORE_I32}, {">i8", DTP_STORE_I64}, {">u2", DTP_STORE_U16}, {">u4", DTP_STORE_U32},
    {">u8", DTP_STORE_U64}};
enum { N_NPY_TYPES = sizeof npy_types / sizeof *npy_types };

/* An array of 3 x 4 x 5 whose element at row-major index i has the bytes 7 i, 7 i + 1, ...,
 * the lowest first. */
static const char *write_array(const npy_type *type, bool fortran, unsigned char *values)
{
    static const int64_t dims[3] = {3, 4, 5};
    unsigned char file[1024] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    const size_t width = (size_t)dtp_store_bytes(type->store);
    const int len = snprintf((char *)file + 10, 200,
                             "{'descr': '%s', 'fortran_order': %s, 'shape': (3, 4, 5), }",
                             type->descr, fortran ? "True" : "False");
    file[8] = (unsigned char)len;
    unsigned char *data = file + 10 + len;
    for (size_t i = 0; i < 60; i++) {
        const size_t at[3] = {i / 20, i / 5 % 4, i % 5};
        const size_t place =
            fortran ? at[0] + (size_t)dims[0] * (at[1] + (size_t)dims[1] * at[2]) : i;
        for (size_t b = 0; b < width; b++) {
            const size_t to = type->descr[0] == '>' ? width - 1 - b : b;
            values[i * width + b] = (unsigned char)(7 * i + b);
            data[place * width + to] = (unsigned char)(7 * i + b);
        }
    }
    return data_write("array.npy", file, (size_t)(10 + len) + 60 * width);
}

/* Random parts of arrays in both orders of dims and of bytes, against the array in memory. */
static void test_npy__orders_of_dims_and_bytes(void **unused)
{
    (void)unused;
    uint32_t state = 7;
    dtp_err err = {0};
    for (int k = 0; k < 2 * N_NPY_TYPES; k++) {
        const npy_type *type = &npy_types[k / 2];
        const int64_t width = dtp_store_bytes(type->store);
        unsigned char values[60 * 8], part[60 * 8], want[60 * 8];
        const char *path = write_array(type, k % 2 == 1, values);
        dtp_npy npy;
        must(dtp_npy_open(path, &npy, &err), &err);
        assert_int_equal(npy.store, type->store);
        const dtp_shard whole = {.rank = 3, .global = {3, 4, 5}, .size = {3, 4, 5}};
        for (int round = 0; round < 20; round++) {
            const dtp_shard piece = round == 0 ? whole : random_piece(&state, &whole);
            must(dtp_npy_read(&npy, path, &piece, part, &err), &err);
            dtp_shard_copy(&piece, &whole, values, &piece, want, width);
            assert_memory_equal(part, want, (size_t)(dtp_shard_elems(&piece) * width));
        }
        dtp_npy_close(&npy);
    }
}

/* One file: version bytes, header text, number of data bytes. */
typedef struct npy_case {
    const char *name;
    unsigned char major, minor;
    const char *header;
    size_t data;
    dtp_status want;
} npy_case;

static const npy_case npy_cases[] = {
    {"good 1.0", 1, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24, DTP_OK},
    {"good 2.0", 2, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24, DTP_OK},
    {"keys in another order", 1, 0, "{'shape': (4,), 'descr': \"|u1\", 'fortran_order': False}", 4,
     DTP_OK},
    {"scalar", 1, 0, "{'descr': '<i8', 'fortran_order': False, 'shape': ()}\n", 8, DTP_OK},
    {"no rows", 1, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", 0, DTP_OK},
    {"version 3", 3, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8,
     DTP_UNSUPPORTED},
    {"version 1.1", 1, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8,
     DTP_UNSUPPORTED},
    {"big endian", 1, 0, "{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8, DTP_OK},
    {"no byte order", 1, 0, "{'descr': 'f4', 'fortran_order': False, 'shape': (2,), }", 8,
     DTP_UNSUPPORTED},
    {"byte order of bytes", 1, 0, "{'descr': '|f4', 'fortran_order': False, 'shape': (2,), }", 8,
     DTP_UNSUPPORTED},
    {"no type", 1, 0, "{'descr': '', 'fortran_order': False, 'shape': (2,), }", 8, DTP_UNSUPPORTED},
    {"complex", 1, 0, "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", 8,
     DTP_UNSUPPORTED},
    {"records", 1, 0, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4,
     DTP_UNSUPPORTED},
    {"Fortran order", 1, 0, "{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", 8, DTP_OK},
    {"order is a number", 1, 0, "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }", 8,
     DTP_INVALID},
    {"no shape", 1, 0, "{'descr': '<f4', 'fortran_order': False}", 8, DTP_INVALID},
    {"no descr", 1, 0, "{'fortran_order': False, 'shape': (2,)}", 8, DTP_INVALID},
    {"repeated key", 1, 0,
     "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 8, DTP_INVALID},
    {"unknown key", 1, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", 8,
     DTP_INVALID},
    {"text after the dict", 1, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", 8,
     DTP_INVALID},
    {"unfinished dict", 1, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", 8,
     DTP_INVALID},
    {"unfinished string", 1, 0, "{'descr: <f4", 8, DTP_INVALID},
    {"negative size", 1, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8,
     DTP_INVALID},
    {"size overflows", 1, 0,
     "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905,)}", 8, DTP_INVALID},
    {"product overflows", 1, 0,
     "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 8, DTP_INVALID},
    {"size beyond 2^63", 1, 0,
     "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 8, DTP_INVALID},
    {"one size without comma", 1, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", 8,
     DTP_INVALID},
    {"nine dims", 1, 0, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 1,
     DTP_INVALID},
    {"data too short", 1, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 8,
     DTP_INVALID},
    {"data too long", 1, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 8,
     DTP_INVALID},
    {"empty header", 1, 0, "", 8, DTP_INVALID},
};

static dtp_status open_and_close(const char *path, dtp_err *err)
{
    dtp_npy npy;
    dtp_status status = dtp_npy_open(path, &npy, err);
    if (status == DTP_OK) {
        dtp_npy_close(&npy);
    }
    return status;
}

static void test_npy__hostile_headers(void **unused)
{
    (void)unused;
    for (size_t k = 0; k < sizeof npy_cases / sizeof *npy_cases; k++) {
        const npy_case *c = &npy_cases[k];
        unsigned char file[512] = {0x93, 'N', 'U', 'M', 'P', 'Y', c->major, c->minor};
        size_t n = strlen(c->header), start = c->major == 2 ? 12 : 10;
        file[8] = (unsigned char)n;
        memcpy(file + start, c->header, n);
        const char *path = data_write("case.npy", file, start + n + c->data);
        dtp_err err = {0};
        dtp_status got = open_and_close(path, &err);
        if (got != c->want) {
            fail_msg("%s: got %s (%s)", c->name, dtp_status_text(got), err.msg);
        }
        assert_true(got == DTP_OK || strstr(err.msg, path) != NULL);
    }
}

static void test_npy__damaged_files(void **unused)
{
    (void)unused;
    const char *path;
    dtp_err err = {0};
    path = data_write("case.npy", "\x93NUMPY\x01\x00\xff\xff{'descr'", 18);
    assert_int_equal(open_and_close(path, &err), DTP_INVALID); /* header longer than the file */
    path = data_write("case.npy", "\x93NUMPY\x02\x00\xff\xff\xff\xff", 12);
    assert_int_equal(open_and_close(path, &err), DTP_INVALID);
    path = data_write("case.npy", "\x93NUMPY\x02\x00\x01", 9);
    assert_int_equal(open_and_close(path, &err), DTP_INVALID);
    path = data_write("case.npy", "NUMPY file of another kind", 26);
    assert_int_equal(open_and_close(path, &err), DTP_INVALID);
    assert_false(dtp_npy_is(path));
    path = data_write("case.npy", "", 0);
    assert_int_equal(open_and_close(path, &err), DTP_INVALID);
    path = data_write("case.npy", "\x93NUMPY\x01\x00\x04\x00{\0'x'}", 14);
    assert_int_equal(open_and_close(path, &err), DTP_INVALID); /* NUL in the header */
    assert_int_equal(open_and_close(data_path("absent.npy"), &err), DTP_IO);
    assert_int_equal(open_and_close(data_dir(), &err), DTP_IO);
}

static int cleanup(void **unused)
{
    (void)unused;
    data_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_piece__copies_equal_the_odometer),
        cmocka_unit_test(test_piece__cover_equals_counting),
        cmocka_unit_test(test_piece__cover_without_a_cut),
        cmocka_unit_test(test_piece__cover_of_many),
        cmocka_unit_test(test_piece__runs_are_whole_where_they_can_be),
        cmocka_unit_test(test_convert__half_and_bfloat_round_trip_all_bits),
        cmocka_unit_test(test_convert__half_rounds_to_nearest_even),
        cmocka_unit_test(test_convert__integers_must_fit),
        cmocka_unit_test(test_npy__round_trips_every_type),
        cmocka_unit_test(test_npy__orders_of_dims_and_bytes),
        cmocka_unit_test(test_npy__hostile_headers),
        cmocka_unit_test(test_npy__damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, cleanup);
}
