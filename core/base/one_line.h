/* Texts of others (files, options, tensor names) in a line for a terminal. */
#ifndef DTP_CORE_BASE_ONE_LINE_H
#define DTP_CORE_BASE_ONE_LINE_H

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

#endif
