/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 of ours, to call the real binding without a GPU: memory is the host's, kernels are
 * the emulated ones, and a captured graph is a list. The image of a module is the path of a library.
 * Work outside a capture is done at once. What a GPU's driver would refuse (an unknown stream) fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 4096, MOST_ARGUMENTS = 32, INVALID = 1, NOT_FOUND = 500 };

struct kernel {
    int (*call)(void **args, const uint32_t *dims, int32_t fibers);
    int count;
    unsigned pooled;
};

struct node {
    const struct kernel *kernel;
    void *args[MOST_ARGUMENTS];
    uint32_t dims[6];
    void *to;
    const void *from;
    size_t bytes;
};

struct graph {
    int count;
    struct node nodes[MOST_NODES];
};

static struct graph *capturing;
static char stream, context, pool;
static long live; /* pieces of memory not given back */

static int carry_out(struct node *node)
{
    if (node->kernel == NULL) {
        memcpy(node->to, node->from, node->bytes);
        return 0;
    }
    return node->kernel->call(node->args, node->dims, 1) == 0 ? 0 : 700;
}

static int add(struct node node)
{
    if (capturing == NULL) {
        return carry_out(&node);
    }
    if (capturing->count == MOST_NODES) {
        return INVALID;
    }
    capturing->nodes[capturing->count++] = node;
    return 0;
}

static int copy(void *to, const void *from, size_t bytes, void *on)
{
    struct node node = {.to = to, .from = from, .bytes = bytes};
    return on == &stream ? add(node) : INVALID;
}

int cuInit(unsigned flags) { return flags == 0 ? 0 : INVALID; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, number == 0 ? 0 : INVALID; }
int cuDeviceGetName(char *name, int length, int device)
{
    return snprintf(name, (size_t)length, "stub %d", device) > 0 ? 0 : INVALID;
}
int cuDevicePrimaryCtxRetain(void **made, int device) { return *made = &context, device; }
int cuDevicePrimaryCtxRelease(int device)
{
    fprintf(stderr, "released with %ld pieces of memory\n", live);
    return device;
}
int cuCtxSetCurrent(void *now) { return now == &context ? 0 : INVALID; }
int cuCtxSynchronize(void) { return 0; }
int cuStreamCreate(void **made, unsigned flags) { return *made = &stream, flags == 1 ? 0 : INVALID; }
int cuStreamDestroy(void *which) { return which == &stream ? 0 : INVALID; }
int cuStreamSynchronize(void *which) { return which == &stream && capturing == NULL ? 0 : INVALID; }
int cuDeviceGetDefaultMemPool(void **made, int device) { return *made = &pool, device; }
int cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, void *from, void *on)
{
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(memory, 0xff, bytes);
    *address = (uint64_t)(uintptr_t)memory;
    ++live;
    return from == &pool && on == &stream ? 0 : INVALID;
}
int cuMemFreeAsync(uint64_t address, void *on)
{
    free((void *)(uintptr_t)address);
    --live;
    return on == &stream ? 0 : INVALID;
}
int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    ++live;
    return *address = malloc(bytes), flags == 0 ? 0 : INVALID;
}
int cuMemFreeHost(void *address) { return free(address), --live, 0; }
int cuMemcpyHtoD(uint64_t to, const void *from, size_t bytes)
{
    return memcpy((void *)(uintptr_t)to, from, bytes), 0;
}
int cuMemcpyHtoDAsync(uint64_t to, const void *from, size_t bytes, void *on)
{
    return copy((void *)(uintptr_t)to, from, bytes, on);
}
int cuMemcpyDtoHAsync(void *to, uint64_t from, size_t bytes, void *on)
{
    return copy(to, (const void *)(uintptr_t)from, bytes, on);
}
int cuMemcpyDtoDAsync(uint64_t to, uint64_t from, size_t bytes, void *on)
{
    return copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, on);
}
int cuModuleLoadData(void **module, const void *image)
{
    *module = dlopen(image, RTLD_NOW | RTLD_LOCAL);
    return *module == NULL ? 209 : 0; /* no machine code for this GPU */
}
int cuModuleUnload(void *module) { return dlclose(module); }
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    char symbol[512];
    struct kernel *kernel = calloc(1, sizeof *kernel);
    snprintf(symbol, sizeof symbol, "emulated_%s", name);
    *(void **)&kernel->call = dlsym(module, symbol);
    snprintf(symbol, sizeof symbol, "count_%s", name);
    const int *count = dlsym(module, symbol);
    kernel->count = count == NULL ? 0 : *count;
    *function = kernel;
    return kernel->call != NULL && count != NULL && kernel->count <= MOST_ARGUMENTS ? 0 : NOT_FOUND;
}
int cuFuncSetAttribute(void *function, int attribute, int value)
{
    ((struct kernel *)function)->pooled = value;
    return attribute == 8 ? 0 : INVALID;
}
int cuLaunchKernel(void *function, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e,
                   unsigned f, unsigned shared, void *on, void **params, void **extra)
{
    struct node node = {.kernel = function, .dims = {a, b, c, d, e, f}};
    for (int n = 0; n < node.kernel->count; ++n) {
        node.args[n] = *(void **)params[n];
    }
    return shared == node.kernel->pooled && extra == NULL && on == &stream ? add(node) : INVALID;
}
int cuStreamBeginCapture(void *which, int mode)
{
    capturing = calloc(1, sizeof *capturing);
    return which == &stream && mode == 1 ? 0 : INVALID;
}
int cuStreamEndCapture(void *which, void **graph)
{
    *graph = capturing;
    capturing = NULL;
    return which == &stream ? 0 : INVALID;
}
int cuGraphInstantiateWithFlags(void **ready, void *graph, unsigned long long flags)
{
    *ready = memcpy(malloc(sizeof(struct graph)), graph, sizeof(struct graph));
    return flags == 0 ? 0 : INVALID;
}
int cuGraphDestroy(void *graph) { return free(graph), 0; }
int cuGraphExecDestroy(void *ready) { return free(ready), 0; }
int cuGraphLaunch(void *ready, void *on)
{
    struct graph *graph = ready;
    for (int n = 0; n < graph->count; ++n) {
        const int failed = carry_out(&graph->nodes[n]);
        if (failed != 0) {
            return failed;
        }
    }
    return on == &stream ? 0 : INVALID;
}
int cuGetErrorName(int error, const char **name) { return *name = "stub", error * 0; }
int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    (void)version;
    (void)flags;
    *found = strcmp(name, "cuGetProcAddress") == 0 ? (void *)cuGetProcAddress_v2
                                                   : dlsym(RTLD_DEFAULT, name);
    if (*found == NULL) {
        void *own = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        *found = own == NULL ? NULL : dlsym(own, name);
    }
    if (status != NULL) {
        *status = *found == NULL;
    }
    return 0;
}
