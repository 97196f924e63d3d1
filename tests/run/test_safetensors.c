/* safetensors: round trips and hostile files. */
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
    dtp_shard column = {.rank = 2, .global = {2, 3}, .offset = {0, 1}, .size = {2, 1}};
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

static int cleanup(void **unused)
{
    (void)unused;
    data_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors__round_trips),
        cmocka_unit_test(test_safetensors__discard_leaves_nothing),
        cmocka_unit_test(test_safetensors__hostile_headers),
        cmocka_unit_test(test_safetensors__damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, cleanup);
}
