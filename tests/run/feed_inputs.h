/* Inputs and files of the tests of feeds. */
#ifndef DTP_TESTS_RUN_FEED_INPUTS_H
#define DTP_TESTS_RUN_FEED_INPUTS_H

#include "executor/session/feed.h"

/* Fails the test with the message of an error. */
void must(dtp_status status, const dtp_err *err);

/* images f32 [batch=8, pixels=6], labels i32 [batch=8] below 10, tokens and targets i32 [batch=8,
 * seq=5] below 256, words and next i32 of that shape below 70000, free i64 without a bound. */
dtp_graph *inputs_graph(void);
enum { MASK = 4, WORDS, NEXT, FREE };

/* A .npy file among those of the test (tests/support/data_files.h). */
void write_npy(const char *name, const dtp_ttype *type, const void *data);
/* images.npy, labels.npy: 20 images whose pixels are all the number of the image, and labels number
 * % 10. */
void write_samples(void);

/* The pieces of every rank of every layout hold the same values as the whole. */
void check_pieces(dtp_feed *feed, const dtp_graph *g, dtp_tensor_id t, int64_t step);

#endif
