/* Words by number: each is kept once, and a new one gets the next number. */

#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *letters;
    size_t *ends; /* of each word in `letters` */
    uint64_t *hashes;
    uint32_t *slots; /* number + 1 of a word, or 0 */
    size_t used, room;
    uint32_t count, most, mask; /* there are mask + 1 slots, a power of two */
} words;

static uint64_t hash_of(const char *from, size_t length) {
    uint64_t hash = 0x9E3779B97F4A7C15u ^ length, part;
    for (; length >= 8; from += 8, length -= 8) {
        memcpy(&part, from, 8);
        hash = (hash ^ part) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    part = 0;
    memcpy(&part, from, length);
    hash = (hash ^ part) * 0xFF51AFD7ED558CCDu;
    return hash ^ hash >> 29;
}

static int more_slots(words *w) {
    uint32_t mask = w->mask ? w->mask * 2 + 1 : 255;
    uint32_t *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (!slots) return 0;
    for (uint32_t n = 0; n < w->count; n++) {
        uint32_t slot = (uint32_t)w->hashes[n] & mask;
        while (slots[slot]) slot = (slot + 1) & mask;
        slots[slot] = n + 1;
    }
    free(w->slots);
    w->slots = slots;
    w->mask = mask;
    return 1;
}

static int room_for(words *w, size_t length) {
    if (w->count == w->most) {
        uint32_t most = w->most ? w->most * 2 : 128;
        size_t *ends = realloc(w->ends, most * sizeof *ends);
        if (ends) w->ends = ends;
        uint64_t *hashes = realloc(w->hashes, most * sizeof *hashes);
        if (hashes) w->hashes = hashes;
        if (!ends || !hashes) return 0;
        w->most = most;
    }
    if (!w->letters || w->used + length > w->room) {
        size_t room = (w->used + length) * 2 + 1;
        char *letters = realloc(w->letters, room);
        if (!letters) return 0;
        w->letters = letters;
        w->room = room;
    }
    return 1;
}

/* The number of a word, new or known; -1 when there is no memory for it. */
static int32_t number_of(words *w, const char *from, size_t length) {
    if ((uint64_t)w->count * 2 >= w->mask && !more_slots(w)) return -1;
    uint64_t hash = hash_of(from, length);
    uint32_t slot = (uint32_t)hash & w->mask;
    for (uint32_t n; (n = w->slots[slot]); slot = (slot + 1) & w->mask) {
        size_t begin = n > 1 ? w->ends[n - 2] : 0;
        if (w->hashes[n - 1] != hash || w->ends[n - 1] - begin != length) continue;
        if (!memcmp(w->letters + begin, from, length)) return (int32_t)(n - 1);
    }
    if (w->count > INT32_MAX / 2 || !room_for(w, length)) return -1;
    memcpy(w->letters + w->used, from, length);
    w->used += length;
    w->ends[w->count] = w->used;
    w->hashes[w->count] = hash;
    w->slots[slot] = ++w->count;
    return (int32_t)(w->count - 1);
}
