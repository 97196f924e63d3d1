/* The machine file of dtrun bench, and measuring PyTorch in place of this program. */
#include "tools/dtrun/bench_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/files/file_out.h"
#include "tools/machines.h"

dtp_status dtrun_bench_write(const tool_source *source, const dtp_samples *samples,
                             dtp_fit_options *known, dtp_err *err)
{
    char host[256] = "", date[32] = "", *text = NULL;
    const time_t now = time(NULL);
    struct tm utc;
    if (gethostname(host, sizeof host - 1) != 0) {
        host[0] = '\0';
    }
    if (gmtime_r(&now, &utc) != NULL) {
        (void)strftime(date, sizeof date, "%Y-%m-%d", &utc);
    }
    if (known->memory_bytes <= 0) {
        const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
        const int64_t all = pages > 0 && size > 0 ? (int64_t)pages * size : INT64_C(1) << 30;
        known->memory_bytes = all / samples->ranks;
    }
    known->name = source->name;
    known->date = date;
    known->host = host;
    dtp_machine *machine = NULL;
    DTP_TRY(dtp_machine_fit(samples, known, &machine, err));
    dtp_status s = dtp_machine_write(machine, &text, err);
    dtp_machine_destroy(machine);
    /* kept for the next 'dtplan plan' without --machine, where there is a place for it */
    const bool device = known->device != NULL && known->device[0] != '\0';
    char kept[4096];
    dtp_err unkept = {0};
    if (s == DTP_OK && !source->tiny && !device && known->runtime == NULL &&
        (tool_machine_cache(samples->ranks, kept, sizeof kept, &unkept) != DTP_OK ||
         dtp_file_write(kept, text, strlen(text), &unkept) != DTP_OK)) {
        (void)fprintf(stderr, "not kept for plans without --machine: %s\n", unkept.msg);
    }
    if (s == DTP_OK && source->output != NULL) {
        s = dtp_file_write(source->output, text, strlen(text), err);
        if (s == DTP_OK) {
            (void)fprintf(stderr, "%s: %d samples on %d rank(s) of %d thread(s)\n", source->output,
                          samples->n, samples->ranks, samples->threads);
        }
    } else if (s == DTP_OK) {
        (void)fputs(text, stdout);
    }
    free(text);
    return s;
}
