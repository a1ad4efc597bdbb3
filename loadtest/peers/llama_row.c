// One row of logits through llama.cpp's sampler chain, as its own llama_sampler_sample does it: fill the candidate array,
// apply the chain, read what it selected. In C, so that a measurement holds none of Python's time.
#include <stdint.h>

#include "llama.h"

// The chain that draws from the distribution of logitd's parameters, in the order in which llama.cpp is fastest.
struct llama_sampler *row_chain(int32_t top_k, float temperature, float min_p, float top_p, uint32_t seed) {
    struct llama_sampler_chain_params params = {.no_perf = true};
    struct llama_sampler *chain = llama_sampler_chain_init(params);
    if (temperature == 0.0f) {
        llama_sampler_chain_add(chain, llama_sampler_init_greedy());
        return chain;
    }
    if (top_k > 0) llama_sampler_chain_add(chain, llama_sampler_init_top_k(top_k));
    if (temperature != 1.0f) llama_sampler_chain_add(chain, llama_sampler_init_temp(temperature));
    if (min_p > 0.0f) llama_sampler_chain_add(chain, llama_sampler_init_min_p(min_p, 1));
    if (top_p < 1.0f) llama_sampler_chain_add(chain, llama_sampler_init_top_p(top_p, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(seed));
    return chain;
}

int32_t row_sample(struct llama_sampler *chain, const float *logits, int32_t vocab, llama_token_data *candidates) {
    for (int32_t id = 0; id < vocab; id++) candidates[id] = (llama_token_data){id, logits[id], 0.0f};
    llama_token_data_array row = {candidates, (size_t)vocab, -1, false};
    llama_sampler_apply(chain, &row);
    return row.data[row.selected].id;
}
