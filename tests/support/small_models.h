/* The models of models/ at sizes that run in milliseconds; every size that a baseline splits is a
 * multiple of 4. */
#ifndef DTP_TESTS_SUPPORT_SMALL_MODELS_H
#define DTP_TESTS_SUPPORT_SMALL_MODELS_H

#include "core/graph/graph.h"
#include "cost_models/price.h"

enum { SMALL_MODEL_DIMS = 12 };

typedef struct small_model {
    const char *name; /* of the file; NULL ends the list */
    dtp_dim_override dims[SMALL_MODEL_DIMS];
    bool dense_sequence; /* has a sequence that 4 divides */
} small_model;

const small_model *small_models(void);

/* Fails the test when it cannot be read. `f64`: every f32 tensor is f64. */
dtp_graph *small_model_read(const small_model *m, bool f64);
const small_model *small_model_find(const char *name);

typedef struct small_pricer {
    dtp_machine *machine;
    dtp_pricer pricer;
} small_pricer;

/* models/machines/MACHINE.json and a mesh. Fails the test when there is none. */
small_pricer small_pricer_read(const char *machine, const char *mesh);
void small_pricer_free(small_pricer *p);

#endif
