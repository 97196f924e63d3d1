/* Programs of PyTorch: .pt2 files that torch.export.save wrote, and .onnx files, as models of
 * ours (docs/programs-of-pytorch.md). */
#include "importers/graph_file.h"

#include <string.h>

#include "core/files/file_map.h"
#include "importers/aten/aten_graph.h"
#include "importers/onnx/onnx_read.h"
#include "importers/program/import_graph.h"

dtp_status dtp_graph_file_import_bytes(const char *path, const char *bytes, int64_t size,
                                       const dtp_graph_import_options *options,
                                       dtp_graph_import_result *out, dtp_err *err)
{
    dtp_aten g;
    *out = (dtp_graph_import_result){0};
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    if (s == DTP_OK && dtp_onnx_is(bytes, size)) {
        s = dtp_onnx_read(path, bytes, size, arena, &g, &out->report.notes, err);
    } else if (s == DTP_OK) {
        s = dtp_aten_read(path, bytes, size, arena, &g, err);
    }
    s = s == DTP_OK ? dtp_import_graph(&g, options, out, err) : s;
    dtp_arena_destroy(arena);
    return s;
}

bool dtp_graph_file_is(const char *bytes, int64_t size)
{
    return (size > 2 && memcmp(bytes, "PK", 2) == 0) || dtp_onnx_is(bytes, size);
}

dtp_status dtp_graph_file_import(const char *path, const dtp_graph_import_options *options,
                                 dtp_graph_import_result *out, dtp_err *err)
{
    dtp_file_map map;
    *out = (dtp_graph_import_result){0};
    DTP_TRY(dtp_file_map_open(path, &map, err));
    const dtp_status s = dtp_graph_file_import_bytes(path, map.data, map.bytes, options, out, err);
    dtp_file_map_close(&map);
    return s;
}

void dtp_graph_file_free(dtp_graph_import_result *out)
{
    dtp_strbuf_free(&out->model);
    dtp_strbuf_free(&out->names);
    dtp_strbuf_free(&out->report.notes);
    dtp_strbuf_free(&out->report.unsupported);
}
