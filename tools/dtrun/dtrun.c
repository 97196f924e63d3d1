/* dtrun: runs a planned program on real ranks, verifies it against one device, measures the
 * machine. */
#include <stdlib.h>

#include "tools/dtrun/options.h"

dtp_status dtrun_feeds_parse(const tool_list *list, dtrun_feeds *out, dtp_err *err)
{
    *out = (dtrun_feeds){.n = list->n};
    if (list->n == 0) {
        return DTP_OK;
    }
    out->texts = calloc((size_t)list->n, sizeof *out->texts);
    if (out->texts == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d feeds", list->n);
    }
    for (int32_t i = 0; i < list->n; i++) {
        dtp_status s = dtp_feed_spec_parse(list->items[i], out->texts[i], &out->specs[i], err);
        if (s != DTP_OK) {
            dtp_err_prefix(err, "--feed");
            dtrun_feeds_free(out);
            return s;
        }
    }
    return DTP_OK;
}

void dtrun_feeds_free(dtrun_feeds *feeds)
{
    free(feeds->texts);
    *feeds = (dtrun_feeds){0};
}

int main(int argc, char **argv)
{
    static const tool_command commands[] = {
        {"run", "MODEL", "run or train a model under a plan or layout rules", dtrun_run},
        {"verify", "MODEL", "compare N ranks with one device", dtrun_verify},
        {"bench", "", "measure this machine and write a machine file", dtrun_bench},
        {NULL, NULL, NULL, NULL},
    };
    tool_set_environment(argv);
    return tool_main("dtrun", commands, argc, argv);
}
