/* Offsets that are taken in some order: each buffer at the lowest offset at which it meets no
 * earlier one that is needed at a common time. */
#ifndef DTP_SPMD_LOWER_FIRST_FIT_H
#define DTP_SPMD_LOWER_FIRST_FIT_H

#include "core/base/arena.h"

typedef struct dtp_first_fit dtp_first_fit;

/* For up to n buffers, most of them needed up to time `last` at most, by which nothing but speed is
 * decided; storage from `arena`. */
dtp_status dtp_first_fit_create(dtp_arena *arena, int32_t n, int32_t last, dtp_first_fit **out,
                                dtp_err *err) DTP_MUST_CHECK;
/* Forgets all buffers. */
void dtp_first_fit_clear(dtp_first_fit *f);
/* Takes the place of a buffer that is needed from time `first` to `last`, both included; its
 * offset. The caller has checked that the bytes of all buffers together are an int64_t. */
int64_t dtp_first_fit_place(dtp_first_fit *f, int64_t bytes, int32_t first, int32_t last);

#endif
