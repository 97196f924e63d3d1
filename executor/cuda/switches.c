/* Switches for finding faults. */
#include <stdlib.h>
#include <string.h>

#include "executor/cuda/cuda_internal.h"

static const char ALGORITHM[] = "algorithm=";

/* A word of n characters. */
static bool turn_on(dtp_cuda *c, const char *word, size_t n)
{
    const size_t name = sizeof ALGORITHM - 1;
    const struct {
        const char *word;
        bool *on;
    } switches[] = {{"no_epilogues", &c->no_epilogues}, {"nccl_alone", &c->nccl_alone}};
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        if (strlen(switches[i].word) == n && strncmp(switches[i].word, word, n) == 0) {
            return *switches[i].on = true;
        }
    }
    char *end = NULL;
    const bool digits = n > name && n <= name + 2 && strncmp(word, ALGORITHM, name) == 0 &&
                        strspn(word + name, "0123456789") == n - name;
    const long k = digits ? strtol(word + name, &end, 10) : -1;
    c->algorithm = k >= 0 ? (int32_t)k : c->algorithm;
    return k >= 0 && k < DTP_CUDA_ALGORITHMS;
}

dtp_status dtp_cuda_switch(dtp_cuda *c, const char *words, dtp_err *err)
{
    for (const char *at = words != NULL ? words : ""; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        if (!turn_on(c, at, n)) {
            return DTP_FAIL(err, DTP_INVALID,
                            "backend cuda: there is no switch '%.*s'; there are: no_epilogues, "
                            "nccl_alone, algorithm=0 to %d",
                            (int)(n < 40 ? n : 40), at, DTP_CUDA_ALGORITHMS - 1);
        }
        at += n + (at[n] == ',' ? 1 : 0);
    }
    return DTP_OK;
}
