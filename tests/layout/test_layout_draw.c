/* Drawings of layouts: every rank is in the cell of its piece; known drawings; SVG is well formed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/layout/layout_draw.h"
#include "interop/layout_forms.h"
#include "tests/support/layout_list.h"

typedef struct fixture {
    dtp_arena *arena;
    dtp_dims dims;
    dtp_mesh mesh;
    dtp_ttype type;
    dtp_layout layout;
    dtp_drawing d;
} fixture;

/* Sizes of 0 end the list. */
static void setup(fixture *f, const char *mesh, const char *const *names, const int64_t *sizes)
{
    memset(f, 0, sizeof *f);
    f->arena = dtp_arena_create();
    assert_non_null(f->arena);
    dtp_dims_init(&f->dims, f->arena);
    assert_int_equal(dtp_mesh_parse(mesh, &f->mesh, NULL), DTP_OK);
    while (sizes[f->type.rank] > 0) {
        dtp_tdim *dim = &f->type.dims[f->type.rank];
        dim->size = sizes[f->type.rank];
        assert_int_equal(dtp_dims_intern(&f->dims, names[f->type.rank], dim->size, &dim->id, NULL),
                         DTP_OK);
        f->type.rank++;
    }
    f->d = (dtp_drawing){NULL, &f->mesh, &f->type, &f->dims, &f->layout, 0, NULL};
}

static void lay_out(fixture *f, const char *layout)
{
    dtp_err err = {0};
    if (dtp_layout_parse_any(layout, &f->mesh, &f->type, &f->dims, &f->layout, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}

static const char *const ABC[] = {"a", "b", "c", "d"};

/* ---- oracle ---- */

typedef struct range {
    int64_t begin, end;
} range;

/* The ranges "[4:8]" of a line; returns how many. */
static int32_t read_ranges(const char *line, range *out)
{
    int32_t n = 0;
    for (const char *p = strchr(line, '['); p != NULL; p = strchr(p + 1, '[')) {
        long long begin, end;
        assert_int_equal(sscanf(p, "[%lld:%lld]", &begin, &end), 2);
        out[n++] = (range){begin, end};
    }
    return n;
}

/* The labels of a cell say where the pieces of its ranks are; returns how many ranks it lists. */
static int32_t check_cell(const fixture *f, const char *cell, const range at[3], bool *seen)
{
    int32_t n = 0;
    for (const char *p = cell + strspn(cell, " "); *p != '\0'; n++) {
        int64_t offsets[DTP_MAX_RANK];
        dtp_ttype local;
        char *end;
        const int32_t rank = (int32_t)strtol(p, &end, 10);
        assert_true(end > p);
        assert_in_range(rank, 0, dtp_mesh_ranks(&f->mesh) - 1);
        assert_false(seen[rank]);
        seen[rank] = true;
        dtp_layout_local(&f->layout, &f->mesh, &f->type, rank, &local, offsets);
        for (int32_t i = 0; i < f->type.rank; i++) {
            const range *r = &at[3 - f->type.rank + i];
            assert_int_equal(r->begin, offsets[i]);
            assert_int_equal(r->end - r->begin, local.dims[i].size);
        }
        p = end + strspn(end, ", +");
    }
    return n;
}

/* Reads the drawing: lines of labels, and of cells between bars. */
static void check_grid(fixture *f)
{
    dtp_strbuf text = {0};
    bool seen[64] = {false};
    int32_t n = 0;
    range at[3] = {{0}}, cols[64];
    char *next, *rest;
    assert_int_equal(dtp_layout_draw_text(&f->d, &text, NULL), DTP_OK);
    char *line = strtok_r(strstr(text.text, "\n\n"), "\n", &next);
    for (; line != NULL; line = strtok_r(NULL, "\n", &next)) {
        char *bar = strchr(line, '|');
        if (bar == NULL && line[strspn(line, " ")] != '+') {
            assert_true(read_ranges(line, line[0] == ' ' ? cols : &at[0]) > 0);
        } else if (bar != NULL) {
            (void)read_ranges(line, &at[1]);
            int32_t c = 0;
            for (char *cell = strtok_r(bar, "|", &rest); cell != NULL;
                 cell = strtok_r(NULL, "|", &rest)) {
                at[2] = cols[c++];
                n += check_cell(f, cell, at, seen);
            }
        }
    }
    assert_int_equal(n, dtp_mesh_ranks(&f->mesh));
    dtp_strbuf_free(&text);
}

static void test_layout_draw__every_rank_is_in_the_cell_of_its_piece(void **state)
{
    static const char *const meshes[] = {"", "x:4", "x:2;y:3", "x:2;y:2;z:2"};
    static const int64_t sizes[][4] = {{0}, {10, 0}, {5, 2, 0}, {3, 7, 2, 0}};
    (void)state;
    int32_t count = 0;
    for (size_t m = 0; m < 4; m++) {
        for (int32_t rank = 0; rank <= 3; rank++) {
            fixture f;
            setup(&f, meshes[m], ABC, sizes[rank]);
            layout_list all = layout_list_all(rank, f.mesh.n_dims, true, DTP_REDUCE_SUM);
            for (int32_t i = 0; i < all.n; i++, count++) {
                f.layout = all.items[i];
                check_grid(&f);
            }
            layout_list_free(&all);
            dtp_arena_destroy(f.arena);
        }
    }
    assert_true(count > 300);
}

/* ---- known drawings ---- */

static void expect_text(const char *mesh, const int64_t *sizes, const char *layout,
                        const char *want)
{
    fixture f;
    dtp_strbuf text = {0};
    setup(&f, mesh, ABC, sizes);
    lay_out(&f, layout);
    assert_int_equal(dtp_layout_draw_text(&f.d, &text, NULL), DTP_OK);
    assert_string_equal(dtp_strbuf_text(&text), want);
    dtp_strbuf_free(&text);
    dtp_arena_destroy(f.arena);
}

static void test_layout_draw__text(void **state)
{
    (void)state;
    expect_text("x:2;y:2", (int64_t[]){8, 6, 0}, "S0,S1",
                "f32[a=8, b=6] on mesh x:2;y:2 (4 ranks)\n"
                "layout a@x, b@y = (S0, S1)\n"
                "\n"
                "             b[0:3] (3)   b[3:6] (3)\n"
                "           +------------+------------+\n"
                "a[0:4] (4) | 0          | 1          |\n"
                "           +------------+------------+\n"
                "a[4:8] (4) | 2          | 3          |\n"
                "           +------------+------------+\n");
    expect_text("x:4;y:2", (int64_t[]){5, 0}, "S0,P(max)",
                "f32[a=5] on mesh x:4;y:2 (8 ranks)\n"
                "layout a@x, +max(y) = (S0, P(max))\n"
                "a+b: partial over y\n"
                "\n"
                "  a[0:2] (2)       a[2:4] (2)       a[4:5] (1)       a[5:5] (empty)\n"
                "+----------------+----------------+----------------+----------------+\n"
                "| 0+1            | 2+3            | 4+5            | 6+7            |\n"
                "+----------------+----------------+----------------+----------------+\n");
    expect_text("x:2;y:2;z:2", (int64_t[]){2, 3, 1, 0}, "S0,R,P",
                "f32[a=2, b=3, c=1] on mesh x:2;y:2;z:2 (8 ranks)\n"
                "layout a@x, +sum(z) = (S0, R, P(sum))\n"
                "a, b: copies over y; a+b: partial over z\n"
                "\n"
                "a[0:1] (1)\n"
                "             c[0:1] (1)\n"
                "           +------------+\n"
                "b[0:3] (3) | 0+1, 2+3   |\n"
                "           +------------+\n"
                "\n"
                "a[1:2] (1)\n"
                "             c[0:1] (1)\n"
                "           +------------+\n"
                "b[0:3] (3) | 4+5, 6+7   |\n"
                "           +------------+\n");
    expect_text("x:16", (int64_t[]){0}, "R",
                "f32[] on mesh x:16 (16 ranks)\n"
                "layout replicated = (R)\n"
                "a, b: copies over x\n"
                "\n"
                "+------------------------------+\n"
                "| 0, 1, 2, 3..., 15 (16 ranks) |\n"
                "+------------------------------+\n");
}

static void test_layout_draw__what_cannot_be_drawn(void **state)
{
    (void)state;
    fixture f;
    dtp_strbuf out = {0};
    dtp_err err = {0};
    setup(&f, "x:2", ABC, (int64_t[]){2, 2, 2, 2, 0});
    f.layout = dtp_layout_replicated(4, 1);
    assert_int_equal(dtp_layout_draw_text(&f.d, &out, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "rank 4 cannot be drawn"));
    dtp_arena_destroy(f.arena);
    setup(&f, "x:2000", ABC, (int64_t[]){2, 0});
    f.layout = dtp_layout_replicated(1, 1);
    assert_int_equal(dtp_layout_draw_svg(&f.d, &out, &err), DTP_RANGE);
    assert_non_null(strstr(err.msg, "2000 ranks"));
    f.layout = dtp_layout_replicated(2, 1);
    assert_int_equal(dtp_layout_draw_svg(&f.d, &out, &err), DTP_INVALID);
    dtp_strbuf_free(&out);
    dtp_arena_destroy(f.arena);
}

/* ---- SVG ---- */

static int count_of(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = strstr(text, what); p != NULL; p = strstr(p + 1, what)) {
        n++;
    }
    return n;
}

/* One tag at "<": returns what follows it. Elements are pushed and popped, attribute values are
 * quoted and hold no "<". */
static const char *read_tag(const char *p, char stack[16][16], int *depth)
{
    char name[16] = "";
    const bool closing = p[1] == '/';
    p += closing ? 2 : 1;
    const size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz");
    assert_in_range(n, 1, 15);
    memcpy(name, p, n);
    p += n;
    while (*p == ' ') {
        p += strcspn(p, "=>/");
        assert_true(p[0] == '=' && p[1] == '"');
        p += 2;
        p += strcspn(p, "\"<");
        assert_int_equal(*p, '"');
        p++;
    }
    if (closing) {
        assert_in_range(*depth, 1, 15);
        assert_string_equal(stack[--*depth], name);
    } else if (*p == '/') {
        p++;
    } else {
        assert_in_range(*depth, 0, 14);
        memcpy(stack[(*depth)++], name, sizeof name);
    }
    assert_int_equal(*p, '>');
    return p + 1;
}

static void check_well_formed(const char *svg)
{
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    char stack[16][16];
    int depth = 0;
    assert_int_equal(strncmp(svg, "<svg ", 5), 0);
    for (const char *p = svg; *p != '\0';) {
        bool known = *p != '&';
        for (int i = 0; i < 4; i++) {
            known = known || strncmp(p, entities[i], strlen(entities[i])) == 0;
        }
        assert_true(known);
        assert_true(*p == '\n' || (*p >= ' ' && *p <= '~'));
        p = *p == '<' ? read_tag(p, stack, &depth) : p + 1;
        assert_true(depth > 0 || strcmp(p, "\n") == 0 || *p == '\0');
    }
    assert_int_equal(depth, 0);
}

static void test_layout_draw__svg_is_well_formed_and_complete(void **state)
{
    static const char *const names[] = {"<a&\"b\">", "\x01\xff'", "c"};
    static const int64_t sizes[][4] = {{0}, {10, 0}, {5, 2, 0}, {3, 7, 2, 0}};
    static const struct {
        const char *layout;
        int cells;
    } rows[][3] = {{{"R,R", 1}, {"P,R", 1}, {"P,P(max)", 1}},
                   {{"S0,R", 4}, {"S0,S0", 12}, {"R,P", 1}},
                   {{"S0,S1", 12}, {"S1,S0", 12}, {"S1,S1", 12}},
                   {{"S0,S2", 12}, {"S2,S0", 12}, {"S1,P", 4}}};
    (void)state;
    for (int32_t rank = 0; rank <= 3; rank++) {
        for (int k = 0; k < 3; k++) {
            fixture f;
            dtp_strbuf svg = {0};
            setup(&f, "x:4;y:3", names, sizes[rank]);
            f.d.name = "t<1>";
            lay_out(&f, rows[rank][k].layout);
            assert_int_equal(dtp_layout_draw_svg(&f.d, &svg, NULL), DTP_OK);
            check_well_formed(dtp_strbuf_text(&svg));
            assert_int_equal(count_of(svg.text, "<rect"), rows[rank][k].cells + 1);
            assert_int_equal(count_of(svg.text, "</svg>"), 1);
            assert_true(count_of(svg.text, "<text") >= rows[rank][k].cells + 2);
            assert_non_null(strstr(svg.text, "t&lt;1&gt;"));
            dtp_strbuf_free(&svg);
            dtp_arena_destroy(f.arena);
        }
    }
}

static void test_layout_draw__svg_shows_empty_pieces(void **state)
{
    (void)state;
    fixture f;
    dtp_strbuf svg = {0};
    setup(&f, "x:4", ABC, (int64_t[]){5, 3, 0});
    lay_out(&f, "S0");
    assert_int_equal(dtp_layout_draw_svg(&f.d, &svg, NULL), DTP_OK);
    assert_int_equal(count_of(svg.text, "stroke-dasharray"), 1);
    assert_non_null(strstr(svg.text, "a[5:5] (empty)"));
    dtp_strbuf_free(&svg);
    dtp_arena_destroy(f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_draw__every_rank_is_in_the_cell_of_its_piece),
        cmocka_unit_test(test_layout_draw__text),
        cmocka_unit_test(test_layout_draw__what_cannot_be_drawn),
        cmocka_unit_test(test_layout_draw__svg_is_well_formed_and_complete),
        cmocka_unit_test(test_layout_draw__svg_shows_empty_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
