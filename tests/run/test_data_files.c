/* Conversions, .npy and safetensors: round trips and hostile files. */
#include "core/files/file_in.h"
#include "executor/device/convert.h"
#include "executor/files/npy.h"
#include "executor/device/shard.h"
#include "executor/files/safetensors.h"
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
            const dtp_shard piece = round == 0 ? whole : data_random_piece(&state, &whole);
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

/* ---- safetensors ---- */

/* CRC-32 bit by bit. */
static unsigned crc_of(const char *text, size_t n)
{
    unsigned crc = 0xFFFFFFFFU;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned char)text[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0);
        }
    }
    return ~crc;
}

static void test_safetensors__round_trips(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    const float w[6] = {1, 2, 3, 4, 5, 6};
    const int64_t ids[2] = {-1, 1};
    const dtp_st_entry entries[] = {
        {.name = "w \"1\"", .store = DTP_STORE_F32, .rank = 2, .dims = {2, 3}},
        {.name = "scalar", .store = DTP_STORE_F32},
        {.name = "ids", .store = DTP_STORE_I64, .rank = 1, .dims = {2}},
    };
    const dtp_st_meta meta[] = {{"step", "12"}, {DTP_ST_CRC, ""}, {"last", "one"}};
    const char *path = data_path("round.safetensors");
    dtp_st_writer *writer = NULL;
    must(dtp_st_create(path, 3, entries, 3, meta, &writer, &err), &err);
    must(dtp_st_put(writer, w, 24, &err), &err);
    assert_int_equal(dtp_st_put(writer, w, 8, &err), DTP_INTERNAL);
    must(dtp_st_put(writer, w, 4, &err), &err);
    must(dtp_st_put(writer, ids, 16, &err), &err);
    int64_t bytes = 0;
    uint32_t crc = 0;
    must(dtp_st_commit(writer, &bytes, &crc, &err), &err);

    dtp_st_file *f = NULL;
    must(dtp_st_open(path, &f, &err), &err);
    assert_int_equal(dtp_st_count(f), 3);
    assert_string_equal(dtp_st_meta_get(f, "step"), "12");
    assert_string_equal(dtp_st_meta_get(f, "last"), "one");
    char *text = NULL, digits[9];
    size_t len = 0;
    must(dtp_file_read(path, 1 << 20, &text, &len, &err), &err);
    assert_int_equal(bytes, len);
    assert_int_equal(crc, crc_of(text, len));
    const size_t data_at = (size_t)dtp_st_data_at(f);
    assert_int_equal(data_at, len - 44);
    snprintf(digits, sizeof digits, "%08x", crc_of(text + data_at, len - data_at));
    assert_string_equal(dtp_st_meta_get(f, DTP_ST_CRC), digits);
    free(text);
    assert_null(dtp_st_meta_get(f, "other"));
    assert_null(dtp_st_find(f, "absent"));
    const dtp_st_entry *e = dtp_st_find(f, "w \"1\"");
    assert_non_null(e);
    const dtp_strided column = {.rank = 2, .first = 1, .size = {2, 1}, .stride = {3, 1}};
    float got[2];
    must(dtp_st_read(f, e, &column, got, &err), &err);
    assert_true(got[0] == 2 && got[1] == 5);
    dtp_st_close(f);
}

static void test_safetensors__discard_leaves_nothing(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    const dtp_st_entry e = {.name = "x", .store = DTP_STORE_F32};
    const char *path = data_path("gone.safetensors");
    dtp_st_writer *writer = NULL;
    must(dtp_st_create(path, 1, &e, 0, NULL, &writer, &err), &err);
    assert_int_equal(dtp_st_commit(writer, NULL, NULL, &err), DTP_INTERNAL);
    assert_null(fopen(path, "rb"));
    assert_null(fopen(data_path("gone.safetensors.tmp"), "rb"));
    assert_int_equal(dtp_st_create(data_path("no/such/dir"), 1, &e, 0, NULL, &writer, &err),
                     DTP_IO);
}

typedef struct st_case {
    const char *name, *header;
    size_t data;
    dtp_status want;
} st_case;

static const st_case st_cases[] = {
    {"good", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, DTP_OK},
    {"padded", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   ", 8, DTP_OK},
    {"nothing", "{}", 0, DTP_OK},
    {"metadata", "{\"__metadata__\":{\"k\":\"v\"}}", 0, DTP_OK},
    {"empty tensor", "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]}}", 0,
     DTP_OK},
    {"scalar", "{\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, DTP_OK},
    {"two in reverse",
     "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},\"a\":{\"dtype\":\"U8\","
     "\"shape\":[1],\"data_offsets\":[0,1]}}",
     2, DTP_OK},
    {"not JSON", "hello", 0, DTP_INVALID},
    {"array", "[]", 0, DTP_INVALID},
    {"trailing text", "{} {}", 0, DTP_INVALID},
    {"metadata holds a number", "{\"__metadata__\":{\"k\":1}}", 0, DTP_OK},
    {"metadata holds a table", "{\"__metadata__\":{\"k\":{\"l\":[1]},\"m\":null}}", 0, DTP_OK},
    {"metadata is a list", "{\"__metadata__\":[1,\"k\"]}", 0, DTP_OK},
    {"unknown type", "{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, DTP_OK},
    {"unknown type beyond the file",
     "{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,9]}}", 8, DTP_INVALID},
    {"unknown type with a hole", "{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[1,8]}}",
     8, DTP_INVALID},
    {"type is a number", "{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
     DTP_INVALID},
    {"unknown key", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
     DTP_INVALID},
    {"duplicate tensor",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\","
     "\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, DTP_INVALID},
    {"no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, DTP_INVALID},
    {"one offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
     DTP_INVALID},
    {"offsets reversed", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
     DTP_INVALID},
    {"beyond the file", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 8,
     DTP_INVALID},
    {"negative offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-8,8]}}", 8,
     DTP_INVALID},
    {"huge offset",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,18446744073709551615]}}", 8,
     DTP_INVALID},
    {"shape needs more", "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
     DTP_INVALID},
    {"shape needs less", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
     DTP_INVALID},
    {"negative dim", "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
     DTP_INVALID},
    {"fractional dim", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.5],\"data_offsets\":[0,8]}}", 8,
     DTP_INVALID},
    {"dims overflow",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,8]}}", 8,
     DTP_INVALID},
    {"bytes overflow to fit",
     "{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693953],\"data_offsets\":[0,8]}}", 8,
     DTP_INVALID},
    {"too many dims",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, DTP_OK},
    {"too many dims, other bytes",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,1]}}", 1,
     DTP_INVALID},
    {"overlap",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\","
     "\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, DTP_INVALID},
    {"same place twice",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\","
     "\"shape\":[2],\"data_offsets\":[0,2]}}",
     2, DTP_INVALID},
    {"hole",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\","
     "\"shape\":[1],\"data_offsets\":[2,3]}}",
     3, DTP_INVALID},
    {"unused end", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 3,
     DTP_INVALID},
    {"tensor is a string", "{\"a\":\"F32\"}", 0, DTP_INVALID},
    {"shape is a number", "{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8,
     DTP_INVALID},
};

static void test_safetensors__hostile_headers(void **unused)
{
    (void)unused;
    for (size_t k = 0; k < sizeof st_cases / sizeof *st_cases; k++) {
        const st_case *c = &st_cases[k];
        unsigned char file[512] = {0};
        size_t n = strlen(c->header);
        file[0] = (unsigned char)(n & 255);
        file[1] = (unsigned char)(n >> 8);
        memcpy(file + 8, c->header, n);
        const char *path = data_write("case.safetensors", file, 8 + n + c->data);
        dtp_err err = {0};
        dtp_st_file *f = NULL;
        dtp_status got = dtp_st_open(path, &f, &err);
        if (got != c->want) {
            fail_msg("%s: got %s (%s)", c->name, dtp_status_text(got), err.msg);
        }
        assert_true(got == DTP_OK || strstr(err.msg, path) != NULL);
        if (got == DTP_OK) {
            dtp_st_close(f);
        }
    }
}

static void test_safetensors__damaged_files(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_st_file *f = NULL;
    const char *path = data_write("case.safetensors", "\x00\x00", 2);
    assert_int_equal(dtp_st_open(path, &f, &err), DTP_INVALID);
    path = data_write("case.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    assert_int_equal(dtp_st_open(path, &f, &err), DTP_INVALID);
    path = data_write("case.safetensors", "\x03\x00\x00\x00\x00\x00\x00\x00{}", 10);
    assert_int_equal(dtp_st_open(path, &f, &err), DTP_INVALID);
    path = data_write("case.safetensors", "\x00\x00\x00\x00\x00\x00\x00\x00", 8);
    assert_int_equal(dtp_st_open(path, &f, &err), DTP_INVALID);
    assert_int_equal(dtp_st_open(data_path("absent"), &f, &err), DTP_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convert__half_and_bfloat_round_trip_all_bits),
        cmocka_unit_test(test_convert__half_rounds_to_nearest_even),
        cmocka_unit_test(test_convert__integers_must_fit),
        cmocka_unit_test(test_npy__round_trips_every_type),
        cmocka_unit_test(test_npy__orders_of_dims_and_bytes),
        cmocka_unit_test(test_npy__hostile_headers),
        cmocka_unit_test(test_npy__damaged_files),
        cmocka_unit_test(test_safetensors__round_trips),
        cmocka_unit_test(test_safetensors__discard_leaves_nothing),
        cmocka_unit_test(test_safetensors__hostile_headers),
        cmocka_unit_test(test_safetensors__damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, data_cleanup);
}
