/* Texts in messages: those of others (files, options, tensor names) in a line for a terminal;
 * which name was meant, which ones there are. */
#include "core/base/text.h"

#include <stdio.h>
#include <string.h>

/* Bytes of a character as its first byte says, 0 for a byte that begins none. */
static size_t utf8_length(unsigned char first)
{
    return first < 0x80   ? 1
           : first < 0xC2 ? 0
           : first < 0xE0 ? 2
           : first < 0xF0 ? 3
           : first < 0xF5 ? 4
                          : 0;
}

size_t dtp_utf8_next(const char *p, size_t n, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)p;
    const size_t length = utf8_length(bytes[0]);
    if (length == 0 || length > n) {
        return 0;
    }
    uint32_t value = length == 1 ? bytes[0] : bytes[0] & (0x7FU >> length);
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xC0U) != 0x80U) {
            return 0;
        }
        value = value << 6 | (bytes[i] & 0x3FU);
    }
    if (value < least[length] || (value >= 0xD800 && value <= 0xDFFF) || value > 0x10FFFF) {
        return 0;
    }
    if (code != NULL) {
        *code = value;
    }
    return length;
}

size_t dtp_utf8_put(uint32_t code, char out[4])
{
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    const size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80U | (code & 0x3FU));
        code >>= 6;
    }
    out[0] = (char)(lead[n] | code);
    return n;
}

/* Whether a terminal would obey the character in place of showing it. */
static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code <= 0x9F) || (code >= 0x2028 && code <= 0x202E) ||
           (code >= 0x2066 && code <= 0x2069);
}

size_t dtp_one_line(const char *text, char *out, size_t size)
{
    size_t used = 0, left = strlen(text);
    while (left > 0) {
        uint32_t code = (unsigned char)*text;
        char buffer[8];
        const size_t read = dtp_utf8_next(text, left, &code);
        const char *shown = text;
        size_t n = read;
        if (read == 0 && left < utf8_length((unsigned char)*text)) {
            size_t rest = 1; /* a copy that was cut within its last character? */
            while (rest < left && ((unsigned char)text[rest] & 0xC0U) == 0x80U) {
                rest++;
            }
            if (rest == left) {
                break;
            }
        }
        if (read > 0 && (code == '\n' || code == '\r' || code == '\t')) {
            shown = code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
            n = 2;
        } else if (read == 0 || is_control(code)) {
            n = (size_t)snprintf(buffer, sizeof buffer,
                                 read == 0 || code < 0x80 ? "\\x%02x" : "\\u%04x",
                                 (unsigned)code & 0xFFFFU);
            shown = buffer;
        }
        if (used + n >= size) {
            break;
        }
        memcpy(out + used, shown, n);
        used += n;
        text += read > 0 ? read : 1;
        left -= read > 0 ? read : 1;
    }
    out[used] = '\0';
    return used;
}

/* ---- names ---- */

int32_t dtp_name_distance(const char *a, const char *b, int32_t limit)
{
    int32_t row[DTP_NAME_MOST + 1];
    const int32_t na = (int32_t)strnlen(a, DTP_NAME_MOST + 1);
    const int32_t nb = (int32_t)strnlen(b, DTP_NAME_MOST + 1);
    if (na > DTP_NAME_MOST || nb > DTP_NAME_MOST || na - nb > limit || nb - na > limit) {
        return limit + 1;
    }
    for (int32_t j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (int32_t i = 1; i <= na; i++) {
        int32_t diagonal = row[0];
        row[0] = i;
        for (int32_t j = 1; j <= nb; j++) {
            const int32_t above = row[j];
            int32_t best = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[nb] <= limit ? row[nb] : limit + 1;
}

void dtp_names_join(const char *const *names, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (; *names != NULL && n < size; names++) {
        n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", *names);
    }
}

void dtp_general_name(const char *name, char *out, size_t size)
{
    size_t n = 0;
    for (const char *at = name; *at != '\0' && n + 1 < size;) {
        const size_t digits = strspn(at, "0123456789");
        const bool whole = digits > 0 && (at == name || at[-1] == '.') &&
                           (at[digits] == '.' || at[digits] == '\0');
        out[n++] = whole ? '*' : *at;
        at += whole ? digits : 1;
    }
    out[n] = '\0';
}
