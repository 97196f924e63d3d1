/* Names in messages: which one was meant, which ones there are. */
#ifndef DTP_CORE_BASE_NAMES_H
#define DTP_CORE_BASE_NAMES_H

#include <stddef.h>
#include <stdint.h>

enum { DTP_NAME_MOST = 512 };

/* Number of single-character insertions, deletions and replacements between two texts, at most
 * `limit` + 1; texts longer than DTP_NAME_MOST count as far apart. For "did you mean". */
int32_t dtp_name_distance(const char *a, const char *b, int32_t limit);

/* Writes "a, b, c", cut to the buffer, of a list that ends with NULL. */
void dtp_names_join(const char *const *names, char *out, size_t size);

#endif
