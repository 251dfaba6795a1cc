/* Library: the entry point through which onnxruntime gets our operators, in the domain "sluice". */
#include "operator.h"

static const char *get_name(const CustomOp *op) { return op->name; }

static const char *get_provider(const CustomOp *op) {
  (void)op;
  return "CPUExecutionProvider";
}

static int get_input_type(const CustomOp *op, size_t index) { return op->input_types[index]; }
static int get_output_type(const CustomOp *op, size_t index) { return op->output_types[index]; }

static size_t count_of(const int *types) {
  size_t count = 0;
  while (types[count] != 0) count++;
  return count;
}

static size_t get_input_count(const CustomOp *op) { return count_of(op->input_types); }
static size_t get_output_count(const CustomOp *op) { return count_of(op->output_types); }

/* Every input and output is required, and lies where the provider has its memory. */
static int zero_at(const CustomOp *op, size_t index) {
  (void)op;
  (void)index;
  return 0;
}

static int zero(const CustomOp *op) {
  (void)op;
  return 0;
}

static void complete_operator(CustomOp *op) {
  op->version = CUSTOM_OP_VERSION;
  op->get_name = get_name;
  op->get_provider = get_provider;
  op->get_input_type = get_input_type;
  op->get_input_count = get_input_count;
  op->get_output_type = get_output_type;
  op->get_output_count = get_output_count;
  op->get_input_kind = op->get_output_kind = op->get_input_memory = zero_at;
  op->get_variadic_input_least = op->get_variadic_input_alike = zero;
  op->get_variadic_output_least = op->get_variadic_output_alike = zero;
}

struct OrtApiBase {
  const void *(*get_api)(uint32_t version);
};

static Status add_operators(Api api, void *domain, CustomOp *operators) {
  for (CustomOp *op = operators; op->name != NULL; op++) {
    complete_operator(op);
    CHECK(((Status(*)(void *, const CustomOp *))api[CUSTOM_OP_DOMAIN_ADD])(domain, op));
  }
  return NULL;
}

/* The name that onnxruntime looks for. Called on one thread, as sessions are opened. */
__attribute__((visibility("default"))) Status RegisterCustomOps(void *options, const struct OrtApiBase *base) {
  /* Never freed: sessions hold it as long as they live. */
  static void *domain;
  const Api api = base->get_api(ORT_API_VERSION);
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return failure(api, "kernels: this processor lacks AVX2, FMA or F16C; the model was prepared on another one");
  if (domain == NULL) {
    void *made;
    CHECK(((Status(*)(const char *, void **))api[CREATE_CUSTOM_OP_DOMAIN])("sluice", &made));
    CHECK(add_operators(api, made, tiled_operators));
    CHECK(add_operators(api, made, attention_operators));
    domain = made;
  }
  return ((Status(*)(void *, void *))api[ADD_CUSTOM_OP_DOMAIN])(options, domain);
}
