/* The models of models/ at sizes that run in milliseconds; every size that a baseline splits is
 * a multiple of 4. */
#include "tests/support/small_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MODELS DTP_SOURCE_DIR "/models/"

const small_model *small_models(void)
{
    static const small_model models[] = {
        {"mlp_digits", {{"batch", 16}, {"pixels", 16}, {"hidden", 24}, {"classes", 12}}, false},
        {"gpt_bytes",
         {{"batch", 4}, {"length", 8}, {"vocab", 32}, {"layers", 2}, {"heads", 4}, {"d_head", 4}},
         true},
        {"llama3_8b",
         {{"batch", 4},
          {"length", 8},
          {"vocab", 32},
          {"layers", 2},
          {"kv_heads", 4},
          {"group", 2},
          {"d_head", 4},
          {"d_ff", 24}},
         true},
        {"mixtral_8x7b",
         {{"batch", 4},
          {"length", 8},
          {"vocab", 32},
          {"layers", 2},
          {"kv_heads", 4},
          {"group", 2},
          {"d_head", 4},
          {"d_ff", 24},
          {"experts", 4},
          {"capacity", 3}},
         true},
        {"bert_large",
         {{"batch", 4}, {"length", 8}, {"vocab", 30}, {"layers", 2}, {"heads", 4}, {"d_head", 4}},
         true},
        {"vit_b16",
         {{"batch", 4},
          {"image", 8},
          {"patch", 2},
          {"classes", 12},
          {"layers", 2},
          {"heads", 4},
          {"d_head", 4}},
         false},
        {NULL, {{NULL, 0}}, false},
    };
    return models;
}

dtp_graph *small_model_read(const small_model *m, bool f64)
{
    char path[512];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    dtp_model_options options = {.size = sizeof options, .overrides = m->dims, .f64 = f64};
    while (options.n_overrides < SMALL_MODEL_DIMS && m->dims[options.n_overrides].name != NULL) {
        options.n_overrides++;
    }
    (void)snprintf(path, sizeof path, MODELS "%s.json", m->name);
    if (dtp_model_read(path, &options, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

const small_model *small_model_find(const char *name)
{
    const small_model *m = small_models();
    while (m->name != NULL && strcmp(m->name, name) != 0) {
        m++;
    }
    assert_non_null(m->name);
    return m;
}

small_pricer small_pricer_read(const char *machine, const char *mesh_text)
{
    char path[512];
    dtp_mesh mesh;
    small_pricer p = {0};
    dtp_err err = {0};
    (void)snprintf(path, sizeof path, MODELS "machines/%s.json", machine);
    dtp_status s = dtp_machine_read(path, &p.machine, &err);
    s = s == DTP_OK ? dtp_mesh_parse(mesh_text, &mesh, &err) : s;
    s = s == DTP_OK ? dtp_pricer_init(p.machine, &mesh, &dtp_target_cpu, &p.pricer, &err) : s;
    if (s != DTP_OK) {
        fail_msg("%s on '%s': %s", machine, mesh_text, err.msg);
    }
    return p;
}

void small_pricer_free(small_pricer *p)
{
    dtp_machine_destroy(p->machine);
}
