/* Events of a trace of torch's profiler, from text to rows.

   Only what is plain is read here: well-formed JSON whose values have the types that Kineto writes. Anything else
   makes `scanner_read` return 0; then nothing of that text is kept, and the caller reads it in Python, which knows
   what to do about damage. So this may be stricter than the reader in Python, never more lenient. The caller has
   checked the UTF-8. */

#include "json.h"
#include "skeleton.h"
#include "values.h"
#include "words.h"

enum { DEVICE, CALLS, OPS, NOTES, TABLES };        /* tables */
enum { NAMES, SHAPES, THREADS, CATEGORIES, WORDS }; /* what is kept once and goes by number */
enum { MOST_CATEGORIES = 256, PHASES = 128, LONGEST_SHAPE = 400 };
static const int64_t UNKNOWN = INT64_MIN;

typedef struct {
    int64_t start, end, correlation, external, device, stream, bytes;
    int32_t name, other; /* the other is a shape on the device, a thread on the host */
    int64_t kind;
} row;

typedef struct {
    row *rows;
    size_t count, room;
} table;

typedef struct {
    size_t from, to;
} span;

typedef struct {
    size_t rows[TABLES];
    int64_t categories[MOST_CATEGORIES], phases[PHASES]; /* events that are set aside, by either */
} tally;

typedef struct {
    words words[WORDS];
    table tables[TABLES];
    int table_of[MOST_CATEGORIES], kind_of[MOST_CATEGORIES];
    uint32_t known; /* categories that are kept; they have the first numbers */
    tally now, before;
    span *others; /* events of the last text that the caller reads */
    size_t other_count, other_room;
    skeleton skeletons[SKELETONS];
    int learnt;              /* skeletons, the most useful of which are known */
    place text, limit, last; /* where a text begins, the last place from which eight bytes can be loaded, its end */
} scanner;

/* ---- Events ---- */

enum {
    PH = 1, CAT = 2, NAME = 4, PID = 8, TID = 16, TS = 32, DUR = 64, ARGS = 128,
    ON = 256, STREAM = 512, CORRELATION = 1024, EXTERNAL = 2048, BYTES = 4096,
    GRID = 8192, BLOCK = 16384, REGISTERS = 32768, SHARED = 65536,
};
static const unsigned DEVICE_NUMBERS = ON | STREAM | CORRELATION | EXTERNAL | BYTES | REGISTERS | SHARED;
static const unsigned HOST_NUMBERS = PID | TID | CORRELATION | EXTERNAL;
static const int64_t LATEST = 9000000000000000, LONGEST = 1000000000000; /* microseconds that Python counts exactly too */

typedef struct {
    word ph, cat, name, grid, block;
    int64_t pid, tid, ts, dur, device, stream, correlation, external, bytes, registers, shared;
    unsigned seen, given, odd; /* keys */
} event;

#define IS(text) (!memcmp(k.from, text, sizeof text - 1))

ALWAYS unsigned key_of(word k) {
    switch (k.length) {
    case 2: return IS("ph") ? PH : IS("ts") ? TS : 0;
    case 3: return IS("pid") ? PID : IS("tid") ? TID : IS("dur") ? DUR : IS("cat") ? CAT : 0;
    case 4: return IS("name") ? NAME : IS("args") ? ARGS : 0;
    default: return 0;
    }
}

ALWAYS unsigned argument_of(word k) {
    switch (k.length) {
    case 4: return IS("grid") ? GRID : 0;
    case 5: return IS("bytes") ? BYTES : IS("block") ? BLOCK : 0;
    case 6: return IS("device") ? ON : IS("stream") ? STREAM : 0;
    case 11: return IS("correlation") ? CORRELATION : IS("External id") ? EXTERNAL : 0;
    case 13: return IS("shared memory") ? SHARED : 0;
    case 20: return IS("registers per thread") ? REGISTERS : 0;
    default: return 0;
    }
}

ALWAYS void note(event *e, unsigned key, outcome how) {
    e->given |= how == GIVEN ? key : 0;
    e->odd |= how == ODD ? key : 0;
}

ALWAYS place text_of(place p, place limit, word *w) {
    p = skip_space(p);
    return *p == '"' ? string(p + 1, limit, w) : NULL;
}

ALWAYS place raw(place p, place limit, word *w) {
    w->from = p = skip_space(p);
    p = value(p, limit, 2);
    w->length = p ? (size_t)(p - w->from) : 0;
    return p;
}

ALWAYS place argument(place p, place limit, event *e, unsigned key) {
    int64_t *to;
    outcome how;
    switch (key) {
    case ON: to = &e->device; break;
    case STREAM: to = &e->stream; break;
    case CORRELATION: to = &e->correlation; break;
    case EXTERNAL: to = &e->external; break;
    case BYTES: to = &e->bytes; break;
    case REGISTERS: to = &e->registers; break;
    case SHARED: to = &e->shared; break;
    case GRID: return raw(p, limit, &e->grid);
    case BLOCK: return raw(p, limit, &e->block);
    default: return value(p, limit, 2);
    }
    p = whole(p, limit, to, &how);
    note(e, key, how);
    return p;
}

typedef unsigned (*naming)(word);
typedef place (*reading)(place, place, event *, unsigned);

/* The members of an event or of its arguments. A key that is escaped, or that comes twice, is for Python. */
ALWAYS place each_member(place p, place limit, event *e, naming named, reading read) {
    word key;
    if (*p != '{') return NULL;
    p = skip_space(p + 1);
    if (*p == '}') return p + 1;
    for (;;) {
        p = skip_space(p);
        if (*p != '"' || !(p = string(p + 1, limit, &key)) || !key.plain) return NULL;
        unsigned which = named(key);
        if (e->seen & which) return NULL;
        e->seen |= which;
        p = skip_space(p);
        if (*p != ':' || !(p = read(p + 1, limit, e, which))) return NULL;
        p = skip_space(p);
        if (*p == '}') return p + 1;
        if (*p++ != ',') return NULL;
    }
}

static place arguments(place p, place limit, event *e) { return each_member(p, limit, e, argument_of, argument); }

ALWAYS place member(place p, place limit, event *e, unsigned key) {
    outcome how;
    switch (key) {
    case PH: return text_of(p, limit, &e->ph);
    case CAT: return text_of(p, limit, &e->cat);
    case NAME: return text_of(p, limit, &e->name);
    case TS: p = microseconds(p, LATEST, &e->ts, &how); break;
    case DUR: p = microseconds(p, LONGEST, &e->dur, &how); break;
    case PID: p = whole(p, limit, &e->pid, &how); break;
    case TID: p = whole(p, limit, &e->tid, &how); break;
    case ARGS: return arguments(skip_space(p), limit, e);
    default: return value(p, limit, 1);
    }
    note(e, key, how);
    return p;
}

static place members(place p, place limit, event *e) { return each_member(p, limit, e, key_of, member); }

static int32_t shape_of(words *shapes, const event *e) {
    char key[LONGEST_SHAPE];
    const size_t grid = e->grid.length, block = e->block.length;
    int64_t numbers[2] = {e->given & REGISTERS ? e->registers : UNKNOWN, e->given & SHARED ? e->shared : UNKNOWN};
    if (grid > LONGEST_SHAPE || block > LONGEST_SHAPE || sizeof numbers + grid + 1 + block > sizeof key) return -1;
    memcpy(key, numbers, sizeof numbers);
    memcpy(key + sizeof numbers, e->grid.from, grid);
    key[sizeof numbers + grid] = 0;
    memcpy(key + sizeof numbers + grid + 1, e->block.from, block);
    return number_of(shapes, key, sizeof numbers + grid + 1 + block);
}

static int32_t thread_of(words *threads, const event *e) {
    int64_t key[2] = {e->pid, e->tid};
    return number_of(threads, (place)key, sizeof key);
}

static row *next_row(table *t) {
    if (t->count == t->room) {
        size_t room = t->room ? t->room * 2 : 4096;
        row *rows = realloc(t->rows, room * sizeof *rows);
        if (!rows) return NULL;
        t->rows = rows;
        t->room = room;
    }
    return &t->rows[t->count];
}

static int keep(scanner *s, const event *e, int which, int kind) {
    const unsigned device = e->given & ON ? ON : PID, stream = e->given & STREAM ? STREAM : TID;
    const unsigned needed = TS | DUR | (which == DEVICE ? device | stream : PID | TID);
    if ((e->given & needed) != needed || !e->name.plain) return 0;
    if (e->odd & (which == DEVICE ? DEVICE_NUMBERS : HOST_NUMBERS)) return 0;
    row *to = next_row(&s->tables[which]);
    if (!to) return 0;
    to->start = e->ts;
    to->end = e->ts + e->dur;
    to->correlation = e->correlation;
    to->external = e->external;
    to->device = device == ON ? e->device : e->pid;
    to->stream = stream == STREAM ? e->stream : e->tid;
    to->bytes = e->bytes;
    to->name = number_of(&s->words[NAMES], e->name.from, e->name.length);
    to->other = which == DEVICE ? shape_of(&s->words[SHAPES], e) : thread_of(&s->words[THREADS], e);
    to->kind = kind;
    if (to->name < 0 || to->other < 0) return 0;
    s->tables[which].count++;
    return 1;
}

static int leave_to_caller(scanner *s, place from, place to) {
    if (s->other_count == s->other_room) {
        size_t room = s->other_room ? s->other_room * 2 : 64;
        span *others = realloc(s->others, room * sizeof *others);
        if (!others) return 0;
        s->others = others;
        s->other_room = room;
    }
    s->others[s->other_count++] = (span){(size_t)(from - s->text), (size_t)(to - s->text)};
    return 1;
}

static int set_aside(scanner *s, const event *e, int64_t *counted, place from, place to) {
    const place fixed[2] = {e->ph.from, e->cat.from};
    ++*counted;
    if (s->learnt == MOST_LEARNT) return 1; /* no two are alike here */
    s->learnt++;
    skeleton *least = s->skeletons;
    for (int n = 1; n < SKELETONS; n++)
        if (s->skeletons[n].met < least->met) least = &s->skeletons[n];
    least->counted = learn(least, from, to, s->limit, fixed) ? counted : NULL;
    least->met = 0;
    return 1;
}

/* Where the event goes. Moments and names are few, and the caller reads them. */
static int sort(scanner *s, const event *e, place from, place to) {
    if (e->ph.length != 1 || !e->ph.plain || !e->cat.plain) return 0;
    unsigned char phase = (unsigned char)*e->ph.from;
    if (phase == 'i' || phase == 'M') return leave_to_caller(s, from, to);
    if (phase != 'X') {
        if (phase >= PHASES || !strchr("BEIbneSTpFstfPCNODVvRc,()", phase)) return 0;
        return set_aside(s, e, &s->now.phases[phase], from, to);
    }
    int32_t category = number_of(&s->words[CATEGORIES], e->cat.from, e->cat.length);
    if (category < 0 || category >= MOST_CATEGORIES) return 0;
    if ((uint32_t)category < s->known) return keep(s, e, s->table_of[category], s->kind_of[category]);
    return set_aside(s, e, &s->now.categories[category], from, to);
}

static place next_event(scanner *s, place p) {
    place from = skip_space(p), to;
    for (skeleton *known = s->skeletons; known < s->skeletons + SKELETONS; known++) {
        if (!known->counted || !(to = like(known, from, s->limit, s->last))) continue;
        ++*known->counted;
        known->met++;
        return to;
    }
    event e = {.correlation = -1, .external = -1, .bytes = -1};
    e.cat = e.name = e.grid = e.block = (word){"", 0, 1};
    to = members(from, s->limit, &e);
    return to && sort(s, &e, from, to) ? to : NULL;
}

/* ---- What is called from outside ---- */

typedef struct {
    const void *at;
    size_t count;
} part;

/* Forget what the last text brought. */
void scanner_undo(scanner *s) {
    s->now = s->before;
    for (int n = 0; n < TABLES; n++) s->tables[n].count = s->now.rows[n];
    s->other_count = 0;
}

/* The events of a text up to `end`, with commas between them; 1 when all were plain, otherwise 0 and none is kept.
   There are `size` bytes, and a NUL behind them. */
int scanner_read(scanner *s, place text, size_t end, size_t size) {
    for (int n = 0; n < TABLES; n++) s->now.rows[n] = s->tables[n].count;
    s->before = s->now;
    s->other_count = 0;
    s->text = text;
    s->limit = size >= 8 ? text + size - 8 : NULL;
    s->last = text + size;
    place last = text + end, p = text;
    while ((p = next_event(s, p)) && p <= last) {
        place then = skip_space(p);
        if (then >= last) return 1;
        if (*then != ',') break;
        p = then + 1;
    }
    scanner_undo(s);
    return 0;
}

/* Whether there is nothing beyond ASCII in a text. */
int scanner_is_ascii(place text, size_t size) {
    for (size_t from = 0, to; from < size; from = to) {
        unsigned char all = 0;
        to = size - from > 4096 ? from + 4096 : size;
        for (size_t n = from; n < to; n++) all |= (unsigned char)text[n]; /* the compiler takes many at once */
        if (all & 0x80) return 0;
    }
    return 1;
}

/* The rows are taken and the counts are read: begin again, with the words that are known. */
void scanner_clear(scanner *s) {
    for (int n = 0; n < TABLES; n++) s->tables[n].count = 0;
    memset(&s->now, 0, sizeof s->now);
    s->before = s->now;
}

part scanner_rows(scanner *s, int which) { return (part){s->tables[which].rows, s->tables[which].count}; }
part scanner_letters(scanner *s, int which) { return (part){s->words[which].letters, s->words[which].used}; }
part scanner_ends(scanner *s, int which) { return (part){s->words[which].ends, s->words[which].count}; }
part scanner_categories(scanner *s) { return (part){s->now.categories, MOST_CATEGORIES}; }
part scanner_phases(scanner *s) { return (part){s->now.phases, PHASES}; }
part scanner_others(scanner *s) { return (part){s->others, s->other_count}; }

void scanner_free(scanner *s) {
    if (!s) return;
    for (int n = 0; n < TABLES; n++) free(s->tables[n].rows);
    for (int n = 0; n < WORDS; n++) {
        free(s->words[n].letters);
        free(s->words[n].ends);
        free(s->words[n].hashes);
        free(s->words[n].slots);
    }
    free(s->others);
    free(s);
}

scanner *scanner_new(void) { return calloc(1, sizeof(scanner)); }

/* A category that is kept, in this table; before any text. */
int scanner_know(scanner *s, const char *category, int which, int kind) {
    int32_t n = number_of(&s->words[CATEGORIES], category, strlen(category));
    if (n < 0 || n >= MOST_CATEGORIES || which < 0 || which >= TABLES) return 0;
    s->table_of[n] = which;
    s->kind_of[n] = kind;
    s->known = (uint32_t)n + 1;
    return 1;
}
