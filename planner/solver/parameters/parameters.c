/* The tuning constants of the solver in one table: name, default, range, meaning. */
#include "planner/solver/parameters/parameters.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct parameter_row {
    const char *name;
    size_t at; /* in dtp_solver_parameters */
    bool real;
    double least, most;
    const char *meaning;
} parameter_row;

#define WHOLE(name, value, least, most, meaning)                                                   \
    {#name, offsetof(dtp_solver_parameters, name), false, least, most, meaning},
#define REAL(name, value, least, most, meaning)                                                    \
    {#name, offsetof(dtp_solver_parameters, name), true, least, most, meaning},
static const parameter_row ROWS[] = {DTP_SOLVER_PARAMETER_LIST(WHOLE, REAL)};
#define VALUE(name, value, least, most, meaning) .name = (value),
static const dtp_solver_parameters DEFAULTS = {DTP_SOLVER_PARAMETER_LIST(VALUE, VALUE)};

const dtp_solver_parameters *dtp_solver_parameters_default(void)
{
    return &DEFAULTS;
}

dtp_status dtp_solver_parameters_set(dtp_solver_parameters *p, const char *text, dtp_err *err)
{
    const parameter_row *row = NULL;
    const size_t length = strcspn(text, "=");
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        if (strlen(ROWS[i].name) == length && memcmp(ROWS[i].name, text, length) == 0) {
            row = &ROWS[i];
        }
    }
    if (row == NULL || text[length] != '=') {
        return DTP_FAIL(err, DTP_INVALID,
                        "--set: '%.80s' is not NAME=VALUE with a NAME of "
                        "`dtplan solve --parameters`",
                        text);
    }
    char *end;
    const char *number = text + length + 1;
    errno = 0;
    const double value = strtod(number, &end);
    const bool ok = end != number && *end == '\0' && errno == 0 && value >= row->least &&
                    value <= row->most && (row->real || floor(value) >= value);
    if (!ok) {
        return DTP_FAIL(err, DTP_INVALID, "--set: %s: '%.40s' is not a %s from %.10g to %.10g",
                        row->name, number, row->real ? "number" : "whole number", row->least,
                        row->most);
    }
    const int32_t whole = row->real ? 0 : (int32_t)value;
    if (row->real) {
        memcpy((char *)p + row->at, &value, sizeof value);
    } else {
        memcpy((char *)p + row->at, &whole, sizeof whole);
    }
    return DTP_OK;
}

void dtp_solver_parameters_print(const dtp_solver_parameters *p, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "%-28s %10s %10s %10s  %s\n", "parameter", "value", "least", "most",
                    "meaning");
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        const char *at = (const char *)p + ROWS[i].at;
        double real = 0.0;
        int32_t whole = 0;
        if (ROWS[i].real) {
            memcpy(&real, at, sizeof real);
        } else {
            memcpy(&whole, at, sizeof whole);
        }
        dtp_strbuf_addf(out, "%-28s %10.10g %10.10g %10.10g  %s\n", ROWS[i].name,
                        ROWS[i].real ? real : (double)whole, ROWS[i].least, ROWS[i].most,
                        ROWS[i].meaning);
    }
}
