/* Unused events, such as Python functions, mostly differ only in their numbers and strings. A template is the text
   of such an event with holes for them. An event that matches a template is valid and of the same kind, so only its
   numbers and strings need to be checked. */

#pragma once

#include "json.h"

enum { TEMPLATES = 8, MAX_TEMPLATE = 1000, MAX_HOLES = 40, MAX_TEMPLATES_MADE = 256 };

typedef struct {
    char characters[MAX_TEMPLATE]; /* the text without the holes */
    struct {
        size_t at; /* offset of the hole in `characters` */
        int text;  /* 1: a string, whose quotes are in `characters`; 0: a number */
    } holes[MAX_HOLES];
    size_t size;
    int count;
    int64_t *counter; /* the counter of these events; NULL when this template is not in use */
    int64_t matches;  /* how often an event matched */
} event_template;

/* Returns the end of the event if it matches the template, otherwise NULL. */
ALWAYS_INLINE cursor match_template(const event_template *known, cursor p, cursor limit, cursor last) {
    const char *characters = known->characters;
    size_t from = 0;
    for (int n = 0; n <= known->count; n++) {
        size_t length = (n < known->count ? known->holes[n].at : known->size) - from;
        if ((size_t)(last - p) < length || memcmp(p, characters + from, length)) return NULL;
        p += length;
        from += length;
        if (n == known->count) return p;
        if (known->holes[n].text) {
            slice ignored;
            if (!(p = string(p, limit, &ignored))) return NULL;
            p--; /* the closing quote is part of the template */
        } else if (!(p = number(p)))
            return NULL;
    }
    return NULL;
}

/* Makes a template of a valid event; 0 when the event is too long. The strings at `fixed` (phase and category) are part
   of the template, not holes. */
static int make_template(event_template *s, cursor p, cursor end, cursor limit, const cursor fixed[2]) {
    s->size = 0;
    s->count = 0;
    while (p < end) {
        cursor from = p, to = p + 1; /* the text for `characters` */
        slice found;
        int hole = 0;
        if (*p == '"') {
            p = string(p + 1, limit, &found);
            hole = found.from != fixed[0] && found.from != fixed[1] && *skip_space(p) != ':';
            to = hole ? to : p;
        } else if (*p == '-' || is_digit(*p)) {
            p = number(p);
            hole = 1;
            to = from;
        } else
            p++;
        const size_t length = (size_t)(to - from);
        if (s->size + length + 1 > MAX_TEMPLATE || s->count + hole > MAX_HOLES) return 0;
        memcpy(s->characters + s->size, from, length);
        s->size += length;
        if (hole) {
            s->holes[s->count].at = s->size;
            s->holes[s->count++].text = *from == '"';
            if (*from == '"') s->characters[s->size++] = '"';
        }
    }
    return 1;
}
