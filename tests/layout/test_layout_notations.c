/* Layouts as TensorFlow's Python code writes and prints them, and meshes without names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "interop/layout_forms.h"
#include "tests/support/layout_list.h"
#include "core/layout/placement_text.h"

#define DEVICES "/job:localhost/task:0/device:CPU:0,/job:localhost/task:0/device:CPU:1"

/* ---- meshes ---- */

static void test_mesh__sizes_without_names(void **state)
{
    static const struct {
        const char *text, *want; /* want NULL: an error that holds `says` */
        const char *says;
    } rows[] = {
        {"2,2", "x:2;y:2", NULL},
        {"(2, 2)", "x:2;y:2", NULL},
        {"[2,3,4]", "x:2;y:3;z:4", NULL},
        {"8", "x:8", NULL},
        {"(8,)", "x:8", NULL},
        {"2;3", "x:2;y:3", NULL},
        {"1,1,1,1,1,2", "x:1;y:1;z:1;u:1;v:1;w:2", NULL},
        {"2:2", "2:2", NULL}, /* a dim called 2 */
        {"1,1,1,1,1,1,2", NULL, "more than 6 dims"},
        {"2,0", NULL, "'0'"},
        {"0", NULL, "size '0'"},
        {"2,y:3", NULL, "'y:3'"},
        {"y:3,2", NULL, "expected ':SIZE'"},
        {"(2,2", NULL, "')'"},
        {"[2,2)", NULL, "']'"},
        {"(2,2) x", NULL, "' x'"},
        {"(x:2)", NULL, "either all dims have a name"},
        {"2,2]", NULL, "expected a size"},
        {"65536,65536", NULL, "ranks"},
        {"99999999999", NULL, "size"},
        {"2x2", NULL, "expected ':SIZE'"},
        {"()", NULL, "no size"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_mesh mesh;
        dtp_err err = {0};
        char text[DTP_MESH_TEXT_BYTES] = "";
        const dtp_status s = dtp_mesh_parse(rows[i].text, &mesh, &err);
        if (s == DTP_OK) {
            dtp_mesh_print(&mesh, text);
        }
        if (rows[i].want == NULL
                ? s == DTP_OK || strstr(err.msg, rows[i].says) == NULL || strlen(err.msg) < 8
                : strcmp(text, rows[i].want) != 0) {
            fail_msg("mesh '%s': '%s' '%s'", rows[i].text, text, err.msg);
        }
    }
}

/* ---- layouts ---- */

static dtp_status parse(const char *text, const dtp_mesh *mesh, int32_t rank, dtp_layout *out,
                        dtp_err *err)
{
    dtp_ttype type = {.dtype = DTP_F32, .rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        type.dims[i] = (dtp_tdim){.id = i, .size = 12};
    }
    return dtp_layout_parse_any(text, mesh, &type, NULL, out, err);
}

/* What TensorFlow's to_string, repr and Python code write, on |x=2,y=2|; with a rank. */
static const struct {
    const char *text;
    int32_t rank;
    const char *want; /* PyTorch's short form */
} TEXTS[] = {
    {"sharding_specs:x,unsharded, mesh:|x=2,y=2|0,1,2,3|0,1|" DEVICES, 2, "S0, R"},
    {"sharding_specs:unsharded,y, mesh:gpus|x=2,y=2|0,1,2,3|0,1|" DEVICES "|" DEVICES, 2, "R, S1"},
    {"sharding_specs:y,x, mesh:|x=2,y=2|0,1,2,3|||/a,/b,/c,/d|use_xla_spmd", 2, "S1, S0"},
    {"sharding_specs:x, mesh:|x=2,y=2|4,5,6,7|4,5|" DEVICES, 1, "S0, R"}, /* ids from 4 on */
    {"sharding_specs: mesh:|x=2,y=2|0,1,2,3|0,1|" DEVICES, 0, "R, R"},
    {"Layout.from_string('sharding_specs:x,unsharded, mesh:|x=2,y=2|0,1,2,3|0|d')", 2, "S0, R"},
    {"dtensor.Layout.from_string(\"sharding_specs:x,y, mesh:|x=2,y=2|*CPU\")", 2, "S0, S1"},
    {"Layout.from_string(sharding_specs:unsharded,x, mesh:|x=2,y=2|0,1,2,3|0|d)", 2, "S1, R"},
    {"Layout.from_string('sharding_specs:unsharded,x')", 2, "S1, R"},
    {"Layout(['x', UNSHARDED], mesh)", 2, "S0, R"},
    {"Layout([\"x\", \"unsharded\"], mesh)", 2, "S0, R"},
    {" tf.experimental.dtensor.Layout([dtensor.UNSHARDED, 'y'], self.mesh) ", 2, "R, S1"},
    {"Layout(sharding_specs=['y', 'x'], mesh=mesh)", 2, "S1, S0"},
    {"Layout(('x', UNSHARDED,), mesh)", 2, "S0, R"},
    {"Layout(['x', 'unsharded'])", 2, "S0, R"},
    {"Layout([], mesh)", 0, "R, R"},
    {"Layout(sharding_specs=['x', 'unsharded'], mesh=<Mesh object with dims=[('x', 2), ('y', 2)], "
     "device_type=\"CPU\", num_local_devices=4), size=4>)",
     2, "S0, R"},
    {"Layout(['x', UNSHARDED], Mesh.from_string(|x=2,y=2|0,1,2,3|0,1,2,3|" DEVICES "))", 2,
     "S0, R"},
    {"Layout(['x', UNSHARDED], mesh='|x=2,y=2|*CPU')", 2, "S0, R"},
};

static void test_tf__texts_of_python(void **state)
{
    dtp_mesh mesh;
    (void)state;
    assert_int_equal(dtp_mesh_parse("x:2;y:2", &mesh, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        dtp_layout layout;
        dtp_err err = {0};
        dtp_strbuf text = {0};
        if (dtp_layout_form_of(TEXTS[i].text) != DTP_FORM_TF ||
            parse(TEXTS[i].text, &mesh, TEXTS[i].rank, &layout, &err) != DTP_OK) {
            fail_msg("'%s': %s", TEXTS[i].text, err.msg);
        }
        dtp_placements_print(&layout, &text);
        assert_string_equal(dtp_strbuf_text(&text), TEXTS[i].want);
        dtp_strbuf_free(&text);
    }
}

static void test_tf__errors_name_the_place(void **state)
{
    static const struct {
        const char *text;
        dtp_status status;
        const char *says;
    } rows[] = {
        {"Layout(['x', UNSHARDED], mesh", DTP_INVALID, "')'"},
        {"Layout(['x', UNSHARDED, mesh)", DTP_INVALID, "a quoted mesh dim"},
        {"Layout(['x', 'x'], mesh)", DTP_INVALID, "'x' is used twice"},
        {"Layout(['q', UNSHARDED], mesh)", DTP_INVALID, "'q' is not in the mesh"},
        {"Layout(['x'], mesh)", DTP_INVALID, "1 sharding specs for a tensor of rank 2"},
        {"Layout(['x', UNSHARDED, 'y'], mesh)", DTP_INVALID, "more sharding specs"},
        {"Layout(['x', MATCH], mesh)", DTP_UNSUPPORTED, "leaves the layout open"},
        {"Layout(['x', 'match'], mesh)", DTP_UNSUPPORTED, "leaves the layout open"},
        {"Layout(['x', UNSHARDED], mesh) mesh", DTP_INVALID, "the end"},
        {"Layout(['x, UNSHARDED], mesh)", DTP_INVALID, "a string that is closed"},
        {"Layout('x', UNSHARDED)", DTP_INVALID, "'['"},
        {"Layout(['x' UNSHARDED])", DTP_INVALID, "',' or ']'"},
        {"Layout(['x', SHARDED], mesh)", DTP_INVALID, "UNSHARDED"},
        {"Layout(", DTP_INVALID, "'['"},
        {"Layout.from_string('sharding_specs:x,unsharded", DTP_INVALID, "')"},
        {"Layout.from_string('sharding_specs:x,unsharded, mesh:|x=2,y=2|0,1,2,3|0|d", DTP_INVALID,
         "')"},
        {"Layout.from_string('x,unsharded\")", DTP_INVALID, "'"},
        {"Layout.from_string(sharding_specs:x,unsharded, mesh:|x=3,y=2|0)", DTP_INVALID,
         "not for 'x:2;y:2'"},
        {"Layout(sharding_specs=['x', 'unsharded'], mesh=<Mesh object with dims=[('x', 4)], ...>)",
         DTP_INVALID, "not for 'x:2;y:2'"},
        {"Layout(['x', UNSHARDED], mesh='|x=4,y=2|*CPU')", DTP_INVALID, "not for 'x:2;y:2'"},
        {"sharding_specs:x,unsharded, mesh:|x=2,y=2|0,2,1,3|0|d", DTP_UNSUPPORTED,
         "device 2 at place 1"},
        {"parted:x,unsharded, mesh:|x=2,y=2|0,1,2,3|0|d", DTP_UNSUPPORTED, "parted"},
        {"maximal:true, mesh:|x=2,y=2|0,1,2,3|0|d", DTP_UNSUPPORTED, "one device"},
        {"empty_layout", DTP_UNSUPPORTED, "empty"},
    };
    dtp_mesh mesh;
    (void)state;
    assert_int_equal(dtp_mesh_parse("x:2;y:2", &mesh, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_layout layout;
        dtp_err err = {0};
        const dtp_status s = parse(rows[i].text, &mesh, 2, &layout, &err);
        if (s != rows[i].status || strstr(err.msg, rows[i].says) == NULL) {
            fail_msg("'%s': %s, message '%s'", rows[i].text, dtp_status_text(s), err.msg);
        }
    }
}

/* Layout(['x', UNSHARDED], mesh) and the two ways of from_string read as the layout; false when TF
 * has no words for it (several mesh dims on one tensor dim). */
static bool round_trips(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *layout)
{
    static const dtp_dims nameless;
    dtp_strbuf tf = {0}, text[3] = {{0}, {0}, {0}};
    const dtp_status s = dtp_layout_print_as(DTP_FORM_TF, layout, mesh, type, &nameless, &tf, NULL);
    dtp_strbuf_add(&text[0], "Layout([");
    for (int32_t d = 0; d < type->rank && s == DTP_OK; d++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        const bool split = dtp_layout_axis_splits(layout, d, splits) > 0;
        dtp_strbuf_addf(&text[0], split ? "'%s', " : "UNSHARDED%s, ",
                        split ? mesh->names[splits[0]] : "");
    }
    dtp_strbuf_add(&text[0], "], mesh)");
    dtp_strbuf_addf(&text[1], "Layout.from_string('%s')", dtp_strbuf_text(&tf));
    dtp_strbuf_addf(&text[2], "a.b.Layout.from_string(%s)", dtp_strbuf_text(&tf));
    for (int j = 0; j < 3 && s == DTP_OK; j++) {
        dtp_layout again;
        dtp_err err = {0};
        if (parse(dtp_strbuf_text(&text[j]), mesh, type->rank, &again, &err) != DTP_OK ||
            !dtp_layout_equal(&again, layout)) {
            fail_msg("'%s': %s", dtp_strbuf_text(&text[j]), err.msg);
        }
    }
    for (int j = 0; j < 3; j++) {
        dtp_strbuf_free(&text[j]);
    }
    dtp_strbuf_free(&tf);
    return s == DTP_OK;
}

static void test_tf__python_round_trips(void **state)
{
    static const char *const meshes[] = {"x:4", "x:2;y:3", "x:2;y:2;z:2"};
    int32_t count = 0;
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        for (int32_t rank = 0; rank <= 4; rank++) {
            dtp_mesh mesh;
            dtp_ttype type = {.dtype = DTP_F32, .rank = rank};
            for (int32_t d = 0; d < rank; d++) {
                type.dims[d] = (dtp_tdim){.id = d, .size = 12};
            }
            assert_int_equal(dtp_mesh_parse(meshes[i], &mesh, NULL), DTP_OK);
            layout_list all = layout_list_all(rank, mesh.n_dims, false, DTP_REDUCE_SUM);
            for (int32_t k = 0; k < all.n; k++) {
                count += round_trips(&mesh, &type, &all.items[k]) ? 1 : 0;
            }
            layout_list_free(&all);
        }
    }
    assert_true(count > 100);
}

/* ---- hostile texts ---- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

/* Good texts with pieces cut out, doubled and overwritten. */
static void spoil(const char *good, uint64_t *seed, char out[512])
{
    (void)snprintf(out, 512, "%s", good);
    for (uint64_t i = 1 + next_random(seed) % 4; i > 0; i--) {
        const size_t n = strlen(out);
        const size_t at = n > 0 ? next_random(seed) % n : 0;
        switch (n > 0 ? next_random(seed) % 4 : 4) {
        case 0: /* cut the end */
            out[at] = '\0';
            break;
        case 1: /* cut one out */
            memmove(out + at, out + at + 1, n - at);
            break;
        case 2: { /* another sign */
            static const char signs[] = "()[]{}<>'\",.:;|=*@+ x\t0\xff\x01";
            out[at] = signs[next_random(seed) % (sizeof signs - 1)];
            break;
        }
        case 3: /* double one */
            if (n + 2 < 512) {
                memmove(out + at + 1, out + at, n + 1 - at);
            }
            break;
        default:
            break;
        }
    }
}

static void test_tf__spoiled_texts_are_errors_or_layouts(void **state)
{
    uint64_t seed = 20260807;
    int32_t legal = 0;
    dtp_mesh mesh, other;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    assert_int_equal(dtp_mesh_parse("x:2;y:2", &mesh, NULL), DTP_OK);
    for (int32_t i = 0; i < 40000; i++) {
        const size_t row = next_random(&seed) % (sizeof TEXTS / sizeof TEXTS[0]);
        char text[512];
        dtp_layout layout;
        dtp_err err = {0};
        spoil(TEXTS[row].text, &seed, text);
        char *exact = malloc(strlen(text) + 1); /* sanitizers see a read past the end */
        assert_non_null(exact);
        memcpy(exact, text, strlen(text) + 1);
        const dtp_status s = parse(exact, &mesh, TEXTS[row].rank, &layout, &err);
        legal += s == DTP_OK ? 1 : 0;
        if (s == DTP_OK ? layout.rank != TEXTS[row].rank || layout.n_mesh != 2
                        : strchr(err.msg, '\n') != NULL || err.msg[0] == '\0') {
            fail_msg("'%s': %s", text, err.msg);
        }
        if (dtp_mesh_parse(exact, &other, &err) != DTP_OK) {
            assert_true(err.msg[0] != '\0');
        }
        free(exact);
    }
    assert_true(legal > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh__sizes_without_names),
        cmocka_unit_test(test_tf__texts_of_python),
        cmocka_unit_test(test_tf__errors_name_the_place),
        cmocka_unit_test(test_tf__python_round_trips),
        cmocka_unit_test(test_tf__spoiled_texts_are_errors_or_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
