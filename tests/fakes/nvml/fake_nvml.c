/* A libnvidia-ml.so.1 that answers from a profile: what the real nvidia-ml-py, the real collector and a real playbook meet on a machine without a GPU.
 *
 * The profile (UNHANG_FAKE_NVML_PROFILE, else /etc/unhang-fake-nvml.profile) is read at nvmlInit; one answer per line, written by __init__.py:
 *     SCOPE NAME CODE VALUE...      SCOPE: system, a device index, or a pair such as 0-1; CODE: the nvmlReturn_t
 *     stall NAME SCOPE|*            the call never returns
 *     crash NAME SCOPE|*            the call ends the process with SIGSEGV
 *     slow MILLISECONDS NAME SCOPE|*
 * What is set (compute mode, persistence mode) goes to a file beside the profile, with ".set" behind its name, whose lines take the place of the profile's.
 * A name without a line answers FUNCTION_NOT_FOUND, which is what pynvml makes of a function that an old driver does not have.
 * Without a profile nvmlInit answers DRIVER_NOT_LOADED.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9,
       FUNCTION_NOT_FOUND = 13, ARGUMENT_VERSION_MISMATCH = 25 };
#define SLOTS 65536
#define EXPORT __attribute__((visibility("default")))
typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *Device;

static char *profile;
static struct { const char *key, *answer; } table[SLOTS];
static int ready, device_count;

static u32 slot_of(const char *key)
{
    u32 hash = 2166136261u;
    for (const char *c = key; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    hash %= SLOTS;
    while (table[hash].key && strcmp(table[hash].key, key)) hash = (hash + 1) % SLOTS;
    return hash;
}

static const char *find(const char *scope, const char *name)
{
    char key[256];
    snprintf(key, sizeof key, "%s %s", scope, name);
    return table[slot_of(key)].answer;
}

static void put(char *key, char *answer)
{
    u32 slot = slot_of(key);
    table[slot].key = key;
    table[slot].answer = answer;
}

/* "A B C rest": cuts after the second word, so that "A B" is the key. */
static void read_line(char *line)
{
    char *space = strchr(line, ' ');
    if (!space) return;
    if (!strncmp(line, "slow ", 5)) {              /* slow 1500 NAME SCOPE -> key "slow:SCOPE NAME" */
        char *name = strchr(space + 1, ' '), *scope = name ? strchr(name + 1, ' ') : NULL;
        if (!scope) return;
        char *key = malloc(strlen(line) + 16);
        *name = *scope = 0;
        sprintf(key, "slow:%s %s", scope + 1, name + 1);
        put(key, space + 1);
        return;
    }
    if (!strncmp(line, "stall ", 6) || !strncmp(line, "crash ", 6)) {
        char *scope = strchr(space + 1, ' ');
        if (!scope) return;
        char *key = malloc(strlen(line) + 16);
        *space = *scope = 0;
        sprintf(key, "%s:%s %s", line, scope + 1, space + 1);
        put(key, "1");
        return;
    }
    char *answer = strchr(space + 1, ' ');
    if (!answer) return;
    *answer = 0;
    put(line, answer + 1);
}

static const char *profile_path(void)
{
    const char *path = getenv("UNHANG_FAKE_NVML_PROFILE");
    return path && *path ? path : "/etc/unhang-fake-nvml.profile";
}

/* The whole of a file, or NULL; its lines go into the table, over those that are there. */
static char *read_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *whole = malloc(size + 1);
    size = fread(whole, 1, size, file);
    whole[size] = 0;
    fclose(file);
    for (char *line = whole, *end; line && *line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        if (end) *end = 0;
        read_line(line);
    }
    return whole;
}

static int load_profile(void)
{
    char set[4096];
    profile = read_lines(profile_path());
    if (!profile) return DRIVER_NOT_LOADED;
    snprintf(set, sizeof set, "%s.set", profile_path());
    read_lines(set);
    const char *count = find("system", "nvmlDeviceGetCount_v2");
    device_count = count ? atoi(strchr(count, ' ') ? strchr(count, ' ') + 1 : "0") : 0;
    return SUCCESS;
}

/* A stall, crash or pause is said of a function in each of its versions: _v2 and the like are no part of the name. */
static void misbehave(const char *scope, const char *versioned)
{
    char any[] = "*", prefixed[128], name[128];
    snprintf(name, sizeof name, "%s", versioned);
    size_t length = strlen(name);
    if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v') name[length - 3] = 0;
    const char *scopes[] = {scope, any};
    for (int i = 0; i < 2; i++) {
        snprintf(prefixed, sizeof prefixed, "slow:%s", scopes[i]);
        const char *ms = find(prefixed, name);
        if (ms) {
            struct timespec pause = {atol(ms) / 1000, atol(ms) % 1000 * 1000000};
            nanosleep(&pause, NULL);
        }
        snprintf(prefixed, sizeof prefixed, "stall:%s", scopes[i]);
        if (find(prefixed, name)) for (;;) pause();
        snprintf(prefixed, sizeof prefixed, "crash:%s", scopes[i]);
        if (find(prefixed, name)) { signal(SIGSEGV, SIG_DFL); raise(SIGSEGV); }
    }
}

/* The code of a call, and where its values stand. */
static int look(const char *scope, const char *call, const char *key, const char **values)
{
    if (!ready) return UNINITIALIZED;
    misbehave(scope, call);
    const char *answer = find(scope, key);
    if (!answer) return FUNCTION_NOT_FOUND;
    const char *space = strchr(answer, ' ');
    *values = space ? space + 1 : "";
    return atoi(answer);
}

static const char *scope_of(Device device, char *buffer)
{
    sprintf(buffer, "%d", (int)(intptr_t)device - 1);
    return buffer;
}

static int numbers(const char *values, u64 *out, int most)
{
    int count = 0;
    char *end;
    while (count < most && *values) {
        out[count] = values[0] == '-' ? (u64)strtoll(values, &end, 10) : strtoull(values, &end, 10);
        if (end == values) break;
        count++;
        values = end;
    }
    for (int i = count; i < most; i++) out[i] = 0;
    return count;
}

static int device_numbers(Device device, const char *call, const char *key, u64 *out, int most)
{
    char scope[16];
    const char *values;
    int code = look(scope_of(device, scope), call, key, &values);
    if (code == SUCCESS) numbers(values, out, most);
    return code;
}

static int text(int code, const char *values, char *out, u32 length)
{
    if (code != SUCCESS) return code;
    if (strlen(values) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(out, values);
    return SUCCESS;
}

/* ---- start, end, system */

EXPORT int nvmlInitWithFlags(u32 flags)
{
    (void)flags;
    if (!profile) {
        int code = load_profile();
        if (code != SUCCESS) return code;
    }
    ready = 1;
    misbehave("system", "nvmlInitWithFlags");
    const char *answer = find("system", "nvmlInitWithFlags");
    int code = answer ? atoi(answer) : SUCCESS;
    if (code != SUCCESS) ready = 0;
    return code;
}
EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT int nvmlShutdown(void) { return SUCCESS; }
EXPORT const char *nvmlErrorString(int code) { (void)code; return "Error of the fake NVML"; }

#define SYSTEM_TEXT(NAME) \
    EXPORT int NAME(char *out, u32 length) { const char *v; int code = look("system", #NAME, #NAME, &v); return text(code, v, out, length); }
SYSTEM_TEXT(nvmlSystemGetDriverVersion)
SYSTEM_TEXT(nvmlSystemGetNVMLVersion)

#define SYSTEM_INT(NAME) \
    EXPORT int NAME(int *out) { const char *v; int code = look("system", #NAME, #NAME, &v); if (code == SUCCESS) *out = atoi(v); return code; }
SYSTEM_INT(nvmlSystemGetCudaDriverVersion)
SYSTEM_INT(nvmlSystemGetCudaDriverVersion_v2)
SYSTEM_INT(nvmlDeviceGetCount_v2)

EXPORT int nvmlDeviceGetHandleByIndex_v2(u32 index, Device *out)
{
    char scope[16];
    if (!ready) return UNINITIALIZED;
    if ((int)index >= device_count) return INVALID_ARGUMENT;
    sprintf(scope, "%u", index);
    misbehave(scope, "nvmlDeviceGetHandleByIndex_v2");
    const char *answer = find(scope, "nvmlDeviceGetHandleByIndex_v2");
    *out = (Device)(intptr_t)(index + 1);
    return answer ? atoi(answer) : SUCCESS;
}

/* ---- one device: texts and numbers */

#define TEXT(NAME) \
    EXPORT int NAME(Device d, char *out, u32 length) { char s[16]; const char *v; int code = look(scope_of(d, s), #NAME, #NAME, &v); return text(code, v, out, length); }
TEXT(nvmlDeviceGetName) TEXT(nvmlDeviceGetUUID) TEXT(nvmlDeviceGetSerial) TEXT(nvmlDeviceGetVbiosVersion) TEXT(nvmlDeviceGetBoardPartNumber)
TEXT(nvmlDeviceGetInforomImageVersion)

EXPORT int nvmlDeviceGetGspFirmwareVersion(Device d, char *out)
{
    char s[16];
    const char *v;
    int code = look(scope_of(d, s), "nvmlDeviceGetGspFirmwareVersion", "nvmlDeviceGetGspFirmwareVersion", &v);
    return text(code, v, out, 64);
}

#define ONE(NAME, TYPE) \
    EXPORT int NAME(Device d, TYPE *out) { u64 n[1]; int code = device_numbers(d, #NAME, #NAME, n, 1); if (code == SUCCESS) *out = (TYPE)n[0]; return code; }
ONE(nvmlDeviceGetMinorNumber, u32) ONE(nvmlDeviceGetIndex, u32) ONE(nvmlDeviceGetArchitecture, u32) ONE(nvmlDeviceGetBrand, u32)
ONE(nvmlDeviceGetCurrPcieLinkGeneration, u32) ONE(nvmlDeviceGetCurrPcieLinkWidth, u32) ONE(nvmlDeviceGetMaxPcieLinkGeneration, u32)
ONE(nvmlDeviceGetMaxPcieLinkWidth, u32) ONE(nvmlDeviceGetGpuMaxPcieLinkGeneration, u32) ONE(nvmlDeviceGetPcieReplayCounter, u32)
ONE(nvmlDeviceGetPcieSpeed, u32) ONE(nvmlDeviceGetPowerManagementLimit, u32) ONE(nvmlDeviceGetPowerManagementDefaultLimit, u32)
ONE(nvmlDeviceGetEnforcedPowerLimit, u32) ONE(nvmlDeviceGetPowerUsage, u32) ONE(nvmlDeviceGetCurrentClocksThrottleReasons, u64)
ONE(nvmlDeviceGetCurrentClocksEventReasons, u64) ONE(nvmlDeviceGetPersistenceMode, u32) ONE(nvmlDeviceGetComputeMode, u32)
ONE(nvmlDeviceGetRetiredPagesPendingStatus, u32) ONE(nvmlDeviceGetPerformanceState, u32)

/* Only root may set, and only what the GPU has. */
static int set_mode(Device d, const char *call, const char *key, u32 value)
{
    char scope[16], path[4096], line[128];
    const char *values;
    int code = look(scope_of(d, scope), call, key, &values);
    if (code != SUCCESS) return code;
    if (geteuid() != 0) return NO_PERMISSION;
    snprintf(line, sizeof line, "%s %s 0 %u", scope, key, value);
    snprintf(path, sizeof path, "%s.set", profile_path());
    FILE *file = fopen(path, "a");
    if (!file) return NO_PERMISSION;
    fprintf(file, "%s\n", line);
    fclose(file);
    read_line(strdup(line));
    return SUCCESS;
}
EXPORT int nvmlDeviceSetComputeMode(Device d, u32 mode) { return set_mode(d, "nvmlDeviceSetComputeMode", "nvmlDeviceGetComputeMode", mode); }
EXPORT int nvmlDeviceSetPersistenceMode(Device d, u32 mode) { return set_mode(d, "nvmlDeviceSetPersistenceMode", "nvmlDeviceGetPersistenceMode", mode); }

#define TWO(NAME) \
    EXPORT int NAME(Device d, u32 *a, u32 *b) { u64 n[2]; int code = device_numbers(d, #NAME, #NAME, n, 2); if (code == SUCCESS) { *a = n[0]; *b = n[1]; } return code; }
TWO(nvmlDeviceGetEccMode) TWO(nvmlDeviceGetMigMode) TWO(nvmlDeviceGetGspFirmwareMode) TWO(nvmlDeviceGetPowerManagementLimitConstraints)
TWO(nvmlDeviceGetCudaComputeCapability)

#define BY_NUMBER(NAME) \
    EXPORT int NAME(Device d, u32 which, u32 *out) { char key[96]; u64 n[1]; sprintf(key, #NAME ":%u", which); \
        int code = device_numbers(d, #NAME, key, n, 1); if (code == SUCCESS) *out = n[0]; return code; }
BY_NUMBER(nvmlDeviceGetTemperature) BY_NUMBER(nvmlDeviceGetTemperatureThreshold) BY_NUMBER(nvmlDeviceGetClockInfo) BY_NUMBER(nvmlDeviceGetMaxClockInfo)
BY_NUMBER(nvmlDeviceGetDefaultApplicationsClock) BY_NUMBER(nvmlDeviceGetNvLinkState) BY_NUMBER(nvmlDeviceGetNvLinkVersion) BY_NUMBER(nvmlDeviceGetNvLinkRemoteDeviceType)

EXPORT int nvmlDeviceGetNvLinkErrorCounter(Device d, u32 link, u32 counter, u64 *out)
{
    char key[96];
    sprintf(key, "nvmlDeviceGetNvLinkErrorCounter:%u:%u", link, counter);
    return device_numbers(d, "nvmlDeviceGetNvLinkErrorCounter", key, out, 1);
}

EXPORT int nvmlDeviceGetTotalEccErrors(Device d, u32 type, u32 counter, u64 *out)
{
    char key[96];
    sprintf(key, "nvmlDeviceGetTotalEccErrors:%u:%u", type, counter);
    return device_numbers(d, "nvmlDeviceGetTotalEccErrors", key, out, 1);
}

/* ---- one device: structures */

typedef struct { char bus_id_legacy[16]; u32 domain, bus, device, pci_device_id, pci_subsystem_id; char bus_id[32]; } Pci;

static int pci(Device d, const char *call, const char *key, Pci *out)
{
    char s[16];
    const char *v;
    int code = look(scope_of(d, s), call, key, &v);
    if (code != SUCCESS) return code;
    memset(out, 0, sizeof *out);
    sscanf(v, "%31s %15s %u %u %u %u %u", out->bus_id, out->bus_id_legacy, &out->domain, &out->bus, &out->device, &out->pci_device_id, &out->pci_subsystem_id);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetPciInfo_v3(Device d, Pci *out) { return pci(d, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v3", out); }
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, u32 link, Pci *out)
{
    char key[96];
    sprintf(key, "nvmlDeviceGetNvLinkRemotePciInfo_v2:%u", link);
    return pci(d, "nvmlDeviceGetNvLinkRemotePciInfo_v2", key, out);
}

EXPORT int nvmlDeviceGetMemoryInfo(Device d, u64 *out) { return device_numbers(d, "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo", out, 3); }
EXPORT int nvmlDeviceGetBAR1MemoryInfo(Device d, u64 *out) { return device_numbers(d, "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetBAR1MemoryInfo", out, 3); }

EXPORT int nvmlDeviceGetMemoryInfo_v2(Device d, u32 *out)
{
    u64 n[4];
    int code = device_numbers(d, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo_v2", n, 4);
    if (code != SUCCESS) return code;
    if (out[0] != 0x02000028) return ARGUMENT_VERSION_MISMATCH;
    memcpy((char *)out + 8, n, sizeof n);
    return SUCCESS;
}

static int five(Device d, const char *name, u32 *out, int count)
{
    u64 n[5];
    int code = device_numbers(d, name, name, n, count);
    for (int i = 0; code == SUCCESS && i < count; i++) out[i] = n[i];
    return code;
}
EXPORT int nvmlDeviceGetRowRemapperHistogram(Device d, u32 *out) { return five(d, "nvmlDeviceGetRowRemapperHistogram", out, 5); }
EXPORT int nvmlDeviceGetUtilizationRates(Device d, u32 *out) { return five(d, "nvmlDeviceGetUtilizationRates", out, 2); }
EXPORT int nvmlDeviceGetRemappedRows(Device d, u32 *a, u32 *b, u32 *c, u32 *e)
{
    u32 n[4];
    int code = five(d, "nvmlDeviceGetRemappedRows", n, 4);
    if (code == SUCCESS) { *a = n[0]; *b = n[1]; *c = n[2]; *e = n[3]; }
    return code;
}

/* cluster as 32 hex digits, then status, clique, state, health */
static int fabric(Device d, const char *name, unsigned char *cluster, u32 *status, u32 *clique, u32 *state, u32 *health)
{
    char s[16], hex[33] = "";
    const char *v;
    int code = look(scope_of(d, s), name, name, &v);
    if (code != SUCCESS) return code;
    sscanf(v, "%32s %u %u %u %u", hex, status, clique, state, health);
    for (int i = 0; i < 16; i++) { u32 byte = 0; sscanf(hex + 2 * i, "%2x", &byte); cluster[i] = byte; }
    return SUCCESS;
}
EXPORT int nvmlDeviceGetGpuFabricInfo(Device d, u32 *out)
{
    u32 state = 0, health;
    int code = fabric(d, "nvmlDeviceGetGpuFabricInfo", (unsigned char *)out, out + 4, out + 5, &state, &health);
    if (code == SUCCESS) ((unsigned char *)out)[24] = state;
    return code;
}
EXPORT int nvmlDeviceGetGpuFabricInfoV(Device d, u32 *out)
{
    u32 status, clique, state, health = 0;
    unsigned char cluster[16];
    int code = fabric(d, "nvmlDeviceGetGpuFabricInfoV", cluster, &status, &clique, &state, &health);
    if (code != SUCCESS) return code;
    if (out[0] != 0x02000024 && out[0] != 0x03000028) return ARGUMENT_VERSION_MISMATCH;
    memcpy((char *)out + 4, cluster, 16);
    memcpy((char *)out + 20, &status, 4);
    memcpy((char *)out + 24, &clique, 4);
    ((unsigned char *)out)[28] = state;
    memcpy((char *)out + 32, &health, 4);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetSramEccErrorStatus(Device d, u32 *out)
{
    u64 n[12];
    int code = device_numbers(d, "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetSramEccErrorStatus", n, 12);
    if (code != SUCCESS) return code;
    if (out[0] != 0x1000068) return ARGUMENT_VERSION_MISMATCH;
    memcpy((char *)out + 8, n, 11 * 8);
    u32 exceeded = n[11];
    memcpy((char *)out + 96, &exceeded, 4);
    return SUCCESS;
}

/* values: COUNT PID MEMORY INSTANCE COMPUTE_INSTANCE PID ...; v2 and v3 have the same layout */
typedef struct { u32 pid, unused; u64 memory; u32 instance, compute_instance; } Process;
static int processes(Device d, const char *name, u32 *count, Process *out)
{
    u64 n[1 + 4 * 256];
    int code = device_numbers(d, name, name, n, 1 + 4 * 256);
    if (code != SUCCESS) return code;
    if (*count < n[0] || (!out && n[0])) { *count = n[0]; return INSUFFICIENT_SIZE; }
    *count = n[0];
    for (u32 i = 0; i < n[0] && i < 256; i++)
        out[i] = (Process){.pid = n[1 + 4 * i], .memory = n[2 + 4 * i], .instance = n[3 + 4 * i], .compute_instance = n[4 + 4 * i]};
    return SUCCESS;
}
#define PROCESSES(NAME) EXPORT int NAME(Device d, u32 *count, Process *out) { return processes(d, #NAME, count, out); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3) PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3) PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3) PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)

EXPORT int nvmlDeviceGetRetiredPages(Device d, u32 cause, u32 *count, u64 *out)
{
    char key[96];
    u64 n[65];
    sprintf(key, "nvmlDeviceGetRetiredPages:%u", cause);
    int code = device_numbers(d, "nvmlDeviceGetRetiredPages", key, n, 65);
    if (code != SUCCESS) return code;
    if (*count < n[0]) { *count = n[0]; return INSUFFICIENT_SIZE; }
    *count = n[0];
    for (u32 i = 0; out && i < n[0] && i < 64; i++) out[i] = n[1 + i];
    return SUCCESS;
}

typedef struct { u32 field, scope; long long timestamp, latency; u32 type; int code; union { double d; u64 u; } value; } Field;
EXPORT int nvmlDeviceGetFieldValues(Device d, int count, Field *fields)
{
    char s[16], key[64];
    const char *v;
    if (look(scope_of(d, s), "nvmlDeviceGetFieldValues", "nvmlDeviceGetFieldValues", &v) == FUNCTION_NOT_FOUND) return FUNCTION_NOT_FOUND;
    for (int i = 0; i < count; i++) {
        sprintf(key, "field:%u:%u", fields[i].field, fields[i].scope);
        const char *answer = find(s, key);
        if (!answer) { sprintf(key, "field:%u", fields[i].field); answer = find(s, key); }
        u64 n[3] = {INVALID_ARGUMENT, 0, 0};
        if (answer) numbers(answer, n, 3);
        fields[i].code = n[0];
        fields[i].type = n[1];
        fields[i].value.u = n[2];
        if (fields[i].type == 0) fields[i].value.d = (double)n[2];
    }
    return SUCCESS;
}

/* ---- pairs */

static int pair(Device a, Device b, const char *call, const char *key, u32 *out)
{
    char scope[32];
    const char *v;
    sprintf(scope, "%d-%d", (int)(intptr_t)a - 1, (int)(intptr_t)b - 1);
    int code = look(scope, call, key, &v);
    if (code == SUCCESS) *out = strtoul(v, NULL, 10);
    return code;
}
EXPORT int nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, u32 *out)
{
    return pair(a, b, "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetTopologyCommonAncestor", out);
}
EXPORT int nvmlDeviceGetP2PStatus(Device a, Device b, u32 which, u32 *out)
{
    char key[64];
    sprintf(key, "nvmlDeviceGetP2PStatus:%u", which);
    return pair(a, b, "nvmlDeviceGetP2PStatus", key, out);
}
