/* Names of dims. */
#ifndef DTP_IMPORTERS_PROGRAM_AXES_DIM_NAMES_H
#define DTP_IMPORTERS_PROGRAM_AXES_DIM_NAMES_H

#include "importers/program/axes/axes.h"

/* Gives every dim its name. */
dtp_status dtp_axes_name(dtp_axes *x, dtp_err *err) DTP_MUST_CHECK;
/* The name of a class, or one of its further names. */
const char *dtp_class_name(dtp_axes *x, int32_t cls, int32_t alias);

#endif
