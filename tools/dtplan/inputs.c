/* What commands begin with: plans, graphs and tensors of the command line. */
#include "tools/dtplan/inputs.h"
#include "core/base/units.h"
#include "tools/machines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 64 };

dtp_status tool_read_changed(const tool_source *source, dtp_machine *machine, tool_target *target,
                             dtp_graph **model, dtp_graph **out, dtp_err *err)
{
    dtp_variant_texts texts = {.outputs = source->outputs,
                               .remat = source->remat,
                               .microbatches = source->microbatches,
                               .regather = source->regather,
                               .stages = source->stages,
                               .slots = source->slots};
    dtp_graph_variant variant;
    DTP_TRY(tool_read_graph(source, model, err));
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? tool_target_find(source, (*model)->framework, machine, target, err) : s;
    texts.precision = s == DTP_OK ? target->precision : NULL;
    s = s == DTP_OK ? dtp_graph_variant_parse(&texts, *model, arena, &variant, err) : s;
    if (s == DTP_OK) {
        s = dtp_graph_with_variant(*model, &variant, 0, NULL, out, err);
    }
    dtp_arena_destroy(arena);
    if (s != DTP_OK) {
        dtp_graph_destroy(*model);
        *model = NULL;
    }
    return s;
}

dtp_status tool_plan_read(const tool_source *source, const dtp_ctx *ctx, tool_plan *out,
                          dtp_err *err)
{
    memset(out, 0, sizeof *out);
    if (source->machine == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--machine FILE is missing");
    }
    DTP_TRY(tool_machine_of(source, &out->machine, err));
    DTP_TRY(tool_read_planned(source, &out->model, &out->plan, err));
    DTP_TRY(tool_plan_runtime(out->plan, out->machine, err));
    DTP_TRY(dtp_plan_graph(out->plan, out->model, &out->graph, err));
    out->current = tool_plan_is_current(out->plan, out->model, out->machine);
    tool_plan_say_changes(source, out->plan, out->model, out->machine, NULL, ctx);
    return DTP_OK;
}

void tool_plan_free(tool_plan *plan)
{
    dtp_plan_destroy(plan->plan);
    dtp_machine_destroy(plan->machine);
    dtp_graph_destroy(plan->graph);
    dtp_graph_destroy(plan->model);
    memset(plan, 0, sizeof *plan);
}

dtp_status tool_plan_request(const tool_source *source, const tool_target *target,
                             dtp_plan_options *out, dtp_err *err)
{
    if (source->memory != NULL && strcmp(source->memory, "none") == 0) {
        out->memory_limit_bytes = -1;
    } else if (source->memory != NULL) {
        DTP_TRY(tool_bytes_parse("--memory", source->memory, &out->memory_limit_bytes, err));
    }
    out->rules = source->rules;
    out->uneven = source->uneven;
    out->n_styles = source->styles.n;
    out->styles = source->styles.items;
    out->n_style_files = source->style_files.n;
    out->style_files = source->style_files.items;
    out->n_style_names = source->style_names.n;
    out->style_names = source->style_names.items;
    out->n_pins = source->pins.n;
    out->pins = source->pins.items;
    out->strict = source->strict;
    out->outputs = source->outputs;
    out->target = target->target->name;
    out->precision = target->precision;
    out->remat = source->remat;
    out->regather = source->regather;
    out->microbatches = source->microbatches;
    out->stages = source->stages;
    out->slots = source->slots;
    return DTP_OK;
}

static dtp_status bad_shape(const char *text, dtp_err *err)
{
    return DTP_FAIL(err, DTP_INVALID,
                    "--shape: '%s' is not sizes such as 8,8,8 or named ones such as batch=8,d_ff=6",
                    text);
}

dtp_status tool_shape_parse(const char *text, dtp_dims *dims, dtp_ttype *type, dtp_err *err)
{
    const char *at = text;
    type->rank = 0;
    for (bool more = true; more;) {
        char name[NAME_BYTES];
        int64_t size;
        const size_t n = strcspn(at, "=,");
        (void)snprintf(name, sizeof name, "%d", type->rank);
        if (at[n] == '=') {
            if (n == 0 || n >= sizeof name) {
                return bad_shape(text, err);
            }
            memcpy(name, at, n);
            name[n] = '\0';
            at += n + 1;
        }
        if (!dtp_int_read(&at, &size) || (*at != ',' && *at != '\0') || size < 1) {
            return bad_shape(text, err);
        }
        if (type->rank == DTP_MAX_RANK) {
            return DTP_FAIL(err, DTP_INVALID, "--shape: '%s' has more than %d dims", text,
                            DTP_MAX_RANK);
        }
        dtp_tdim *dim = &type->dims[type->rank];
        if (dtp_dims_find(dims, name) >= 0) {
            return DTP_FAIL(err, DTP_INVALID, "--shape: '%s' has the dim '%s' twice", text, name);
        }
        dim->size = size;
        type->rank++;
        DTP_TRY(dtp_dims_intern(dims, name, size, &dim->id, err));
        more = *at == ',';
        at++;
    }
    return dtp_ttype_check_size(type, err);
}
