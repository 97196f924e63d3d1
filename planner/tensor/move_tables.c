/* Prices of moves between two lists of layouts. The same lists come again and again, in part or as
 * a whole, so layouts and types are numbered, and a price is asked for once per type and pair. */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "planner/tensor/tensor_internal.h"

enum { FIRST_SLOTS = 1024, NUMBER_BITS = 22 };

typedef struct price_slot {
    uint64_t key; /* 0 = free */
    int64_t ps;
} price_slot;

struct move_tables {
    layout_list layouts;
    int32_t *layout_slots; /* 1 + number of a layout, 0 = free */
    uint32_t n_layout_slots;
    const dtp_ttype **types;
    int32_t n_types, cap_types;
    price_slot *slots;
    uint64_t n_slots, n_prices;
};

static dtp_status no_memory(dtp_err *err)
{
    return DTP_FAIL(err, DTP_NOMEM, "out of memory for the prices of redistributions");
}

/* ---- numbers ------------------------------------------------------------------------------------
 */

static uint64_t hash_layout(const dtp_layout *layout)
{
    uint64_t h = DTP_HASH_SEED;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_place *p = &layout->place[m];
        const uint64_t word = (uint64_t)p->kind | (uint64_t)(uint8_t)p->op << 8 |
                              (uint64_t)(uint8_t)p->axis << 16 | (uint64_t)(uint8_t)p->order << 24;
        h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return h;
}

static uint32_t layout_slot(const move_tables *t, const dtp_layout *layout)
{
    uint32_t at = (uint32_t)hash_layout(layout) & (t->n_layout_slots - 1);
    while (t->layout_slots[at] > 0 &&
           !dtp_layout_equal(&t->layouts.items[t->layout_slots[at] - 1], layout)) {
        at = (at + 1) & (t->n_layout_slots - 1);
    }
    return at;
}

static dtp_status grow_layouts(tensor_build *b, dtp_err *err)
{
    move_tables *t = b->tables;
    if (2 * ((uint32_t)t->layouts.n + 1) <= t->n_layout_slots) {
        return DTP_OK;
    }
    const uint32_t n = t->n_layout_slots == 0 ? FIRST_SLOTS : 2 * t->n_layout_slots;
    t->layout_slots = dtp_arena_alloc(b->arena, n, sizeof *t->layout_slots);
    if (t->layout_slots == NULL) {
        return no_memory(err);
    }
    t->n_layout_slots = n;
    for (int32_t i = 0; i < t->layouts.n; i++) {
        t->layout_slots[layout_slot(t, &t->layouts.items[i])] = i + 1;
    }
    return DTP_OK;
}

static dtp_status number_layout(tensor_build *b, const dtp_layout *layout, uint64_t *number,
                                dtp_err *err)
{
    move_tables *t = b->tables;
    DTP_TRY(grow_layouts(b, err));
    const uint32_t at = layout_slot(t, layout);
    if (t->layout_slots[at] == 0) {
        DTP_TRY(dtp_arena_grow(b->arena, &t->layouts.items, t->layouts.n, t->layouts.n + 1,
                               &t->layouts.cap, sizeof *t->layouts.items, err));
        t->layouts.items[t->layouts.n++] = *layout;
        t->layout_slots[at] = t->layouts.n;
    }
    *number = (uint64_t)t->layout_slots[at];
    return DTP_OK;
}

static dtp_status number_type(tensor_build *b, const dtp_ttype *type, uint64_t *number,
                              dtp_err *err)
{
    move_tables *t = b->tables;
    int32_t i = 0;
    while (i < t->n_types && !dtp_ttype_equal(t->types[i], type)) {
        i++;
    }
    *number = (uint64_t)i;
    if (i < t->n_types) {
        return DTP_OK;
    }
    DTP_TRY(dtp_arena_grow(b->arena, (void *)&t->types, t->n_types, t->n_types + 1, &t->cap_types,
                           sizeof(const dtp_ttype *), err));
    t->types[t->n_types++] = type;
    return DTP_OK;
}

static dtp_status number_all(tensor_build *b, const dtp_choice *rows, const layout_list *cols,
                             uint64_t *numbers, dtp_err *err)
{
    for (int32_t i = 0; i < rows->n_options; i++) {
        DTP_TRY(number_layout(b, &rows->options[i].layout, &numbers[i], err));
    }
    for (int32_t j = 0; j < cols->n; j++) {
        DTP_TRY(number_layout(b, &cols->items[j], &numbers[rows->n_options + j], err));
    }
    return b->tables->layouts.n < 1 << (NUMBER_BITS - 2) && b->tables->n_types < 1 << 18
               ? DTP_OK
               : DTP_FAIL(err, DTP_RANGE, "too many layouts");
}

/* ---- prices -------------------------------------------------------------------------------------
 */

static price_slot *find_price(const move_tables *t, uint64_t key)
{
    const uint64_t h = key * UINT64_C(0x9E3779B97F4A7C15);
    uint64_t at = (h >> 32) & (t->n_slots - 1);
    while (t->slots[at].key != 0 && t->slots[at].key != key) {
        at = (at + 1) & (t->n_slots - 1);
    }
    return &t->slots[at];
}

static dtp_status grow_prices(tensor_build *b, dtp_err *err)
{
    move_tables *t = b->tables;
    const price_slot *old = t->slots;
    const uint64_t n_old = t->n_slots;
    if (2 * (t->n_prices + 1) <= n_old) {
        return DTP_OK;
    }
    t->n_slots = n_old == 0 ? FIRST_SLOTS : 4 * n_old;
    t->slots = dtp_arena_alloc(b->arena, t->n_slots, sizeof *t->slots);
    if (t->slots == NULL) {
        return no_memory(err);
    }
    for (uint64_t i = 0; i < n_old; i++) {
        if (old[i].key != 0) {
            *find_price(t, old[i].key) = old[i];
        }
    }
    return DTP_OK;
}

static dtp_status price(tensor_build *b, dtp_tensor_id tensor, uint64_t key, const dtp_layout *from,
                        const dtp_layout *to, int64_t *ps, dtp_err *err)
{
    DTP_TRY(grow_prices(b, err));
    price_slot *at = find_price(b->tables, key);
    if (at->key == 0) {
        DTP_TRY(dtp_tensor__move(b, tensor, from, to, &at->ps, err));
        at->key = key;
        b->tables->n_prices++;
    }
    *ps = at->ps;
    return DTP_OK;
}

/* numbers: of the rows, then of the columns. */
static dtp_status fill(tensor_build *b, dtp_tensor_id tensor, const dtp_choice *rows,
                       const layout_list *cols, bool to_cols, uint64_t *numbers, move_table *out,
                       dtp_err *err)
{
    uint64_t type = 0;
    DTP_TRY(number_all(b, rows, cols, numbers, err));
    DTP_TRY(number_type(b, &b->g->tensors[tensor].type, &type, err));
    for (int32_t i = 0; i < out->rows; i++) {
        for (int32_t j = 0; j < out->cols; j++) {
            const uint64_t row = numbers[i], col = numbers[out->rows + j];
            const dtp_layout *x = &rows->options[i].layout, *y = &cols->items[j];
            const uint64_t key = type << 2 * NUMBER_BITS | (to_cols ? row : col) << NUMBER_BITS |
                                 (to_cols ? col : row);
            DTP_TRY(price(b, tensor, key, to_cols ? x : y, to_cols ? y : x,
                          &out->ps[(size_t)i * (size_t)out->cols + (size_t)j], err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_tensor__move_table(tensor_build *b, dtp_tensor_id tensor, const dtp_choice *rows,
                                  const layout_list *cols, bool to_cols, move_table *out,
                                  dtp_err *err)
{
    const size_t n = (size_t)rows->n_options + (size_t)cols->n;
    uint64_t *numbers = calloc(n + 1, sizeof *numbers);
    b->tables = b->tables != NULL ? b->tables : dtp_arena_alloc(b->arena, 1, sizeof *b->tables);
    *out = (move_table){.rows = rows->n_options, .cols = cols->n};
    out->ps = malloc(((size_t)out->rows * (size_t)out->cols + 1) * sizeof *out->ps);
    dtp_status s =
        numbers != NULL && b->tables != NULL && out->ps != NULL ? DTP_OK : no_memory(err);
    s = s == DTP_OK ? fill(b, tensor, rows, cols, to_cols, numbers, out, err) : s;
    free(numbers);
    return s;
}
