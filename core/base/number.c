#include "core/base/number.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"

enum { MAX_EXPONENT = 400 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits that are put behind *value, which is not positive; counts them. */
static bool read_digits(const char **at, int64_t *value, int32_t *n)
{
    bool fits = true;
    for (; is_digit(**at); (*at)++, (*n)++) {
        fits = fits && dtp_mul_i64(*value, 10, value) && dtp_add_i64(*value, '0' - **at, value);
    }
    return fits;
}

/* The exponent "e9", "E-2" at *at, 0 when there is none. */
static int32_t read_exponent(const char **at)
{
    const char *p = *at;
    if (*p != 'e' && *p != 'E') {
        return 0;
    }
    p++;
    const bool negative = *p == '-';
    p += *p == '-' || *p == '+' ? 1 : 0;
    if (!is_digit(*p)) {
        return 0;
    }
    int32_t exponent = 0;
    for (; is_digit(*p); p++) {
        exponent = exponent < MAX_EXPONENT ? 10 * exponent + (*p - '0') : exponent;
    }
    *at = p;
    return negative ? -exponent : exponent;
}

/* A value of 0 has any exponent. */
static bool scale(int64_t *value, int32_t exponent)
{
    bool whole = true;
    for (; exponent > 0 && whole && *value != 0; exponent--) {
        whole = dtp_mul_i64(*value, 10, value);
    }
    for (; exponent < 0 && whole && *value != 0; exponent++) {
        whole = *value % 10 == 0;
        *value /= 10;
    }
    return whole;
}

bool dtp_int_read(const char **text, int64_t *out)
{
    const char *at = *text;
    const bool negative = *at == '-';
    int64_t value = 0;
    int32_t n = 0, fraction = 0;
    at += negative ? 1 : 0;
    bool good = read_digits(&at, &value, &n) && n > 0;
    if (n > 0 && at[0] == '.' && is_digit(at[1])) {
        at++;
        good = read_digits(&at, &value, &fraction) && good;
    }
    if (!good || !scale(&value, read_exponent(&at) - fraction) ||
        (!negative && value == INT64_MIN)) {
        return false;
    }
    *text = at;
    *out = negative ? value : -value;
    return true;
}

bool dtp_int_parse(const char *text, int64_t *out)
{
    int64_t value;
    if (!dtp_int_read(&text, &value) || *text != '\0') {
        return false;
    }
    *out = value;
    return true;
}

bool dtp_bytes_parse(const char *text, int64_t *out)
{
    static const char units[] = "KMGTP";
    char *end;
    if (!is_digit(text[0]) && text[0] != '.') {
        return false;
    }
    double v = strtod(text, &end);
    if (end == text) {
        return false;
    }
    const char *unit = *end != '\0' ? strchr(units, toupper((unsigned char)*end)) : NULL;
    const char *tail = unit != NULL ? end + 1 : end;
    const bool decimal = strcmp(tail, "B") == 0;
    for (long i = unit != NULL ? unit - units : -1; i >= 0; i--) {
        v *= decimal ? 1000.0 : 1024.0;
    }
    const bool known = *tail == '\0' || decimal || (unit != NULL && strcmp(tail, "iB") == 0);
    if (!known || !(v >= 1.0) || v > 9e18) {
        return false;
    }
    *out = (int64_t)v;
    return true;
}
