/* When a program needs its values. */
#ifndef DTP_SPMD_LOWER_LIVENESS_H
#define DTP_SPMD_LOWER_LIVENESS_H

#include "spmd/program/program.h"

/* Sets value.first and value.last of every value: the first and the last instruction at which its
 * buffer is needed. */
void dtp_program__liveness(dtp_program *p);

#endif
