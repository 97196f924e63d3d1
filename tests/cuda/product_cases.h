/* Products with expressions, and a way to run one of them at addresses of any alignment. */
#ifndef DTP_TESTS_CUDA_PRODUCT_CASES_H
#define DTP_TESTS_CUDA_PRODUCT_CASES_H

#include "core/base/arena.h"
#include "executor/device/backend.h"
#include "tests/ops/cases.h"

/* `products`: launches of the library that do all; 0: they do not. `shifted`: the same of tensors
 * that lie one element behind an aligned address. */
typedef struct product_case {
    int32_t products, shifted;
    dtp_op_case c;
} product_case;
extern const product_case PRODUCT_CASES[];
extern const int32_t product_case_count;

/* Launches of the library that do all of a case with tensors `shift` elements behind aligned
 * addresses; 0: they do not. gelu of f32 is a kernel of its own. */
int32_t product_launches(const product_case *c, dtp_dtype dtype, int64_t shift);

enum { PRODUCT_DTYPES = 3, PRODUCT_MOST = 4096 /* elements of all results of a case, and one */ };
extern const dtp_dtype PRODUCT_FLOATS[PRODUCT_DTYPES];

/* A case that is bound once, with room for tensors that lie some elements behind aligned addresses.
 */
typedef struct product_placed {
    dtp_backend *b;
    dtp_dtype dtype;
    dtp_case_graph cg;
    dtp_call_types types;
    dtp_op_call call;
    dtp_view views[DTP_MAX_OP_IN + DTP_MAX_OP_OUT];
    void *memory[DTP_MAX_OP_IN + DTP_MAX_OP_OUT], *workspace;
    int64_t workspace_bytes;
    dtp_arena *arena;
    dtp_bound_kernel kernel;
} product_placed;

/* With the values of against_ref_seed. Dropped in any case. */
dtp_status product_place(product_placed *p, const dtp_op_case *c, dtp_dtype dtype, dtp_backend *b,
                         dtp_err *err);
void product_drop(product_placed *p);
/* Runs it with tensors `shift` elements behind aligned addresses; the results, ended by NaN. */
dtp_status product_run(product_placed *p, int64_t shift, double *out, dtp_err *err);
/* The three of them. Fails the test on an error. */
void product_run_once(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *b, int64_t shift,
                      double *out);
/* Fails the test unless results of a dtype are near those of the reference. */
void product_check(const dtp_op_case *c, dtp_dtype dtype, const double *want, const double *got);

#endif
