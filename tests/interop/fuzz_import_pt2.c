/* libFuzzer on .pt2 and .onnx files: no bytes make the import crash, and what it gives is a whole
 * model. bad_pt2.py and bad_onnx.py break files in every build. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "importers/graph_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const dtp_graph_import_options options = {.name = "fuzz"};
    dtp_graph_import_result result;
    dtp_err err;
    const dtp_status s = dtp_graph_file_import_bytes("fuzz.pt2", (const char *)data, (int64_t)size,
                                                     &options, &result, &err);
    const char *model = dtp_strbuf_text(&result.model);
    if (s == DTP_INTERNAL || (s == DTP_OK && strstr(model, "\"outputs\"") == NULL)) {
        abort();
    }
    dtp_graph_file_free(&result);
    return 0;
}
