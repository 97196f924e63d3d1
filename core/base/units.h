/* Quantities as people write them, and as they read them: four digits and a unit. Exact numbers are
 * in JSON. */
#ifndef DTP_CORE_BASE_UNITS_H
#define DTP_CORE_BASE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* ---- read ---- */

/* A whole number at *text, which moves behind it: "40", "-3", "40e9", "1.5e3". Exact. False, and
 * *text stays, when there is none, it is not whole, or it does not fit. */
bool dtp_int_read(const char **text, int64_t *out);
/* The same; nothing may follow it. */
bool dtp_int_parse(const char *text, int64_t *out);

/* A size of at least one byte: "4096", "40e9", "1.5G", "80GB", "40GiB". K M G T P are powers of
 * 1024, with or without "iB"; with "B" they are powers of 1000. Parts of a byte are dropped. */
bool dtp_bytes_parse(const char *text, int64_t *out);

/* A time of at least one second, in seconds: "30s", "10m", "2h", "1.5e3s". */
bool dtp_duration_parse(const char *text, int64_t *seconds);

/* ---- printed ---- */

/* printf("%s", dtp_seconds(x).text): valid to the end of the expression. */
typedef struct dtp_quantity {
    char text[24];
} dtp_quantity;

/* "1.728 s", "182.4 ms", "12.35 us", "250.0 ns", "0 s"; "3.2e+06 s" from a million seconds on. */
dtp_quantity dtp_seconds(double seconds);
/* "512 B", "1.500 KiB", "52.01 GiB": powers of 1024. */
dtp_quantity dtp_byte_count(double bytes);
/* Of things: "5120", "12.4 million", "8.03 billion". */
dtp_quantity dtp_amount(double count);
/* The same with a sign: of differences. */
dtp_quantity dtp_seconds_more(double seconds);
dtp_quantity dtp_bytes_more(double bytes);

#endif
