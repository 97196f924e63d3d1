/* What the tests of planning share: models, machines, meshes, and planning that must not fail. */
#include "tests/support/plan_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

dtp_machine *fixture_machine(const char *file)
{
    char path[512];
    dtp_machine *m = NULL;
    dtp_err err = {0};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/machines/%s", file);
    if (dtp_machine_read(path, &m, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return m;
}

dtp_graph *fixture_model_with(const char *file, const dtp_model_options *options)
{
    char path[512];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s", file);
    if (dtp_model_read(path, options, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

dtp_graph *fixture_model(const char *file)
{
    return fixture_model_with(file, NULL);
}

dtp_mesh fixture_mesh(const char *text)
{
    dtp_mesh mesh;
    assert_int_equal(dtp_mesh_parse(text, &mesh, NULL), DTP_OK);
    return mesh;
}

dtp_plan_result fixture_plan(const dtp_graph *g, const dtp_machine *machine,
                             const dtp_plan_request *request)
{
    dtp_plan_result result;
    dtp_err err = {0};
    if (dtp_plan_tensor(g, machine, request, &result, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return result;
}

dtp_plan_result fixture_plan_on(const dtp_graph *g, const dtp_machine *machine, const char *mesh,
                                int64_t memory_limit_bytes)
{
    const dtp_mesh parsed = fixture_mesh(mesh);
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &parsed;
    request.options.memory_limit_bytes = memory_limit_bytes;
    return fixture_plan(g, machine, &request);
}

char *fixture_text(const dtp_plan *plan, const dtp_graph *g)
{
    char *text = NULL;
    assert_int_equal(dtp_plan_write(plan, g, false, &text, NULL), DTP_OK);
    return text;
}
