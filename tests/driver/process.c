/* Who is on a GPU, and the samples of how much each of them uses. */
#include "machine.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

/* Processes that a size query of this GPU does not see: they come before the array is filled. */
static int newcomers(const struct call *call, int count)
{
    u64 number = number_or(call, "newcomers", 0);
    return number < (u64)count ? (int)number : count;
}

/* Of the GPU: its MIG devices have no lists of their own, but parts of its. */
static nvmlReturn_t list_status(const struct call *call, int list)
{
    static const char *const keys[LISTS] = {"compute", "graphics", "mps"};
    struct call whole = *call;
    u64 ignored;
    whole.slot = WHOLE_GPU;
    return get_u64(&whole, keys[list], &ignored);
}

/* Whose PIDs are told: those of scenario.py, in its order. EVERYBODYS in the first PID namespace. */
enum { HOST, LIST, MEMORY, SAMPLES, EMPTY, EVERYBODYS };

struct telling {
    int pids;
    u64 namespace;   /* of the program */
    int below;   /* whether the program is in a namespace below that of the machine */
};

static struct telling telling(const struct call *call)
{
    enum { FIRST_NAMESPACE = 0xEFFFFFFC };
    struct stat own;
    struct call machine = *call;
    machine.gpu = NULL;
    if (stat("/proc/self/ns/pid", &own) != 0 || own.st_ino == FIRST_NAMESPACE)
        return (struct telling){EVERYBODYS, 0, 0};
    return (struct telling){(int)number_or(&machine, "pids", HOST), own.st_ino,
                            own.st_ino != number_or(&machine, "namespace", own.st_ino)};
}

/* Whether it is in the namespace of the program, below that of the machine. */
static int is_beside(struct telling told, const struct process *process)
{
    return process->inner_namespace != 0 && process->inner_namespace == told.namespace;
}

static int is_outside(struct telling told, const struct process *process)
{
    if (is_beside(told, process)) return 0;
    return process->outside || (told.below && process->host_pid == 0);
}

static unsigned host_pid(struct telling told, const struct process *process)
{
    enum { FAR = 10000000 };   /* beyond what Linux gives */
    return process->host_pid ? process->host_pid : process->pid + (told.below ? 0 : FAR);
}

static int is_told(const struct call *call, struct telling told, const struct process *process)
{
    int all = told.pids == HOST || told.pids == EVERYBODYS;
    if (told.pids == EMPTY || (!all && is_outside(told, process))) return 0;
    if (call->slot == WHOLE_GPU) return 1;
    return process->gi == number_or(call, "gi", ~0ULL) && process->ci == number_or(call, "ci", ~0ULL);
}

static struct process as_told(struct telling told, const struct process *process)
{
    struct process copy = *process;
    if (is_beside(told, process)) copy.pid = process->inner_pid;
    if (told.pids == HOST) copy.pid = host_pid(told, process);
    if (told.pids == LIST) copy.used = (struct value){.kind = 'n'};
    return copy;
}

/* The processes of the GPU, or those on the MIG device; valid until the thread's next call. */
static struct process_list listed(const struct call *call, int kind)
{
    static __thread struct process *room;
    static __thread int capacity;
    struct process_list whole = call->gpu->list[kind];
    struct telling told = telling(call);
    int count = 0;
    if (told.pids == EVERYBODYS && call->slot == WHOLE_GPU) return whole;
    if (whole.count > capacity) room = realloc(room, sizeof *room * (capacity = whole.count));
    for (int i = 0; i < whole.count; i++)
        if (is_told(call, told, &whole.process[i])) room[count++] = as_told(told, &whole.process[i]);
    return (struct process_list){room, count};
}

/* The number of a process in its utilization samples. */
static unsigned sample_pid(struct telling told, const struct process *process)
{
    int ours = told.pids == SAMPLES && !is_outside(told, process);
    if (ours && is_beside(told, process)) return process->inner_pid;
    return told.pids == EVERYBODYS || ours ? process->pid : host_pid(told, process);
}

static u64 used_memory(const struct call *call, const struct process *process)
{
    return process->used.kind ? value_number(&process->used, call->now) : ~0ULL;
}

/* How many entries to write. A size query, with no room or no array, is answered with the count. */
static nvmlReturn_t fit(const struct call *call, int found, unsigned *count, const void *array)
{
    REQUIRE(count);
    if (array == NULL || *count == 0) found -= newcomers(call, found);
    int fits = found == 0 || (array != NULL && *count >= (unsigned)found);
    *count = (unsigned)found;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static nvmlReturn_t list_v1(const struct call *call, int kind, unsigned *count,
                            nvmlProcessInfo_v1_t *out)
{
    struct process_list list = listed(call, kind);
    nvmlReturn_t status = list_status(call, kind);
    if (status == NVML_SUCCESS) status = fit(call, list.count, count, out);
    if (status != NVML_SUCCESS) return status;
    for (unsigned i = 0; i < *count; i++) {
        out[i].pid = list.process[i].pid;
        out[i].usedGpuMemory = used_memory(call, &list.process[i]);
    }
    return NVML_SUCCESS;
}

#define LIST_V1(function, kind)                                                           \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *out) \
    {                                                                                     \
        BEGIN_DEVICE(device);                                                             \
        return list_v1(&call, kind, count, out);                                          \
    }

LIST_V1(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
LIST_V1(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)

#if ERA >= 535
static nvmlReturn_t list_v2(const struct call *call, int kind, unsigned *count,
                            nvmlProcessInfo_v2_t *out)
{
    struct process_list list = listed(call, kind);
    nvmlReturn_t status = list_status(call, kind);
    if (status == NVML_SUCCESS) status = fit(call, list.count, count, out);
    if (status != NVML_SUCCESS) return status;
    for (unsigned i = 0; i < *count; i++) {
        const struct process *process = &list.process[i];
        out[i] = (nvmlProcessInfo_v2_t){process->pid, used_memory(call, process), process->gi,
                                        process->ci};
    }
    return NVML_SUCCESS;
}

#define LIST_V2(function, kind)                                                           \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *out) \
    {                                                                                     \
        BEGIN_DEVICE(device);                                                             \
        return list_v2(&call, kind, count, out);                                          \
    }

/* CUDA 11.0's header knows no list of MPS clients. */
LIST_V1(nvmlDeviceGetMPSComputeRunningProcesses, MPS)
LIST_V2(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE)
LIST_V2(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS)
LIST_V2(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS)
LIST_V2(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
LIST_V2(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
LIST_V2(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)

API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                       nvmlProcessDetailList_v1_t *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    if (out->version != VERSIONED(nvmlProcessDetailList_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (out->mode >= LISTS) return NVML_ERROR_INVALID_ARGUMENT;
    struct process_list list = listed(&call, (int)out->mode);
    nvmlReturn_t status = list_status(&call, (int)out->mode);
    if (status == NVML_SUCCESS)
        status = fit(&call, list.count, &out->numProcArrayEntries, out->procArray);
    if (status != NVML_SUCCESS) return status;
    for (unsigned i = 0; i < out->numProcArrayEntries; i++) {
        const struct process *process = &list.process[i];
        out->procArray[i] = (nvmlProcessDetail_v1_t){process->pid, used_memory(&call, process),
                                                     process->gi, process->ci, ~0ULL};
    }
    return NVML_SUCCESS;
}
#endif

/* Drivers sample a few times a second; a sample is as old as the last sixth of a second. */
static u64 sample_time(const struct process *process)
{
    const u64 period = 1000000 / 6;
    struct timespec now;
    if (process->sample_time) return process->sample_time;
    clock_gettime(CLOCK_REALTIME, &now);
    u64 microseconds = (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
    return microseconds - microseconds % period;
}

static int has_sample(const struct process *process, u64 last_seen)
{
    int any = process->sm.kind || process->mem.kind || process->enc.kind || process->dec.kind;
    return any && sample_time(process) > last_seen;
}

/* The n-th process with a sample newer than last_seen, over all lists; NULL after the last. */
static const struct process *sampled(const struct call *call, u64 last_seen, int *list, int *next)
{
    for (; *list < LISTS; (*list)++, *next = 0)
        while (*next < call->gpu->list[*list].count) {
            const struct process *process = &call->gpu->list[*list].process[(*next)++];
            if (has_sample(process, last_seen)) return process;
        }
    return NULL;
}

static int count_samples(const struct call *call, u64 last_seen)
{
    int count = 0, list = 0, next = 0;
    while (sampled(call, last_seen, &list, &next)) count++;
    return count;
}

static nvmlReturn_t fit_samples(const struct call *call, u64 last_seen, unsigned *count,
                                const void *array)
{
    u64 ignored;
    nvmlReturn_t status = get_u64(call, "samples", &ignored);
    if (status != NVML_SUCCESS) return status;
    int found = count_samples(call, last_seen);
    return found == 0 ? NVML_ERROR_NOT_FOUND : fit(call, found, count, array);
}

static unsigned percent(const struct value *value, double now)
{
    return value->kind ? (unsigned)value_number(value, now) : 0;
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                 nvmlProcessUtilizationSample_t *out,
                                                 unsigned *count, u64 last_seen)
{
    BEGIN_DEVICE(device);
    int list = 0, next = 0;
    nvmlReturn_t status = fit_samples(&call, last_seen, count, out);
    if (status != NVML_SUCCESS) return status;
    struct telling told = telling(&call);
    for (unsigned i = 0; i < *count; i++) {
        const struct process *process = sampled(&call, last_seen, &list, &next);
        if (process == NULL) break;
        out[i] = (nvmlProcessUtilizationSample_t){
            sample_pid(told, process), sample_time(process), percent(&process->sm, call.now),
            percent(&process->mem, call.now), percent(&process->enc, call.now),
            percent(&process->dec, call.now)};
    }
    return NVML_SUCCESS;
}

#if ERA >= 580   /* approximate: nvidia-ml-py has it since 12.550 */
API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                       nvmlProcessesUtilizationInfo_v1_t *info)
{
    BEGIN_DEVICE(device);
    int list = 0, next = 0;
    REQUIRE(info);
    if (info->version != VERSIONED(nvmlProcessesUtilizationInfo_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    u64 last_seen = info->lastSeenTimeStamp;
    nvmlReturn_t status =
        fit_samples(&call, last_seen, &info->processSamplesCount, info->procUtilArray);
    if (status != NVML_SUCCESS) return status;
    struct telling told = telling(&call);
    for (unsigned i = 0; i < info->processSamplesCount; i++) {
        const struct process *process = sampled(&call, last_seen, &list, &next);
        if (process == NULL) break;
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            sample_time(process), sample_pid(told, process), percent(&process->sm, call.now),
            percent(&process->mem, call.now), percent(&process->enc, call.now),
            percent(&process->dec, call.now), 0, 0};
    }
    return NVML_SUCCESS;
}
#endif
