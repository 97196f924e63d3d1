/* Rows of several views: a row is all elements over some dims, one row for every element of the
 * other dims. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ROWS_ROWS_H
#define DTP_EXECUTOR_CUDA_KERNELS_ROWS_ROWS_H

#include <cuda_runtime_api.h>

#include "executor/cuda/kernels/nest.h"

/* The threads that treat one row together. */
typedef enum dtp_cuda_team { DTP_TEAM_THREAD, DTP_TEAM_WARP, DTP_TEAM_BLOCK } dtp_cuda_team;

enum {
    DTP_CUDA_GROUP = 8, /* elements of one access to memory, where rows allow it */
    DTP_CUDA_ROWS_WARP = 32,
    DTP_CUDA_ROWS_BLOCK = 256
};

typedef struct dtp_cuda_rows {
    dtp_cuda_nest rows; /* the rows */
    dtp_cuda_nest over; /* the elements of a row */
    void *data[DTP_CUDA_VIEWS];
    int32_t dtype[DTP_CUDA_VIEWS];
    int32_t team, block; /* block: threads of a block */
    int32_t grouped;     /* elements go in groups of DTP_CUDA_GROUP */
    int64_t parts, part; /* of folds: parts of a row, and elements of a part */
    void *partial;       /* with more than one part: 8 bytes per part and row */
} dtp_cuda_rows;

#endif
