/* The scenario as this library sees it, and what every exported function starts with. */
#ifndef MACHINE_H
#define MACHINE_H

#include "abi.h"

/* A value of the scenario: constant, moving with time, a text, or an error to answer. */
struct value {
    char kind;     /* 0 absent, 'n' number, 'w' wave, 's' steps, 't' text, 'e' error */
    u64 number;    /* 'n': the value; 'e': the error code */
    int terms;     /* 'w': low high period phase; 's': pairs of second and value */
    double *term;
    char *text;
};

struct entry { const char *key; struct value value; };
struct table { struct entry *entry; int count; };

struct process {
    unsigned pid, gi, ci, host_pid;
    int outside;       /* of another PID namespace */
    unsigned inner_pid;      /* its number in a namespace of its own below that of the machine */
    u64 inner_namespace;     /* and that namespace; 0: it is in that of the machine */
    u64 sample_time;   /* microseconds since 1970; 0: moves with the clock */
    struct value used, sm, mem, enc, dec;
};

enum { COMPUTE, GRAPHICS, MPS, LISTS };

struct process_list { struct process *process; int count; };
struct gpu { struct table values; struct process_list list[LISTS]; };

/* What a call answers instead of its ordinary answer. gpu: a number, ALL_GPUS or ANYTHING. */
enum { ALL_GPUS = -1, ANYTHING = -2, NO_GPU = -3 };
enum { HANG_NO, HANG_FOREVER, HANG_WHILE };

struct rule {
    const char *function;   /* an fnmatch pattern */
    int gpu, error, hang, is_busy;   /* is_busy: it uses CPU for its ms */
    double ms, after, until;
};

struct scenario {
    struct table values;
    struct gpu *gpu;
    int gpus;
    struct rule *rule;
    int rules;
    double start;       /* CLOCK_MONOTONIC seconds */
    double frozen_at;   /* seconds since the start at which time stands still; negative: it runs */
    double latency_ms;
    int serialize;      /* latencies are waited for one after another, driver-wide */
    char *text;         /* of its file, in which all its texts are */
    double retired;     /* when another took its place */
    struct scenario *next;   /* the one that was retired after it */
};

#define WHOLE_GPU (-1)

/* One call from its first line to its last: all of its answers come from one scenario. */
struct call {
    const struct scenario *scenario;
    const struct gpu *gpu;
    int gpu_index;
    int slot;     /* of the MIG device that the handle means; WHOLE_GPU */
    double now;   /* seconds since the scenario's start */
};

/* The scenario as its file is now; NULL when there is none. It stays valid for minutes. */
const struct scenario *scenario_now(void);
double monotonic_seconds(void);
double scenario_seconds(const struct scenario *scenario);

const struct value *table_find(const struct table *table, const char *key);
u64 value_number(const struct value *value, double now);

/* Answers of a key of the call's GPU (or of the machine, for a call without one):
 * NVML_ERROR_NOT_SUPPORTED when absent, the value's own error when it is one. A key of a MIG
 * device is that of the device: what it lacks is not supported, whatever its GPU has. */
nvmlReturn_t get_u64(const struct call *call, const char *key, u64 *out);
nvmlReturn_t get_uint(const struct call *call, const char *key, unsigned *out);
nvmlReturn_t get_text(const struct call *call, const char *key, char *out, unsigned size);
u64 number_or(const struct call *call, const char *key, u64 otherwise);

enum { ENERGY = 83, LINK_COUNT = 91, LINK_STATE = 165 };
nvmlReturn_t link_field(const struct call *call, unsigned field, unsigned link, u64 *out);

/* Log the call, wait, hang or fail as the scenario says. */
nvmlReturn_t call_begin(struct call *call, const char *function, int gpu);
int device_index(nvmlDevice_t device);
nvmlDevice_t device_handle(int index, int slot);
nvmlReturn_t choose_device(struct call *call, nvmlDevice_t device);
int has_slot(const struct gpu *gpu, int slot);
#define MAX_SLOTS 15
void driver_initialized(int change);

#define BEGIN(gpu_number)                                             \
    struct call call;                                                 \
    do {                                                              \
        nvmlReturn_t status = call_begin(&call, __func__, gpu_number); \
        if (status != NVML_SUCCESS) return status;                    \
    } while (0)
#define BEGIN_DEVICE(device)                                       \
    BEGIN(device_index(device));                                   \
    do {                                                           \
        nvmlReturn_t status = choose_device(&call, device);        \
        if (status != NVML_SUCCESS) return status;                 \
    } while (0)
#define REQUIRE(pointer)                                        \
    do {                                                        \
        if ((pointer) == NULL) return NVML_ERROR_INVALID_ARGUMENT; \
    } while (0)

#endif
