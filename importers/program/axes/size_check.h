/* Whether all sizes of a program follow those of its inputs. */
#ifndef DTP_IMPORTERS_PROGRAM_AXES_SIZE_CHECK_H
#define DTP_IMPORTERS_PROGRAM_AXES_SIZE_CHECK_H

#include "importers/program/axes/axes.h"

/* Sizes that may change are expressions over those of inputs in the file; those of the model are
 * dims. Other sizes of inputs are tried: DTP_UNSUPPORTED naming file, op and source line where a
 * tensor would then have another size than the program says, so that a number of the export would
 * stay in the model. */
dtp_status dtp_axes_check_sizes(const dtp_axes *x, dtp_err *err) DTP_MUST_CHECK;

#endif
