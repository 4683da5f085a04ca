/* Events that are set aside differ from one another in their numbers and strings alone. The text between those is
   remembered; an event that has the same text there is well-formed too, of the same kind, and passed over quickly. */

#pragma once

#include "json.h"

enum { SKELETONS = 8, LONGEST_SKELETON = 1000, MOST_HOLES = 40, MOST_LEARNT = 256 };

typedef struct {
    char letters[LONGEST_SKELETON]; /* without what stood in the holes */
    struct {
        size_t at; /* letters before this hole, and behind the one before it */
        int text;  /* a string, whose quotes are among the letters; or else a number */
    } holes[MOST_HOLES];
    size_t size;
    int count;
    int64_t *counted; /* what such an event is counted by; NULL while there is no skeleton here */
    int64_t met;      /* how often it was of use */
} skeleton;

/* Behind an event that looks like this one; otherwise NULL. */
ALWAYS place like(const skeleton *known, place p, place limit, place last) {
    const char *letters = known->letters;
    size_t from = 0;
    for (int n = 0; n <= known->count; n++) {
        size_t length = (n < known->count ? known->holes[n].at : known->size) - from;
        if ((size_t)(last - p) < length || memcmp(p, letters + from, length)) return NULL;
        p += length;
        from += length;
        if (n == known->count) return p;
        if (known->holes[n].text) {
            word ignored;
            if (!(p = string(p, limit, &ignored))) return NULL;
            p--; /* the closing quote is a letter */
        } else if (!(p = number(p)))
            return NULL;
    }
    return NULL;
}

/* Take an event apart that was read before; 0 when it is too long. What is at `fixed` tells the kind, and is no hole. */
static int learn(skeleton *s, place p, place end, place limit, const place fixed[2]) {
    s->size = 0;
    s->count = 0;
    while (p < end) {
        place from = p, to = p + 1; /* what goes into the letters */
        word found;
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
        if (s->size + length + 1 > LONGEST_SKELETON || s->count + hole > MOST_HOLES) return 0;
        memcpy(s->letters + s->size, from, length);
        s->size += length;
        if (hole) {
            s->holes[s->count].at = s->size;
            s->holes[s->count++].text = *from == '"';
            if (*from == '"') s->letters[s->size++] = '"';
        }
    }
    return 1;
}
