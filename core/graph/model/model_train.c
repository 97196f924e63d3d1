/* The "train" object: which tensor is the loss and which optimizer updates the params. */
#include "core/graph/model/model_internal.h"
#include "core/graph/optimizer.h"

enum { MAX_OPTIMIZERS = 31 };

/* {"adamw": {"lr": ...}} */
static dtp_status read_optimizer(const dtp_op_set *ops, const dtp_json *v, dtp_optimizer_spec *opt,
                                 dtp_err *err)
{
    const char *names[MAX_OPTIMIZERS + 1] = {NULL};
    for (int32_t i = 0; i < MAX_OPTIMIZERS && dtp_optimizer_at(ops, i) != NULL; i++) {
        names[i] = dtp_optimizer_at(ops, i)->name;
    }
    DTP_TRY(dtp_json_keys(v, names, err));
    if (dtp_json_size(v) != 1) {
        return dtp_json_fail(v, err, "expected one optimizer, found %d", dtp_json_size(v));
    }
    const dtp_json *fields = dtp_json_at(v, 0);
    *opt = dtp_optimizer_spec_of(dtp_optimizer_find(ops, dtp_json_key(fields)));
    /* The fields that are given; those of the hyperparameters are required or have defaults. */
    const dtp_attr_spec *attrs = opt->op->attrs;
    const char *keys[DTP_OPTIMIZER_MAX_HYPERS + 1] = {NULL};
    const int32_t n = dtp_optimizer_hypers(opt->op);
    for (int32_t i = 0; i < n; i++) {
        keys[i] = attrs[i].key;
    }
    DTP_TRY(dtp_json_keys(fields, keys, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_json *given = dtp_json_get(fields, keys[i]);
        double value;
        dtp_err why = {0};
        if (given == NULL && !attrs[i].required) {
            continue;
        }
        DTP_TRY(dtp_json_require(fields, keys[i], &given, err));
        DTP_TRY(dtp_json_double(given, &value, err));
        if (dtp_optimizer_spec_set(opt, keys[i], value, &why) != DTP_OK) {
            return dtp_json_fail(given, err, "%s", why.msg);
        }
    }
    return DTP_OK;
}

dtp_status dtp_model__train(const dtp_model_reader *r, const dtp_model_scope *scope,
                            dtp_tensor_id *loss, dtp_optimizer_spec *opt, dtp_err *err)
{
    static const char *const keys[] = {"loss", "optimizer", NULL};
    const dtp_json *train = dtp_json_get(r->root, "train");
    const dtp_json *name, *optimizer;
    *loss = -1;
    *opt = (dtp_optimizer_spec){0};
    if (train == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_keys(train, keys, err));
    DTP_TRY(dtp_json_require(train, "loss", &name, err));
    DTP_TRY(dtp_model__tensor(r, scope, name, loss, err));
    const dtp_graph_tensor *t = &r->g->tensors[*loss];
    if (t->kind != DTP_TENSOR_VALUE || t->type.rank != 0 || !dtp_dtype_is_float(t->type.dtype)) {
        char text[DTP_TTYPE_TEXT_BYTES];
        dtp_ttype_print(&t->type, &r->g->dims, text);
        return dtp_json_fail(
            name, err, "the loss is a floating-point scalar made by a node, '%s' is %s%.200s",
            t->name, t->kind == DTP_TENSOR_VALUE ? "" : "an input or param ", text);
    }
    DTP_TRY(dtp_json_require(train, "optimizer", &optimizer, err));
    return read_optimizer(r->g->ops, optimizer, opt, err);
}
