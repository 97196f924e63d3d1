/* Long tests of many independent cases. With DTP_QUARTER=k/4 in the environment, which
 * `./dev check` sets by the commit, they run a quarter of their cases; without it, all.
 * tests/support/quarter.py is the same for scripts. */
#ifndef DTP_TESTS_SUPPORT_QUARTER_H
#define DTP_TESTS_SUPPORT_QUARTER_H

#include <stdbool.h>
#include <stdint.h>

/* Whether case i of n is to be run: one of four neighbours, another one in the next four; of fewer
 * than four cases, one. Quarters of at least four cases are disjoint, together they are all. Where
 * n is not known and many, any large number will do. At its end the program prints how many cases
 * it ran. */
bool quarter_has(int64_t i, int64_t n);

/* What a count over all cases that is at least `least` comes to: a quarter of it, 1 at least. */
int32_t quarter_of(int32_t least);

#endif
