/* Zip archives of stored entries: what torch.export writes. A compressed or encrypted entry, an
 * offset outside of the file, entries that overlap and a name that is there twice are errors.
 * Format: PKWARE APPNOTE 6.3.10, with the fields of zip64. */
#ifndef DTP_IMPORTERS_FILES_ZIP_H
#define DTP_IMPORTERS_FILES_ZIP_H

#include "core/base/arena.h"

typedef struct dtp_zip_entry {
    const char *name;
    const char *data; /* within the archive's bytes */
    int64_t bytes;
} dtp_zip_entry;

typedef struct dtp_zip {
    int32_t n;
    dtp_zip_entry *entries; /* in the order in which they lie in the archive */
} dtp_zip;

/* Reads the directory of an archive in memory, which must outlive *out; `file` names it in errors.
 * Entries and names are from the arena. DTP_INVALID, DTP_NOMEM. */
dtp_status dtp_zip_read(const char *file, const char *bytes, int64_t size, dtp_arena *arena,
                        dtp_zip *out, dtp_err *err) DTP_MUST_CHECK;

#endif
