/* A simulated libcuda.so.1: which GPUs CUDA counts, in which order, and what hides them. What
 * programs do on them is in context.c.
 *
 * Call overrides work on it by the functions' names; their errors are CUDA's numbers, and with a
 * negative one the program dies of that signal. cuDeviceGetUuid_v2 came with CUDA 11.4 (470).
 * What this makes of CUDA_VISIBLE_DEVICES is written from the guides and from what driver 580.159.04
 * answered on an H200, not from gputop. Where both are silent it has to do something: from R570 on
 * (580 here), MIG devices stand in the place of their GPU, and numbers count them.
 */
#include "cuda.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct devices { struct device at[MAX_DEVICES]; int count; };

static struct devices visible;
static int ready, refused;

struct device visible_device(int ordinal)
{
    return visible.at[ordinal];
}

static const char *text_of(const struct scenario *scenario, int gpu, const char *key)
{
    const struct value *value = table_find(&scenario->gpu[gpu].values, key);
    return value && value->text ? value->text : "";
}

static void add(struct devices *devices, int gpu, int slot)
{
    if (devices->count < MAX_DEVICES) devices->at[devices->count++] = (struct device){gpu, slot};
}

static const char *own_text(const struct scenario *scenario, struct device device, const char *key)
{
    char own[64];
    if (device.slot == WHOLE_GPU) return text_of(scenario, device.gpu, key);
    snprintf(own, sizeof own, "mig.%d.%s", device.slot, key);
    return text_of(scenario, device.gpu, own);
}

/* What cuDeviceGetUuid_v2 tells: of a GPU that stands for a MIG device, that device's. */
static const char *own_uuid(const struct scenario *scenario, struct device device)
{
    const char *own = own_text(scenario, device, "cuda_uuid");
    return *own ? own : own_text(scenario, device, "uuid");
}

static u64 number_of(const struct scenario *scenario, int gpu, const char *key)
{
    const struct value *value = table_find(&scenario->gpu[gpu].values, key);
    return value && value->kind == 'n' ? value->number : 0;
}

static u64 instance_of(const struct scenario *scenario, struct device device)
{
    char key[32];
    snprintf(key, sizeof key, "mig.%d.gi", device.slot);
    return number_of(scenario, device.gpu, key);
}

static int same_instance(const struct scenario *scenario, struct device a, struct device b)
{
    return a.gpu == b.gpu && a.slot != WHOLE_GPU && b.slot != WHOLE_GPU &&
           instance_of(scenario, a) == instance_of(scenario, b);
}

static int has_instance(const struct scenario *scenario, const struct devices *devices,
                        struct device of)
{
    for (int i = 0; i < devices->count; i++)
        if (same_instance(scenario, devices->at[i], of)) return 1;
    return 0;
}

/* MIG devices in the place of GPUs in MIG mode: all, or of each GPU instance the first. */
static struct devices divided(const struct scenario *scenario, struct devices gpus, int all)
{
    struct devices result = {{{0, 0}}, 0};
    for (int i = 0; i < gpus.count; i++) {
        int gpu = gpus.at[i].gpu;
        if (!number_of(scenario, gpu, "mig.mode")) add(&result, gpu, WHOLE_GPU);
        else for (int slot = 0; slot < MAX_SLOTS; slot++)
            if (has_slot(&scenario->gpu[gpu], slot) &&
                (all || !has_instance(scenario, &result, (struct device){gpu, slot})))
                add(&result, gpu, slot);
    }
    return result;
}

/* Before R570 a process gets one MIG device, and no GPU beside it. */
static struct devices allowed(struct devices chosen)
{
    if (ERA >= 580) return chosen;
    for (int i = 0; i < chosen.count; i++)
        if (chosen.at[i].slot != WHOLE_GPU)
            return (struct devices){{chosen.at[i]}, 1};
    return chosen;
}

/* The scenario's own order, and GPUs missing there are not counted; else as they stand there. */
static void listed(const struct scenario *scenario, struct devices *all)
{
    const struct value *order = table_find(&scenario->values, "cuda_order");
    if (order == NULL) {
        for (int gpu = 0; gpu < scenario->gpus; gpu++) add(all, gpu, WHOLE_GPU);
        return;
    }
    char *copy = strdup(order->text), *rest = copy, *number;
    while ((number = strsep(&rest, ",")) != NULL) {
        int gpu = atoi(number);
        if (*number && gpu >= 0 && gpu < scenario->gpus) add(all, gpu, WHOLE_GPU);
    }
    free(copy);
}

static struct devices counted(const struct scenario *scenario)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    struct devices all = {{{0, 0}}, 0};
    listed(scenario, &all);
    if (order == NULL || strcmp(order, "PCI_BUS_ID") != 0) return all;
    for (int i = 1; i < all.count; i++)
        for (int k = i; k > 0; k--) {
            struct device left = all.at[k - 1], right = all.at[k];
            if (strcasecmp(text_of(scenario, left.gpu, "pci.bus_id"),
                           text_of(scenario, right.gpu, "pci.bus_id")) <= 0) break;
            all.at[k - 1] = right;
            all.at[k] = left;
        }
    return all;
}

/* Whether an entry is the old name of a MIG device, which is still taken: MIG-<GPU-UUID>/GI/CI. */
static int has_old_name(const struct scenario *scenario, struct device device, const char *entry)
{
    char name[128], key[32];
    if (device.slot == WHOLE_GPU) return 0;
    snprintf(key, sizeof key, "mig.%d.ci", device.slot);
    snprintf(name, sizeof name, "MIG-%s/%llu/%llu", text_of(scenario, device.gpu, "uuid"),
             instance_of(scenario, device), number_of(scenario, device.gpu, key));
    return strcmp(name, entry) == 0;
}

/* Whether an entry has the first digits of a UUID, or all: dashes and case do not count, nor what
 * follows the last digit, nor without MIG whether it begins GPU- or MIG-. As driver 580.159.04 has
 * it; of MIG devices it has not been asked. */
static int begins_uuid(const char *entry, const char *uuid, int is_plain)
{
    int digits = 0;
    if (!is_plain && strncmp(entry, uuid, 4) != 0) return 0;
    if (!is_plain && entry[0] == 'M') return strncmp(entry, uuid, strlen(entry)) == 0;
    for (entry += 4, uuid += 4; *uuid; entry++, uuid++, digits++) {
        while (*uuid == '-') uuid++;
        while (*entry == '-') entry++;
        if (!*entry) return digits > 0;
        if (tolower((unsigned char)*entry) != tolower((unsigned char)*uuid)) return 0;
    }
    return 1;
}

/* The place in `all` that an entry of the list names, or -1. */
static int place_of(const struct scenario *scenario, const struct devices *all, const char *entry,
                    const char *kind)
{
    if (kind == NULL) {
        char *end;
        int number = (int)strtoul(entry, &end, 10); /* 32 bits of 64, as driver 580.159.04 has it */
        return end == entry || number < 0 || number >= all->count ? -1 : number;
    }
    if (strncmp(entry, kind, 4) != 0) return -1;
    int found = -1, is_plain = 1;
    for (int i = 0; i < all->count; i++) is_plain &= all->at[i].slot == WHOLE_GPU;
    for (int i = 0; i < all->count; i++) {
        if (has_old_name(scenario, all->at[i], entry)) return i;
        if (!begins_uuid(entry, own_uuid(scenario, all->at[i]), is_plain)) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

static struct devices masked(const struct scenario *scenario, const char *value)
{
    struct devices all, none = {{{0, 0}}, 0}, chosen = none;
    int taken[MAX_DEVICES] = {0};
    if (value == NULL) return allowed(divided(scenario, counted(scenario), 0));
    char *copy = strdup(value), *rest = copy, *entry;
    const char *kind = !strncmp(value, "GPU-", 4) ? "GPU-" : !strncmp(value, "MIG-", 4) ? "MIG-" : NULL;
    all = divided(scenario, counted(scenario), kind != NULL);
    while ((entry = strsep(&rest, ",")) != NULL) {
        int place = place_of(scenario, &all, entry, kind);
        if (place < 0) break;
        if (taken[place]++) {
            chosen = none;
            refused = 1;
            break;
        }
        if (has_instance(scenario, &chosen, all.at[place])) break;
        chosen.at[chosen.count++] = all.at[place];
    }
    free(copy);
    return allowed(chosen);
}

int cuda_begin(struct call *call, const char *function, int gpu)
{
    int status = call_begin(call, function, gpu);
    if (status < 0) {
        signal(-status, SIG_DFL);
        raise(-status);
    }
    return status;
}

API int cuInit(unsigned flags)
{
    struct call call;
    driver_initialized(+1);
    int status = cuda_begin(&call, __func__, NO_GPU);
    if (status != CUDA_SUCCESS) return status;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const char *order = getenv("CUDA_DEVICE_ORDER");
    if (!ready) visible = masked(call.scenario, getenv("CUDA_VISIBLE_DEVICES"));
    if (order && strcmp(order, "PCI_BUS_ID") && strcmp(order, "FASTEST_FIRST")) refused = 1;
    if (refused) return CUDA_ERROR_INVALID_DEVICE;
    if (visible.count == 0) return CUDA_ERROR_NO_DEVICE;
    ready = 1;
    return CUDA_SUCCESS;
}

/* The only one that needs no cuInit. */
API int cuDriverGetVersion(int *out)
{
    const struct scenario *scenario = scenario_now();
    const struct value *version = scenario ? table_find(&scenario->values, "cuda_version") : NULL;
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *out = (int)value_number(version, 0);
    return CUDA_SUCCESS;
}

API int cuDeviceGetCount(int *count)
{
    struct call call;
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    *count = visible.count;
    return cuda_begin(&call, __func__, NO_GPU);
}

API int cuDeviceGet(int *device, int ordinal)
{
    struct call call;
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= visible.count) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return cuda_begin(&call, __func__, visible.at[ordinal].gpu);
}

int cuda_begin_device(struct call *call, const char *function, int device)
{
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    if (device < 0 || device >= visible.count) return CUDA_ERROR_INVALID_DEVICE;
    return cuda_begin(call, function, visible.at[device].gpu);
}

/* Sixteen bytes of the digits after `GPU-` or `MIG-`; no text, and NULs are bytes like others. */
static int bytes_of(const char *uuid, unsigned char *out)
{
    memset(out, 0, 16);
    if (strlen(uuid) > 4) uuid += 4;
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (*uuid == '-') uuid++;
        if (!isxdigit((unsigned char)uuid[0]) || sscanf(uuid, "%2x", &byte) != 1) break;
        out[i] = (unsigned char)byte;
        uuid += 2;
    }
    return CUDA_SUCCESS;
}

API int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    BEGIN_CUDA(device);
    return bytes_of(text_of(call.scenario, call.gpu_index, "uuid"), uuid);
}

#if ERA >= 535
API int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    BEGIN_CUDA(device);
    return bytes_of(own_uuid(call.scenario, visible.at[device]), uuid);
}
#endif

/* With CUDA's own domain of four digits, where NVML's has eight. */
API int cuDeviceGetPCIBusId(char *text, int size, int device)
{
    unsigned domain = 0, bus = 0, number = 0;
    BEGIN_CUDA(device);
    sscanf(text_of(call.scenario, call.gpu_index, "pci.bus_id"), "%x:%x:%x", &domain, &bus, &number);
    snprintf(text, (size_t)size, "%04x:%02x:%02x.0", domain, bus, number);
    return CUDA_SUCCESS;
}

API int cuDeviceGetName(char *text, int size, int device)
{
    BEGIN_CUDA(device);
    snprintf(text, (size_t)size, "%s", own_text(call.scenario, visible.at[device], "name"));
    return CUDA_SUCCESS;
}
