/* What the command line says about ranks and their data, and starting them. */
#include "tools/dtrun/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "executor/device/cpus.h"
#include "executor/files/checksum.h"
#include "executor/run/devices.h"
#include "executor/run/launch.h"
#include "tools/dtrun/mpirun.h"
#include "tools/interrupt.h"

extern char **environ;

static dtp_status start_mpirun(tool_ranks *ranks, int32_t n, dtp_err *err)
{
    dtp_launch launch = {.ranks = n,
                         .threads = (int32_t)ranks->source->threads,
                         .cpus = dtp_cpus_usable(),
                         .cpus_per_core = dtp_cpus_per_core(),
                         .may_bind = dtp_cpus_all(),
                         .is_root = geteuid() == 0,
                         .allow_root = ranks->source->allow_root,
                         .environment = environ,
                         .exported = TOOL_STARTED,
                         .n_args = ranks->argc,
                         .args = ranks->argv};
    char **argv = NULL;
    int code = 0;
    DTP_TRY(dtp_launch_argv(&launch, &argv, err));
    const double limit_s =
        ranks->source->timeout_s > 0 ? ranks->source->timeout_s : DTP_COMM_TIMEOUT_S;
    /* Ranks read and lower what this process has, several of them on a core. */
    const double made_s = (double)(10 + n) * (double)clock() / CLOCKS_PER_SEC;
    dtp_status s = tool_mpirun(argv, limit_s, made_s, &code, err);
    dtp_launch_argv_free(argv);
    atomic_store(&ranks->code, code);
    return s;
}

/* ---- what ranks agree on before they begin ---- */

/* "m.json (312 bytes, CRC-32 5c0fb1a2)". Files of other names may hold the same: *hash is of what
 * they hold, of a file that this rank cannot read of its name. */
static void add_file(const char *path, dtp_strbuf *out, uint64_t *hash)
{
    dtp_file_map map;
    uint32_t crc;
    *hash = dtp_hash_text(DTP_HASH_SEED, path);
    dtp_strbuf_add(out, path);
    if (dtp_file_map_open(path, &map, NULL) != DTP_OK) {
        return;
    }
    if (dtp_crc_sampled(&map, path, &crc, NULL) == DTP_OK) {
        dtp_strbuf_addf(out, " (%" PRId64 " bytes, CRC-32 %08" PRIx32 ")", map.bytes, crc);
        *hash = dtp_hash_i64(dtp_hash_i64(DTP_HASH_SEED, map.bytes), crc);
    }
    dtp_file_map_close(&map);
}

static void add_list(const tool_list *list, dtp_strbuf *out)
{
    for (int32_t i = 0; i < list->n; i++) {
        dtp_strbuf_addf(out, "%s%s", i > 0 ? " " : "", list->items[i]);
    }
}

/* The value of an option as text; "" when it is not given: a number below the least. */
static void add_value(const tool_option *o, const void *place, dtp_strbuf *out)
{
    const char *const *text = place;
    double number;
    switch (o->kind) {
    case TOOL_FLAG:
    case TOOL_NO_WRITES:
        dtp_strbuf_add(out, *(const bool *)place ? "given" : "");
        return;
    case TOOL_LIST:
    case TOOL_OUT_LIST:
        add_list(place, out);
        return;
    case TOOL_INT:
    case TOOL_BYTES:
        number = (double)*(const int64_t *)place;
        break;
    case TOOL_COUNT:
        number = *(const int32_t *)place;
        break;
    case TOOL_REAL:
        number = *(const double *)place;
        break;
    default:
        dtp_strbuf_add(out, *text != NULL ? *text : "");
        return;
    }
    if (number >= o->min) {
        dtp_strbuf_addf(out, "%.17g", number);
    }
}

/* One option: takes what is to be the same into *all; with a communicator the ranks compare it. */
static dtp_status agree_on(const tool_option *o, const void *place, dtp_comm *comm, uint64_t *all,
                           dtp_err *err)
{
    dtp_strbuf text = {0};
    uint64_t hash;
    if (o->kind == TOOL_STRING && strcmp(o->arg, "FILE") == 0 && *(char *const *)place != NULL) {
        add_file(*(const char *const *)place, &text, &hash);
    } else {
        add_value(o, place, &text);
        hash = dtp_hash_text(DTP_HASH_SEED, dtp_strbuf_text(&text));
    }
    *all = dtp_hash_i64(*all, (int64_t)hash);
    dtp_status s = text.failed ? DTP_FAIL(err, DTP_NOMEM, "no memory for options") : DTP_OK;
    if (comm != NULL) {
        s = dtp_comm_agree_words(comm, hash, o->name, text.len > 0 ? text.text : "not given", err);
    }
    dtp_strbuf_free(&text);
    return s;
}

/* The command, the model and every option that is not LOCAL. */
static dtp_status agree_on_all(const tool_call *call, dtp_comm *comm, uint64_t *all, dtp_err *err)
{
    static const tool_option command = {.name = "the command", .kind = TOOL_WORD},
                             model = {.name = "MODEL", .arg = "FILE", .kind = TOOL_STRING};
    *all = DTP_HASH_SEED;
    DTP_TRY(agree_on(&command, &tool_commands[call->id].name, comm, all, err));
    DTP_TRY(agree_on(&model, &call->source->model, comm, all, err));
    for (const tool_option *o = tool_options; o->name != NULL; o++) {
        if (tool_has_option(call->id, o) && !tool_is_local(o)) {
            DTP_TRY(agree_on(o, tool_option_place(call, o), comm, all, err));
        }
    }
    return DTP_OK;
}

/* Ranks that were started apart have one command line. The first option that differs is named. */
static dtp_status agree(const tool_call *call, dtp_comm *comm, dtp_err *err)
{
    uint64_t all;
    dtp_err differ = {0};
    DTP_TRY(dtp_comm_agree_status(comm, agree_on_all(call, NULL, &all, err), err));
    if (dtp_comm_agree(comm, all, "the command line", &differ) == DTP_OK) {
        return DTP_OK;
    }
    DTP_TRY(agree_on_all(call, comm, &all, err));
    return DTP_FAIL(err, DTP_COMM, "%s", differ.msg);
}

/* What the ranks run. */
typedef struct ranks_body {
    tool_ranks *ranks;
    dtp_ranks_body body;
    void *user;
} ranks_body;

static dtp_status begin(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    const ranks_body *b = user;
    const bool apart = strcmp(comm->ops->name, "mpi") == 0;
    if (apart && comm->rank == 0) {
        b->ranks->first = true;
        tool_mpirun_tell(-1);
    }
    DTP_TRY(apart ? agree(b->ranks->call, comm, err) : DTP_OK);
    return b->body(comm, backend, b->user, err);
}

static int report(void *user, const dtp_err *err)
{
    (void)user;
    return tool_fail("dtrun", err);
}

static const dtp_comm_reporter reporter = {.report = report};

dtp_status tool_run_ranks(tool_ranks *ranks, const dtp_mesh *mesh, dtp_ranks_body body, void *user,
                          dtp_err *err)
{
    const int32_t n = dtp_mesh_ranks(mesh);
    const bool in_mpi = dtp_comm_in_mpi_job(environ);
    const char *comm = ranks->source->comm;
    if (comm == NULL) {
        comm = in_mpi || n > 1 ? "mpi" : "self";
    }
    const dtp_ranks_options options = {.comm = comm,
                                       .backend = ranks->source->backend,
                                       .transport = ranks->source->transport,
                                       .switches = ranks->source->switches,
                                       .threads = (int32_t)ranks->source->threads,
                                       .timeout_s = ranks->source->timeout_s,
                                       .ends = tool_interrupt_killed(),
                                       .rank = dtp_comm_launched_rank(environ),
                                       .reporter = &reporter};
    ranks_body b = {ranks, body, user};
    const dtp_device *device =
        dtp_device_builtin(ranks->source->backend); /* modules are for the ranks */
    if (device != NULL && device->transport == NULL && ranks->source->transport != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "backend '%s' has no transport '%.40s'",
                        ranks->source->backend, ranks->source->transport);
    }
    ranks->met = true;
    if (strcmp(comm, "mpi") == 0 && in_mpi) {
        DTP_TRY(dtp_comm_check_launcher(environ, err));
    }
    return strcmp(comm, "mpi") == 0 && !in_mpi ? start_mpirun(ranks, n, err)
                                               : dtp_ranks_run(&options, mesh, begin, &b, err);
}

int tool_ranks_command(tool_ranks *ranks, const tool_call *call, int argc, char **argv)
{
    dtp_err err = {0};
    ranks->source = call->source;
    ranks->call = call;
    ranks->argc = argc + 1;
    ranks->argv = argv - 1;
    dtp_status s = tool_perform(call, argc, argv, &err);
    const bool mpi = ranks->source->comm == NULL || strcmp(ranks->source->comm, "mpi") == 0;
    dtp_err lone = {0}; /* the failure of a task that MPI does not connect is its own */
    if (s != DTP_OK && !ranks->met && mpi && dtp_comm_in_mpi_job(environ) &&
        dtp_comm_check_launcher(environ, &lone) == DTP_OK) {
        const dtp_ranks_options options = {.rank = dtp_comm_launched_rank(environ),
                                           .reporter = &reporter};
        s = dtp_ranks_fail(&options, s, &err);
    }
    const int code = s == DTP_OK ? atomic_load(&ranks->code) : tool_fail("dtrun", &err);
    if (ranks->first) {
        tool_mpirun_tell(code);
    }
    return code;
}

/* About 10 us: threads of a step meet within that when they have their cores, and where other
 * processes have them nothing is gained by looking on. */
static const char spin_count[] = "2000";

void tool_set_spin_count(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") == NULL && getenv("OMP_WAIT_POLICY") == NULL &&
        setenv("GOMP_SPINCOUNT", spin_count, 1) == 0) {
        (void)execv("/proc/self/exe", argv);
    }
}

dtp_status dtrun_feeds_parse(const tool_list *list, dtrun_feeds *out, dtp_err *err)
{
    *out = (dtrun_feeds){.n = list->n};
    if (list->n == 0) {
        return DTP_OK;
    }
    out->texts = calloc((size_t)list->n, sizeof *out->texts);
    DTP_TRY(DTP_MEMORY(err, out->texts));
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
