#include "planner/styles/pin_texts.h"

#include <string.h>

static const char STYLE[] = "style ", PIN[] = "pin ";

dtp_status dtp_pin_texts(const dtp_styles *styles, int32_t n_by_hand, const char *const *by_hand,
                         int32_t *n, const char ***out, dtp_err *err)
{
    dtp_arena *arena = styles->arena;
    const int32_t count = styles->n + n_by_hand;
    const char **texts;
    DTP_TRY(DTP_NEW(arena, texts, count, err));
    for (int32_t i = 0; i < count; i++) {
        texts[i] = i < styles->n ? dtp_arena_printf(arena, "%s%s", STYLE, styles->items[i].text)
                                 : dtp_arena_printf(arena, "%s%s", PIN, by_hand[i - styles->n]);
        DTP_TRY(DTP_MEMORY(err, texts[i]));
    }
    *n = count;
    *out = texts;
    return DTP_OK;
}

/* The part of a text behind a word, NULL when it begins otherwise. */
static const char *behind(const char *text, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(text, word, n) == 0 ? text + n : NULL;
}

dtp_status dtp_pin_set_read(int32_t n, const char *const *texts, const dtp_graph *g,
                            const dtp_mesh *mesh, dtp_arena *arena, dtp_pin_set *out, dtp_err *err)
{
    dtp_styles styles;
    memset(out, 0, sizeof *out);
    dtp_styles_init(&styles, arena);
    DTP_TRY(DTP_NEW(arena, out->texts, n, err));
    for (int32_t i = 0; i < n; i++) {
        const char *style = behind(texts[i], STYLE);
        if (style != NULL) {
            DTP_TRY(dtp_styles_parse(style, &styles, err));
        }
        if (style != NULL || behind(texts[i], PIN) != NULL) {
            out->texts[out->n_texts++] = texts[i];
        }
    }
    /* The pins of the styles, then the others. */
    dtp_pin *pins = NULL;
    int32_t n_styles = 0;
    DTP_TRY(dtp_styles_pins(g, mesh, &styles, &n_styles, &pins, err));
    DTP_TRY(DTP_NEW(arena, out->pins, (size_t)n_styles + (size_t)out->n_texts, err));
    if (n_styles > 0) {
        memcpy(out->pins, pins, (size_t)n_styles * sizeof *pins);
    }
    out->n_pins = n_styles;
    out->n_implementations = styles.n_implementations;
    out->implementations = styles.implementations;
    for (int32_t i = 0; i < out->n_texts; i++) {
        const char *pin = behind(out->texts[i], PIN);
        if (pin != NULL) {
            DTP_TRY(dtp_pin_parse(pin, g, mesh, &out->pins[out->n_pins++], err));
        }
    }
    return DTP_OK;
}
