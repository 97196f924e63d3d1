/* The files of models/templates/, which are part of the library (decision 58). */
#ifndef DTP_IMPORTERS_HF_TEMPLATES_H
#define DTP_IMPORTERS_HF_TEMPLATES_H

#include <stddef.h>

typedef struct dtp_template_text {
    const char *file; /* names the text in errors; NULL ends the list */
    const unsigned char *text;
    size_t len;
} dtp_template_text;

extern const dtp_template_text dtp_template_texts[];

#endif
