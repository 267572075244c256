// One pass over a row of logits, where the logits are: what samplers and gates need of a whole vocabulary.
//
// A row has n floats. Nothing here depends on llama.cpp.

#pragma once

#include <stdint.h>

#if defined(_WIN32)
#    define ROWS_API __declspec(dllexport)
#else
#    define ROWS_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The sum of exp(scale*(row[i] - max)), for max at least as large as every logit and scale above 0.
ROWS_API double rows_sum_exp(const float * row, int32_t n, float max, float scale);

// The k largest logits in descending order, of equal ones those with the smaller index. Returns their number, min(k, n).
ROWS_API int32_t rows_top_k(const float * row, int32_t n, int32_t k, int32_t * ids, float * logits);

// The indices, in ascending order, of the logits that are at least `least`. Returns their number, or -1 if there are more
// than `most`.
ROWS_API int32_t rows_at_least(const float * row, int32_t n, float least, int32_t most, int32_t * ids);

#ifdef __cplusplus
}
#endif
