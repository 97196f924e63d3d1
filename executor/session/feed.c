/* What the inputs of a model get at every step. */
#include "executor/session/feed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file_map.h"
#include "core/transform/label_uses.h"
#include "core/transform/microbatch.h"
#include "core/base/hash.h"
#include "core/base/units.h"
#include "core/base/philox.h"
#include "core/base/safe_int.h"
#include "executor/device/convert.h"
#include "executor/files/checksum.h"
#include "executor/files/npy.h"

typedef enum source_kind { SYNTHETIC, NPY_SAME, NPY_ROWS, WINDOWS } source_kind;

typedef struct source {
    source_kind kind;
    char *file;
    dtp_npy npy;      /* of a .npy file */
    dtp_file_map map; /* of any other file */
    /* WINDOWS of a row of elements */
    dtp_store store;
    int64_t elems, shift, places, window;
} source;

struct dtp_feed {
    const dtp_graph *graph;
    uint64_t seed;
    dtp_feed_order order;
    source *sources;       /* by tensor id */
    dtp_label_use *labels; /* likewise */
    void *scratch;
    size_t capacity;
};

/* Element types of a file that is not .npy. */
typedef struct element_type {
    const char *name;
    dtp_store store;
} element_type;

static const element_type element_types[] = {{"u1", DTP_STORE_U8},
                                             {"u2", DTP_STORE_U16},
                                             {"u4", DTP_STORE_U32},
                                             {"i4", DTP_STORE_I32},
                                             {"i8", DTP_STORE_I64}};
enum { N_ELEMENT_TYPES = sizeof element_types / sizeof *element_types };

static dtp_status element_type_of(const char *name, dtp_store *out, dtp_err *err)
{
    for (int i = 0; i < N_ELEMENT_TYPES; i++) {
        if (strcmp(name, element_types[i].name) == 0) {
            *out = element_types[i].store;
            return DTP_OK;
        }
    }
    return DTP_FAIL(err, DTP_INVALID, "element type '%.40s' is none of u1, u2, u4, i4, i8", name);
}

/* The value of a last part ",key=value" of `text`, which is cut off; NULL when it has none. */
static char *cut_suffix(char *text, const char *mark)
{
    char *last = strrchr(text, ',');
    if (last == NULL || strncmp(last, mark, strlen(mark)) != 0) {
        return NULL;
    }
    *last = '\0';
    return last + strlen(mark);
}

/* The parts behind the file name, from the last one on. Each is given once. */
static dtp_status parse_suffixes(char *file, dtp_feed_spec *out, dtp_err *err)
{
    const char *shift = NULL;
    for (;;) {
        char *value = cut_suffix(file, ",shift=");
        if (value != NULL && shift == NULL) {
            shift = value;
            if (!dtp_int_parse(shift, &out->shift) || out->shift < 0) {
                return DTP_FAIL(err, DTP_INVALID, "shift '%.40s' is not an integer >= 0", shift);
            }
            continue;
        }
        const bool twice = value != NULL;
        value = twice ? value : cut_suffix(file, ",dtype=");
        if (value == NULL) {
            return file[0] != '\0' ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "no file is named");
        }
        if (twice || out->dtype != NULL) {
            return DTP_FAIL(err, DTP_INVALID, "%s is given twice", twice ? "shift" : "dtype");
        }
        dtp_store store;
        DTP_TRY(element_type_of(value, &store, err));
        out->dtype = value;
    }
}

dtp_status dtp_feed_spec_parse(const char *text, char storage[DTP_FEED_TEXT_BYTES],
                               dtp_feed_spec *out, dtp_err *err)
{
    if (strlen(text) >= DTP_FEED_TEXT_BYTES) {
        return DTP_FAIL(err, DTP_INVALID, "more than %d characters", DTP_FEED_TEXT_BYTES - 1);
    }
    memcpy(storage, text, strlen(text) + 1);
    char *equal = strchr(storage, '=');
    if (equal == NULL || equal == storage || equal[1] == '\0') {
        return DTP_FAIL(err, DTP_INVALID,
                        "'%.200s': expected INPUT=FILE, maybe with ,dtype=TYPE and ,shift=N", text);
    }
    *equal = '\0';
    *out = (dtp_feed_spec){.input = storage, .file = equal + 1};
    return dtp_err_prefixed(parse_suffixes(equal + 1, out, err), err, "'%.200s'", text);
}

int64_t dtp_permute(uint64_t seed, uint64_t epoch, int64_t n, int64_t index)
{
    int half = 1;
    while (((int64_t)1 << (2 * half)) < n) {
        half++;
    }
    uint32_t mask = (uint32_t)(((uint64_t)1 << half) - 1);
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    do {
        uint32_t left = (uint32_t)(index >> half) & mask, right = (uint32_t)index & mask;
        for (uint32_t round = 0; round < 4; round++) {
            const uint32_t counter[4] = {right, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
            uint32_t words[4];
            dtp_philox(counter, key, words);
            uint32_t next = left ^ (words[0] & mask);
            left = right;
            right = next;
        }
        index = (int64_t)left << half | (int64_t)right;
    } while (index >= n);
    return index;
}

/* ---- opening ---- */

/* A file of tokens in one row gives windows to an integer input of several dims. */
static bool is_token_row(const dtp_npy *npy, const dtp_ttype *type)
{
    return npy->rank == 1 && type->rank > 1 && !dtp_dtype_is_float(type->dtype) &&
           type->dtype != DTP_BOOL && !dtp_store_is_float(npy->store);
}

static dtp_status wrong_shape(const dtp_npy *npy, dtp_err *err)
{
    char text[DTP_MAX_RANK * 24] = "";
    size_t used = 0;
    for (int32_t i = 0; i < npy->rank; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64, i > 0 ? "," : "",
                                 npy->dims[i]);
    }
    return DTP_FAIL(err, DTP_INVALID,
                    "the file has shape [%s]; expected the input's, with any number of rows, or "
                    "integers in one dim for an integer input of several",
                    text);
}

/* Axes of one element that the input lacks: those of imported programs have none. */
static void drop_ones(dtp_npy *npy, const dtp_ttype *type)
{
    int32_t n = 0;
    for (int32_t i = 0; i < npy->rank; i++) {
        const bool has = n < type->rank && npy->dims[i] == type->dims[n].size;
        if (npy->dims[i] != 1 || has || npy->rank - i <= type->rank - n || i == 0) {
            npy->dims[n++] = npy->dims[i];
        }
    }
    npy->rank = n;
}

/* `in_rows`: also where the file has as many rows as the input. */
static dtp_status open_npy(const dtp_ttype *type, const char *dtype, bool in_rows, source *s,
                           dtp_err *err)
{
    dtp_store store;
    DTP_TRY(dtp_npy_open(s->file, &s->npy, err));
    if (dtype != NULL) {
        DTP_TRY(element_type_of(dtype, &store, err));
        if (store != s->npy.store) {
            return DTP_FAIL(err, DTP_INVALID,
                            "dtype=%s differs from the element type that the .npy file states",
                            dtype);
        }
    }
    if (is_token_row(&s->npy, type)) {
        s->kind = WINDOWS;
        s->store = s->npy.store;
        s->elems = s->npy.dims[0];
        return DTP_OK;
    }
    const dtp_npy file = s->npy;
    drop_ones(&s->npy, type);
    bool rest = s->npy.rank == type->rank;
    for (int32_t i = 1; rest && i < type->rank; i++) {
        rest = s->npy.dims[i] == type->dims[i].size;
    }
    bool rows = rest && type->rank > 0 && (in_rows || s->npy.dims[0] != type->dims[0].size);
    if (!rest || (rows && s->npy.dims[0] < 1)) {
        return wrong_shape(&file, err);
    }
    if (s->shift != 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "shift is for windows of a file of tokens, not for rows of a .npy file");
    }
    s->kind = rows ? NPY_ROWS : NPY_SAME;
    return DTP_OK;
}

/* Any other file. Without a type its elements are bytes where the values can only be those. */
static dtp_status open_tokens(const dtp_graph_tensor *t, const char *dtype, source *s, dtp_err *err)
{
    if (t->type.dtype != DTP_I32 && t->type.dtype != DTP_I64) {
        return DTP_FAIL(err, DTP_INVALID,
                        "a file that is not .npy needs an integer input, this one is %s",
                        dtp_dtype_name(t->type.dtype));
    }
    if (t->type.rank < 1) {
        return DTP_FAIL(err, DTP_INVALID,
                        "a file that is not .npy needs an input with at least one dim");
    }
    if (dtype == NULL && t->below != 256) {
        char values[48] = "any values";
        if (t->below > 0) {
            snprintf(values, sizeof values, "values below %" PRId64, t->below);
        }
        return DTP_FAIL(err, DTP_INVALID,
                        "the input takes %s, so the element type of the file must be said: "
                        ",dtype=u1 (bytes), u2, u4, i4 or i8 behind its name",
                        values);
    }
    DTP_TRY(element_type_of(dtype != NULL ? dtype : "u1", &s->store, err));
    DTP_TRY(dtp_file_map_open(s->file, &s->map, err));
    const int64_t width = dtp_store_bytes(s->store);
    if (s->map.bytes % width != 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%" PRId64 " bytes are no whole number of elements of %s (%" PRId64
                        " bytes each)",
                        s->map.bytes, dtype, width);
    }
    s->kind = WINDOWS;
    s->elems = s->map.bytes / width;
    return DTP_OK;
}

/* Places of windows: inputs of one file and window length share the room that the largest shift
 * leaves. */
static dtp_status set_places(dtp_feed *feed, dtp_tensor_id id, dtp_err *err)
{
    const dtp_graph *g = feed->graph;
    source *s = &feed->sources[id];
    const dtp_ttype type = dtp_microbatch_whole(g, &g->tensors[id].type);
    int64_t window = type.dims[type.rank - 1].size, shift = s->shift;
    for (dtp_tensor_id o = 0; o < g->n_tensors; o++) {
        const source *other = &feed->sources[o];
        const dtp_ttype t = dtp_microbatch_whole(g, &g->tensors[o].type);
        if (other->kind != WINDOWS || strcmp(other->file, s->file) != 0) {
            continue;
        }
        if (other->store != s->store) {
            return DTP_FAIL(
                err, DTP_INVALID,
                "feeds '%.100s' and '%.100s' read '%.300s' with different element types",
                g->tensors[id].name, g->tensors[o].name, s->file);
        }
        if (t.dims[t.rank - 1].size == window && other->shift > shift) {
            shift = other->shift;
        }
    }
    int64_t need;
    if (!dtp_add_i64(window, shift, &need) || need > s->elems) {
        return DTP_FAIL(err, DTP_INVALID,
                        "feed '%.100s' from '%.300s': %" PRId64
                        " elements, fewer than a window of %" PRId64 " and a shift of %" PRId64,
                        g->tensors[id].name, s->file, s->elems, window, shift);
    }
    s->places = s->elems - need + 1;
    s->window = window;
    return DTP_OK;
}

static dtp_status open_all(dtp_feed *feed, int32_t n, const dtp_feed_spec *specs, dtp_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        const dtp_feed_spec *spec = &specs[i];
        dtp_tensor_id id = dtp_graph_find(feed->graph, spec->input);
        if (id < 0 || feed->graph->tensors[id].kind != DTP_TENSOR_INPUT) {
            return DTP_FAIL(err, DTP_INVALID, "feed '%.100s': the model has no such input",
                            spec->input);
        }
        source *s = &feed->sources[id];
        if (s->file != NULL) {
            return DTP_FAIL(err, DTP_INVALID, "feed '%.100s': given twice", spec->input);
        }
        const size_t n_chars = strlen(spec->file);
        s->file = malloc(n_chars + 1);
        DTP_TRY(DTP_MEMORY(err, s->file));
        memcpy(s->file, spec->file, n_chars + 1);
        s->shift = spec->shift;
        const dtp_graph_tensor *t = &feed->graph->tensors[id];
        bool npy =
            (n_chars > 4 && strcmp(s->file + n_chars - 4, ".npy") == 0) || dtp_npy_is(s->file);
        const dtp_ttype type = dtp_microbatch_whole(feed->graph, &t->type);
        const bool in_rows = feed->order != DTP_FEED_SHUFFLED &&
                             dtp_ttype_find(&type, dtp_microbatch_dim(feed->graph)) >= 0;
        DTP_TRY(dtp_err_prefixed(npy ? open_npy(&type, spec->dtype, in_rows, s, err)
                                     : open_tokens(t, spec->dtype, s, err),
                                 err, "feed '%.100s' from '%.300s'", spec->input, spec->file));
    }
    for (dtp_tensor_id t = 0; t < feed->graph->n_tensors; t++) {
        if (feed->sources[t].kind == WINDOWS) {
            DTP_TRY(set_places(feed, t, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_feed_create(const dtp_graph *g, int32_t n, const dtp_feed_spec *specs, uint64_t seed,
                           dtp_feed_order order, dtp_feed **out, dtp_err *err)
{
    dtp_feed *feed = calloc(1, sizeof *feed);
    source *sources = calloc((size_t)g->n_tensors + 1, sizeof *sources);
    dtp_label_use *labels = calloc((size_t)g->n_tensors + 1, sizeof *labels);
    if (feed == NULL || sources == NULL || labels == NULL) {
        free(feed);
        free(sources);
        free(labels);
        return DTP_FAIL(err, DTP_NOMEM, "no memory for feeds");
    }
    feed->graph = g;
    feed->seed = seed;
    feed->order = order;
    feed->sources = sources;
    feed->labels = labels;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        sources[t].map.fd = sources[t].npy.map.fd = -1;
    }
    int64_t rows;
    dtp_label_uses_find(g, labels);
    dtp_status status = open_all(feed, n, specs, err);
    if (status == DTP_OK && order != DTP_FEED_SHUFFLED) {
        status = dtp_feed_rows(feed, &rows, err);
    }
    if (status != DTP_OK) {
        dtp_feed_destroy(feed);
        return status;
    }
    *out = feed;
    return DTP_OK;
}

void dtp_feed_destroy(dtp_feed *feed)
{
    if (feed == NULL) {
        return;
    }
    for (dtp_tensor_id t = 0; t < feed->graph->n_tensors; t++) {
        dtp_npy_close(&feed->sources[t].npy);
        dtp_file_map_close(&feed->sources[t].map);
        free(feed->sources[t].file);
    }
    free(feed->sources);
    free(feed->labels);
    free(feed->scratch);
    free(feed);
}

/* ---- rows ---- */

/* Rows of an input that a step takes: of a file of windows all dims but the last count. */
static int64_t rows_of_step(const dtp_feed *feed, dtp_tensor_id id)
{
    const dtp_ttype type = dtp_microbatch_whole(feed->graph, &feed->graph->tensors[id].type);
    int64_t rows = type.rank > 0 ? type.dims[0].size : 1;
    for (int32_t d = 1; feed->sources[id].kind == WINDOWS && d + 1 < type.rank; d++) {
        rows *= type.dims[d].size;
    }
    return rows;
}

/* Rows that a file has: windows side by side. */
static int64_t rows_of_file(const source *s)
{
    return s->kind == WINDOWS ? (s->places - 1) / s->window + 1 : s->npy.dims[0];
}

/* How often the file of an input with the batch dim fills one row of the batch. */
static dtp_status count_rows(const dtp_feed *feed, dtp_tensor_id id, dtp_dim_id batch, int64_t *out,
                             dtp_err *err)
{
    const dtp_graph_tensor *t = &feed->graph->tensors[id];
    const source *s = &feed->sources[id];
    if (t->type.dims[0].id != batch || (s->kind == WINDOWS && t->type.rank == 1)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "input '%.100s': files are read row by row where the first of several dims "
                        "is '%s'",
                        t->name, dtp_dims_name(&feed->graph->dims, batch));
    }
    const dtp_ttype type = dtp_microbatch_whole(feed->graph, &t->type);
    *out = rows_of_file(s) / (rows_of_step(feed, id) / type.dims[0].size);
    return DTP_OK;
}

dtp_status dtp_feed_rows(const dtp_feed *feed, int64_t *out, dtp_err *err)
{
    const dtp_graph *g = feed->graph;
    const dtp_dim_id batch = dtp_microbatch_dim(g);
    dtp_tensor_id first = -1;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        int64_t rows;
        if (tensor->kind != DTP_TENSOR_INPUT) {
            continue;
        }
        if (feed->sources[t].kind == SYNTHETIC) {
            return DTP_FAIL(err, DTP_INVALID, "input '%.100s' has no --feed", tensor->name);
        }
        if (dtp_ttype_find(&tensor->type, batch) < 0) {
            continue; /* the same in every step */
        }
        DTP_TRY(count_rows(feed, t, batch, &rows, err));
        if (first >= 0 && rows != *out) {
            return DTP_FAIL(err, DTP_INVALID,
                            "the file of '%.100s' has %" PRId64 " rows, that of '%.100s' %" PRId64,
                            g->tensors[first].name, *out, tensor->name, rows);
        }
        first = t;
        *out = rows;
    }
    return first >= 0 ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "no input is read row by row");
}

/* Which row of its file row `r` of an input is at a step, of `rows` that an epoch has, and in which
 * epoch. DTP_RANGE behind the end of a file that is read once. */
static dtp_status draw(const dtp_feed *feed, dtp_tensor_id id, int64_t step, int64_t r,
                       int64_t rows, int64_t *row, int64_t *epoch, dtp_err *err)
{
    const int64_t of_step = rows_of_step(feed, id);
    int64_t drawn = step * of_step + r;
    *epoch = 0;
    if (feed->order == DTP_FEED_SHUFFLED) {
        *epoch = drawn / rows;
        *row = dtp_permute(feed->seed, (uint64_t)*epoch, rows, drawn % rows);
        return DTP_OK;
    }
    if (feed->order == DTP_FEED_LAST_ROWS) {
        const dtp_ttype type = dtp_microbatch_whole(feed->graph, &feed->graph->tensors[id].type);
        const int64_t each = of_step / type.dims[0].size; /* the batch has no part of a row */
        drawn += (rows / each) * each - of_step;
    }
    *row = drawn;
    return drawn >= 0 && drawn < rows
               ? DTP_OK
               : DTP_FAIL(err, DTP_RANGE, "row %" PRId64 " of %" PRId64, drawn, rows);
}

/* ---- what files hold ---- */

static const dtp_file_map *map_of(const source *s)
{
    return s->map.fd >= 0 ? &s->map : &s->npy.map;
}

/* The size and the checksum of the file of an input. */
static dtp_status describe_file(const source *s, dtp_strbuf *out, dtp_err *err)
{
    uint32_t crc;
    DTP_TRY(dtp_crc_sampled(map_of(s), s->file, &crc, err));
    dtp_strbuf_addf(out, "%" PRId64 " bytes, CRC-32 %08" PRIx32, map_of(s)->bytes, crc);
    return out->failed ? DTP_FAIL(err, DTP_NOMEM, "no memory for what '%s' holds", s->file)
                       : DTP_OK;
}

dtp_status dtp_feed_agree(const dtp_feed *feed, dtp_comm *comm, dtp_err *err)
{
    for (dtp_tensor_id t = 0; t < feed->graph->n_tensors; t++) {
        const source *s = &feed->sources[t];
        dtp_strbuf text = {0};
        char what[DTP_FEED_TEXT_BYTES];
        if (s->file == NULL) {
            continue;
        }
        (void)snprintf(what, sizeof what, "file '%.300s' of feed '%.100s'", s->file,
                       feed->graph->tensors[t].name);
        dtp_status status = dtp_comm_agree_status(comm, describe_file(s, &text, err), err);
        if (status == DTP_OK) {
            status =
                dtp_comm_agree_words(comm, dtp_hash_text(DTP_HASH_SEED, dtp_strbuf_text(&text)),
                                     what, dtp_strbuf_text(&text), err);
        }
        dtp_strbuf_free(&text);
        DTP_TRY(status);
    }
    return DTP_OK;
}

dtp_status dtp_feed_describe(const dtp_feed *feed, dtp_strbuf *data, dtp_strbuf *files,
                             dtp_err *err)
{
    for (dtp_tensor_id t = 0; t < feed->graph->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &feed->graph->tensors[t];
        const source *s = &feed->sources[t];
        uint32_t crc;
        if (tensor->kind != DTP_TENSOR_INPUT) {
            continue;
        }
        dtp_strbuf_addf(data, "%s%s: ", data->len > 0 ? ", " : "", tensor->name);
        if (s->kind == SYNTHETIC) {
            dtp_strbuf_add(data, "synthetic");
            continue;
        }
        DTP_TRY(dtp_crc_sampled(map_of(s), s->file, &crc, err));
        const bool windows = s->kind == WINDOWS;
        dtp_strbuf_addf(data, "%" PRId64 " %s %08" PRIx32, windows ? s->elems : s->npy.dims[0],
                        windows ? "tokens" : "rows", crc);
        if (windows && s->shift > 0) {
            dtp_strbuf_addf(data, " shift %" PRId64, s->shift);
        }
        dtp_strbuf_addf(files, "%s%s=%s", files->len > 0 ? ", " : "", tensor->name, s->file);
    }
    return DTP_OK;
}

/* ---- filling ---- */

static dtp_status reserve(dtp_feed *feed, int64_t bytes, dtp_err *err)
{
    if ((size_t)bytes > feed->capacity) {
        void *grown = realloc(feed->scratch, (size_t)bytes);
        DTP_TRY(DTP_MEMORY(err, grown));
        feed->scratch = grown;
        feed->capacity = (size_t)bytes;
    }
    return DTP_OK;
}

/* Of labels one in 8 is the one that is ignored, but not the first of a step: one counts. */
static void synthesise(const dtp_feed *feed, const dtp_graph_tensor *t, const int64_t *ignored,
                       int64_t step, const dtp_shard *shard, void *out)
{
    enum { SHARE = 8 };
    uint32_t stream = dtp_stream_of(t->name) ^ 0xfeedU;
    int64_t below = t->type.dtype == DTP_BOOL || t->below <= 0 ? 2 : t->below;
    dtp_shard_runs it = dtp_shard_runs_of(shard, shard);
    while (dtp_shard_next(&it)) {
        for (int64_t i = 0; i < it.run; i++) {
            uint64_t index = (uint64_t)(it.in_tensor + i);
            double v;
            if (dtp_dtype_is_float(t->type.dtype)) {
                v = dtp_normal_at(feed->seed, stream, (uint32_t)step, index);
            } else {
                v = dtp_uniform_at(feed->seed, stream, (uint32_t)step, index);
                const double scaled = ignored != NULL && index > 0 ? v * SHARE / (SHARE - 1) : v;
                v = scaled < 1.0 || ignored == NULL ? scaled * (double)below : (double)*ignored;
            }
            dtp_element_set(t->type.dtype, out, it.in_whole + i, v);
        }
    }
}

/* The rows of a step, drawn one by one, to the scratch buffer. */
static dtp_status read_rows(dtp_feed *feed, dtp_tensor_id id, int64_t step, const dtp_shard *shard,
                            int64_t bytes, dtp_err *err)
{
    const source *s = &feed->sources[id];
    dtp_shard row = *shard;
    row.global[0] = rows_of_file(s);
    row.size[0] = 1;
    for (int64_t r = 0; r < shard->size[0]; r++) {
        int64_t epoch;
        char *to = (char *)feed->scratch + r * (bytes / shard->size[0]);
        DTP_TRY(
            draw(feed, id, step, shard->offset[0] + r, row.global[0], &row.offset[0], &epoch, err));
        DTP_TRY(dtp_npy_read(&s->npy, s->file, &row, to, err));
    }
    return DTP_OK;
}

static dtp_status fill_npy(dtp_feed *feed, dtp_tensor_id id, int64_t step, const dtp_shard *shard,
                           void *out, dtp_err *err)
{
    const dtp_graph_tensor *t = &feed->graph->tensors[id];
    const source *s = &feed->sources[id];
    int64_t n = dtp_shard_elems(shard), bytes = n * dtp_store_bytes(s->npy.store);
    if (n == 0) {
        return DTP_OK;
    }
    DTP_TRY(reserve(feed, bytes, err));
    DTP_TRY(s->kind == NPY_SAME ? dtp_npy_read(&s->npy, s->file, shard, feed->scratch, err)
                                : read_rows(feed, id, step, shard, bytes, err));
    DTP_TRY(dtp_convert(s->npy.store, feed->scratch, t->type.dtype, out, n, err));
    return dtp_check_below(t->type.dtype, out, n, t->below, feed->labels[id].ignored, err);
}

/* The file of windows, and where its elements begin in it. */
static const dtp_file_map *elements_of(const source *s, const char **first)
{
    const dtp_file_map *map = map_of(s);
    *first = map->data + (s->map.fd >= 0 ? 0 : s->npy.data_at);
    return map;
}

/* Where a window begins. In the order of the file they lie side by side; shuffled ones do, too, but
 * each epoch has them moved by another number of elements, up to the length of a window at least.
 */
static dtp_status window_place(const dtp_feed *feed, dtp_tensor_id id, int64_t step, int64_t r,
                               int64_t *out, dtp_err *err)
{
    const source *s = &feed->sources[id];
    const bool shuffled = feed->order == DTP_FEED_SHUFFLED;
    const int64_t fit = s->places / s->window > 0 ? s->places / s->window : 1;
    const int64_t rows = shuffled ? fit : rows_of_file(s);
    int64_t row, epoch;
    uint32_t words[4];
    DTP_TRY(draw(feed, id, step, r, rows, &row, &epoch, err));
    *out = row * s->window;
    if (shuffled) {
        dtp_philox_block(feed->seed, dtp_stream_of("feed.windows"), 0, (uint64_t)epoch, words);
        const uint64_t any = (uint64_t)words[0] << 32 | words[1];
        *out += (int64_t)(any % (uint64_t)(s->places - (rows - 1) * s->window));
    }
    return DTP_OK;
}

static dtp_status fill_windows(dtp_feed *feed, dtp_tensor_id id, int64_t step,
                               const dtp_shard *shard, void *out, dtp_err *err)
{
    const dtp_graph_tensor *t = &feed->graph->tensors[id];
    const source *s = &feed->sources[id];
    int32_t last = shard->rank - 1;
    int64_t n = dtp_shard_elems(shard), window = shard->size[last];
    const int64_t width = dtp_store_bytes(s->store);
    const char *first;
    if (n == 0) {
        return DTP_OK;
    }
    DTP_TRY(reserve(feed, n * width, err));
    DTP_TRY(dtp_file_map_check(elements_of(s, &first), s->file, err));
    for (int64_t i = 0; i < n / window; i++) {
        int64_t row = 0, rest = i, stride = 1, place;
        for (int32_t d = last - 1; d >= 0; d--) {
            row += (shard->offset[d] + rest % shard->size[d]) * stride;
            rest /= shard->size[d];
            stride *= shard->global[d];
        }
        DTP_TRY(window_place(feed, id, step, row, &place, err));
        place += s->shift + shard->offset[last];
        memcpy((char *)feed->scratch + i * window * width, first + place * width,
               (size_t)(window * width));
    }
    if (s->npy.big_endian) {
        dtp_swap_bytes(feed->scratch, n, width);
    }
    DTP_TRY(dtp_convert(s->store, feed->scratch, t->type.dtype, out, n, err));
    return dtp_check_below(t->type.dtype, out, n, t->below, feed->labels[id].ignored, err);
}

dtp_status dtp_feed_fill(dtp_feed *feed, dtp_tensor_id id, int64_t step, const dtp_shard *shard,
                         void *out, dtp_err *err)
{
    const dtp_graph_tensor *t = &feed->graph->tensors[id];
    const source *s = &feed->sources[id];
    dtp_status status = DTP_OK;
    switch (s->kind) {
    case SYNTHETIC:
        synthesise(feed, t, feed->labels[id].ignored, step, shard, out);
        break;
    case WINDOWS:
        status = fill_windows(feed, id, step, shard, out, err);
        break;
    default:
        status = fill_npy(feed, id, step, shard, out, err);
        break;
    }
    return dtp_err_prefixed(status, err, "feed '%.100s' from '%.300s' at step %" PRId64, t->name,
                            s->file, step);
}
