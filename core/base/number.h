/* Numbers in texts, as people write them. */
#ifndef DTP_CORE_BASE_NUMBER_H
#define DTP_CORE_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* A whole number at *text, which moves behind it: "40", "-3", "40e9", "1.5e3". Exact. False, and
 * *text stays, when there is none, it is not whole, or it does not fit. */
bool dtp_int_read(const char **text, int64_t *out);
/* The same; nothing may follow it. */
bool dtp_int_parse(const char *text, int64_t *out);

/* A size of at least one byte: "4096", "40e9", "1.5G", "80GB", "40GiB". K M G T P are powers of
 * 1024, with or without "iB"; with "B" they are powers of 1000. Parts of a byte are dropped. */
bool dtp_bytes_parse(const char *text, int64_t *out);

#endif
