/* Limits on calls of MPI that may never return, because a rank that takes part is gone. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "executor/comm/mpi_internal.h"

struct dtp_comm__guard {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct timespec until;
    char what[160];
    double limit_s;
    int code;
    bool over;
};

static void *watch(void *arg)
{
    dtp_comm__guard *g = arg;
    int waited = 0;
    pthread_mutex_lock(&g->lock);
    while (!g->over && waited != ETIMEDOUT) {
        waited = pthread_cond_timedwait(&g->changed, &g->lock, &g->until);
    }
    if (!g->over) {
        if (g->what[0] != '\0') {
            (void)fprintf(stderr, "error comm %s did not end in %g s\n", g->what, g->limit_s);
        }
        _exit(g->code);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

dtp_comm__guard *dtp_comm__guard_begin(double limit_s, const char *what, int code)
{
    dtp_comm__guard *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return NULL;
    }
    const double most = 1e9, limit = limit_s < most ? limit_s : most;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    (void)clock_gettime(CLOCK_REALTIME, &g->until);
    g->until.tv_sec += (time_t)limit;
    g->until.tv_nsec += (long)((limit - (double)(time_t)limit) * 1e9);
    g->until.tv_sec += g->until.tv_nsec / 1000000000;
    g->until.tv_nsec %= 1000000000;
    (void)snprintf(g->what, sizeof g->what, "%s", what != NULL ? what : "");
    g->limit_s = limit_s;
    g->code = code;
    if (pthread_create(&g->thread, NULL, watch, g) != 0) {
        free(g);
        return NULL;
    }
    return g;
}

void dtp_comm__guard_end(dtp_comm__guard *g)
{
    if (g == NULL) {
        return;
    }
    pthread_mutex_lock(&g->lock);
    g->over = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    (void)pthread_join(g->thread, NULL);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

void dtp_comm__mpi_end_job(MPI_Comm world, int code)
{
    static const double limit_s = 1; /* a rank that ends without it ends the job as well */
    (void)fflush(NULL);
    (void)dtp_comm__guard_begin(limit_s, NULL, code);
    MPI_Abort(world, code);
    _exit(code);
}
