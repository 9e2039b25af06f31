# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Heads that predict the token after the next (mtp.*) for make_hf_checkpoints.py: transformers' own for Qwen, for Nemotron-H the formula
of vLLM's nemotron_h_mtp.py, of transformers' blocks.

    x = fusion([embedding_norm(embedding of id t + 1) | hidden_norm(stream t)])    the stream behind the model's final norm
    logits = output map(norm(blocks(x)))                                          of id t + 2
"""
import copy

import torch
from transformers import modeling_layers


class QwenPredictor:
    """One decoder layer of attention, as transformers' MtpModel has it."""
    KEYS = dict(mtp_num_hidden_layers=1)

    def __init__(self, model):
        config = model.config.get_text_config()
        config.num_mtp_layers, config.mtp_layer_types = 1, ["full_attention"]
        self.whole = modeling_layers.MtpModel(model, 1).eval()
        self.module = self.whole.layers

    def tensors(self):
        names = {"0.enorm.": "pre_fc_norm_embedding.", "0.hnorm.": "pre_fc_norm_hidden.", "0.eh_proj.": "fc.", "0.post_norm.": "norm.",
                 "0.mtp_block.": "layers.0."}
        return {"mtp." + new + name.removeprefix(old): x for name, x in self.module.state_dict().items() for old, new in names.items()
                if name.startswith(old)}

    def streams(self, ids, stream):
        positions = torch.arange(1, ids.shape[1])[None]
        return self.whole.forward_layer(0, stream[:, :-1], positions, None, input_ids=ids[:, 1:])


class NemotronPredictor:
    """Attention and experts, each a block of its own."""
    KEYS = dict(num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*E")

    def __init__(self, model):
        config = copy.deepcopy(model.config)
        config.layers_block_type = ["full_attention", "moe"]
        block, norm = type(model.model.layers[0]), type(model.model.norm_f)
        self.embeddings = model.get_input_embeddings()
        self.module = torch.nn.ModuleDict({"0": block(config, 0), "1": block(config, 1)})
        self.module["0"].enorm, self.module["0"].hnorm = norm(config.hidden_size, config.layer_norm_epsilon), norm(config.hidden_size, config.layer_norm_epsilon)
        self.module["0"].eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.module["1"].final_layernorm = norm(config.hidden_size, config.layer_norm_epsilon)
        self.module.eval()

    def tensors(self):
        return {"mtp.layers." + name: x for name, x in self.module.state_dict().items()}

    def streams(self, ids, stream):
        first, second = self.module["0"], self.module["1"]
        x = first.eh_proj(torch.cat([first.enorm(self.embeddings(ids[:, 1:])), first.hnorm(stream[:, :-1])], dim=-1))
        count = x.shape[1]
        causal = torch.full((count, count), -1e300, dtype=x.dtype).triu(1)[None, None]
        return second.final_layernorm(second(first(x, attention_mask=causal)))
