#include "tools/shape.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 64 };

static dtp_status bad_shape(const char *text, dtp_err *err)
{
    return DTP_FAIL(err, DTP_INVALID,
                    "--shape: '%s' is not sizes such as 8,8,8 or named ones such as batch=8,d_ff=6",
                    text);
}

dtp_status tool_shape_parse(const char *text, dtp_dims *dims, dtp_ttype *type, dtp_err *err)
{
    const char *at = text;
    type->rank = 0;
    for (bool more = true; more;) {
        char name[NAME_BYTES];
        char *end;
        const size_t n = strcspn(at, "=,");
        (void)snprintf(name, sizeof name, "%d", type->rank);
        if (at[n] == '=') {
            if (n == 0 || n >= sizeof name) {
                return bad_shape(text, err);
            }
            memcpy(name, at, n);
            name[n] = '\0';
            at += n + 1;
        }
        errno = 0;
        const long long size = strtoll(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || (*end != ',' && *end != '\0') || size < 1 ||
            errno != 0) {
            return bad_shape(text, err);
        }
        if (type->rank == DTP_MAX_RANK) {
            return DTP_FAIL(err, DTP_INVALID, "--shape: '%s' has more than %d dims", text,
                            DTP_MAX_RANK);
        }
        dtp_tdim *dim = &type->dims[type->rank];
        if (dtp_dims_find(dims, name) >= 0) {
            return DTP_FAIL(err, DTP_INVALID, "--shape: '%s' has the dim '%s' twice", text, name);
        }
        dim->size = size;
        type->rank++;
        DTP_TRY(dtp_dims_intern(dims, name, size, &dim->id, err));
        more = *end == ',';
        at = end + 1;
    }
    return dtp_ttype_check_size(type, err);
}
