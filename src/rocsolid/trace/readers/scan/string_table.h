/* Strings by id: each distinct string is stored once and gets the next id. */

#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *characters;
    size_t *ends; /* of each string in `characters` */
    uint64_t *hashes;
    uint32_t *slots; /* id + 1 of a string, or 0 */
    uint64_t seed[2];
    size_t used, room;
    uint32_t count, max_count, mask; /* there are mask + 1 slots, a power of two */
    uint32_t last; /* the id that was returned last: many events repeat the strings of the event before */
} string_table;

/* The seed is random, and decides by what is multiplied: names in a file cannot be chosen so that many get the same slot. With a
   known factor they could, for every seed that is only added. */
static uint64_t multiply(uint64_t hash, const uint64_t seed[2]) {
    unsigned __int128 product = (unsigned __int128)(hash ^ seed[0]) * (seed[1] | 1);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const char *from, size_t length, const uint64_t seed[2]) {
    uint64_t hash = length, part;
    for (; length >= 8; from += 8, length -= 8) {
        memcpy(&part, from, 8);
        hash = multiply(hash ^ part, seed);
    }
    part = 0;
    memcpy(&part, from, length);
    return multiply(multiply(hash ^ part, seed), seed);
}

static int grow_slots(string_table *t) {
    uint32_t mask = t->mask ? t->mask * 2 + 1 : 255;
    uint32_t *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (!slots) return 0;
    for (uint32_t n = 0; n < t->count; n++) {
        uint32_t slot = (uint32_t)t->hashes[n] & mask;
        while (slots[slot]) slot = (slot + 1) & mask;
        slots[slot] = n + 1;
    }
    free(t->slots);
    t->slots = slots;
    t->mask = mask;
    return 1;
}

static int reserve(string_table *t, size_t length) {
    if (t->count == t->max_count) {
        uint32_t max_count = t->max_count ? t->max_count * 2 : 128;
        size_t *ends = realloc(t->ends, max_count * sizeof *ends);
        if (ends) t->ends = ends;
        uint64_t *hashes = realloc(t->hashes, max_count * sizeof *hashes);
        if (hashes) t->hashes = hashes;
        if (!ends || !hashes) return 0;
        t->max_count = max_count;
    }
    if (!t->characters || t->used + length > t->room) {
        size_t room = (t->used + length) * 2 + 1;
        char *characters = realloc(t->characters, room);
        if (!characters) return 0;
        t->characters = characters;
        t->room = room;
    }
    return 1;
}

static int is_string(const string_table *t, uint32_t id, const char *from, size_t length) {
    size_t begin = id ? t->ends[id - 1] : 0;
    return t->ends[id] - begin == length && !memcmp(t->characters + begin, from, length);
}

/* The id of a string, which is added if it is new; -1 when there is no memory for it. */
static int32_t id_of(string_table *t, const char *from, size_t length) {
    if (t->last < t->count && is_string(t, t->last, from, length)) return (int32_t)t->last;
    if ((uint64_t)t->count * 2 >= t->mask && !grow_slots(t)) return -1;
    uint64_t hash = hash_of(from, length, t->seed);
    uint32_t slot = (uint32_t)hash & t->mask;
    for (uint32_t n; (n = t->slots[slot]); slot = (slot + 1) & t->mask) {
        if (t->hashes[n - 1] == hash && is_string(t, n - 1, from, length)) return (int32_t)(t->last = n - 1);
    }
    if (t->count > INT32_MAX / 2 || !reserve(t, length)) return -1;
    memcpy(t->characters + t->used, from, length);
    t->used += length;
    t->ends[t->count] = t->used;
    t->hashes[t->count] = hash;
    t->slots[slot] = ++t->count;
    return (int32_t)(t->last = t->count - 1);
}
