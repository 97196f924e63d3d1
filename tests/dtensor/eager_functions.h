/* Every function of include/dtp/ops.h as a row: how to call it, and operands it takes. */
#ifndef DTP_TESTS_DTENSOR_EAGER_FUNCTIONS_H
#define DTP_TESTS_DTENSOR_EAGER_FUNCTIONS_H

#include "dtp/ops.h"

enum { EAGER_FUNCTION_MAX_IN = 3 };

/* One of unary, binary and fn is set. */
typedef struct eager_function {
    const char *name;
    dtp_status (*unary)(dtp_tensor x, dtp_tensor *out, dtp_err *err);
    dtp_status (*binary)(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err);
    dtp_status (*fn)(const dtp_tensor *in, dtp_tensor *out, dtp_err *err);
    const char *in[EAGER_FUNCTION_MAX_IN]; /* "4,6", then maybe " pos", " bool", " ids:5" */
    bool no_grad;
} eager_function;

extern const eager_function EAGER_FUNCTIONS[];
extern const int32_t EAGER_FUNCTION_COUNT;

dtp_status eager_function_call(const eager_function *f, const dtp_tensor *in, dtp_tensor *out,
                               dtp_err *err) DTP_MUST_CHECK;

#endif
