#include "core/base/units.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

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
