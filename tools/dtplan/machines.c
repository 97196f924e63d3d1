/* dtplan machines: the machines that have a name. */
#include "cost_models/machine/machine.h"
#include "tools/job.h"
#include "tools/machines.h"
#include "tools/report.h"

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    dtp_strbuf text = {0};
    char **names = NULL;
    (void)command;
    (void)operands;
    DTP_TRY(tool_machine_names(&names, err));
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
    tool_machine_names_free(names);
    return s;
}

int dtplan_machines(int argc, char **argv)
{
    const tool_call call = {TOOL_MACHINES, execute, NULL, NULL, NULL};
    return tool_run(&call, argc, argv);
}
