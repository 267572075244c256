// Layer skipping: a context decodes without some of the model's sublayers.
//
// This is the C interface that the Python side binds. It is new, so no structure of llama.h changes.

#pragma once

#include "llama.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// From the next llama_decode() on, skip these sublayers of the context's model.
// skip[il]: bit 0 skips layer il's attention, bit 1 its FFN; n = 0, or all zero: the full model.
// Bit 2, beside bit 0, still computes the K/V of the skipped attention and writes them to the cache.
// Returns NULL, or a static text that says why the mask is refused; the mask in force then stays.
LLAMA_API const char * llama_set_layer_skip(struct llama_context * ctx, const uint8_t * skip, size_t n);

// Copies at most n bytes of the mask in force into skip; returns its length, 0 for the full model.
LLAMA_API size_t llama_get_layer_skip(const struct llama_context * ctx, uint8_t * skip, size_t n);

// Keep the hidden states that enter layer il; false: there is no such layer. Each switch re-reserves the graph.
LLAMA_API bool llama_set_layer_input(struct llama_context * ctx, int32_t il, bool enable);

// The kept rows, [n_tokens of the last llama_decode(), n_embd]; NULL: not kept, or not recorded by this architecture.
LLAMA_API const float * llama_get_layer_input(struct llama_context * ctx, int32_t il);

#ifdef __cplusplus
}
#endif
