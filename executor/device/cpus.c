/* The processors that this process may use. */
#include "executor/device/cpus.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"

int32_t dtp_cpus_usable(void)
{
    int n = omp_get_num_procs();
    return n < 1 ? 1 : (int32_t)n;
}

bool dtp_cpus_all(void)
{
    return dtp_cpus_usable() >= sysconf(_SC_NPROCESSORS_ONLN);
}

/* Numbers in a list such as "0,8" or "0-3,8". */
static int32_t count_list(const char *text)
{
    int32_t n = 0;
    for (char *end; *text != '\0' && *text != '\n'; text = *end == ',' ? end + 1 : end) {
        long first = strtol(text, &end, 10), last = first;
        if (end == text) {
            return 0;
        }
        if (*end == '-') {
            last = strtol(end + 1, &end, 10);
        }
        n += (int32_t)(last - first) + 1;
    }
    return n;
}

/* Those of the first processor stand for all. */
int32_t dtp_cpus_per_core(void)
{
    char line[256] = "";
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "r");
    if (f != NULL) {
        (void)!fgets(line, sizeof line, f);
        (void)fclose(f);
    }
    const int32_t n = count_list(line);
    return n < 1 ? 1 : n;
}

/* Linux lists them in a line of its status file. */
uint64_t dtp_cpus_key(void)
{
    static const char name[] = "Cpus_allowed_list:";
    char line[4096];
    uint64_t key = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, name, sizeof name - 1) == 0) {
            key = dtp_hash_text(DTP_HASH_SEED, line);
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return key;
}
