/* A GPU that does nothing, for ROCr's interface for models of chips (HSA_MODEL_LIB).

   It takes every packet off every queue in order, computes nothing, and reports it done. So the HIP runtime above it
   (streams, events, capture, instantiation, launches, rules and errors) is the real one, and needs no chip.
   Kernels are counted. Results and times are meaningless. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { PACKET_BYTES = 64, COMPUTE_QUEUE = 2, WAIT_US = 20, IDLE_US = 200, SOON = 50 };
enum packet { VENDOR = 0, UNWRITTEN = 1, KERNEL = 2, ALL_OF = 3, ANY_OF = 5 };

typedef struct {
  char *memory; /* the GPU's address 0 */
  void (*raise_event)(void *, unsigned);
  void *event_data;
} gpu;

typedef struct {
  uint64_t ring, written, taken; /* addresses on the GPU */
  uint64_t *doorbell;
  uint32_t ring_bytes, type;
} queue_place;

typedef struct {
  gpu *owner;
  queue_place at;
  pthread_t worker;
  atomic_int stopped;
} queue;

typedef struct {
  int64_t kind;
  _Atomic int64_t value;
  uint64_t mailbox;
  uint32_t event, padding;
  uint64_t started, ended;
} signal;

static atomic_long kernels;
static atomic_ulong clock_ticks;

long idle_gpu_kernels(void) { return kernels; }

static void *on_gpu(const gpu *owner, uint64_t address) { return owner->memory + address; }

static void report_done(const gpu *owner, uint64_t address) {
  if (!address) return;
  signal *done = on_gpu(owner, address);
  done->started = atomic_fetch_add(&clock_ticks, 2) + 1;
  done->ended = done->started + 1;
  atomic_fetch_sub(&done->value, 1);
  if (done->mailbox) {
    *(volatile uint64_t *)on_gpu(owner, done->mailbox) = done->event;
    if (owner->raise_event) owner->raise_event(owner->event_data, done->event);
  }
}

/* A barrier waits for up to five signals: for all of them, or for any. */
static int is_met(const gpu *owner, const uint64_t *packet, int wants_all) {
  int waiting = 0, met = 0;
  for (int i = 1; i <= 5; i++) {
    if (!packet[i]) continue;
    if (((signal *)on_gpu(owner, packet[i]))->value <= 0) met++;
    else waiting++;
  }
  return wants_all ? !waiting : met || !waiting;
}

static void *work(void *argument) {
  queue *q = argument;
  gpu *owner = q->owner;
  volatile uint64_t *written = on_gpu(owner, q->at.written), *taken = on_gpu(owner, q->at.taken);
  char *ring = on_gpu(owner, q->at.ring);
  uint64_t places = q->at.ring_bytes / PACKET_BYTES, next = 0;
  int idle = 0;
  if (q->at.type != COMPUTE_QUEUE) return NULL; /* copy engines are switched off */
  while (!q->stopped) {
    volatile uint16_t *header = (uint16_t *)(ring + next % places * PACKET_BYTES);
    if (next >= *written || (*header & 0xff) == UNWRITTEN) {
      usleep(idle++ < SOON ? WAIT_US : IDLE_US);
      continue;
    }
    idle = 0;
    const uint64_t *packet = (const uint64_t *)header;
    enum packet type = *header & 0xff;
    if (type == KERNEL) kernels++;
    if (type == ALL_OF || type == ANY_OF)
      while (!is_met(owner, packet, type == ALL_OF) && !q->stopped) usleep(WAIT_US);
    report_done(owner, packet[7]);
    *header = (*header & 0xff00) | UNWRITTEN;
    atomic_thread_fence(memory_order_seq_cst);
    *taken = ++next;
  }
  return NULL;
}

static gpu *create(void) { return calloc(1, sizeof(gpu)); }
static void destroy(gpu *self) { free(self); }
static void place_memory(gpu *self, void *base, uint64_t bytes) { (void)bytes, self->memory = base; }
static void on_map(gpu *self, void *base, uint64_t bytes, uint32_t flags) { (void)self, (void)base, (void)bytes, (void)flags; }
static void on_unmap(gpu *self, void *base, uint64_t bytes) { (void)self, (void)base, (void)bytes; }
static void set_notify(gpu *self, void (*call)(void *), void *data) { (void)self, (void)call, (void)data; }
static void set_wait(gpu *self, void (*call)(void *, uint64_t, uint64_t), void *data) { (void)self, (void)call, (void)data; }

static void set_raise_event(gpu *self, void (*call)(void *, unsigned), void *data) {
  self->raise_event = call;
  self->event_data = data;
}

static queue *add_queue(gpu *self, const queue_place *at) {
  queue *added = calloc(1, sizeof(queue));
  added->owner = self;
  added->at = *at;
  pthread_create(&added->worker, NULL, work, added);
  return added;
}

static void remove_queue(gpu *self, queue *removed) {
  (void)self;
  removed->stopped = 1;
  pthread_join(removed->worker, NULL);
  free(removed);
}

static const struct {
  uint32_t major, minor;
  void *functions[10];
} door = {0, 9, {create, destroy, place_memory, on_map, on_unmap, set_notify, set_wait, add_queue, set_raise_event, remove_queue}};

const void *get_hsakmt_model_functions(void) { return &door; }
