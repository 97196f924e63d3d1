/* What ranks of several hosts say of themselves: the far side of the deadlock detector. Called on
 * the thread of the collectives unless said. */
#ifndef DTP_EXECUTOR_COMM_MPI_CONTROL_H
#define DTP_EXECUTOR_COMM_MPI_CONTROL_H

#include "executor/comm/mpi_internal.h"

dtp_status dtp_comm__control_create(dtp_comm__remote *r, dtp_err *err) DTP_MUST_CHECK;
void dtp_comm__control_destroy(dtp_comm__remote *r);
/* Hears the others from now on. */
dtp_status dtp_comm__control_begin(dtp_comm__remote *r, dtp_err *err) DTP_MUST_CHECK;
/* Takes what has come, answers questions, says that ranks are lost. */
void dtp_comm__control_listen(dtp_comm__remote *r);
/* While this rank waits for a message or in a collective: DTP_COMM when a rank that it waits for
 * runs no more collectives, or when it is not done within the deadline: then the ranks are lost. */
dtp_status dtp_comm__control_check(dtp_comm__remote *r, dtp_err *err) DTP_MUST_CHECK;
/* The ranks are lost whose message or part of the collective at hand has not come after waited_s;
 * where none is at hand, all others of `coll`. `why` may be NULL. On the thread of the collectives,
 * or on another one while that does not return from MPI. */
void dtp_comm__control_lose(dtp_comm__remote *r, const dtp_coll *coll, double waited_s,
                            const char *why);
/* Sends r->last_words to the others, unless NULL; receives no more. */
void dtp_comm__control_end(dtp_comm__remote *r);

#endif
