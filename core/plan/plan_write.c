/* Writes dtp.plan/1: small fields first, the list of tensors last. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/layout/placement_text.h"
#include "core/plan/plan_internal.h"
#include "core/graph/op_rules.h"

static void write_texts(dtp_json_writer *w, const char *key, bool compact, int32_t n,
                        const char *const *texts)
{
    dtp_json_begin_array(w, key, compact);
    for (int32_t i = 0; i < n; i++) {
        dtp_json_write_string(w, NULL, texts[i]);
    }
    dtp_json_end_array(w);
}

/* The fields of a prediction, inside an open object. */
static void write_prediction(dtp_json_writer *w, const dtp_prediction *p, bool times)
{
    if (times) {
        dtp_json_write_double(w, "step_time_s", p->step_time_s);
        dtp_json_write_double(w, "compute_s", p->compute_s);
        dtp_json_begin_object(w, "compute");
        for (int32_t i = 0; i < DTP_N_COMPUTE_PARTS; i++) {
            dtp_json_write_double(w, dtp_plan__compute_parts[i], p->compute_parts_s[i]);
        }
        dtp_json_end_object(w);
        if (p->tokens_per_s > 0.0) {
            dtp_json_write_double(w, "tokens_per_s", p->tokens_per_s);
        }
        if (p->mfu > 0.0) {
            dtp_json_write_double(w, "mfu", p->mfu);
        }
        if (p->vain > 0.0) {
            dtp_json_write_double(w, "in_vain", p->vain);
        }
        if (p->host_s > 0.0) {
            dtp_json_write_double(w, "host_s", p->host_s);
        }
        if (p->skew_s > 0.0) {
            dtp_json_write_double(w, "skew_s", p->skew_s);
        }
        dtp_json_write_double(w, "comm_s", p->comm_s);
        dtp_json_write_double(w, "exposed_comm_s", p->exposed_comm_s);
        if (p->bubble_s > 0.0) {
            dtp_json_write_double(w, "bubble_s", p->bubble_s);
            dtp_json_write_double(w, "imbalance_s", p->imbalance_s);
            dtp_json_write_double(w, "exposed_sends_s", p->exposed_sends_s);
        }
    }
    dtp_json_write_int(w, "peak_bytes", p->peak_bytes);
    if (p->reserved_bytes > 0) {
        dtp_json_write_int(w, "reserved_bytes", p->reserved_bytes);
    }
    dtp_json_begin_object(w, "collectives");
    for (int32_t i = 0; i < DTP_N_COLL_TOTALS; i++) {
        dtp_json_begin_object(w, dtp_plan__collectives[i]);
        dtp_json_write_int(w, "count", p->collectives[i].count);
        dtp_json_write_int(w, "bytes", p->collectives[i].bytes);
        dtp_json_end_object(w);
    }
    dtp_json_end_object(w);
}

static void write_certificate(dtp_json_writer *w, const dtp_certificate *c, bool timings)
{
    dtp_json_begin_object(w, "certificate");
    dtp_json_write_string(w, "status", dtp_cert_status_name(c->status));
    dtp_json_write_int(w, "cost", c->cost);
    dtp_json_write_int(w, "bound", c->bound);
    dtp_json_write_double(w, "gap", c->gap);
    if (c->least_cost < c->cost) {
        dtp_json_write_int(w, "least_cost", c->least_cost);
    }
    if (c->has_untied) {
        dtp_json_write_int(w, "untied_bound", c->untied_bound);
        dtp_json_write_double(w, "untied_gap", c->untied_gap);
    }
    if (c->step_bound > 0) {
        dtp_json_write_int(w, "step_bound", c->step_bound);
    }
    if (c->ended != DTP_STOP_NONE) {
        dtp_json_write_string(w, "ended", dtp_stop_reasons[c->ended]);
    }
    dtp_json_write_string(w, "solver", c->solver == NULL ? "" : c->solver);
    dtp_json_write_int(w, "nodes", c->nodes);
    if (timings) {
        dtp_json_write_double(w, "solve_s", c->solve_s);
    }
    if (c->has_prices) {
        dtp_json_begin_array(w, "prices", false);
        for (int32_t i = 0; i < c->n_prices; i++) {
            const dtp_shadow_price *p = &c->prices[i];
            dtp_json_begin_object(w, NULL);
            dtp_json_write_string(w, "constraint", p->constraint);
            if (p->relaxed_by_bytes > 0) {
                dtp_json_write_int(w, "relaxed_by_bytes", p->relaxed_by_bytes);
            }
            dtp_json_write_int(w, "saves_ps", p->saves_ps);
            dtp_json_write_bool(w, "exact", p->exact);
            dtp_json_end_object(w);
        }
        dtp_json_end_array(w);
    }
    dtp_json_end_object(w);
}

static void write_baselines(dtp_json_writer *w, const dtp_plan *plan)
{
    dtp_json_begin_object(w, "baselines");
    for (int32_t i = 0; i < plan->n_baselines; i++) {
        const dtp_baseline *b = &plan->baselines[i];
        dtp_json_begin_object(w, b->name);
        if (b->n_styles > 0) {
            write_texts(w, "styles", false, b->n_styles, b->styles);
        } else {
            dtp_json_write_string(w, "rules", b->rules == NULL ? "" : b->rules);
        }
        dtp_json_write_bool(w, "legal", b->legal);
        if (!dtp_plan_baseline_fits(plan, b)) {
            dtp_json_write_bool(w, "fits", false);
        }
        if (b->legal) {
            write_prediction(w, &b->predicted, true);
        } else {
            dtp_json_write_string(w, "why", b->why == NULL ? "" : b->why);
        }
        dtp_json_end_object(w);
    }
    dtp_json_end_object(w);
}

static void write_hash(dtp_json_writer *w, const char *key, uint64_t hash)
{
    char text[17];
    (void)snprintf(text, sizeof text, "%016" PRIx64, hash);
    dtp_json_write_string(w, key, text);
}

static void write_expressible(dtp_json_writer *w, const dtp_plan_expressible *e)
{
    if (e->form == NULL) {
        return;
    }
    dtp_json_begin_object(w, "expressible");
    dtp_json_write_string(w, "form", e->form);
    dtp_json_write_bool(w, "bounded", e->bounded);
    dtp_json_write_double(w, "all_step_time_s", e->all_step_time_s);
    dtp_json_write_int(w, "all_peak_bytes", e->all_peak_bytes);
    if (e->by != NULL) {
        dtp_json_write_string(w, "by", e->by);
        dtp_json_write_double(w, "other_step_time_s", e->other_step_time_s);
        dtp_json_write_int(w, "other_peak_bytes", e->other_peak_bytes);
    }
    if (e->failing != NULL) {
        dtp_json_write_string(w, "failing", e->failing);
    }
    dtp_json_end_object(w);
}

static void write_fastest(dtp_json_writer *w, const dtp_plan *plan)
{
    const dtp_plan_fastest *f = &plan->fastest;
    if (f->step_time_s > 0.0 && f->step_time_s < plan->predicted.step_time_s) {
        dtp_json_begin_object(w, "fastest");
        dtp_json_write_double(w, "slack", f->slack);
        dtp_json_write_double(w, "step_time_s", f->step_time_s);
        dtp_json_write_int(w, "peak_bytes", f->peak_bytes);
        dtp_json_end_object(w);
    }
}

static void write_precision(dtp_json_writer *w, const dtp_precision *p)
{
    if (dtp_precision_is_f32(p)) {
        return;
    }
    dtp_json_begin_object(w, "precision");
    dtp_json_write_string(w, "compute", dtp_dtype_name(p->compute));
    dtp_json_write_string(w, "gradients", dtp_dtype_name(p->gradients));
    if (dtp_precision_products(p) != NULL) {
        dtp_json_write_string(w, "products", dtp_precision_products(p));
    }
    dtp_json_end_object(w);
}

static void write_overlap(dtp_json_writer *w, const dtp_overlap *overlap)
{
    if (overlap->depth > 0) {
        dtp_json_begin_object(w, "overlap");
        dtp_json_write_int(w, "depth", overlap->depth);
        dtp_json_write_int(w, "memory_bytes", overlap->memory_bytes);
        dtp_json_end_object(w);
    }
    if (overlap->bucket_bytes > 0 && overlap->bucket_bytes != DTP_BUCKET_BYTES) {
        dtp_json_write_int(w, "bucket_bytes", overlap->bucket_bytes);
    }
    if (overlap->once_bytes > 0) {
        dtp_json_write_int(w, "once_bytes", overlap->once_bytes);
    }
}

static void write_variant(dtp_json_writer *w, const dtp_plan *plan, const dtp_graph *g)
{
    if (plan->variant.outputs.chosen) {
        write_texts(w, "outputs", true, plan->variant.outputs.n, plan->variant.outputs.names);
    }
    write_precision(w, &plan->variant.precision);
    if (plan->variant.remat.n > 0) {
        write_texts(w, "remat", true, plan->variant.remat.n, plan->variant.remat.items);
    }
    if (plan->variant.regather != NULL) {
        dtp_json_write_string(w, "regather", plan->variant.regather);
    }
    if (plan->variant.microbatches > 1) {
        dtp_json_write_int(w, "microbatches", plan->variant.microbatches);
        dtp_json_write_string(w, "microbatch_dim", dtp_dims_name(&g->dims, g->micro_dims[0]));
    }
    if (plan->variant.stages.n > 1) {
        const int32_t slots = plan->variant.stages.slots; /* on the last stage */
        const int32_t chunks = plan->variant.stages.chunks;
        const int32_t most = g->microbatches * (chunks > 1 ? chunks : 1);
        write_texts(w, "stages", true, dtp_stage_choice_chunks(&plan->variant.stages),
                    plan->variant.stages.borders);
        if (chunks > 1) {
            dtp_json_write_int(w, "chunks", chunks);
        }
        dtp_json_write_int(w, "slots", slots < most ? slots : most);
    }
}

static void write_dims(dtp_json_writer *w, const dtp_plan *plan)
{
    if (plan->n_dims > 0) {
        dtp_json_begin_object(w, "dims");
        for (int32_t d = 0; d < plan->n_dims; d++) {
            dtp_json_write_int(w, plan->dims[d].name, plan->dims[d].size);
        }
        dtp_json_end_object(w);
    }
}

static void write_summary(dtp_json_writer *w, const dtp_plan *plan, const dtp_graph *g,
                          bool timings)
{
    dtp_json_write_string(w, "format", "dtp.plan/1");
    dtp_json_write_string(w, "model", plan->model);
    write_dims(w, plan);
    if (plan->forward) {
        dtp_json_write_bool(w, "forward", true);
    }
    if (plan->n_freeze > 0) {
        write_texts(w, "freeze", true, plan->n_freeze, plan->freeze);
    }
    if (plan->machine != NULL) {
        dtp_json_write_string(w, "machine", plan->machine);
    }
    if (plan->rates[0] != '\0') {
        dtp_json_write_string(w, "rates", plan->rates);
    }
    if (plan->runtime[0] != '\0') {
        dtp_json_write_string(w, "runtime", plan->runtime);
    }
    if (strcmp(plan->target, dtp_plan__default_target) != 0) {
        dtp_json_write_string(w, "target", plan->target);
    }
    dtp_mesh_write(w, &plan->mesh);
    dtp_json_write_string(w, "mode", plan->rules_mode ? "rules" : "tensor");
    dtp_json_write_string(w, "objective", dtp_plan__objectives[plan->objective]);
    if (plan->memory_limit_bytes > 0) {
        dtp_json_write_int(w, "memory_limit_bytes", plan->memory_limit_bytes);
    }
    if (plan->uneven) {
        dtp_json_write_bool(w, "uneven", true);
    }
    if (plan->redistribution == DTP_REDISTRIBUTION_TORCH) {
        dtp_json_write_string(w, "redistribution", "torch");
    }
    write_expressible(w, &plan->expressible);
    write_fastest(w, plan);
    write_overlap(w, &plan->overlap);
    write_variant(w, plan, g);
    if (plan->rules_mode) {
        dtp_json_begin_object(w, "rules");
        for (int32_t d = 0; d < plan->rules.n; d++) {
            const dtp_rule_splits *s = &plan->rules.splits[d];
            if (s->n == 0) {
                continue;
            }
            dtp_json_begin_array(w, dtp_dims_name(&g->dims, d), true);
            for (int8_t i = 0; i < s->n; i++) {
                dtp_json_write_string(w, NULL, plan->mesh.names[s->mesh_dims[i]]);
            }
            dtp_json_end_array(w);
        }
        dtp_json_end_object(w);
    }
    dtp_json_begin_object(w, "predicted");
    write_prediction(w, &plan->predicted, plan->machine != NULL);
    dtp_json_end_object(w);
    write_certificate(w, &plan->certificate, timings);
    write_texts(w, "pins", false, plan->n_pins, plan->pins);
    if (plan->n_tried > 0) {
        write_texts(w, "tried", false, plan->n_tried, plan->tried);
    }
    write_baselines(w, plan);
    dtp_json_begin_object(w, "hashes");
    write_hash(w, "model", plan->model_hash);
    if (plan->machine != NULL) {
        write_hash(w, "machine", plan->machine_hash);
    }
    dtp_json_end_object(w);
}

/* Tensor -> phase -> layout, where a phase reads a replica in another layout. */
static void write_replicas(dtp_json_writer *w, const dtp_plan *plan, const dtp_graph *g)
{
    const dtp_sharding *s = &plan->sharding;
    dtp_json_begin_object(w, "views");
    for (int32_t t = 0; t < s->n_tensors; t++) {
        bool open = false;
        for (int phase = 0; dtp_plan__phases[phase] != NULL; phase++) {
            const dtp_layout *replica = &s->replicas[phase][t];
            char text[DTP_LAYOUT_TEXT_BYTES];
            if (dtp_layout_equal(replica, &s->layouts[t])) {
                continue;
            }
            if (!open) {
                dtp_json_begin_object(w, g->tensors[t].name);
                open = true;
            }
            dtp_layout_print(replica, &plan->mesh, &g->tensors[t].type, &g->dims, text);
            dtp_json_write_string(w, dtp_plan__phases[phase], text);
        }
        if (open) {
            dtp_json_end_object(w);
        }
    }
    dtp_json_end_object(w);
}

static void write_strategy(dtp_json_writer *w, const dtp_plan *plan, const dtp_graph *g,
                           dtp_node_id n)
{
    const dtp_node *node = &g->nodes[n];
    const dtp_strategy *s = &plan->sharding.strategies[n];
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(g, node, &types);
    dtp_sharding_rules set;
    bool open = false;
    for (int32_t m = 0; m < plan->mesh.n_dims; m++) {
        char text[DTP_ROW_TEXT_BYTES];
        if (s->row[m] == 0) {
            continue;
        }
        if (!open) {
            dtp_sharding_rules_of(&call, true, &set);
            dtp_json_begin_object(w, node->name);
            open = true;
        }
        dtp_plan__row_name(&set, s->row[m], node->n_in, &g->dims, text);
        dtp_json_write_string(w, plan->mesh.names[m], text);
    }
    if (open) {
        dtp_json_end_object(w);
    }
}

static void write_placements(dtp_json_writer *w, const char *key, const dtp_layout *layout)
{
    dtp_strbuf text = {0};
    dtp_placements_print(layout, &text);
    dtp_json_write_text(w, key, &text);
}

static void write_redistributions(dtp_json_writer *w, const dtp_plan *plan)
{
    dtp_json_begin_array(w, "redistributions", false);
    for (int32_t i = 0; i < plan->n_redistributions; i++) {
        const dtp_plan_redistribution *r = &plan->redistributions[i];
        dtp_json_begin_object(w, NULL);
        dtp_json_write_string(w, "dtype", dtp_dtype_name(r->type.dtype));
        dtp_json_begin_array(w, "shape", true);
        for (int32_t k = 0; k < r->type.rank; k++) {
            dtp_json_write_int(w, NULL, r->type.dims[k].size);
        }
        dtp_json_end_array(w);
        write_placements(w, "from", &r->from);
        dtp_json_begin_array(w, "steps", true);
        for (int32_t k = 0; k < r->n_steps; k++) {
            write_placements(w, NULL, &r->after[k]);
        }
        dtp_json_end_array(w);
        dtp_json_end_object(w);
    }
    dtp_json_end_array(w);
}

dtp_status dtp_plan_write(const dtp_plan *plan, const dtp_graph *g, bool timings, char **text,
                          dtp_err *err)
{
    dtp_json_writer w = {0};
    dtp_json_begin_object(&w, NULL);
    write_summary(&w, plan, g, timings);
    if (plan->n_implementations > 0) {
        /* Node -> attribute -> value. */
        dtp_json_begin_object(&w, "settings");
        for (int32_t i = 0; i < plan->n_implementations; i++) {
            const dtp_implementation *s = &plan->implementations[i];
            const dtp_node *node = &g->nodes[s->node];
            if (i == 0 || s->node != s[-1].node) {
                dtp_json_begin_object(&w, node->name);
            }
            dtp_json_write_string(&w, s->key,
                                  dtp_implementation_spec(node->op, s->key)->choices[s->value]);
            if (i + 1 == plan->n_implementations || s->node != s[1].node) {
                dtp_json_end_object(&w);
            }
        }
        dtp_json_end_object(&w);
    }
    if (!plan->rules_mode) {
        dtp_json_begin_object(&w, "strategies");
        for (int32_t n = 0; n < plan->sharding.n_nodes; n++) {
            write_strategy(&w, plan, g, n);
        }
        dtp_json_end_object(&w);
    }
    if (plan->redistribution == DTP_REDISTRIBUTION_LISTED) {
        write_redistributions(&w, plan);
    }
    if (dtp_sharding_has_replicas(&plan->sharding)) {
        write_replicas(&w, plan, g);
    }
    dtp_json_begin_object(&w, "tensors");
    for (int32_t t = 0; t < plan->sharding.n_tensors; t++) {
        char layout[DTP_LAYOUT_TEXT_BYTES];
        dtp_layout_print(&plan->sharding.layouts[t], &plan->mesh, &g->tensors[t].type, &g->dims,
                         layout);
        dtp_json_write_string(&w, g->tensors[t].name, layout);
    }
    dtp_json_end_object(&w);
    dtp_json_end_object(&w);
    dtp_strbuf_add(&w.buf, "\n");
    if (w.buf.failed) {
        dtp_strbuf_free(&w.buf);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the text of a plan");
    }
    *text = w.buf.text;
    return DTP_OK;
}
