/* dtplan regress: plans the cases of a suite and says what moved and why. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "core/graph/graph.h"
#include "cost_models/machine/machine.h"
#include "executor/device/cpus.h"
#include "tools/job.h"
#include "tools/machines.h"
#include "tools/shipped.h"
#include "tools/regress/suite.h"

/* Of a plan. Bytes and counts of collectives follow their kind. */
static const suite_metric METRICS[] = {{"step", SUITE_SECONDS, true, true, 0.001},
                                       {"peak", SUITE_BYTES, true, true, 0.0},
                                       {"gap", SUITE_SHARE, true, true, 0.001},
                                       {"cost", SUITE_SECONDS, false, false, 0.0},
                                       {"bound", SUITE_SECONDS, false, false, 0.0},
                                       {"compute", SUITE_SECONDS, false, false, 0.0},
                                       {"comm", SUITE_SECONDS, false, false, 0.0},
                                       {"effort", SUITE_NUMBER, true, false, 0.5},
                                       {"all_reduce", SUITE_BYTES, false, false, 0.0},
                                       {"all_gather", SUITE_BYTES, false, false, 0.0},
                                       {"reduce_scatter", SUITE_BYTES, false, false, 0.0},
                                       {"all_to_all", SUITE_BYTES, false, false, 0.0},
                                       {"collective_permute", SUITE_BYTES, false, false, 0.0},
                                       {.name = NULL}};

static void set(suite_result *r, const char *name, double value)
{
    r->values[suite_metric_at(METRICS, name)] = value;
}

static dtp_status read_metrics(const dtp_json *root, suite_result *r, dtp_err *err)
{
    static const char *const seconds[][2] = {
        {"step_time_s", "step"}, {"compute_s", "compute"}, {"comm_s", "comm"}};
    const dtp_json *predicted, *certificate, *kinds;
    double value;
    int64_t nodes;
    DTP_TRY(dtp_json_get_kind(root, "predicted", DTP_JSON_OBJECT, &predicted, err));
    DTP_TRY(dtp_json_get_kind(root, "certificate", DTP_JSON_OBJECT, &certificate, err));
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        DTP_TRY(dtp_json_get_double(predicted, seconds[i][0], &value, err));
        set(r, seconds[i][1], value);
    }
    DTP_TRY(dtp_json_get_double(predicted, "peak_bytes", &value, err));
    set(r, "peak", value);
    DTP_TRY(dtp_json_get_double(certificate, "gap", &value, err));
    set(r, "gap", value);
    DTP_TRY(dtp_json_get_double(certificate, "cost", &value, err));
    set(r, "cost", 1e-12 * value);
    DTP_TRY(dtp_json_get_double(certificate, "bound", &value, err));
    set(r, "bound", 1e-12 * value);
    DTP_TRY(dtp_json_get_int(certificate, "nodes", 0, INT64_MAX, &nodes, err));
    set(r, "effort", (double)nodes);
    DTP_TRY(dtp_json_get_kind(predicted, "collectives", DTP_JSON_OBJECT, &kinds, err));
    for (int32_t i = 0; i < dtp_json_size(kinds); i++) {
        const dtp_json *kind = dtp_json_at(kinds, i);
        if (suite_metric_at(METRICS, dtp_json_key(kind)) >= 0) {
            DTP_TRY(dtp_json_get_double(kind, "bytes", &value, err));
            set(r, dtp_json_key(kind), value);
        }
    }
    return DTP_OK;
}

/* ---- facts ---- */

/* Layouts of the plan, those of a block said once where its instances are alike. */
static dtp_status add_layouts(suite *s, suite_case *c, const dtp_json *root, dtp_err *err)
{
    const dtp_json *tensors, *rules = dtp_json_get(root, "rules");
    DTP_TRY(dtp_json_get_kind(root, "tensors", DTP_JSON_OBJECT, &tensors, err));
    for (int32_t i = 0; rules != NULL && i < dtp_json_size(rules); i++) {
        const dtp_json *dims = dtp_json_at(rules, i);
        char text[256] = "";
        for (int32_t k = 0; k < dtp_json_size(dims); k++) {
            const char *name;
            DTP_TRY(dtp_json_string(dtp_json_at(dims, k), &name, err));
            const size_t n = strlen(text);
            (void)snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? "+" : "", name);
        }
        char key[160];
        (void)snprintf(key, sizeof key, "rule %.140s", dtp_json_key(dims));
        DTP_TRY(suite_add_fact(s, &c->now, SUITE_LAYOUTS, key, text, err));
    }
    const int32_t first = c->now.n_facts[SUITE_LAYOUTS];
    for (int32_t i = 0; i < dtp_json_size(tensors); i++) {
        const dtp_json *tensor = dtp_json_at(tensors, i);
        char name[256];
        const char *layout = NULL;
        dtp_general_name(dtp_json_key(tensor), name, sizeof name);
        if (dtp_json_kind_of(tensor) != DTP_JSON_STRING) {
            continue;
        }
        DTP_TRY(dtp_json_string(tensor, &layout, err));
        int32_t k = c->now.n_facts[SUITE_LAYOUTS] - 1;
        while (k >= first && strcmp(c->now.facts[SUITE_LAYOUTS][k].key, name) != 0) {
            k--;
        }
        if (k < first) {
            DTP_TRY(suite_add_fact(s, &c->now, SUITE_LAYOUTS, name, layout, err));
        } else if (strcmp(c->now.facts[SUITE_LAYOUTS][k].value, layout) != 0) {
            c->now.facts[SUITE_LAYOUTS][k].value = "not the same in all instances";
        }
    }
    return DTP_OK;
}

static dtp_status add_hash(suite *s, suite_case *c, suite_group group, const dtp_json *hashes,
                           const char *key, dtp_err *err)
{
    const dtp_json *v = dtp_json_get(hashes, key);
    const char *text = NULL;
    if (v == NULL || dtp_json_kind_of(v) != DTP_JSON_STRING) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_string(v, &text, err));
    return suite_add_fact(s, &c->now, group, "hash", text, err);
}

/* Sizes of the dims that tensors have. */
static dtp_status add_model(suite *s, suite_case *c, dtp_err *err)
{
    tool_path path;
    dtp_graph *g = NULL;
    DTP_TRY(tool_shipped_find(SHIPPED_MODELS, "model", c->model, &path, err));
    tool_source source = {.model = path.text};
    for (int32_t i = 0; i + 1 < c->n_args; i++) {
        if (strcmp(c->args[i], "--dim") == 0 && source.dims.n < TOOL_LIST_MAX) {
            source.dims.items[source.dims.n++] = c->args[i + 1];
        }
    }
    DTP_TRY(tool_read_graph(&source, &g, err));
    dtp_status status = DTP_OK;
    for (dtp_tensor_id t = 0; t < g->n_tensors && status == DTP_OK; t++) {
        const dtp_ttype *type = &g->tensors[t].type;
        for (int32_t d = 0; d < type->rank && status == DTP_OK; d++) {
            const char *name = dtp_dims_name(&g->dims, type->dims[d].id);
            char size[32];
            int32_t k = 0;
            while (k < c->now.n_facts[SUITE_MODEL] &&
                   strcmp(c->now.facts[SUITE_MODEL][k].key, name) != 0) {
                k++;
            }
            (void)snprintf(size, sizeof size, "%" PRId64, type->dims[d].size);
            if (k == c->now.n_facts[SUITE_MODEL]) { /* the first size of a dim that has several */
                status = suite_add_fact(s, &c->now, SUITE_MODEL, name, size, err);
            }
        }
    }
    dtp_graph_destroy(g);
    return status;
}

static dtp_status add_number(suite *s, suite_case *c, const char *key, double value, dtp_err *err)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%.6g", value);
    return suite_add_fact(s, &c->now, SUITE_MACHINE, key, text, err);
}

/* The few numbers of a machine; of curves the hash says that they changed. */
static dtp_status add_machine(suite *s, suite_case *c, dtp_err *err)
{
    dtp_machine *m = NULL;
    if (c->machine == NULL) {
        return DTP_OK;
    }
    tool_source source = {.machine = c->machine, .yes_units = true};
    for (int32_t i = 0; i + 1 < c->n_args; i++) {
        if (strcmp(c->args[i], "--set") == 0 && source.set.n < TOOL_LIST_MAX) {
            source.set.items[source.set.n++] = c->args[i + 1];
        }
    }
    DTP_TRY(tool_machine_of(&source, &m, err));
    dtp_status status = add_number(s, c, "memory_bytes", (double)m->memory_bytes, err);
    status = status == DTP_OK ? add_number(s, c, "mem_bw_Bps", m->mem_bw_Bps, err) : status;
    status = status == DTP_OK ? add_number(s, c, "launch_s", m->launch_s, err) : status;
    for (int32_t d = 0; d < (int32_t)DTP_N_ARITHMETICS && status == DTP_OK; d++) {
        char key[64];
        (void)snprintf(key, sizeof key, "flops.%s", dtp_arithmetic_name(d));
        status = m->flops[d] > 0.0 ? add_number(s, c, key, m->flops[d], err) : DTP_OK;
    }
    for (int32_t l = 0; l < m->n_levels && status == DTP_OK; l++) {
        char key[128];
        (void)snprintf(key, sizeof key, "levels.%.80s.latency_s", m->levels[l].name);
        status = add_number(s, c, key, m->levels[l].latency_s, err);
        (void)snprintf(key, sizeof key, "levels.%.80s.bw_Bps", m->levels[l].name);
        status = status == DTP_OK ? add_number(s, c, key, m->levels[l].bw_Bps, err) : status;
        (void)snprintf(key, sizeof key, "levels.%.80s.hop_s", m->levels[l].name);
        status = status == DTP_OK && m->levels[l].hop_s > 0.0
                     ? add_number(s, c, key, m->levels[l].hop_s, err)
                     : status;
        (void)snprintf(key, sizeof key, "levels.%.80s.skew", m->levels[l].name);
        status = status == DTP_OK && m->levels[l].skew > 0.0
                     ? add_number(s, c, key, m->levels[l].skew, err)
                     : status;
        for (int32_t k = 0; k < DTP_N_COLLS && status == DTP_OK; k++) {
            const dtp_coll_rate *r = &m->levels[l].rates[k];
            if (r->share > 0.0) {
                char text[160];
                (void)snprintf(key, sizeof key, "levels.%.80s.%s", m->levels[l].name,
                               dtp_coll_name((dtp_coll_kind)k));
                (void)snprintf(text, sizeof text, "%.6g %.6g %.6g %.6g %.6g", r->start_s, r->rank_s,
                               r->ramp_bytes, r->share, r->in_switch);
                status = suite_add_fact(s, &c->now, SUITE_MACHINE, key, text, err);
            }
        }
    }
    dtp_machine_destroy(m);
    return status;
}

static dtp_status read_plan(suite *s, suite_case *c, const dtp_json *root, dtp_err *err)
{
    const dtp_json *hashes;
    DTP_TRY(read_metrics(root, &c->now, err));
    DTP_TRY(dtp_json_get_kind(root, "hashes", DTP_JSON_OBJECT, &hashes, err));
    DTP_TRY(suite_add_options(s, c, err));
    DTP_TRY(add_hash(s, c, SUITE_MODEL, hashes, "model", err));
    DTP_TRY(add_model(s, c, err));
    DTP_TRY(add_hash(s, c, SUITE_MACHINE, hashes, "machine", err));
    DTP_TRY(add_machine(s, c, err));
    return add_layouts(s, c, root, err);
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    static const suite_kind kind = {"dtp.suite/1", TOOL_PLAN, METRICS};
    static const char *const before[] = {"plan", "--json", NULL};
    suite_command *c = command;
    suite_run run = {
        .before = before, .jobs = c->source.jobs, .quiet = c->source.quiet, .read = read_plan};
    c->file = operands[0];
    run.jobs = run.jobs > 0 ? run.jobs : dtp_cpus_usable();
    return suite_perform(c, &kind, &run, err);
}

int dtplan_regress(int argc, char **argv)
{
    suite_command c = {0};
    const tool_call call = {TOOL_PLAN_REGRESS, execute, &c, &c.source, NULL};
    const int code = tool_run(&call, argc, argv);
    return code != 0 ? code : c.exit_code;
}
