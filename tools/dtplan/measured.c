/* Tables of measured parts (CSV): products, attention, collectives. */
#include "tools/dtplan/measured.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/files/file_in.h"
#include "core/graph/ops/op_table.h"
#include "cost_models/machine/kernel_model.h"
#include "cost_models/price.h"
#include "dtp/model.h"

enum { MAX_BYTES = 64 << 20, MAX_COLUMNS = 64, MAX_NAMES = 12 };

/* Columns that a row is read from; those from `optional` on may be missing or empty. */
enum { OF_DEVICE, OF_KIND, OF_1, OF_2, OF_3, OF_4, OF_5, OF_TIME, OF_BUSBW, OF_HEALTH, OF_ALGO };

typedef enum table_kind { PRODUCTS, ATTENTION, ONE_HOST, HOSTS, N_TABLES } table_kind;

static const struct {
    const char *columns[MAX_NAMES];
    double to_s;        /* of the time column */
    double middle, top; /* where classes of sizes begin, */
    int32_t size;       /* by this column */
    const char *classes[3];
} TABLES[N_TABLES] = {
    [PRODUCTS] = {{"device", "dtype", "m", "n", "k", NULL, NULL, "ms_median"},
                  1e-3,
                  256.0,
                  2048.0,
                  OF_1,
                  {"m < 256", "m < 2048", "m >= 2048"}},
    [ATTENTION] = {{"device", NULL, "length", "batch", "heads", "kv_heads", "head_dim",
                    "ms_median"},
                   1e-3,
                   1024.0,
                   4096.0,
                   OF_1,
                   {"length < 1024", "< 4096", ">= 4096"}},
    [ONE_HOST] = {{"device", "collective", "bytes", "ranks", NULL, NULL, NULL, "ms_median"},
                  1e-3,
                  1048576.0,
                  67108864.0,
                  OF_1,
                  {"< 1 MiB", "< 64 MiB", ">= 64 MiB"}},
    [HOSTS] = {{"gpu", "collective", "bytes", "gpus_per_host", "hosts", NULL, NULL, "us",
                "busbw_GBps", "health", "algo_env"},
               1e-6,
               1048576.0,
               268435456.0,
               OF_1,
               {"< 1 MiB", "< 256 MiB", ">= 256 MiB"}}};

typedef struct table {
    const char *file;
    int32_t line;
    table_kind kind;
    int32_t column[MAX_NAMES]; /* of the file, by column of the table; -1 = none */
    dtp_machine *machine;
    dtp_pricer pricer;
    const char *device; /* rows of this one count: the part before '-' or '_' */
    tool_measured_rows *out;
} table;

/* Fields of a line, which is changed; quotes stand around fields with commas. */
static int32_t fields_of(char *line, char *fields[MAX_COLUMNS])
{
    int32_t n = 0;
    while (line != NULL && n < MAX_COLUMNS) {
        const bool quoted = line[0] == '"';
        fields[n++] = line += quoted ? 1 : 0;
        char *end = quoted ? strchr(line, '"') : line;
        char *comma = end != NULL ? strchr(end, ',') : NULL;
        if (quoted && end != NULL) {
            *end = '\0';
        }
        if (comma != NULL) {
            *comma = '\0';
        }
        line = comma != NULL ? comma + 1 : NULL;
    }
    return n;
}

static dtp_status read_header(table *t, char *line, dtp_err *err)
{
    char *fields[MAX_COLUMNS];
    const char *missing = NULL;
    const int32_t n = fields_of(line, fields);
    for (int32_t kind = 0; kind < N_TABLES; kind++) {
        missing = NULL;
        for (int32_t c = 0; c < MAX_NAMES; c++) {
            const char *name = TABLES[kind].columns[c];
            t->column[c] = -1;
            for (int32_t i = 0; i < n && name != NULL; i++) {
                t->column[c] = strcmp(fields[i], name) == 0 ? i : t->column[c];
            }
            missing = name != NULL && t->column[c] < 0 && c < OF_BUSBW ? name : missing;
        }
        if (missing == NULL) {
            t->kind = (table_kind)kind;
            memcpy(t->out->classes, TABLES[kind].classes, sizeof t->out->classes);
            return DTP_OK;
        }
    }
    return DTP_FAIL(err, DTP_INVALID,
                    "%s:1: not the columns of products (device,dtype,m,n,k,ms_median), attention "
                    "(device,batch,length,heads,kv_heads,head_dim,ms_median) or collectives "
                    "(device,collective,ranks,bytes,ms_median, or of hosts "
                    "gpu,gpus_per_host,hosts,collective,bytes,us)",
                    t->file);
}

static const char *field(const table *t, char *const *fields, int32_t column)
{
    return t->column[column] < 0 ? "" : fields[t->column[column]];
}

/* A number at least 1 of a column, whole unless it is a rate or time; 0 for an empty field. */
static dtp_status number(const table *t, char *const *fields, int32_t column, double *out,
                         dtp_err *err)
{
    const char *text = field(t, fields, column);
    const bool whole = column < OF_TIME;
    char *end = NULL;
    *out = isdigit((unsigned char)text[0]) != 0 ? strtod(text, &end) : 0.0;
    if ((text[0] != '\0' && (end == NULL || *end != '\0')) || !isfinite(*out) || *out > 1e15 ||
        (whole && (*out < 1.0 || *out > floor(*out)))) {
        return DTP_FAIL(err, DTP_INVALID, "%s:%d: %s is '%.40s'", t->file, t->line,
                        TABLES[t->kind].columns[column], text);
    }
    return DTP_OK;
}

/* Kernels of attention, the one that the fastest measurements have last. */
static const char *const KERNELS[] = {"fa2", "cudnn", "fa3"};

static dtp_status price_attention(table *t, const double x[], double *seconds, dtp_err *err)
{
    char text[1024];
    dtp_graph *g = NULL;
    dtp_call_types types;
    dtp_work work;
    const dtp_model_options options = dtp_model_options_init();
    const double group = x[OF_3] / x[OF_4];
    if (group < 1.0 || group > floor(group)) {
        return DTP_FAIL(err, DTP_INVALID, "%s:%d: %g heads share %g kv_heads", t->file, t->line,
                        x[OF_3], x[OF_4]);
    }
    const int n = snprintf(
        text, sizeof text,
        "{\"format\": \"dtp.model/1\", \"name\": \"attention\", \"dims\": {\"b\": %.0f, \"l\": "
        "%.0f, \"h\": %.0f, \"g\": %.0f, \"d\": %.0f}, \"inputs\": {\"q\": {\"dims\": [\"b\", "
        "\"l\", \"h\", \"g\", \"d\"], \"dtype\": \"bf16\"}, \"k\": {\"dims\": [\"b\", \"l\", "
        "\"h\", \"d\"], \"dtype\": \"bf16\"}, \"v\": {\"dims\": [\"b\", \"l\", \"h\", \"d\"], "
        "\"dtype\": \"bf16\"}}, \"nodes\": [{\"id\": \"a\", \"op\": \"attention\", \"in\": "
        "[\"q\", \"k\", \"v\"], \"query\": \"l\", \"feature\": \"d\"}], \"outputs\": [\"a\"]}",
        x[OF_2], x[OF_1], x[OF_4], group, x[OF_5]);
    DTP_TRY(dtp_err_prefixed(dtp_model_parse(t->file, text, (size_t)n, &options, &g, err), err,
                             "line %d", t->line));
    const dtp_op_call call = dtp_node_call(g, &g->nodes[0], &types);
    dtp_target_work(t->pricer.target, &call, &work);
    *seconds = dtp_price_work(t->machine, call.op, DTP_BF16, &work);
    for (size_t i = 0; i < sizeof KERNELS / sizeof KERNELS[0]; i++) {
        const int32_t model = dtp_attention_model_find(t->machine, KERNELS[i]);
        if (model >= 0) {
            const dtp_kernel_time time =
                dtp_attention_time(t->machine, model, false, t->machine->flops[DTP_BF16], &work);
            *seconds = time.start_s + time.arithmetic_s + time.bytes_s;
        }
    }
    dtp_graph_destroy(g);
    return DTP_OK;
}

/* *seconds stays 0 where the machine has no price of this arithmetic. */
static dtp_status price_product(table *t, const char *dtype, const double x[], double *seconds,
                                dtp_err *err)
{
    static const char *const names[][2] = {
        {"bfloat16", "bf16"}, {"float16", "f16"}, {"float32", "f32"}, {"float64", "f64"}};
    const double m = x[OF_1], n = x[OF_2], k = x[OF_3];
    dtp_arithmetic a = DTP_F32;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        dtype = strcmp(dtype, names[i][0]) == 0 ? names[i][1] : dtype;
    }
    if (fmax(m, fmax(n, k)) > 1e9) {
        return DTP_FAIL(err, DTP_INVALID, "%s:%d: a product of %g x %g x %g", t->file, t->line, m,
                        n, k);
    }
    if (dtp_arithmetic_parse(dtype, &a, NULL) != DTP_OK || !(t->machine->flops[a] > 0.0)) {
        return DTP_OK;
    }
    if (dtp_product_model_of(t->machine, a) >= 0) {
        *seconds = dtp_product_alone_s(t->machine, a, (int64_t)m, (int64_t)n, (int64_t)k);
        return DTP_OK;
    }
    const double bytes = a < DTP_N_DTYPES ? (double)dtp_dtype_bytes((dtp_dtype)a) : 4.0;
    const dtp_work work = {.cls = DTP_WORK_GEMM,
                           .flops = 2.0 * m * n * k,
                           .bytes = bytes * (m * k + k * n + m * n),
                           .batch = 1,
                           .m = (int64_t)m,
                           .n = (int64_t)n,
                           .k = (int64_t)k};
    *seconds = dtp_price_work(t->machine, dtp_op_find("einsum"), a, &work);
    return DTP_OK;
}

/* *seconds stays 0 where the machine has no such group. */
static void price_collective(const table *t, const char *kind, double bytes, int32_t ranks,
                             int32_t hosts, double *seconds)
{
    int64_t inside = 1;
    int32_t level = 0;
    dtp_group_shape g;
    for (; level < t->machine->n_levels; level++) {
        if (hosts > 1 ? inside >= ranks / hosts
                      : inside * t->machine->levels[level].size >= ranks) {
            break;
        }
        inside *= t->machine->levels[level].size;
    }
    kind = strcmp(kind, "alltoall") == 0   ? "all_to_all"
           : strcmp(kind, "sendrecv") == 0 ? "collective_permute"
                                           : kind;
    for (int32_t k = 0; k < DTP_N_COLLS && level < t->machine->n_levels; k++) {
        if (strcmp(kind, dtp_coll_name((dtp_coll_kind)k)) == 0 &&
            dtp_group_filling(t->machine, level, ranks, hosts, &g, NULL) == DTP_OK) {
            const dtp_coll_time time =
                dtp_coll_time_of(t->machine->levels, &g, &(dtp_coll_call){k, bytes, 1});
            *seconds = time.start_s + time.transfer_s;
        }
    }
}

/* Price of a row, its group and its name in lists. */
static dtp_status price_row(table *t, char *const *fields, const double x[], tool_measured *r,
                            dtp_err *err)
{
    const char *kind = field(t, fields, OF_KIND);
    dtp_arena *arena = t->machine->arena;
    const int32_t hosts = t->kind == HOSTS ? (int32_t)fmin(x[OF_3], 1e6) : 1;
    const int32_t ranks = (int32_t)fmin(x[OF_2], 1e6) * (hosts < 1000 ? hosts : 1000);
    switch (t->kind) {
    case PRODUCTS:
        DTP_TRY(price_product(t, kind, x, &r->predicted_s, err));
        r->group = dtp_arena_printf(arena, "products, %.20s", kind);
        r->what =
            dtp_arena_printf(arena, "%.20s %.0f x %.0f x %.0f", kind, x[OF_1], x[OF_2], x[OF_3]);
        break;
    case ATTENTION:
        DTP_TRY(price_attention(t, x, &r->predicted_s, err));
        r->group = dtp_arena_printf(arena, "attention, head_dim %.0f", x[OF_5]);
        r->what = dtp_arena_printf(arena, "batch %.0f, length %.0f, heads %.0f:%.0f of %.0f",
                                   x[OF_2], x[OF_1], x[OF_3], x[OF_4], x[OF_5]);
        break;
    default:
        price_collective(t, kind, x[OF_1], ranks, hosts, &r->predicted_s);
        r->group = hosts > 1
                       ? dtp_arena_printf(arena, "%.20s, %d x %.0f ranks", kind, hosts, x[OF_2])
                       : dtp_arena_printf(arena, "%.20s, %d ranks", kind, ranks);
        r->what = dtp_arena_printf(arena, "%s, %.0f bytes", r->group, x[OF_1]);
    }
    return DTP_MEMORY(err, r->group, r->what);
}

static dtp_status read_row(table *t, char *line, dtp_err *err)
{
    char *fields[MAX_COLUMNS];
    double x[MAX_NAMES] = {0.0};
    const int32_t n = fields_of(line, fields);
    tool_measured r = {0};
    for (int32_t c = 0; c < MAX_NAMES; c++) {
        if (t->column[c] >= n) {
            return DTP_FAIL(err, DTP_INVALID, "%s:%d: %d columns, %s is missing", t->file, t->line,
                            n, TABLES[t->kind].columns[c]);
        }
        if (t->column[c] >= 0 && c >= OF_1 && c <= OF_BUSBW) {
            DTP_TRY(number(t, fields, c, &x[c], err));
        }
    }
    const char *health = field(t, fields, OF_HEALTH), *algo = field(t, fields, OF_ALGO);
    r.measured_s = TABLES[t->kind].to_s * x[OF_TIME];
    if (!(x[OF_TIME] > 0.0) && x[OF_BUSBW] > 0.0) { /* what the bandwidth was computed from */
        const double ranks = x[OF_2] * x[OF_3];
        const char *kind = field(t, fields, OF_KIND);
        const double ring = strcmp(kind, "sendrecv") == 0 ? 1.0 : (ranks - 1.0) / ranks;
        const double times = strcmp(kind, "all_reduce") == 0 ? 2.0 : 1.0;
        r.measured_s = times * ring * x[OF_1] / (1e9 * x[OF_BUSBW]);
    }
    if (!(r.measured_s > 0.0)) {
        return DTP_FAIL(err, DTP_INVALID, "%s:%d: %s is '%.40s'", t->file, t->line,
                        TABLES[t->kind].columns[OF_TIME], field(t, fields, OF_TIME));
    }
    const char *device = field(t, fields, OF_DEVICE);
    const size_t n_name = strcspn(t->device, "-_");
    if (strncasecmp(device, t->device, n_name) != 0 || isalnum((unsigned char)device[n_name])) {
        t->out->other_devices++;
        return DTP_OK;
    }
    if (strcmp(health, "complaint") == 0 || (algo[0] != '\0' && strcmp(algo, "none") != 0)) {
        t->out->unhealthy++;
        return DTP_OK;
    }
    const double size = x[TABLES[t->kind].size];
    r.size = size < TABLES[t->kind].middle ? 0 : size < TABLES[t->kind].top ? 1 : 2;
    DTP_TRY(price_row(t, fields, x, &r, err));
    if (!(r.predicted_s > 0.0)) {
        t->out->unknown++;
        return DTP_OK;
    }
    DTP_TRY(DTP_ONE_MORE(t->machine->arena, t->out->items, t->out->n, t->out->capacity, err));
    t->out->items[t->out->n++] = r;
    return DTP_OK;
}

static int by_group(const void *a, const void *b)
{
    const tool_measured *x = a, *y = b;
    const int names = strcmp(x->group, y->group);
    const double p = x->predicted_s / x->measured_s, q = y->predicted_s / y->measured_s;
    return names != 0 ? names : x->size != y->size ? x->size - y->size : (p > q) - (p < q);
}

dtp_status tool_measured_read(const char *file, dtp_machine *machine, tool_measured_rows *out,
                              dtp_err *err)
{
    char *text = NULL;
    size_t len = 0;
    dtp_mesh mesh;
    table t = {.file = file, .machine = machine, .device = machine->name, .out = out};
    *out = (tool_measured_rows){0};
    DTP_TRY(dtp_mesh_parse("x:1", &mesh, err));
    DTP_TRY(dtp_pricer_init(machine, &mesh, &dtp_target_torch, &t.pricer, err));
    DTP_TRY(dtp_file_read(file, MAX_BYTES, &text, &len, err));
    dtp_status s = memchr(text, '\0', len) == NULL
                       ? DTP_OK
                       : DTP_FAIL(err, DTP_INVALID, "%s: not a text", file);
    for (char *line = text; s == DTP_OK && line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            end[end > line && end[-1] == '\r' ? -1 : 0] = '\0';
        }
        t.line++;
        s = t.line == 1       ? read_header(&t, line, err)
            : line[0] == '\0' ? DTP_OK
                              : read_row(&t, line, err);
        line = end != NULL ? end + 1 : NULL;
    }
    free(text);
    if (s == DTP_OK && out->n + out->other_devices + out->unhealthy + out->unknown == 0) {
        s = DTP_FAIL(err, DTP_INVALID, "%s: no rows in it", file);
    }
    if (s == DTP_OK && out->n == 0) {
        s = DTP_FAIL(err, DTP_INVALID,
                     "%s: no row of device '%s' that has a price: %d of other devices, %d of runs "
                     "that were slow or forced an algorithm, %d without a price",
                     file, machine->name, out->other_devices, out->unhealthy, out->unknown);
    }
    if (out->n > 0) {
        qsort(out->items, (size_t)out->n, sizeof *out->items, by_group);
    }
    return s;
}
