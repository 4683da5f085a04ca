/* Values of the types that Kineto writes. */

#pragma once

#include "json.h"

typedef enum { MISSING, PRESENT, UNUSUAL } value_kind; /* UNUSUAL: Python has to read this event */

ALWAYS_INLINE int continues_number(char c) { return is_digit(c) || c == '.' || (c | 0x20) == 'e'; }

/* An integer. Some producers write integers as text, which is unusual. */
static cursor integer(cursor p, cursor limit, int64_t *found, value_kind *kind) {
    p = skip_space(p);
    *kind = UNUSUAL;
    if (*p == 'n') {
        *kind = MISSING;
        return literal(p, "null");
    }
    if (*p == '"') {
        slice ignored;
        return string(p + 1, limit, &ignored);
    }
    cursor at = p + (*p == '-'), first = at;
    int64_t sum = 0;
    for (; is_digit(*at) && at - first < 18; at++) sum = sum * 10 + (*at - '0');
    if (at == first || (*first == '0' && at - first > 1)) return NULL;
    if (continues_number(*at)) return number(p); /* decimals, an exponent, more digits */
    *found = *p == '-' ? -sum : sum;
    *kind = PRESENT;
    return at;
}

/* Microseconds with at most three decimals, below `bound`, to integer nanoseconds. */
static cursor microseconds(cursor p, int64_t bound, int64_t *found, value_kind *kind) {
    p = skip_space(p);
    cursor at = p;
    int64_t sum = 0, scale = 1000;
    *kind = UNUSUAL;
    for (; is_digit(*at) && at - p < 17; at++) sum = sum * 10 + (*at - '0');
    if (at == p || (*p == '0' && at - p > 1) || sum >= bound) return number(p);
    if (*at == '.' && is_digit(at[1]))
        for (at++; is_digit(*at) && scale > 1; at++, scale /= 10) sum = sum * 10 + (*at - '0');
    if (continues_number(*at)) return number(p); /* more decimals, an exponent */
    *found = sum * scale;
    *kind = PRESENT;
    return at;
}
