/* What every exported function does first: log, wait, hang or fail; and the typed answers. */
#include "machine.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 64
#define PLACES (1 + MAX_SLOTS)
/* A device handle is the address of a byte: of a GPU the first of its row, of a MIG device one of
 * the others. */
static char handles[MAX_GPUS * PLACES];
static atomic_int initialized;

nvmlDevice_t device_handle(int index, int slot)
{
    return (nvmlDevice_t)(void *)&handles[index * PLACES + 1 + slot];
}

static int place_of(nvmlDevice_t device)
{
    char *handle = (char *)device;
    int known = handle >= handles && handle < handles + sizeof handles;
    return known ? (int)(handle - handles) : MAX_GPUS * PLACES;
}

int device_index(nvmlDevice_t device)
{
    return place_of(device) / PLACES;
}

int has_slot(const struct gpu *gpu, int slot)
{
    char key[32];
    snprintf(key, sizeof key, "mig.%d.index", slot);
    return table_find(&gpu->values, key) != NULL;
}

/* The handle of a MIG device that is gone is no handle. */
nvmlReturn_t choose_device(struct call *call, nvmlDevice_t device)
{
    call->slot = place_of(device) % PLACES - 1;
    int gone = call->slot != WHOLE_GPU && !has_slot(call->gpu, call->slot);
    return gone ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

void driver_initialized(int change)
{
    if (atomic_fetch_add(&initialized, change) + change < 0) atomic_store(&initialized, 0);
}

static int log_fd = -1;

static void open_log(void)
{
    const char *path = getenv("GPUTOP_TEST_DRIVER_LOG");
    if (path) log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* One write a line, so that lines of several threads and programs do not mix. */
static void log_call(const char *function, int gpu)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char line[128];
    pthread_once(&once, open_log);
    if (log_fd < 0) return;
    int size = gpu == NO_GPU ? snprintf(line, sizeof line, "%s -\n", function)
                             : snprintf(line, sizeof line, "%s %d\n", function, gpu);
    if (write(log_fd, line, (size_t)size) < 0) log_fd = -1;
}

static void sleep_ms(double ms)
{
    struct timespec left = {(time_t)(ms / 1000), (long)((ms - 1000.0 * (long)(ms / 1000)) * 1e6)};
    /* Timers of a thread may be 50 us late, which is more than most calls take. */
    int slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1UL);
    while (nanosleep(&left, &left) != 0) {}
    prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
}

static int rule_applies(const struct rule *rule, const char *function, int gpu, double now)
{
    if (now < rule->after || now >= rule->until) return 0;
    if (rule->gpu == ALL_GPUS && gpu == NO_GPU) return 0;
    if (rule->gpu >= 0 && rule->gpu != gpu) return 0;
    return fnmatch(rule->function, function, 0) == 0;
}

/* The first rule that applies now, or NULL: rules stand in the order of their weight. */
static const struct rule *rule_now(const struct scenario *scenario, const char *function, int gpu)
{
    double now = scenario_seconds(scenario);
    for (int i = 0; i < scenario->rules; i++)
        if (rule_applies(&scenario->rule[i], function, gpu, now)) return &scenario->rule[i];
    return NULL;
}

/* Blocks like a thread in the kernel: signals are not delivered to it, and it holds no lock. */
static void hang(int kind, const char *function, int gpu)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (;;) {
        sleep_ms(kind == HANG_FOREVER ? 1e6 : 20);
        if (kind == HANG_FOREVER) continue;
        const struct rule *rule = rule_now(scenario_now(), function, gpu);
        if (rule == NULL || rule->hang == HANG_NO) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static double thread_ms(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e3 + (double)used.tv_nsec / 1e6;
}

/* Uses a core for as long, as a call does that asks the card and waits in the kernel. */
static void compute_ms(double ms)
{
    double end = thread_ms() + ms;
    while (thread_ms() < end) {}
}

static void wait_ms(const struct scenario *scenario, double ms, int is_busy)
{
    static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
    if (ms <= 0) return;
    if (scenario->serialize) pthread_mutex_lock(&driver);
    if (is_busy) compute_ms(ms);
    else sleep_ms(ms);
    if (scenario->serialize) pthread_mutex_unlock(&driver);
}

static nvmlReturn_t obey_rules(const struct scenario *scenario, const char *function, int gpu)
{
    const struct rule *rule = rule_now(scenario, function, gpu);
    wait_ms(scenario, rule && rule->ms >= 0 ? rule->ms : scenario->latency_ms,
            rule && rule->is_busy);
    if (rule == NULL) return NVML_SUCCESS;
    if (rule->hang != HANG_NO) hang(rule->hang, function, gpu);
    else if (rule->error) return rule->error;
    return NVML_SUCCESS;
}

static int needs_init(const char *function)
{
    return strncmp(function, "nvmlInit", 8) != 0 && strcmp(function, "nvmlSystemGetNVMLVersion") != 0;
}

/* Whether NVML counts the devices of MPS instead of GPUs (R615), of which it knows names and memory,
   and no utilization, processes or health. It is settled when NVML is first used. */
static int is_unknown_to_mps(const char *function)
{
    static const char *const known[] = {"Init", "Shutdown", "System", "ErrorString", "GetCount",
        "HandleBy", "GetIndex", "GetUUID", "GetName", "CudaComputeCapability", "PciInfo", "NumaNode",
        "CpuAffinity", "MemoryInfo", "P2PStatus", "AccountingMode"};
    static int selected = -1;
    if (selected < 0) {
        const char *value = getenv("NVML_MPS_DEVICE_ENUMERATION");
        selected = value != NULL && strcmp(value, "1") == 0;
    }
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(function, known[i]) != NULL) return 0;
    return selected;
}

nvmlReturn_t call_begin(struct call *call, const char *function, int gpu)
{
    log_call(function, gpu);
    const struct scenario *scenario = scenario_now();
    if (scenario == NULL) {
        fprintf(stderr, "simulated NVML: GPUTOP_TEST_DRIVER names no scenario that can be read\n");
        return NVML_ERROR_UNKNOWN;
    }
    if (needs_init(function) && atomic_load(&initialized) <= 0) return NVML_ERROR_UNINITIALIZED;
    if (is_unknown_to_mps(function)) return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t status = obey_rules(scenario, function, gpu);
    if (status != NVML_SUCCESS) return status;

    call->scenario = scenario_now();   /* what holds after the wait */
    call->now = scenario_seconds(call->scenario);
    call->gpu_index = gpu;
    call->gpu = NULL;
    call->slot = WHOLE_GPU;
    if (gpu == NO_GPU) return NVML_SUCCESS;
    if (gpu < 0 || gpu >= MAX_GPUS) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu >= call->scenario->gpus) return NVML_ERROR_GPU_IS_LOST;
    call->gpu = &call->scenario->gpu[gpu];
    return NVML_SUCCESS;
}

static const struct value *find(const struct call *call, const char *key)
{
    char own[64];
    if (call->gpu == NULL) return table_find(&call->scenario->values, key);
    if (call->slot == WHOLE_GPU) return table_find(&call->gpu->values, key);
    snprintf(own, sizeof own, "mig.%d.%s", call->slot, key);
    return table_find(&call->gpu->values, own);
}

nvmlReturn_t get_u64(const struct call *call, const char *key, u64 *out)
{
    const struct value *value = find(call, key);
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (value == NULL) return NVML_ERROR_NOT_SUPPORTED;
    if (value->kind == 'e') return (nvmlReturn_t)value->number;
    *out = value_number(value, call->now);
    return NVML_SUCCESS;
}

nvmlReturn_t get_uint(const struct call *call, const char *key, unsigned *out)
{
    u64 number = 0;
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = get_u64(call, key, &number);
    if (status == NVML_SUCCESS) *out = (unsigned)number;
    return status;
}

nvmlReturn_t get_text(const struct call *call, const char *key, char *out, unsigned size)
{
    const struct value *value = find(call, key);
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (value == NULL) return NVML_ERROR_NOT_SUPPORTED;
    if (value->kind == 'e') return (nvmlReturn_t)value->number;
    if (value->text == NULL) return NVML_ERROR_UNKNOWN;
    if (strlen(value->text) + 1 > size) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, value->text);
    return NVML_SUCCESS;
}

u64 number_or(const struct call *call, const char *key, u64 otherwise)
{
    u64 number = 0;
    return get_u64(call, key, &number) == NVML_SUCCESS ? number : otherwise;
}
