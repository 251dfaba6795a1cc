/*
 * Machine: what this host can do at the most, for the bench `bounds`: bytes read a second from memory that no cache holds, and 8-bit multiplications a second
 * by the instructions that the product's kernels use, all threads together.
 *
 *   machine <threads>    prints {"readBytes": …, "products": …}, both a second
 */
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUFFER = 192 << 20, READ_PASSES = 4, ROUNDS = 1 << 24, CHAINS = 12, MOST_THREADS = 256, TRIES = 3 };

typedef struct {
  uint8_t *buffer;
  pthread_barrier_t *start;
  int has_vnni;
  uint64_t kept;
} Worker;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((target("avx2"))) static void *read_memory(void *data) {
  Worker *w = data;
  pthread_barrier_wait(w->start);
  __m256i sum = _mm256_setzero_si256();
  for (int pass = 0; pass < READ_PASSES; pass++) {
    for (size_t i = 0; i < BUFFER; i += 32) sum = _mm256_add_epi64(sum, _mm256_load_si256((const __m256i *)(w->buffer + i)));
  }
  w->kept += (uint64_t)_mm256_extract_epi64(sum, 0);
  return NULL;
}

static uint64_t first_of(const void *vector) {
  uint64_t first;
  memcpy(&first, vector, sizeof first);
  return first;
}

/* As many sums as hide the latency of one. ROUNDS times. */
#define MULTIPLY(INTS, ADD)                                                               \
  INTS sums[CHAINS];                                                                      \
  INTS weights, levels;                                                                   \
  memset(&weights, 3, sizeof weights);                                                    \
  memset(&levels, 1, sizeof levels);                                                      \
  memset(sums, 0, sizeof sums);                                                           \
  for (int round = 0; round < ROUNDS; round++) {                                          \
    _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; c++) sums[c] = ADD(sums[c]);     \
    __asm__ volatile("" : "+v"(weights), "+v"(levels));                                   \
  }                                                                                       \
  for (int c = 0; c < CHAINS; c++) w->kept += first_of(&sums[c])

#define ADD_VNNI(sum) _mm512_dpbusd_epi32(sum, weights, levels)
#define ADD_AVX2(sum) _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, levels))

__attribute__((target("avx512f,avx512vnni"))) static void multiply_vnni(Worker *w) { MULTIPLY(__m512i, ADD_VNNI); }
__attribute__((target("avx2"))) static void multiply_avx2(Worker *w) { MULTIPLY(__m256i, ADD_AVX2); }

static void *multiply(void *data) {
  Worker *w = data;
  pthread_barrier_wait(w->start);
  if (w->has_vnni) multiply_vnni(w);
  else multiply_avx2(w);
  return NULL;
}

/* The shortest of some tries, in seconds. */
static double timed(void *(*work)(void *), Worker *workers, int threads) {
  double best = 1e9;
  for (int attempt = 0; attempt < TRIES; attempt++) {
    pthread_t ids[MOST_THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    for (int t = 0; t < threads; t++) {
      workers[t].start = &start;
      if (pthread_create(&ids[t], NULL, work, &workers[t]) != 0) exit(1);
    }
    const double from = now();
    pthread_barrier_wait(&start);
    for (int t = 0; t < threads; t++) pthread_join(ids[t], NULL);
    const double seconds = now() - from;
    if (seconds < best) best = seconds;
    pthread_barrier_destroy(&start);
  }
  return best;
}

int main(int count, char **arguments) {
  const int threads = count > 1 ? atoi(arguments[1]) : 1;
  if (threads < 1 || threads > MOST_THREADS) return 2;
  Worker workers[MOST_THREADS];
  memset(workers, 0, sizeof workers);
  for (int t = 0; t < threads; t++) {
    if (posix_memalign((void **)&workers[t].buffer, 64, BUFFER) != 0) return 1;
    memset(workers[t].buffer, t + 1, BUFFER);
    workers[t].has_vnni = __builtin_cpu_supports("avx512vnni");
  }
  const double read = timed(read_memory, workers, threads);
  const double products = timed(multiply, workers, threads);
  uint64_t kept = 0;
  for (int t = 0; t < threads; t++) kept += workers[t].kept;
  printf("{\"readBytes\": %.4g, \"products\": %.4g, \"kept\": %d}\n", (double)threads * BUFFER * READ_PASSES / read,
         (double)threads * ROUNDS * CHAINS * (workers[0].has_vnni ? 64 : 32) / products, (int)(kept & 1));
  return 0;
}
