/* Quantities as people read them: four digits and a unit. Exact numbers are in JSON. */
#ifndef DTP_CORE_BASE_UNITS_H
#define DTP_CORE_BASE_UNITS_H

#include <stdint.h>

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
