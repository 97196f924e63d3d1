/* Learning rate schedules: functions of the step. Rates are those of the optimizer times what a
 * schedule says (docs/formats/model.md, "Training"). */
#ifndef DTP_SCHEDULE_H
#define DTP_SCHEDULE_H

#include "dtp/status.h"

DTP_API_BEGIN

typedef enum dtp_schedule_kind {
    DTP_SCHEDULE_CONSTANT,
    DTP_SCHEDULE_LINEAR,       /* down to `last` at step `steps` */
    DTP_SCHEDULE_COSINE,       /* half a cosine down to `last` at step `steps` */
    DTP_SCHEDULE_INVERSE_SQRT, /* sqrt(warmup / (step + 1)); warmup >= 1 */
    DTP_SCHEDULE_PIECEWISE     /* scale[i] from step at[i] on; 1 before */
} dtp_schedule_kind;

enum { DTP_SCHEDULE_PIECES = 16 };

/* All zeros: 1 at every step. Steps count from 0. While step < warmup the value is
 * (step + 1) / warmup; the rest begins at step `warmup`. */
typedef struct dtp_schedule {
    int32_t kind;                    /* dtp_schedule_kind */
    int32_t n;                       /* pieces */
    int64_t warmup;                  /* steps, 0: none */
    int64_t steps;                   /* above warmup */
    double last;                     /* 0 or more */
    int64_t at[DTP_SCHEDULE_PIECES]; /* ascending, from warmup on */
    double scale[DTP_SCHEDULE_PIECES];
} dtp_schedule;
DTP_ASSERT_SIZE(dtp_schedule, 288);

/* DTP_INVALID when a schedule is not as above. */
dtp_status dtp_schedule_check(const dtp_schedule *schedule, dtp_err *err) DTP_MUST_CHECK;
/* The factor of the rates at a step >= 0; the schedule is checked. NULL: 1. */
double dtp_schedule_at(const dtp_schedule *schedule, int64_t step);

DTP_API_END

#endif
