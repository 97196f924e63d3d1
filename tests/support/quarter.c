/* Long tests of many independent cases. */
#include "tests/support/quarter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t n_run, n_asked;

static void report(void)
{
    (void)printf("quarter %s: %" PRId64 " of %" PRId64 " cases\n", getenv("DTP_QUARTER"), n_run,
                 n_asked);
}

/* The quarter, from 0 on; -1: all. */
static int quarter(void)
{
    const char *text = getenv("DTP_QUARTER");
    if (text == NULL) {
        return -1;
    }
    if (text[0] < '1' || text[0] > '4' || text[1] != '/' || text[2] != '4' || text[3] != '\0') {
        (void)fprintf(stderr, "DTP_QUARTER is '%s' instead of 1/4, 2/4, 3/4 or 4/4\n", text);
        exit(2);
    }
    return text[0] - '1';
}

bool quarter_has(int64_t i, int64_t n)
{
    const int k = quarter();
    if (k < 0) {
        return true;
    }
    if (n_asked++ == 0 && atexit(report) != 0) {
        exit(2);
    }
    const bool has = n < 4 ? i % n == k % n : (i + i / 4 + i / 16) % 4 == k;
    n_run += has ? 1 : 0;
    return has;
}

int32_t quarter_of(int32_t least)
{
    return quarter() < 0 ? least : least < 8 ? 1 : least / 4;
}
