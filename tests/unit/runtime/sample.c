/* SPDX-License-Identifier: Apache-2.0 */
/* What a backend leaves for: hidden = relu(x); doubled = region(hidden); y = doubled + bias; z = copy of x. */
#include <stdint.h>

typedef struct {
  void *data; int32_t device_type, device_id, ndim; uint8_t code, bits; uint16_t lanes;
  int64_t *shape, *strides; uint64_t byte_offset;
} tensor;
typedef struct { int32_t type; uint32_t padding; union { int64_t number; void *pointer; } value; } any;
typedef int (*safe_call)(void *, const any *, int32_t, any *);

enum { N = 6 };
static int calls;

static float *data(const any *argument) {
  tensor *t = argument->type == 7 ? argument->value.pointer : (tensor *)((char *)argument->value.pointer + 24);
  return (float *)((char *)t->data + t->byte_offset);
}
static void relu(const float *x, float *y) { for (int i = 0; i < N; i++) y[i] = x[i] > 0 ? x[i] : 0; }
static void add(const float *x, const float *b, float *y) { for (int i = 0; i < N; i++) y[i] = x[i] + b[i % 3]; }

int __tvm_ffi_relu(void *handle, const any *args, int32_t count, any *result) {
  relu(data(args), data(args + 1));
  return 0;
}
int __tvm_ffi_add(void *handle, const any *args, int32_t count, any *result) {
  add(data(args), data(args + 1), data(args + 2));
  return 0;
}
int __tvm_ffi_double_0(void *handle, const any *args, int32_t count, any *result) {
  for (int i = 0; i < N; i++) data(args + 1)[i] = 2 * data(args)[i];
  return handle ? *(int *)handle : 0;
}
int __tvm_ffi_calls(void *handle, const any *args, int32_t count, any *result) { return ++calls; }

int __tvm_ffi_main(void *handle, const any *args, int32_t count, any *result) {
  char **context = args[0].value.pointer;
  float *hidden = (float *)context[0], *doubled = (float *)(context[0] + 64);
  int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
  tensor tensors[2] = {{hidden, 1, 0, 2, 2, 32, 1, shape, strides, 0}, {doubled, 1, 0, 2, 2, 32, 1, shape, strides, 0}};
  any region[2] = {{7, 0, {.pointer = tensors}}, {7, 0, {.pointer = tensors + 1}}};
  relu(data(args + 1), hidden);
  int failed = ((safe_call)context[2])(context[3], region, 2, result);
  if (failed) return failed;
  add(doubled, (float *)context[1], data(args + 2));
  for (int i = 0; i < N; i++) data(args + 3)[i] = data(args + 1)[i];
  return 0;
}
