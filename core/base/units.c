/* Quantities as people write them, and as they read them: four digits and a unit. */
#include "core/base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"

/* ---- read ---- */

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

bool dtp_duration_parse(const char *text, int64_t *seconds)
{
    int64_t n;
    if (!dtp_int_read(&text, &n) || n < 1 || text[0] == '\0' || text[1] != '\0') {
        return false;
    }
    const int64_t unit = *text == 's' ? 1 : *text == 'm' ? 60 : *text == 'h' ? 3600 : 0;
    return unit > 0 && dtp_mul_i64(n, unit, seconds);
}

/* ---- printed ---- */

/* A number in a unit, with four digits. */
static dtp_quantity text_of(double value, const char *sign, const char *unit, int decimals)
{
    dtp_quantity q;
    (void)snprintf(q.text, sizeof q.text, "%s%.*f %s", sign, decimals, value, unit);
    return q;
}

/* As many decimals as make four digits. */
static int decimals_of(double value)
{
    return value < 9.9995 ? 3 : value < 99.995 ? 2 : value < 999.95 ? 1 : 0;
}

static const char *sign_of(double value, int more)
{
    return value < 0 ? "-" : more && value > 0 ? "+" : "";
}

static dtp_quantity seconds(double value, int more)
{
    static const struct {
        double size;
        const char *unit;
    } units[] = {{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    const double size = fabs(value);
    dtp_quantity q;
    size_t i = 0;
    if (!(size < 1e6)) {
        (void)snprintf(q.text, sizeof q.text, "%s%.3g s", sign_of(value, more), size);
        return q;
    }
    if (size == 0.0) {
        return text_of(0.0, "", "s", 0);
    }
    while (i + 1 < sizeof units / sizeof units[0] && size < 0.99995 * units[i].size) {
        i++;
    }
    return text_of(size / units[i].size, sign_of(value, more), units[i].unit,
                   decimals_of(size / units[i].size));
}

static dtp_quantity bytes(double value, int more)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = fabs(value);
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof units[0] && size >= (i == 0 ? 1024.0 : 1023.95)) {
        size /= 1024.0;
        i++;
    }
    return text_of(size, sign_of(value, more), units[i], i == 0 ? 0 : decimals_of(size));
}

dtp_quantity dtp_seconds(double value)
{
    return seconds(value, 0);
}

dtp_quantity dtp_byte_count(double value)
{
    return bytes(value, 0);
}

dtp_quantity dtp_amount(double count)
{
    dtp_quantity q;
    if (count < 1e6) {
        (void)snprintf(q.text, sizeof q.text, "%.0f", count);
    } else {
        const bool billions = count >= 999.5e6;
        (void)snprintf(q.text, sizeof q.text, "%.3g %s", count / (billions ? 1e9 : 1e6),
                       billions ? "billion" : "million");
    }
    return q;
}

dtp_quantity dtp_seconds_more(double value)
{
    return seconds(value, 1);
}

dtp_quantity dtp_bytes_more(double value)
{
    return bytes(value, 1);
}
