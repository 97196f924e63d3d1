/* libFuzzer on config.json: no text makes the import crash, and what it gives is a whole model.
 * import_hf.py mutates files in every build. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "importers/hf/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const dtp_import_options options = {.approximate = size % 2 == 0, .forward = size % 3 == 0};
    dtp_arena *arena = dtp_arena_create();
    dtp_import result;
    dtp_err err;
    const dtp_status s =
        dtp_import_config("config.json", (const char *)data, size, &options, arena, &result, &err);
    if (s == DTP_INTERNAL || (s == DTP_OK && (result.model == NULL || result.parameters < 1))) {
        abort();
    }
    dtp_arena_destroy(arena);
    return 0;
}
