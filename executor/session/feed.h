/* What the inputs of a model get at every step. Values depend on (seed, step, global index) only:
 * every rank makes or reads its own shard, and all layouts see the same batch. */
#ifndef DTP_EXECUTOR_SESSION_FEED_H
#define DTP_EXECUTOR_SESSION_FEED_H

#include "core/base/strbuf.h"
#include "core/graph/graph.h"
#include "dtp/session.h"
#include "executor/comm/communicator.h"
#include "executor/device/shard.h"

enum { DTP_FEED_TEXT_BYTES = 4096 };
/* Splits "name=file[,dtype=TYPE][,shift=N]", the two in either order; `storage` holds the texts
 * that `out` points to. */
dtp_status dtp_feed_spec_parse(const char *text, char storage[DTP_FEED_TEXT_BYTES],
                               dtp_feed_spec *out, dtp_err *err) DTP_MUST_CHECK;

typedef struct dtp_feed dtp_feed;

/* Opens the files and checks them against the graph's inputs (those of the whole batch in a graph
 * of microbatches; shards are shards of the whole batch then). Borrows g, copies the specs. */
dtp_status dtp_feed_create(const dtp_graph *g, int32_t n, const dtp_feed_spec *specs, uint64_t seed,
                           dtp_feed_order order, dtp_feed **out, dtp_err *err) DTP_MUST_CHECK;
/* Rows of the batch (of dtp_microbatch_dim, the first dim of inputs that have it) that the files
 * hold. DTP_INVALID when inputs are not fed or differ in it, DTP_UNSUPPORTED when a file is not
 * read row by row. */
dtp_status dtp_feed_rows(const dtp_feed *feed, int64_t *out, dtp_err *err) DTP_MUST_CHECK;
void dtp_feed_destroy(dtp_feed *feed);

/* Whether all ranks have the same files, whose names they agree on: their sizes and checksums
 * (dtp_crc_sampled). DTP_COMM naming file, ranks and both. Collective. */
dtp_status dtp_feed_agree(const dtp_feed *feed, dtp_comm *comm, dtp_err *err) DTP_MUST_CHECK;
/* Adds what the inputs are fed with: "x: 12 rows 5c0fb1a2", the checksum of a file
 * (dtp_crc_sampled), or "y: synthetic"; `files`: "x=x.npy". DTP_IO. */
dtp_status dtp_feed_describe(const dtp_feed *feed, dtp_strbuf *data, dtp_strbuf *files,
                             dtp_err *err) DTP_MUST_CHECK;

/* Values of a shard of input t at a step. Not safe to call from several threads on one feed. */
dtp_status dtp_feed_fill(dtp_feed *feed, dtp_tensor_id t, int64_t step, const dtp_shard *shard,
                         void *out, dtp_err *err) DTP_MUST_CHECK;

/* Initial values of a shard of a PARAM or STATE (dtp_init, Philox by global element index). */
dtp_status dtp_init_fill(const dtp_graph_tensor *tensor, uint64_t seed, const dtp_shard *shard,
                         int32_t threads, void *out, dtp_err *err) DTP_MUST_CHECK;

/* Position `index` of the keyed permutation of n elements (Feistel network with Philox as its round
 * function, cycle walking); 0 <= index < n. */
int64_t dtp_permute(uint64_t seed, uint64_t epoch, int64_t n, int64_t index);

#endif
