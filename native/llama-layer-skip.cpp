// The parts of the layer-skip patch that need no insertion into llama.cpp's own files; compiled into libllama.

#include "llama-layer-skip.h"

#include "llama-context.h"
#include "llama-graph.h"
#include "llama-impl.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-model.h"

#include <algorithm>

static constexpr uint8_t SKIP_ATTN = 1;
static constexpr uint8_t SKIP_FFN  = 2;
static constexpr uint8_t WRITE_KV  = 4; // of a skipped attention

//
// llm_graph_context
//

static bool is_skipped(const llama_cparams & cparams, int il, uint8_t part) {
    return il >= 0 && (size_t) il < cparams.layer_skip.size() && (cparams.layer_skip[il] & part) != 0;
}

bool llm_graph_context::skips_attn(int il) const {
    return is_skipped(cparams, il, SKIP_ATTN);
}

bool llm_graph_context::skips_ffn(int il) const {
    return is_skipped(cparams, il, SKIP_FFN);
}

// Zeros in place of the sublayer's output leave the residual stream as it is. Nothing in the graph reads the
// sublayer's own nodes then, so its weights are not touched and its K/V is not written.
ggml_tensor * llm_graph_context::build_skipped(int64_t n_embd_out, int64_t n_rows) const {
    return ggml_fill(ctx0, ggml_new_tensor_2d(ctx0, GGML_TYPE_F32, n_embd_out, n_rows), 0.0f);
}

// The shape of build_attn()'s result: after the output projection where that is applied there, else before it.
ggml_tensor * llm_graph_context::build_skipped_attn(
        ggml_tensor * wo, ggml_tensor * q_cur, ggml_tensor * v_cur, ggml_tensor * v_mla) const {
    if (wo) {
        return build_skipped(wo->ne[1], q_cur->ne[2]);
    }
    return build_skipped((v_mla ? v_mla->ne[1] : v_cur->ne[0])*q_cur->ne[1], q_cur->ne[2]);
}

// K and V of a skipped attention, from the hidden state that passes by, if the mask asks for them. The position then has
// K and V in every layer, and no later pass need compute it again.
static void write_kv(
        const llm_graph_context & graph, const llama_kv_cache_context * cache, int il,
        ggml_tensor * k, ggml_tensor * k_idxs, ggml_tensor * k_rot,
        ggml_tensor * v, ggml_tensor * v_idxs, ggml_tensor * v_rot) {
    if (!is_skipped(graph.cparams, il, WRITE_KV)) {
        return;
    }
    if (k) {
        k = k_rot ? llama_mul_mat_hadamard(graph.ctx0, k, k_rot) : k;
        ggml_build_forward_expand(graph.gf, cache->cpy_k(graph.ctx0, k, k_idxs, il));
    }
    if (v) {
        v = v_rot ? llama_mul_mat_hadamard(graph.ctx0, v, v_rot) : v;
        ggml_build_forward_expand(graph.gf, cache->cpy_v(graph.ctx0, v, v_idxs, il));
    }
}

void llm_graph_context::write_skipped_kv(llm_graph_input_attn_kv * inp, ggml_tensor * k, ggml_tensor * v, int il) const {
    write_kv(*this, inp->mctx, il, k, inp->get_k_idxs(), inp->self_k_rot, v, inp->get_v_idxs(), inp->self_v_rot);
}

// these caches have no V: attention reads it from K
void llm_graph_context::write_skipped_kv(llm_graph_input_attn_k * inp, ggml_tensor * k, ggml_tensor *, int il) const {
    write_kv(*this, inp->mctx, il, k, inp->get_k_idxs(), nullptr, nullptr, nullptr, nullptr);
}

void llm_graph_context::write_skipped_kv(
        llm_graph_input_attn_kv_iswa * inp, ggml_tensor * k, ggml_tensor * v, int il) const {
    if (hparams.is_swa(il)) {
        write_kv(*this, inp->mctx->get_swa(), il, k, inp->get_k_idxs_swa(), inp->self_k_rot_swa,
                v, inp->get_v_idxs_swa(), inp->self_v_rot_swa);
    } else {
        write_kv(*this, inp->mctx->get_base(), il, k, inp->get_k_idxs(), inp->self_k_rot,
                v, inp->get_v_idxs(), inp->self_v_rot);
    }
}

void llm_graph_context::write_skipped_kv(
        llm_graph_input_attn_k_iswa * inp, ggml_tensor * k, ggml_tensor *, int il) const {
    if (hparams.is_swa(il)) {
        write_kv(*this, inp->mctx->get_swa(), il, k, inp->get_k_idxs_swa(), inp->self_k_rot_swa, nullptr, nullptr, nullptr);
    } else {
        write_kv(*this, inp->mctx->get_base(), il, k, inp->get_k_idxs(), inp->self_k_rot, nullptr, nullptr, nullptr);
    }
}

//
// llama_context
//

const char * llama_context::set_layer_skip(const uint8_t * skip, size_t n) {
    const auto & hparams = model.hparams;

    if (n != 0 && n != hparams.n_layer()) {
        return "the mask's length is not the model's number of layers";
    }
    if (std::all_of(skip, skip + n, [](uint8_t s) { return s == 0; })) {
        cparams.layer_skip.clear();
        return nullptr;
    }

    const bool is_iswa = dynamic_cast<llama_kv_cache_iswa *>(memory.get()) != nullptr;
    if ((!is_iswa && dynamic_cast<llama_kv_cache *>(memory.get()) == nullptr) || llama_model_has_encoder(&model)) {
        return "only decoders with a plain or a sliding-window KV cache can skip sublayers,"
               " not recurrent, hybrid or encoder models";
    }

    // these build their FFN by hand, where the patch does not reach
    const bool own_ffn = model.arch == LLM_ARCH_APERTUS || model.arch == LLM_ARCH_GEMMA3N ||
                         model.arch == LLM_ARCH_GRANITE_SWITCH;

    // other layers read the K/V of the last two layers that own a cache (Gemma 3n and 4)
    const int32_t n_own = hparams.n_layer_kv_from_start;

    bool has [2] = { false, false }; // layers with a cache: global, sliding-window
    bool kept[2] = { false, false };

    for (int32_t il = 0; il < (int32_t) n; ++il) {
        if ((skip[il] & ~(SKIP_ATTN | SKIP_FFN | WRITE_KV)) != 0) {
            return "a byte of the mask has a bit set that is none of 1 (attention), 2 (FFN), 4 (write K/V)";
        }
        if ((skip[il] & WRITE_KV) != 0 && (skip[il] & SKIP_ATTN) == 0) {
            return "a byte of the mask writes the K/V of an attention that it does not skip";
        }
        if (own_ffn && (skip[il] & SKIP_FFN) != 0) {
            return "this architecture can skip attention sublayers only";
        }
        const bool no_attn = (skip[il] & SKIP_ATTN) != 0;
        if (hparams.n_head_kv(il) == 0) {
            if (no_attn && hparams.n_head(il) != 0) {
                return "the mask skips the attention of a layer whose attention is linear";
            }
            continue; // a layer without attention reads no cache
        }
        if (no_attn && n_own >= 0 && il < n_own && il >= n_own - 2) {
            return "the mask skips the attention of a layer whose K/V other layers reuse";
        }
        const int is_swa = is_iswa && hparams.is_swa(il);
        has [is_swa] = true;
        kept[is_swa] = kept[is_swa] || !no_attn;
    }

    // a cache that no layer reads leaves inputs out of the graph, and setting those aborts the process
    if (has[1] && !kept[1]) {
        return "the mask skips the attention of every sliding-window layer; keep at least one";
    }
    if (has[0] && !kept[0]) {
        return is_iswa ? "the mask skips the attention of every global (not sliding-window) layer; keep at least one"
                       : "the mask skips the attention of every layer; keep at least one";
    }

    cparams.layer_skip.assign(skip, skip + n);
    return nullptr;
}

const float * llama_context::get_layer_input(uint32_t il) {
    const bool recorded = il < embd_layer_inp.size() && embd_layer_inp[il].has_data() &&
        cparams.embeddings_layer_inp[il] &&
        gf_res_prev_active != nullptr && gf_res_prev_active->get_layer_inp((int) il) != nullptr;

    return recorded ? get_embeddings_layer_inp(il) : nullptr;
}

//
// C interface
//

const char * llama_set_layer_skip(llama_context * ctx, const uint8_t * skip, size_t n) {
    return ctx->set_layer_skip(skip, n);
}

size_t llama_get_layer_skip(const llama_context * ctx, uint8_t * skip, size_t n) {
    const auto & cur = ctx->get_layer_skip();
    std::copy_n(cur.begin(), std::min(n, cur.size()), skip);
    return cur.size();
}

bool llama_set_layer_input(llama_context * ctx, int32_t il, bool enable) {
    if (il < 0 || il >= llama_model_n_layer(&ctx->get_model())) {
        return false;
    }
    ctx->set_embeddings_layer_inp((uint32_t) il, enable);
    return true;
}

const float * llama_get_layer_input(llama_context * ctx, int32_t il) {
    ctx->synchronize();
    return il < 0 ? nullptr : ctx->get_layer_input((uint32_t) il);
}
