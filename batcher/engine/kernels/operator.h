/*
 * Operator: what our operators share as custom operators of onnxruntime: the part of its C interface that they use, and their frame.
 * Only what that interface promises is used: OrtApi is a table of functions whose order never changes, and OrtCustomOp begins as it did
 * in version 16 of it.
 */
#ifndef SLUICE_OPERATOR_H
#define SLUICE_OPERATOR_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void *Status;
typedef void *const *Api;

/* Places in struct OrtApi. */
enum {
  CREATE_STATUS = 0,
  CREATE_CUSTOM_OP_DOMAIN = 26,
  CUSTOM_OP_DOMAIN_ADD = 27,
  ADD_CUSTOM_OP_DOMAIN = 28,
  GET_TENSOR_MUTABLE_DATA = 51,
  GET_DIMENSIONS_COUNT = 61,
  GET_DIMENSIONS = 62,
  GET_TENSOR_SHAPE_ELEMENT_COUNT = 64,
  GET_TENSOR_TYPE_AND_SHAPE = 65,
  KERNEL_INFO_GET_ATTRIBUTE_INT64 = 86,
  KERNEL_CONTEXT_GET_INPUT = 90,
  KERNEL_CONTEXT_GET_OUTPUT = 91,
  RELEASE_TENSOR_TYPE_AND_SHAPE_INFO = 99,
  KERNEL_CONTEXT_PARALLEL_FOR = 274,
};

enum { ORT_API_VERSION = 20, ORT_FAIL = 1, CUSTOM_OP_VERSION = 16 };

/* Element types of tensors. */
enum { FLOAT = 1, UINT8 = 2, INT32 = 6, INT64 = 7, FLOAT16 = 10 };

enum { MOST_INPUTS = 8, MOST_OUTPUTS = 4, MOST_DIMENSIONS = 4 };

typedef struct CustomOp CustomOp;
struct CustomOp {
  uint32_t version;
  void *(*create_kernel)(const CustomOp *, const void *api, const void *info);
  const char *(*get_name)(const CustomOp *);
  const char *(*get_provider)(const CustomOp *);
  int (*get_input_type)(const CustomOp *, size_t);
  size_t (*get_input_count)(const CustomOp *);
  int (*get_output_type)(const CustomOp *, size_t);
  size_t (*get_output_count)(const CustomOp *);
  void (*compute)(void *kernel, void *context);
  void (*destroy)(void *kernel);
  int (*get_input_kind)(const CustomOp *, size_t);
  int (*get_output_kind)(const CustomOp *, size_t);
  int (*get_input_memory)(const CustomOp *, size_t);
  int (*get_variadic_input_least)(const CustomOp *);
  int (*get_variadic_input_alike)(const CustomOp *);
  int (*get_variadic_output_least)(const CustomOp *);
  int (*get_variadic_output_alike)(const CustomOp *);
  Status (*create_kernel_v2)(const CustomOp *, const void *api, const void *info, void **kernel);
  Status (*compute_v2)(void *kernel, void *context);
  /* Ours, behind what onnxruntime reads at this version. Types end with 0; the functions above that are alike in all are filled in later. */
  const char *name;
  int input_types[MOST_INPUTS + 1];
  int output_types[MOST_OUTPUTS + 1];
};

/* The operators of the library, one array for each file, ending with an empty name. */
extern CustomOp tiled_operators[];
extern CustomOp attention_operators[];

#define CHECK(call)                    \
  do {                                 \
    const Status status_ = (call);     \
    if (status_ != NULL) return status_; \
  } while (0)

static inline Status failure(Api api, const char *message) {
  return ((Status(*)(int, const char *))api[CREATE_STATUS])(ORT_FAIL, message);
}

static inline Status get_attribute(Api api, const void *info, const char *name, int64_t *value) {
  return ((Status(*)(const void *, const char *, int64_t *))api[KERNEL_INFO_GET_ATTRIBUTE_INT64])(info, name, value);
}

typedef struct {
  void *data;
  int64_t elements;
  /* Of at most MOST_DIMENSIONS. */
  int64_t dimensions[MOST_DIMENSIONS];
} Input;

static inline Status get_input(Api api, const void *context, size_t index, Input *input) {
  void *value, *info;
  size_t elements, rank;
  CHECK(((Status(*)(const void *, size_t, void **))api[KERNEL_CONTEXT_GET_INPUT])(context, index, &value));
  CHECK(((Status(*)(void *, void **))api[GET_TENSOR_MUTABLE_DATA])(value, &input->data));
  CHECK(((Status(*)(const void *, void **))api[GET_TENSOR_TYPE_AND_SHAPE])(value, &info));
  Status status = ((Status(*)(const void *, size_t *))api[GET_TENSOR_SHAPE_ELEMENT_COUNT])(info, &elements);
  if (status == NULL) status = ((Status(*)(const void *, size_t *))api[GET_DIMENSIONS_COUNT])(info, &rank);
  if (status == NULL && rank <= MOST_DIMENSIONS)
    status = ((Status(*)(const void *, int64_t *, size_t))api[GET_DIMENSIONS])(info, input->dimensions, rank);
  ((void (*)(void *))api[RELEASE_TENSOR_TYPE_AND_SHAPE_INFO])(info);
  input->elements = (int64_t)elements;
  return status;
}

static inline Status get_output(Api api, void *context, size_t index, const int64_t *dimensions, size_t rank, void **data) {
  void *value;
  CHECK(((Status(*)(void *, size_t, const int64_t *, size_t, void **))api[KERNEL_CONTEXT_GET_OUTPUT])(context, index, dimensions, rank, &value));
  return ((Status(*)(void *, void **))api[GET_TENSOR_MUTABLE_DATA])(value, data);
}

/* Calls part(data, 0 … count - 1) on the threads of the session. */
static inline Status in_parts(Api api, const void *context, void (*part)(void *, size_t), int64_t count, void *data) {
  if (count <= 1) {
    part(data, 0);
    return NULL;
  }
  return ((Status(*)(const void *, void (*)(void *, size_t), size_t, size_t, void *))api[KERNEL_CONTEXT_PARALLEL_FOR])(
      context, part, (size_t)count, (size_t)count, data);
}

static inline int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
