/* Layouts as placements, one per mesh dim, which need no names of tensor dims:
 *
 *   long    (Shard(dim=0), Replicate(), Partial(sum))       as PyTorch prints them
 *   short   S0, R, P(sum)
 *
 * Shard order: the long form writes a split that is not in mesh order as a strided shard, whose
 * split factor is the product of the sizes of the mesh dims that come later in the mesh but split
 * before it. The short form gives splits below the outermost their depth, "S0.1, S0". */
#ifndef DTP_CORE_LAYOUT_PLACEMENT_TEXT_H
#define DTP_CORE_LAYOUT_PLACEMENT_TEXT_H

#include "core/base/strbuf.h"
#include "core/layout/layout.h"

/* Reads both forms, also S(0)[1] for S0.1 and SS0/2 for a strided shard. DTP_INVALID naming the
 * place in the text; DTP_UNSUPPORTED for a strided shard that is no order of splits. */
dtp_status dtp_placements_parse(const char *text, const dtp_mesh *mesh, const dtp_ttype *type,
                                dtp_layout *out, dtp_err *err) DTP_MUST_CHECK;
/* Appends the short form. NULL pointers are accepted. */
void dtp_placements_print(const dtp_layout *layout, dtp_strbuf *out);
/* Appends the long form. Reading it again gives the same shards on every rank; the order of mesh
 * dims of size 1 is lost. NULL pointers are accepted. */
void dtp_placements_print_long(const dtp_layout *layout, const dtp_mesh *mesh, dtp_strbuf *out);

#endif
