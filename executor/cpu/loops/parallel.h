/* How CPU kernels share work between threads. Every partition depends on shapes only, never on the
 * number of threads, so results do not either. */
#ifndef DTP_EXECUTOR_CPU_LOOPS_PARALLEL_H
#define DTP_EXECUTOR_CPU_LOOPS_PARALLEL_H

#include <omp.h>
#include <stdint.h>

enum {
    DTP_CPU_SMALL = 32768, /* element operations that one thread does alone, about 30 us */
    DTP_CPU_MADDS = 64     /* multiply-adds of a matrix product that take as long as one of them */
};

/* Threads for a loop of about `work` element operations: starting a team costs microseconds, and a
 * time slice when another process has the core that a thread needs. */
static inline int32_t dtp_cpu_team(int32_t threads, int64_t work)
{
    return threads > 1 && work >= DTP_CPU_SMALL ? threads : 1;
}

/* The same for matrix products of so many multiply-adds in all. */
static inline int32_t dtp_cpu_team_of_products(int32_t threads, double madds)
{
    return threads > 1 && madds >= (double)DTP_CPU_SMALL * DTP_CPU_MADDS ? threads : 1;
}

/* Number of the calling thread in its team, for per-thread scratch. */
static inline int64_t dtp_cpu_thread(void)
{
    return (int64_t)omp_get_thread_num();
}

/* Sums over long ranges are made of at most this many parts, combined in order. */
enum { DTP_CPU_PARTS = 64 };

/* Length of a part when n elements are cut into at most DTP_CPU_PARTS of at least `least`. */
static inline int64_t dtp_cpu_part(int64_t n, int64_t least)
{
    int64_t part = (n + DTP_CPU_PARTS - 1) / DTP_CPU_PARTS;
    return part < least ? least : part;
}

#endif
