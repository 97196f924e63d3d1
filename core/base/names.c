#include "core/base/names.h"

#include <stdio.h>
#include <string.h>

int32_t dtp_name_distance(const char *a, const char *b, int32_t limit)
{
    int32_t row[DTP_NAME_MOST + 1];
    const int32_t na = (int32_t)strnlen(a, DTP_NAME_MOST + 1);
    const int32_t nb = (int32_t)strnlen(b, DTP_NAME_MOST + 1);
    if (na > DTP_NAME_MOST || nb > DTP_NAME_MOST || na - nb > limit || nb - na > limit) {
        return limit + 1;
    }
    for (int32_t j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (int32_t i = 1; i <= na; i++) {
        int32_t diagonal = row[0];
        row[0] = i;
        for (int32_t j = 1; j <= nb; j++) {
            const int32_t above = row[j];
            int32_t best = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[nb] <= limit ? row[nb] : limit + 1;
}

void dtp_names_join(const char *const *names, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (; *names != NULL && n < size; names++) {
        n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", *names);
    }
}
