/* Texts in messages: those of others (files, options, tensor names) in a line for a terminal; which
 * name was meant, which ones there are. */
#ifndef DTP_CORE_BASE_TEXT_H
#define DTP_CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies a NUL-terminated text into out[size], size >= 1, always with its NUL. Control characters,
 * line separators, marks of writing direction and bytes that are not UTF-8 become \n, \r, \t, \xHH
 * or \uHHHH; a backslash stays, so that a line that was made by this function is not changed. What
 * does not fit is cut between characters. Returns the length. */
size_t dtp_one_line(const char *text, char *out, size_t size);

/* Bytes of the UTF-8 character at p (RFC 3629), of which n >= 1 can be read, and its code point;
 * 0 when it is malformed or longer than n. code may be NULL. */
size_t dtp_utf8_next(const char *p, size_t n, uint32_t *code);
/* Writes the character of a code point; returns its bytes. */
size_t dtp_utf8_put(uint32_t code, char out[4]);

enum { DTP_NAME_MOST = 512 };

/* Number of single-character insertions, deletions and replacements between two texts, at most
 * `limit` + 1; texts longer than DTP_NAME_MOST count as far apart. For "did you mean". */
int32_t dtp_name_distance(const char *a, const char *b, int32_t limit);

/* The name of a tensor or node without the numbers of its blocks: "layers.12.attn.wq" becomes
 * "layers.*.attn.wq". Cut to the buffer. */
void dtp_general_name(const char *name, char *out, size_t size);

/* Writes "a, b, c", cut to the buffer, of a list that ends with NULL. */
void dtp_names_join(const char *const *names, char *out, size_t size);

#endif
