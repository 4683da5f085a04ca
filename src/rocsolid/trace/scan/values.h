/* Values of the types that Kineto writes. */

#pragma once

#include "json.h"

typedef enum { NONE, GIVEN, ODD } outcome; /* nothing; a value; a value that is for the reader in Python to judge */

ALWAYS int goes_on(char c) { return is_digit(c) || c == '.' || (c | 0x20) == 'e'; }

/* A whole number. Producers write some as text, which is odd. */
static place whole(place p, place limit, int64_t *found, outcome *how) {
    p = skip_space(p);
    *how = ODD;
    if (*p == 'n') {
        *how = NONE;
        return literal(p, "null");
    }
    if (*p == '"') {
        word ignored;
        return string(p + 1, limit, &ignored);
    }
    place at = p + (*p == '-'), first = at;
    int64_t sum = 0;
    for (; is_digit(*at) && at - first < 18; at++) sum = sum * 10 + (*at - '0');
    if (at == first || (*first == '0' && at - first > 1)) return NULL;
    if (goes_on(*at)) return number(p); /* decimals, an exponent, more digits */
    *found = *p == '-' ? -sum : sum;
    *how = GIVEN;
    return at;
}

/* Microseconds with at most three decimals, below `bound`, to whole nanoseconds. */
static place microseconds(place p, int64_t bound, int64_t *found, outcome *how) {
    p = skip_space(p);
    place at = p;
    int64_t sum = 0, scale = 1000;
    *how = ODD;
    for (; is_digit(*at) && at - p < 17; at++) sum = sum * 10 + (*at - '0');
    if (at == p || (*p == '0' && at - p > 1) || sum >= bound) return number(p);
    if (*at == '.' && is_digit(at[1]))
        for (at++; is_digit(*at) && scale > 1; at++, scale /= 10) sum = sum * 10 + (*at - '0');
    if (goes_on(*at)) return number(p); /* more decimals, an exponent */
    *found = sum * scale;
    *how = GIVEN;
    return at;
}
