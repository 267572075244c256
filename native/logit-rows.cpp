#include "logit-rows.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

static constexpr int     LANES = 8;    // floats that one operation handles
static constexpr int32_t BLOCK = 1024; // logits: their exponentials are summed in single precision
static constexpr int32_t SPAN  = 128;  // logits that are skipped together where none is large enough

// vector types of GCC and Clang, which compile to whatever the instruction set has
typedef float   floats __attribute__((vector_size(LANES*sizeof(float))));
typedef int32_t ints   __attribute__((vector_size(LANES*sizeof(int32_t))));

namespace baseline {
#include "logit-rows-kernels.inc"
}

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace avx2 {
#include "logit-rows-kernels.inc"
}
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
static const auto block_max     = has_avx2 ? avx2::block_max     : baseline::block_max;
static const auto block_sum_exp = has_avx2 ? avx2::block_sum_exp : baseline::block_sum_exp;
#else
static const auto block_max     = baseline::block_max;
static const auto block_sum_exp = baseline::block_sum_exp;
#endif

double rows_sum_exp(const float * row, int32_t n, float max, float scale) {
    double total = 0.0;
    for (int32_t i = 0; i < n; i += BLOCK) {
        total += block_sum_exp(row + i, std::min(BLOCK, n - i), max, scale);
    }
    return total;
}

int32_t rows_top_k(const float * row, int32_t n, int32_t k, int32_t * ids, float * logits) {
    using entry = std::pair<float, int32_t>;
    const auto before = [](const entry & a, const entry & b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    };
    k = std::min(k, n);
    if (k <= 0) {
        return 0;
    }
    std::vector<entry> heap; // the k best so far, the worst of them in front
    heap.reserve(k);
    for (int32_t i = 0; i < k; i++) {
        heap.emplace_back(row[i], i);
    }
    std::make_heap(heap.begin(), heap.end(), before);
    for (int32_t i = k; i < n; i += SPAN) {
        const int32_t end = std::min(i + SPAN, n);
        if (block_max(row + i, end - i) <= heap.front().first) {
            continue;
        }
        for (int32_t j = i; j < end; j++) {
            if (row[j] > heap.front().first) {
                std::pop_heap(heap.begin(), heap.end(), before);
                heap.back() = entry(row[j], j);
                std::push_heap(heap.begin(), heap.end(), before);
            }
        }
    }
    std::sort_heap(heap.begin(), heap.end(), before);
    for (int32_t i = 0; i < k; i++) {
        logits[i] = heap[i].first;
        ids[i]    = heap[i].second;
    }
    return k;
}

int32_t rows_at_least(const float * row, int32_t n, float least, int32_t most, int32_t * ids) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i += SPAN) {
        const int32_t end = std::min(i + SPAN, n);
        if (block_max(row + i, end - i) < least) {
            continue;
        }
        for (int32_t j = i; j < end; j++) {
            if (row[j] >= least) {
                if (count == most) {
                    return -1;
                }
                ids[count++] = j;
            }
        }
    }
    return count;
}
