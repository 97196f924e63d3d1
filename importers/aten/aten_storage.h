/* Elements of a tensor in the storage that a .pt2 file has: a part of it, in any order. */
#ifndef DTP_IMPORTERS_ATEN_ATEN_STORAGE_H
#define DTP_IMPORTERS_ATEN_ATEN_STORAGE_H

#include "importers/aten/aten_graph.h"
#include "interop/foreign_json.h"

/* Sets v->data and v->bytes to the elements row by row, in the `has` bytes of the storage or from
 * the arena; none in a storage without bytes. `config`: its entry, with "tensor_meta". DTP_INVALID
 * when the storage does not have all elements. */
dtp_status dtp_aten_storage(const dtp_foreign_doc *doc, const dtp_foreign *config, const char *data,
                            int64_t has, dtp_arena *arena, dtp_aten_value *v,
                            dtp_err *err) DTP_MUST_CHECK;

#endif
