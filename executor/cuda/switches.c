/* Switches for finding faults. */
#include <string.h>

#include "executor/cuda/cuda_internal.h"

dtp_status dtp_cuda_switch(dtp_cuda *c, const char *words, dtp_err *err)
{
    const struct {
        const char *word;
        bool *on;
    } switches[] = {{"no_epilogues", &c->no_epilogues}, {"nccl_alone", &c->nccl_alone}};
    enum { N = sizeof switches / sizeof switches[0] };
    for (const char *at = words != NULL ? words : ""; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        size_t i = 0;
        while (i < N && (strlen(switches[i].word) != n || strncmp(switches[i].word, at, n) != 0)) {
            i++;
        }
        if (i == N) {
            return DTP_FAIL(err, DTP_INVALID,
                            "backend cuda: there is no switch '%.*s'; there are: %s, %s",
                            (int)(n < 40 ? n : 40), at, switches[0].word, switches[1].word);
        }
        *switches[i].on = true;
        at += n + (at[n] == ',' ? 1 : 0);
    }
    return DTP_OK;
}
