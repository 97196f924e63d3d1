/* What forms cannot say, in words. */
#include "interop/export/placements.h"

static const struct {
    const char *name, *why, *instead;
} KINDS[DTP_N_LOST] = {
    [DTP_LOST_UNEVEN] = {"uneven",
                         "a split does not divide the size: JAX has no uneven shards, fully_shard "
                         "splits dims other than 0 evenly only",
                         "plan without --uneven"},
    [DTP_LOST_MESH_ORDER] =
        {"mesh_order", "one dim is split over several mesh dims in another order than the form's",
         "list the mesh dims in the other order, or accept the form's shards: "
         "they have as many bytes"},
    [DTP_LOST_INNER_FACTOR] = {"inner_factor",
                               "the plan splits an inner factor of a merged axis; placements say "
                               "the whole axis, whose shards hold other elements",
                               "pin the outer factor, or store the parameter with axes apart"},
    [DTP_LOST_FUSED] = {"fused",
                        "the plan splits every part of a fused weight, placements the whole of it",
                        "interleave the parts shard by shard, as packed_colwise does, or store "
                        "them apart"},
    [DTP_LOST_PARTS] = {"parts",
                        "the parts of a fused weight have different layouts; that of the "
                        "first is said",
                        "pin the parts to one layout"},
    [DTP_LOST_READERS] = {"readers",
                          "forward nodes read it in different layouts; that of the first is said",
                          "redistribute at the other readers"},
    [DTP_LOST_BACKWARD] = {"backward", "the backward pass reads it in another layout",
                           "the framework's own choice costs communication, not correctness"},
    [DTP_LOST_GRADIENTS] = {"gradients", "its gradient is laid out otherwise",
                            "the framework lays gradients out as their parameters"},
    [DTP_LOST_STATES] = {"states", "the states of its optimizer are laid out otherwise (ZeRO)",
                         "use a sharded optimizer such as ZeroRedundancyOptimizer, or a plan of "
                         "stage 3"},
    [DTP_LOST_INSIDE] = {"inside_module",
                         "no module makes it: where activations are bound at the outputs of "
                         "modules alone, its layout is the framework's choice",
                         "constrain it by name (JAX), or give it a module of its own"},
    [DTP_LOST_STEPS] =
        {"redistributions",
         "the plan lists redistributions of several steps; a framework takes its own",
         "compare the collectives"},
    [DTP_LOST_OVERLAP] = {"overlap",
                          "which collectives run as one and beside compute is the framework's "
                          "choice",
                          "set its bucket sizes and prefetch"},
    [DTP_LOST_MESH_DIMS] = {"mesh_dims",
                            "it is split over a mesh dim that this form does not "
                            "speak of",
                            "split data by hand and use fully_shard, or --as placements"},
    [DTP_LOST_STYLE] = {"style", "no parallel style gives this split", "--as placements"},
    [DTP_LOST_OUTPUT] = {"output", "no style leaves what a module makes in this layout",
                         "--as placements"},
    [DTP_LOST_RECOMPUTED] = {"recomputed", "a recomputed block keeps some of its values",
                             "recompute whole blocks, or write a policy of selective "
                             "checkpointing"},
    [DTP_LOST_PARTIAL] =
        {"partial",
         "ranks hold terms of a sum, which a PartitionSpec cannot say: JAX chooses "
         "where it is summed",
         "the framework's own choice costs communication, not correctness"},
    [DTP_LOST_RULES] = {"rules", "its dims are not split as the rules say", "--as placements"},
    [DTP_LOST_NAME] = {"name",
                       "the file that was imported has lost its name: this one is made up after "
                       "the module that reads it",
                       "compare it with the model's own, and correct the names file"},
    [DTP_LOST_FROZEN] = {"frozen",
                         "some parts of a fused weight are frozen and others trained; a framework "
                         "trains all of it",
                         "freeze all parts or none, or store them apart"},
    [DTP_LOST_TERMS] = {"terms",
                        "the plan sums what several nodes give, gradients of q, k and v or of a "
                        "tied table, before ranks add up, XLA one by one: more bytes",
                        "--expressible jax plans with what XLA sends"},
    [DTP_LOST_STATISTICS] = {"statistics",
                             "statistics of the batch are those of the rows of all ranks, the "
                             "framework takes those of a rank",
                             "torch.nn.SyncBatchNorm.convert_sync_batchnorm(module)"},
};

const char *dtp_lost_name(dtp_lost_kind kind)
{
    return KINDS[kind].name;
}

const char *dtp_lost_why(dtp_lost_kind kind)
{
    return KINDS[kind].why;
}

const char *dtp_lost_instead(dtp_lost_kind kind)
{
    return KINDS[kind].instead;
}

dtp_status dtp_lost_add(dtp_lost *lost, dtp_arena *arena, dtp_lost_kind kind, const char *name,
                        dtp_err *err)
{
    const int32_t n = lost->n[kind];
    lost->any[kind] = true;
    if (name == NULL || (n > 0 && lost->names[kind][n - 1] == name)) {
        return DTP_OK;
    }
    DTP_TRY(dtp_arena_grow(arena, &lost->names[kind], n, n + 1, &lost->capacity[kind],
                           sizeof *lost->names[kind], err));
    lost->names[kind][lost->n[kind]++] = name;
    return DTP_OK;
}
