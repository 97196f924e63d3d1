#include "executor/session/feed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file_in.h"
#include "core/transform/microbatch.h"
#include "core/base/philox.h"
#include "core/base/safe_int.h"
#include "executor/device/convert.h"
#include "executor/files/npy.h"

typedef enum source_kind { SYNTHETIC, NPY_SAME, NPY_ROWS, BYTES } source_kind;

typedef struct source {
    source_kind kind;
    char *file;
    dtp_npy npy;
    int fd; /* BYTES */
    int64_t file_bytes, shift, places;
} source;

struct dtp_feed {
    const dtp_graph *graph;
    uint64_t seed;
    source *sources; /* by tensor id */
    void *scratch;
    size_t capacity;
};

dtp_status dtp_feed_spec_parse(const char *text, char storage[DTP_FEED_TEXT_BYTES],
                               dtp_feed_spec *out, dtp_err *err)
{
    static const char mark[] = ",shift=";
    if (strlen(text) >= DTP_FEED_TEXT_BYTES) {
        return DTP_FAIL(err, DTP_INVALID, "more than %d characters", DTP_FEED_TEXT_BYTES - 1);
    }
    memcpy(storage, text, strlen(text) + 1);
    char *equal = strchr(storage, '=');
    if (equal == NULL || equal == storage || equal[1] == '\0') {
        return DTP_FAIL(err, DTP_INVALID, "'%.200s': expected INPUT=FILE or INPUT=FILE,shift=N",
                        text);
    }
    *equal = '\0';
    *out = (dtp_feed_spec){.input = storage, .file = equal + 1};
    char *shift = strstr(equal + 1, mark);
    if (shift != NULL) {
        char *end;
        *shift = '\0';
        shift += sizeof mark - 1;
        errno = 0;
        out->shift = strtoll(shift, &end, 10);
        if (errno != 0 || end == shift || *end != '\0' || out->shift < 0) {
            return DTP_FAIL(err, DTP_INVALID, "'%.200s': shift '%.40s' is not an integer >= 0",
                            text, shift);
        }
    }
    return DTP_OK;
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

static dtp_status open_npy(const dtp_ttype *type, source *s, dtp_err *err)
{
    DTP_TRY(dtp_npy_open(s->file, &s->npy, err));
    bool rest = s->npy.rank == type->rank;
    for (int32_t i = 1; rest && i < type->rank; i++) {
        rest = s->npy.dims[i] == type->dims[i].size;
    }
    bool rows = rest && type->rank > 0 && s->npy.dims[0] != type->dims[0].size;
    if (!rest || (rows && s->npy.dims[0] < 1)) {
        char text[DTP_MAX_RANK * 24] = "";
        size_t used = 0;
        for (int32_t i = 0; i < s->npy.rank; i++) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64,
                                     i > 0 ? "," : "", s->npy.dims[i]);
        }
        return DTP_FAIL(err, DTP_INVALID,
                        "the file has shape [%s]; expected the input's, with any number of rows",
                        text);
    }
    if (s->shift != 0) {
        return DTP_FAIL(err, DTP_INVALID, "shift is for files of bytes, not .npy");
    }
    s->kind = rows ? NPY_ROWS : NPY_SAME;
    return DTP_OK;
}

static dtp_status open_bytes(const dtp_graph_tensor *t, source *s, dtp_err *err)
{
    struct stat st;
    if (t->type.dtype != DTP_I32 && t->type.dtype != DTP_I64) {
        return DTP_FAIL(err, DTP_INVALID, "a file of bytes needs an integer input, this one is %s",
                        dtp_dtype_name(t->type.dtype));
    }
    if (t->below != 0 && t->below < 256) {
        return DTP_FAIL(
            err, DTP_INVALID,
            "a file of bytes needs an input with values below 256 or more, not %" PRId64, t->below);
    }
    if (t->type.rank < 1) {
        return DTP_FAIL(err, DTP_INVALID, "a file of bytes needs an input with at least one dim");
    }
    DTP_TRY(dtp_file_in_open(s->file, &s->fd, err));
    if (fstat(s->fd, &st) != 0) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", s->file, strerror(errno));
    }
    s->file_bytes = (int64_t)st.st_size;
    s->kind = BYTES;
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
        if (other->kind == BYTES && strcmp(other->file, s->file) == 0 &&
            t.dims[t.rank - 1].size == window && other->shift > shift) {
            shift = other->shift;
        }
    }
    int64_t need;
    if (!dtp_add_i64(window, shift, &need) || need > s->file_bytes) {
        return DTP_FAIL(err, DTP_INVALID,
                        "feed '%.100s' from '%.300s': %" PRId64
                        " bytes, fewer than a window of %" PRId64 " and a shift of %" PRId64,
                        g->tensors[id].name, s->file, s->file_bytes, window, shift);
    }
    s->places = s->file_bytes - need + 1;
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
        DTP_TRY(dtp_err_prefixed(npy ? open_npy(&type, s, err) : open_bytes(t, s, err), err,
                                 "feed '%.100s' from '%.300s'", spec->input, spec->file));
    }
    for (dtp_tensor_id t = 0; t < feed->graph->n_tensors; t++) {
        if (feed->sources[t].kind != BYTES) {
            continue;
        }
        DTP_TRY(set_places(feed, t, err));
    }
    return DTP_OK;
}

dtp_status dtp_feed_create(const dtp_graph *g, int32_t n, const dtp_feed_spec *specs, uint64_t seed,
                           dtp_feed **out, dtp_err *err)
{
    dtp_feed *feed = calloc(1, sizeof *feed);
    source *sources = calloc((size_t)g->n_tensors + 1, sizeof *sources);
    if (feed == NULL || sources == NULL) {
        free(feed);
        free(sources);
        return DTP_FAIL(err, DTP_NOMEM, "no memory for feeds");
    }
    feed->graph = g;
    feed->seed = seed;
    feed->sources = sources;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        sources[t].fd = sources[t].npy.fd = -1;
    }
    dtp_status status = open_all(feed, n, specs, err);
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
        if (feed->sources[t].fd >= 0) {
            close(feed->sources[t].fd);
        }
        free(feed->sources[t].file);
    }
    free(feed->sources);
    free(feed->scratch);
    free(feed);
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

static void synthesise(const dtp_feed *feed, const dtp_graph_tensor *t, int64_t step,
                       const dtp_shard *shard, void *out)
{
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
                v = dtp_uniform_at(feed->seed, stream, (uint32_t)step, index) * (double)below;
            }
            dtp_element_set(t->type.dtype, out, it.in_whole + i, v);
        }
    }
}

/* The rows of a step, drawn one by one, to the scratch buffer. */
static dtp_status read_rows(dtp_feed *feed, const dtp_graph_tensor *t, const source *s,
                            int64_t step, const dtp_shard *shard, int64_t bytes, dtp_err *err)
{
    int64_t rows = s->npy.dims[0];
    int64_t batch = dtp_microbatch_whole(feed->graph, &t->type).dims[0].size;
    dtp_shard row = *shard;
    row.global[0] = rows;
    row.size[0] = 1;
    for (int64_t r = 0; r < shard->size[0]; r++) {
        int64_t drawn = step * batch + shard->offset[0] + r;
        char *to = (char *)feed->scratch + r * (bytes / shard->size[0]);
        row.offset[0] = dtp_permute(feed->seed, (uint64_t)(drawn / rows), rows, drawn % rows);
        DTP_TRY(dtp_npy_read(&s->npy, s->file, &row, to, err));
    }
    return DTP_OK;
}

static dtp_status fill_npy(dtp_feed *feed, const dtp_graph_tensor *t, const source *s, int64_t step,
                           const dtp_shard *shard, void *out, dtp_err *err)
{
    int64_t n = dtp_shard_elems(shard), bytes = n * dtp_store_bytes(s->npy.store);
    if (n == 0) {
        return DTP_OK;
    }
    DTP_TRY(reserve(feed, bytes, err));
    DTP_TRY(s->kind == NPY_SAME ? dtp_npy_read(&s->npy, s->file, shard, feed->scratch, err)
                                : read_rows(feed, t, s, step, shard, bytes, err));
    DTP_TRY(dtp_convert(s->npy.store, feed->scratch, t->type.dtype, out, n, err));
    return dtp_check_below(t->type.dtype, out, n, t->below, err);
}

static dtp_status fill_bytes(dtp_feed *feed, const dtp_graph_tensor *t, const source *s,
                             int64_t step, const dtp_shard *shard, void *out, dtp_err *err)
{
    int32_t last = shard->rank - 1;
    int64_t n = dtp_shard_elems(shard), window = shard->size[last];
    uint32_t stream = dtp_stream_of("feed.windows");
    if (n == 0) {
        return DTP_OK;
    }
    DTP_TRY(reserve(feed, n, err));
    for (int64_t i = 0; i < n / window; i++) {
        int64_t row = 0, rest = i, stride = 1;
        for (int32_t d = last - 1; d >= 0; d--) {
            row += (shard->offset[d] + rest % shard->size[d]) * stride;
            rest /= shard->size[d];
            stride *= shard->global[d];
        }
        uint32_t words[4];
        dtp_philox_block(feed->seed, stream, (uint32_t)step, (uint64_t)row, words);
        uint64_t draw = (uint64_t)words[0] << 32 | words[1];
        int64_t place = (int64_t)(draw % (uint64_t)s->places) + s->shift + shard->offset[last];
        DTP_TRY(
            dtp_read_at(s->fd, s->file, place, (char *)feed->scratch + i * window, window, err));
    }
    return dtp_convert(DTP_STORE_U8, feed->scratch, t->type.dtype, out, n, err);
}

dtp_status dtp_feed_fill(dtp_feed *feed, dtp_tensor_id id, int64_t step, const dtp_shard *shard,
                         void *out, dtp_err *err)
{
    const dtp_graph_tensor *t = &feed->graph->tensors[id];
    const source *s = &feed->sources[id];
    dtp_status status = DTP_OK;
    switch (s->kind) {
    case SYNTHETIC:
        synthesise(feed, t, step, shard, out);
        break;
    case BYTES:
        status = fill_bytes(feed, t, s, step, shard, out, err);
        break;
    default:
        status = fill_npy(feed, t, s, step, shard, out, err);
        break;
    }
    return dtp_err_prefixed(status, err, "feed '%.100s' from '%.300s' at step %" PRId64, t->name,
                            s->file, step);
}

/* ---- initial values ---- */

static double init_value(const dtp_graph_tensor *t, uint64_t seed, uint64_t index)
{
    const dtp_init *init = &t->init;
    switch (init->kind) {
    case DTP_INIT_ONES:
        return 1.0;
    case DTP_INIT_CONSTANT:
        return init->a;
    case DTP_INIT_UNIFORM:
        return init->a + (init->b - init->a) * dtp_uniform_at(seed, t->stream, 0, index);
    default:
        return 0.0;
    }
}

dtp_status dtp_init_fill(const dtp_graph_tensor *tensor, uint64_t seed, const dtp_shard *shard,
                         int32_t threads, void *out, dtp_err *err)
{
    enum { BLOCK = 4096 };
    dtp_dtype dtype = tensor->type.dtype;
    if (!dtp_dtype_is_float(dtype) &&
        (tensor->init.kind == DTP_INIT_NORMAL || tensor->init.kind == DTP_INIT_UNIFORM)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "'%s': random initial values of type %s",
                        tensor->name, dtp_dtype_name(dtype));
    }
    dtp_shard_runs it = dtp_shard_runs_of(shard, shard);
    while (dtp_shard_next(&it)) {
        int64_t first = it.in_tensor, to = it.in_whole, n = it.run;
        int64_t blocks = dtp_ceil_div(n, BLOCK);
#pragma omp parallel for num_threads(threads > 0 ? threads : 1) if (blocks > 1)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t start = b * BLOCK, left = n - start, size = left < BLOCK ? left : BLOCK;
            double normal[4];
            bool random = tensor->init.kind == DTP_INIT_NORMAL;
            for (int64_t i = 0; i < size; i++) {
                uint64_t index = (uint64_t)(first + start + i);
                if (random && (i == 0 || index % 4 == 0)) {
                    dtp_normal_block(seed, tensor->stream, 0, index / 4, normal);
                }
                double v = random ? tensor->init.b + tensor->init.a * normal[index % 4]
                                  : init_value(tensor, seed, index);
                dtp_element_set(tensor->type.dtype, out, to + start + i, v);
            }
        }
    }
    return DTP_OK;
}
