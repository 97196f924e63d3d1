/* Parts of a template, written with the values of a scope. */
#ifndef DTP_IMPORTERS_HF_INSTANCE_H
#define DTP_IMPORTERS_HF_INSTANCE_H

#include "importers/hf/scope.h"

/* The object v as a file, from the arena of the scope. */
dtp_status dtp_instance_write(dtp_scope *scope, const dtp_json *v, const char **out,
                              dtp_err *err) DTP_MUST_CHECK;

#endif
