/* dtplan machines: the machines that have a name, or the file of one with numbers set. */
#include "cost_models/machine/machine.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/file_out.h"
#include "tools/job.h"
#include "tools/machines.h"
#include "tools/report.h"
#include "tools/shipped.h"

static dtp_status list_machines(dtp_err *err)
{
    dtp_strbuf text = {0};
    char **names = NULL;
    DTP_TRY(tool_shipped_names(SHIPPED_MACHINES, &names, err));
    dtp_strbuf_addf(&text, "%-12s %7s  %s\n", "name", "devices", "what");
    dtp_status s = DTP_OK;
    for (int32_t i = 0; names[i] != NULL && s == DTP_OK; i++) {
        dtp_machine *machine = NULL;
        s = tool_machine_read(names[i], true, &machine, err);
        if (s == DTP_OK) {
            dtp_strbuf_addf(&text, "%-12s %7lld  %s\n", names[i],
                            (long long)dtp_machine_devices(machine), machine->provenance_host);
        }
        dtp_machine_destroy(machine);
    }
    s = s == DTP_OK ? tool_put_text(&text, err) : s;
    dtp_strbuf_free(&text);
    tool_shipped_free(names);
    return s;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    tool_source *source = command;
    dtp_machine *machine = NULL;
    char *text = NULL;
    dtp_strbuf file = {0};
    source->machine = operands[0];
    if (operands[0] == NULL) {
        return source->set.n == 0 && source->output == NULL
                   ? list_machines(err)
                   : DTP_FAIL(err, DTP_INVALID, "--set and --output are for one machine: name it");
    }
    DTP_TRY(tool_machine_of(source, &machine, err));
    dtp_status s = dtp_machine_write(machine, &text, err);
    if (s == DTP_OK && source->output != NULL) {
        s = dtp_file_write(source->output, text, strlen(text), err);
    } else if (s == DTP_OK) {
        dtp_strbuf_add(&file, text);
        s = tool_put(&file, err);
    }
    dtp_strbuf_free(&file);
    free(text);
    dtp_machine_destroy(machine);
    return s;
}

int dtplan_machines(int argc, char **argv)
{
    tool_source source = {0};
    const tool_call call = {TOOL_MACHINES, execute, &source, &source, NULL};
    return tool_run(&call, argc, argv);
}
