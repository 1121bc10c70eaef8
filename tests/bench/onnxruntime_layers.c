// SPDX-License-Identifier: Apache-2.0
// Runs a model of ONNX Runtime's C library, by its table of functions, on zeros and one thread.
// Arguments: library, model, whether float32 may be multiplied in bfloat16, element type, rank,
// sizes, calls. The table only grows, so numbers of functions hold for every later version.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
enum {
    MESSAGE = 2, ENVIRONMENT = 3, SESSION = 7, RUN = 9, OPTIONS = 10, THREADS = 24,
    TENSOR = 49, MEMORY = 69, RELEASE = 96, CONFIGURE = 130, VERSION = 17
};
typedef struct {
    void *const *(*functions)(uint32_t version);
} Base;
typedef void *Status;
static void *const *api;
static void check(Status status)
{
    if (!status) return;
    fprintf(stderr, "%s\n", ((const char *(*)(Status))api[MESSAGE])(status));
    exit(3);
}
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    api = ((const Base *(*)(void))dlsym(library, "OrtGetApiBase"))()->functions(VERSION);
    const int narrow = atoi(argv[3]), kind = atoi(argv[4]), rank = atoi(argv[5]);
    int64_t shape[8], count = 1;
    for (int i = 0; i < rank; ++i) count *= shape[i] = atoll(argv[6 + i]);
    void *environment, *options, *session, *memory, *x;
    check(((Status(*)(int, const char *, void **))api[ENVIRONMENT])(3, "layers", &environment));
    check(((Status(*)(void **))api[OPTIONS])(&options));
    check(((Status(*)(void *, int))api[THREADS])(options, 1));
    if (narrow)
        check(((Status(*)(void *, const char *, const char *))api[CONFIGURE])(
            options, "mlas.enable_gemm_fastmath_arm64_bfloat16", "1"));
    check(((Status(*)(void *, const char *, void *, void **))api[SESSION])(
        environment, argv[2], options, &session));
    check(((Status(*)(int, int, void **))api[MEMORY])(1, 0, &memory));
    const size_t bytes = (size_t)count * (kind == 1 ? 4 : kind == 10 ? 2 : 1);
    check(((Status(*)(void *, void *, size_t, const int64_t *, size_t, int, void **))api[TENSOR])(
        memory, calloc(bytes, 1), bytes, shape, (size_t)rank, kind, &x));
    const char *inputs[] = {"x"}, *outputs[] = {"y"};
    void *const values[] = {x};
    for (int left = atoi(argv[argc - 1]); left; --left) {
        void *y = 0;
        check(((Status(*)(void *, void *, const char *const *, void *const *, size_t,
                          const char *const *, size_t, void **))api[RUN])(
            session, 0, inputs, values, 1, outputs, 1, &y));
        ((void (*)(void *))api[RELEASE])(y);
    }
    return 0;
}
