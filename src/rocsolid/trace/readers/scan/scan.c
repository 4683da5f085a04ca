/* Reads the events of a torch.profiler trace from text into rows.

   Only well-formed JSON with values of the types that Kineto writes is read here. For anything else `scanner_read`
   returns 0 and keeps nothing of that text; the caller then reads it in Python, which can handle damage. So this code
   may be stricter than the Python reader, but never more lenient. The caller has checked the UTF-8. */

#define _GNU_SOURCE /* memmem */

#include <sys/random.h>
#include "json.h"
#include "string_table.h"
#include "template.h"
#include "values.h"

enum { DEVICE, CALLS, OPS, ANNOTATIONS, TABLES };
enum { NAMES, LAUNCH_CONFIGS, THREADS, DETAILS, CATEGORIES, STRING_TABLES };
enum { MAX_CATEGORIES = 256, PHASES = 128, MAX_CONFIG_BYTES = 400, MAX_DETAIL_BYTES = 2048 };
static const int64_t UNKNOWN = INT64_MIN;

typedef struct {
    int64_t start, end, correlation, external, device, stream, bytes;
    int32_t name, other; /* ids; other: the launch configuration of a device event, the thread of a host event */
    int32_t detail, kind;
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
    int64_t categories[MAX_CATEGORIES], phases[PHASES]; /* unused events by category, or by phase */
} counts;

typedef struct {
    string_table strings[STRING_TABLES];
    table tables[TABLES];
    int table_of[MAX_CATEGORIES], kind_of[MAX_CATEGORIES];
    uint32_t used_categories; /* these have the first ids */
    counts now, before; /* before: at the start of the last text */
    span *unread; /* events of the last text that Python has to read */
    size_t unread_count, unread_room;
    event_template templates[TEMPLATES];
    int templates_made; /* in total; `templates` holds those that match most often */
    cursor text, limit, last; /* the text: start, last position from which 8 bytes can be loaded, end */
} scanner;

/* ---- Events ---- */

enum {
    PH = 1, CAT = 2, NAME = 4, PID = 8, TID = 16, TS = 32, DUR = 64, ARGS = 128,
    ON = 256, STREAM = 512, CORRELATION = 1024, EXTERNAL = 2048, BYTES = 4096,
    GRID = 8192, BLOCK = 16384, REGISTERS = 32768, SHARED = 65536, DETAIL = 1 << 17, /* and the following bits */
};
enum { DIMS, TYPES, CONCRETE, KERNEL_NAME, HOST_DETAILS }; /* of operators and launch calls */
enum { COLLECTIVE = HOST_DETAILS, IN_ELEMENTS, OUT_ELEMENTS, ELEMENT_TYPE, GROUP_SIZE, ALL_DETAILS }; /* of kernels */
static const unsigned DEVICE_NUMBERS = ON | STREAM | CORRELATION | EXTERNAL | BYTES | REGISTERS | SHARED;
static const unsigned HOST_NUMBERS = PID | TID | CORRELATION | EXTERNAL;
static const int64_t LATEST = 9000000000000000, LONGEST = 1000000000000; /* microseconds that Python converts exactly, too */

typedef struct {
    slice ph, cat, name, grid, block, details[ALL_DETAILS];
    int64_t pid, tid, ts, dur, device, stream, correlation, external, bytes, registers, shared;
    unsigned seen, present, unusual; /* sets of keys */
} event;

#define IS(text) (!memcmp(k.from, text, sizeof text - 1))

ALWAYS_INLINE unsigned key_of(slice k) {
    switch (k.length) {
    case 2: return IS("ph") ? PH : IS("ts") ? TS : 0;
    case 3: return IS("pid") ? PID : IS("tid") ? TID : IS("dur") ? DUR : IS("cat") ? CAT : 0;
    case 4: return IS("name") ? NAME : IS("args") ? ARGS : 0;
    default: return 0;
    }
}

ALWAYS_INLINE unsigned argument_of(slice k) {
    switch (k.length) {
    case 4: return IS("grid") ? GRID : 0;
    case 5: return IS("bytes") ? BYTES : IS("block") ? BLOCK : IS("dtype") ? DETAIL << ELEMENT_TYPE : 0;
    case 6: return IS("device") ? ON : IS("stream") ? STREAM : IS("kernel") ? DETAIL << KERNEL_NAME : 0;
    case 10: return IS("Input Dims") ? DETAIL << DIMS : IS("Input type") ? DETAIL << TYPES : IS("Group size") ? DETAIL << GROUP_SIZE : 0;
    case 11: return IS("correlation") ? CORRELATION : IS("External id") ? EXTERNAL : 0;
    case 13: return IS("shared memory") ? SHARED : IS("In msg nelems") ? DETAIL << IN_ELEMENTS : 0;
    case 14: return IS("Out msg nelems") ? DETAIL << OUT_ELEMENTS : 0;
    case 15: return IS("Concrete Inputs") ? DETAIL << CONCRETE : IS("Collective name") ? DETAIL << COLLECTIVE : 0;
    case 20: return IS("registers per thread") ? REGISTERS : 0;
    default: return 0;
    }
}

ALWAYS_INLINE void mark(event *e, unsigned key, value_kind kind) {
    e->present |= kind == PRESENT ? key : 0;
    e->unusual |= kind == UNUSUAL ? key : 0;
}

ALWAYS_INLINE cursor text_of(cursor p, cursor limit, slice *w) {
    p = skip_space(p);
    return *p == '"' ? string(p + 1, limit, w) : NULL;
}

ALWAYS_INLINE cursor raw(cursor p, cursor limit, slice *w) {
    w->from = p = skip_space(p);
    p = value(p, limit, 2);
    w->length = p ? (size_t)(p - w->from) : 0;
    return p;
}

ALWAYS_INLINE cursor argument(cursor p, cursor limit, event *e, unsigned key) {
    int64_t *to;
    value_kind kind;
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
    default: return key >= DETAIL ? raw(p, limit, &e->details[__builtin_ctz(key / DETAIL)]) : value(p, limit, 2);
    }
    p = integer(p, limit, to, &kind);
    mark(e, key, kind);
    return p;
}

typedef unsigned (*key_function)(slice);
typedef cursor (*value_function)(cursor, cursor, event *, unsigned);

/* The members of an event or of its arguments. A key with escapes or a repeated key is left to Python. */
ALWAYS_INLINE cursor each_member(cursor p, cursor limit, event *e, key_function key_id, value_function read) {
    slice key;
    if (*p != '{') return NULL;
    p = skip_space(p + 1);
    if (*p == '}') return p + 1;
    for (;;) {
        p = skip_space(p);
        if (*p != '"' || !(p = string(p + 1, limit, &key)) || !key.no_escapes) return NULL;
        unsigned which = key_id(key);
        if (e->seen & which) return NULL;
        e->seen |= which;
        p = skip_space(p);
        if (*p != ':' || !(p = read(p + 1, limit, e, which))) return NULL;
        p = skip_space(p);
        if (*p == '}') return p + 1;
        if (*p++ != ',') return NULL;
    }
}

static cursor arguments(cursor p, cursor limit, event *e) { return each_member(p, limit, e, argument_of, argument); }

ALWAYS_INLINE cursor member(cursor p, cursor limit, event *e, unsigned key) {
    value_kind kind;
    switch (key) {
    case PH: return text_of(p, limit, &e->ph);
    case CAT: return text_of(p, limit, &e->cat);
    case NAME: return text_of(p, limit, &e->name);
    case TS: p = microseconds(p, LATEST, &e->ts, &kind); break;
    case DUR: p = microseconds(p, LONGEST, &e->dur, &kind); break;
    case PID: p = integer(p, limit, &e->pid, &kind); break;
    case TID: p = integer(p, limit, &e->tid, &kind); break;
    case ARGS: return arguments(skip_space(p), limit, e);
    default: return value(p, limit, 1);
    }
    mark(e, key, kind);
    return p;
}

static cursor members(cursor p, cursor limit, event *e) { return each_member(p, limit, e, key_of, member); }

static int32_t config_of(string_table *configs, const event *e) {
    char key[MAX_CONFIG_BYTES];
    const size_t grid = e->grid.length, block = e->block.length;
    int64_t numbers[2] = {e->present & REGISTERS ? e->registers : UNKNOWN, e->present & SHARED ? e->shared : UNKNOWN};
    if (grid > MAX_CONFIG_BYTES || block > MAX_CONFIG_BYTES || sizeof numbers + grid + 1 + block > sizeof key) return -1;
    memcpy(key, numbers, sizeof numbers);
    memcpy(key + sizeof numbers, e->grid.from, grid);
    key[sizeof numbers + grid] = 0;
    memcpy(key + sizeof numbers + grid + 1, e->block.from, block);
    return id_of(configs, key, sizeof numbers + grid + 1 + block);
}

static int32_t thread_of(string_table *threads, const event *e) {
    int64_t key[2] = {e->pid, e->tid};
    return id_of(threads, (cursor)key, sizeof key);
}

/* Whether the arguments of an operator matter for its cost; those of others differ in almost every event. */
static int has_cost_arguments(slice name) {
    static const char *const words[] = {"conv", "atten", "attn", "Attn", "mha"};
    for (size_t n = 0; n < sizeof words / sizeof *words; n++)
        if (memmem(name.from, name.length, words[n], strlen(words[n]))) return 1;
    return 0;
}

/* The details of an event, each followed by a NUL; an empty string when there are none, or too many. */
static int32_t detail_of(string_table *details, const event *e, int which) {
    char key[MAX_DETAIL_BYTES];
    size_t size = 0, any = 0;
    const int first = which == DEVICE ? COLLECTIVE : DIMS, last = which == DEVICE ? ALL_DETAILS : HOST_DETAILS;
    if (!(e->seen / DETAIL)) return id_of(details, "", 0);
    for (int n = first; n < last; n++) {
        size_t length = e->details[n].length;
        if (n == CONCRETE && length && !has_cost_arguments(e->name)) length = 0;
        if (size + length + 1 > sizeof key) return id_of(details, "", 0);
        memcpy(key + size, e->details[n].from, length);
        any += length;
        size += length;
        key[size++] = 0;
    }
    return id_of(details, key, any ? size : 0);
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

static int add_row(scanner *s, const event *e, int which, int kind) {
    const unsigned device = e->present & ON ? ON : PID, stream = e->present & STREAM ? STREAM : TID;
    const unsigned needed = TS | DUR | (which == DEVICE ? device | stream : PID | TID);
    if ((e->present & needed) != needed || !e->name.no_escapes) return 0;
    if (e->unusual & (which == DEVICE ? DEVICE_NUMBERS : HOST_NUMBERS)) return 0;
    row *to = next_row(&s->tables[which]);
    if (!to) return 0;
    to->start = e->ts;
    to->end = e->ts + e->dur;
    to->correlation = e->correlation;
    to->external = e->external;
    to->device = device == ON ? e->device : e->pid;
    to->stream = stream == STREAM ? e->stream : e->tid;
    to->bytes = e->bytes;
    to->name = id_of(&s->strings[NAMES], e->name.from, e->name.length);
    to->other = which == DEVICE ? config_of(&s->strings[LAUNCH_CONFIGS], e) : thread_of(&s->strings[THREADS], e);
    to->detail = detail_of(&s->strings[DETAILS], e, which);
    to->kind = kind;
    if (to->name < 0 || to->other < 0 || to->detail < 0) return 0;
    s->tables[which].count++;
    return 1;
}

static int leave_to_caller(scanner *s, cursor from, cursor to) {
    if (s->unread_count == s->unread_room) {
        size_t room = s->unread_room ? s->unread_room * 2 : 64;
        span *unread = realloc(s->unread, room * sizeof *unread);
        if (!unread) return 0;
        s->unread = unread;
        s->unread_room = room;
    }
    s->unread[s->unread_count++] = (span){(size_t)(from - s->text), (size_t)(to - s->text)};
    return 1;
}

static int count_unused(scanner *s, const event *e, int64_t *counter, cursor from, cursor to) {
    const cursor fixed[2] = {e->ph.from, e->cat.from};
    ++*counter;
    if (s->templates_made == MAX_TEMPLATES_MADE) return 1; /* the events of this file are all different */
    s->templates_made++;
    event_template *least = s->templates;
    for (int n = 1; n < TEMPLATES; n++)
        if (s->templates[n].matches < least->matches) least = &s->templates[n];
    least->counter = make_template(least, from, to, s->limit, fixed) ? counter : NULL;
    least->matches = 0;
    return 1;
}

/* Stores or counts an event. Instant and metadata events are few and are left to Python, as are begin and end events. */
static int store(scanner *s, const event *e, cursor from, cursor to) {
    if (e->ph.length != 1 || !e->ph.no_escapes || !e->cat.no_escapes) return 0;
    unsigned char phase = (unsigned char)*e->ph.from;
    if (phase == 'i' || phase == 'M') return leave_to_caller(s, from, to);
    if (phase != 'X') {
        if (phase >= PHASES || !strchr("IbneSTpFstfPCNODVvRc,()", phase)) return 0;
        return count_unused(s, e, &s->now.phases[phase], from, to);
    }
    int32_t category = id_of(&s->strings[CATEGORIES], e->cat.from, e->cat.length);
    if (category < 0 || category >= MAX_CATEGORIES) return 0;
    if ((uint32_t)category < s->used_categories) return add_row(s, e, s->table_of[category], s->kind_of[category]);
    return count_unused(s, e, &s->now.categories[category], from, to);
}

static cursor next_event(scanner *s, cursor p) {
    cursor from = skip_space(p), to;
    for (event_template *known = s->templates; known < s->templates + TEMPLATES; known++) {
        if (!known->counter || !(to = match_template(known, from, s->limit, s->last))) continue;
        ++*known->counter;
        known->matches++;
        return to;
    }
    event e = {.correlation = -1, .external = -1, .bytes = -1};
    e.cat = e.name = e.grid = e.block = (slice){"", 0, 1};
    for (int n = 0; n < ALL_DETAILS; n++) e.details[n] = e.grid;
    to = members(from, s->limit, &e);
    return to && store(s, &e, from, to) ? to : NULL;
}

/* ---- The interface for Python ---- */

typedef struct {
    const void *address;
    size_t count;
} array;

/* Removes what the last text added. */
void scanner_undo(scanner *s) {
    s->now = s->before;
    for (int n = 0; n < TABLES; n++) s->tables[n].count = s->now.rows[n];
    s->unread_count = 0;
}

/* Reads the events of a text up to `end`, separated by commas. Returns 1, or 0 when one of them is unusual, and then
   keeps none. The text has `size` bytes, followed by a NUL. */
int scanner_read(scanner *s, cursor text, size_t end, size_t size) {
    for (int n = 0; n < TABLES; n++) s->now.rows[n] = s->tables[n].count;
    s->before = s->now;
    s->unread_count = 0;
    s->text = text;
    s->limit = size >= 8 ? text + size - 8 : NULL;
    s->last = text + size;
    cursor last = text + end, p = text;
    while ((p = next_event(s, p)) && p <= last) {
        cursor then = skip_space(p);
        if (then >= last) return 1;
        if (*then != ',') break;
        p = then + 1;
    }
    scanner_undo(s);
    return 0;
}

/* Whether a text is ASCII. */
int scanner_is_ascii(cursor text, size_t size) {
    for (size_t from = 0, to; from < size; from = to) {
        unsigned char all = 0;
        to = size - from > 4096 ? from + 4096 : size;
        for (size_t n = from; n < to; n++) all |= (unsigned char)text[n]; /* vectorized by the compiler */
        if (all & 0x80) return 0;
    }
    return 1;
}

/* Starts again with empty tables and counts; the string tables are kept. */
void scanner_clear(scanner *s) {
    for (int n = 0; n < TABLES; n++) s->tables[n].count = 0;
    memset(&s->now, 0, sizeof s->now);
    s->before = s->now;
}

array scanner_rows(scanner *s, int which) { return (array){s->tables[which].rows, s->tables[which].count}; }
array scanner_characters(scanner *s, int which) { return (array){s->strings[which].characters, s->strings[which].used}; }
array scanner_string_ends(scanner *s, int which) { return (array){s->strings[which].ends, s->strings[which].count}; }
array scanner_categories(scanner *s) { return (array){s->now.categories, MAX_CATEGORIES}; }
array scanner_phases(scanner *s) { return (array){s->now.phases, PHASES}; }
array scanner_unread_events(scanner *s) { return (array){s->unread, s->unread_count}; }

void scanner_free(scanner *s) {
    if (!s) return;
    for (int n = 0; n < TABLES; n++) free(s->tables[n].rows);
    for (int n = 0; n < STRING_TABLES; n++) {
        free(s->strings[n].characters);
        free(s->strings[n].ends);
        free(s->strings[n].hashes);
        free(s->strings[n].slots);
    }
    free(s->unread);
    free(s);
}

scanner *scanner_new(void) {
    scanner *s = calloc(1, sizeof(scanner));
    for (size_t n = 0; s && n < sizeof s->strings / sizeof *s->strings; n++) {
        uint64_t *seed = s->strings[n].seed;
        if (getrandom(seed, sizeof s->strings[n].seed, GRND_NONBLOCK) != sizeof s->strings[n].seed)
            seed[0] = seed[1] = 0x9E3779B97F4A7C15u ^ (uintptr_t)s;
    }
    return s;
}

/* Adds a category whose events are stored in table `which`. Must be called before any text is read. */
int scanner_add_category(scanner *s, const char *category, int which, int kind) {
    int32_t n = id_of(&s->strings[CATEGORIES], category, strlen(category));
    if (n < 0 || n >= MAX_CATEGORIES || which < 0 || which >= TABLES) return 0;
    s->table_of[n] = which;
    s->kind_of[n] = kind;
    s->used_categories = (uint32_t)n + 1;
    return 1;
}
