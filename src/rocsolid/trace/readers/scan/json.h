/* Checks JSON and skips it.

   A function that reads takes the position where it begins and returns the position after what it read, or NULL if it
   is not valid. No end is passed: the text ends with a NUL, as Python bytes do, and valid JSON contains no NUL. */

#pragma once

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "only little-endian machines are supported"
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef const char *cursor;

enum { MAX_DEPTH = 64 };

typedef struct {
    cursor from;
    size_t length;
    int no_escapes;
} slice;

ALWAYS_INLINE cursor skip_space(cursor p) {
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') p++;
    return p;
}

ALWAYS_INLINE int is_digit(char c) { return (unsigned char)(c - '0') < 10; }

static cursor escape(cursor p) { /* p is after the backslash */
    if (*p != 'u') return *p && strchr("\"\\/bfnrt", *p) ? p + 1 : NULL;
    for (int n = 1; n <= 4; n++)
        if (!is_digit(p[n]) && !((p[n] | 0x20) >= 'a' && (p[n] | 0x20) <= 'f')) return NULL;
    return p + 5;
}

ALWAYS_INLINE cursor string(cursor p, cursor limit, slice *w) { /* p is after the opening quote */
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    w->from = p;
    w->no_escapes = 1;
    for (;;) {
        while (p <= limit) { /* eight bytes at once, up to a quote, a backslash or a control character */
            uint64_t x, quote, slash, found;
            memcpy(&x, p, 8);
            quote = x ^ ones * '"';
            slash = x ^ ones * '\\';
            found = (((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((x - ones * 0x20) & ~x)) & tops;
            if (found) {
                p += __builtin_ctzll(found) >> 3;
                break;
            }
            p += 8;
        }
        if (*p == '"') {
            w->length = (size_t)(p - w->from);
            return p + 1;
        }
        if ((unsigned char)*p < 0x20) return NULL;
        if (*p++ == '\\') {
            w->no_escapes = 0;
            if (!(p = escape(p))) return NULL;
        }
    }
}

static cursor number(cursor p) {
    p += *p == '-';
    if (!is_digit(*p) || (*p == '0' && is_digit(p[1]))) return NULL;
    while (is_digit(*p)) p++;
    if (*p == '.') {
        if (!is_digit(*++p)) return NULL;
        while (is_digit(*p)) p++;
    }
    if ((*p | 0x20) == 'e') {
        p++;
        p += *p == '+' || *p == '-';
        if (!is_digit(*p)) return NULL;
        while (is_digit(*p)) p++;
    }
    return p;
}

ALWAYS_INLINE cursor literal(cursor p, const char *name) {
    size_t length = strlen(name);
    return !strncmp(p, name, length) ? p + length : NULL;
}

static cursor value(cursor p, cursor limit, int depth);

static cursor list(cursor p, cursor limit, int depth) { /* p is after the bracket */
    p = skip_space(p);
    if (*p == ']') return p + 1;
    for (;;) {
        if (!(p = value(p, limit, depth + 1))) return NULL;
        p = skip_space(p);
        if (*p == ']') return p + 1;
        if (*p++ != ',') return NULL;
    }
}

static cursor object(cursor p, cursor limit, int depth) { /* p is after the brace */
    slice key;
    p = skip_space(p);
    if (*p == '}') return p + 1;
    for (;;) {
        p = skip_space(p);
        if (*p != '"' || !(p = string(p + 1, limit, &key))) return NULL;
        p = skip_space(p);
        if (*p != ':' || !(p = value(p + 1, limit, depth + 1))) return NULL;
        p = skip_space(p);
        if (*p == '}') return p + 1;
        if (*p++ != ',') return NULL;
    }
}

static cursor value(cursor p, cursor limit, int depth) {
    slice ignored;
    p = skip_space(p);
    if (depth > MAX_DEPTH) return NULL;
    switch (*p) {
    case '"': return string(p + 1, limit, &ignored);
    case '[': return list(p + 1, limit, depth);
    case '{': return object(p + 1, limit, depth);
    case 't': return literal(p, "true");
    case 'f': return literal(p, "false");
    case 'n': return literal(p, "null");
    default: return number(p);
    }
}
