/* Free list of a block of memory: first fit over a list sorted by address. */
#ifndef DTP_EXECUTOR_COMM_FREE_LIST_H
#define DTP_EXECUTOR_COMM_FREE_LIST_H

#include <stdbool.h>
#include <stdint.h>

typedef struct dtp_comm__free_block {
    int64_t start, bytes;
    bool used;
} dtp_comm__free_block;

/* Blocks lie one after the other from 0 to the end; no two free ones are neighbours. */
typedef struct dtp_comm__free_list {
    int32_t n, capacity;
    dtp_comm__free_block *items;
} dtp_comm__free_list;

/* False when out of memory. */
bool dtp_comm__free_list_init(dtp_comm__free_list *r, int64_t bytes);
void dtp_comm__free_list_clear(dtp_comm__free_list *r);
/* Start of `bytes` > 0 that are now in use; -1 when there is no such block or no memory. */
int64_t dtp_comm__free_list_take(dtp_comm__free_list *r, int64_t bytes);
/* Frees the block that starts there; false when none in use does. */
bool dtp_comm__free_list_release(dtp_comm__free_list *r, int64_t start);

#endif
