# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Each mixer and each model in float64, written as its definition: a sum over pairs of tokens, never a recurrence.

Slow on purpose and independent of the C++ code: both follow the published formulas and share nothing else. make_fixtures.py
takes whole models from here (logits), make_vectors.py single layers (LAYERS) and their cores (the functions above each layer).
    W    {tensor name: float64 array}, names below the layer          c    config.json with the layer's own keys merged over it
    x    [T, hidden], a layer's normed input                          q, k [T, H, D], v [T, H, E]
"""
import numpy as np

import oracle_rwkv6
import oracle_rwkv7
from oracle_parts import below, elu_plus_one, heads, l2_norm, linear, repeat_heads, rms_norm, sigmoid, silu, softplus


def short_convolution(W, name, x, f=silu):
    """f(b + Σ_j w[:, j] x_{t-(W-1)+j}), zeros before the sequence."""
    w = W[name + ".weight"][:, 0]
    window = w.shape[1]
    y = np.zeros_like(x) + W.get(name + ".bias", 0.0)
    for t in range(len(x)):
        for j in range(window):
            if t - (window - 1) + j >= 0:
                y[t] += w[:, j] * x[t - (window - 1) + j]
    return f(y)


def project(W, c, x, name, count):
    y = linear(W, name + "_proj", x)
    return heads(short_convolution(W, name + "_conv1d", y) if c.get("use_short_conv") else y, count)


def rotate(x, theta):
    """x [T, H, D] at positions 0, 1, ...; pairs (i, i + D/2)."""
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None, None] * theta ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


def causal(T):
    return np.tril(np.ones((T, T)))


def norm_and_gate(W, c, o, x, norm, gated):
    o = rms_norm(o, W.get(norm + ".weight", 1.0), c["norm_eps"])
    return o * silu(heads(linear(W, "g_proj", x), o.shape[1])) if gated else o


# ---------------------------------------------------------------- HLA and AHLA (arXiv 2510.27258)
def hla_pair_weights(form, g, t):
    """[i, j] → the weight of key i and query-value j in o_t, for i, j ≤ t."""
    i, j = np.arange(t + 1)[:, None], np.arange(t + 1)[None, :]
    both = g ** (2.0 * t - i - j)
    if form == "none":
        return both
    if form == "masked":
        return np.where(i <= j, both, 0.0)
    return np.where(i <= j, both, both - g ** (t - 1.0 - j))  # serial: the paper's Algorithm 1


def hla_numerator(q, k, v, g, form, ridge):
    o = np.zeros((len(q), v.shape[1]))
    for t in range(len(q)):
        qk, cross = k[:t + 1] @ q[t], k[:t + 1] @ q[:t + 1].T  # (q_t·k_i), (q_j·k_i)
        per_value = (hla_pair_weights(form, g, t) * cross * qk[:, None]).sum(0)
        per_value += ridge * g ** (t - np.arange(t + 1.0)) * (q[:t + 1] @ q[t])
        o[t] = per_value @ v[:t + 1]
    return o


def ahla_numerator(q, k, v, g):
    t = np.arange(len(q))
    w = np.where(t[:, None] >= t, g ** np.maximum(t[:, None] - t, 0.0), 0.0) * (q @ k.T)
    return w @ (w @ v)


def third_order_numerator(q, k, v, g):
    """Σ_{u ≤ t} Σ_{i, j ≤ u} γ^{3t-i-u-j} (q_t·k_i)(q_u·k_i)(q_u·k_j) v_j."""
    a, o = q @ k.T, np.zeros((len(q), v.shape[1]))
    for t in range(len(q)):
        past = g ** (t - np.arange(t + 1.0))
        seen = np.tril(a[:t + 1, :t + 1])  # [u, i], i ≤ u
        o[t] = ((seen @ (past * a[t, :t + 1])) * past) @ seen @ (past[:, None] * v[:t + 1])
    return o


def paper_third_order_numerator(q, k, v, g):
    """All i, u, j ≤ t of the same, less those whose maximum is unique as they were before it: the paper's Algorithm 3."""
    a, o = q @ k.T, np.zeros((len(q), v.shape[1]))
    for t in range(len(q)):
        i, u, j = np.ogrid[:t + 1, :t + 1, :t + 1]
        top = np.maximum(np.maximum(i, u), j)
        unique = (i == top) * 1 + (u == top) + (j == top) == 1
        weight = g ** (3.0 * t - i - u - j) - unique * g ** (t + top - 2.0 - (i + u + j - top))
        s = a[:t + 1, :t + 1]
        o[t] = np.einsum("iuj,i,ui,uj->j", weight, a[t, :t + 1], s, s, optimize=True) @ v[:t + 1]
    return o


def hla(c, q, k, v, g):
    """q, k scaled, v with as many heads, decays g [H]; c chooses the form."""
    v = np.concatenate([v, np.ones(v.shape[:2] + (1,))], -1)  # the last column becomes the denominator
    form = c.get("hla_form", "masked")
    if c.get("hla_variant") == "third":
        one_head = paper_third_order_numerator if form == "paper" else third_order_numerator
    elif c.get("hla_variant") == "asymmetric":
        one_head = ahla_numerator
    else:
        one_head = lambda q, k, v, g: hla_numerator(q, k, v, g, form, c.get("ridge_lambda", 0.0))
    o = np.stack([one_head(q[:, h], k[:, h], v[:, h], g[h]) for h in range(q.shape[1])], 1)
    return o[..., :-1] / (o[..., -1:] + c.get("denom_eps", 1e-6)) if c.get("normalize") else o[..., :-1]


def layer_hla(W, c, x):
    H, Hk = c["num_heads"], c.get("num_kv_heads") or c["num_heads"]
    q, k, v = [project(W, c, x, name, n) for name, n in (("q", H), ("k", Hk), ("v", Hk))]
    f = {"none": lambda y: y, "elu1": elu_plus_one, "relu": lambda y: np.maximum(y, 0)}[c.get("qk_activation", "none")]
    q, k = f(q), f(k)
    if c.get("rope_theta"):
        q, k = rotate(q, c["rope_theta"]), rotate(k, c["rope_theta"])
    if c.get("qk_norm") == "l2":
        q, k = l2_norm(q), l2_norm(k)
    scale = c.get("qk_scale") or q.shape[-1] ** -0.5
    q, k, v = q * scale, repeat_heads(k * scale, H), repeat_heads(v, H)
    g = sigmoid(W["decay_logit"]) if c.get("use_decay") else np.ones(H)
    o = hla(c, q, k, v, g)
    o = norm_and_gate(W, c, o, x, "o_norm", c.get("use_output_gate", True))
    return linear(W, "o_proj", o.reshape(len(x), -1))


# ---------------------------------------------------------------- GLA (fla gla)
def gla(q, k, v, gate):
    """q scaled; gate [T, H, D], log decays."""
    decay = np.cumsum(gate, 0)
    pairs = np.exp(np.minimum(decay[:, None] - decay[None], 0))  # [t, s, H, D], used for s ≤ t
    return np.einsum("hts,she->the", np.einsum("thd,shd,tshd->hts", q, k, pairs) * causal(len(q)), v)


FEATURES = {None: lambda y: y, "relu": lambda y: np.maximum(y, 0), "silu": silu}


def fla_output(W, c, o, x):
    """The end of fla's gla and retnet: the norm is fused with the gate or has a name of its own."""
    gated = c.get("use_output_gate", True)
    fused = gated and c.get("fuse_norm", True)
    o = norm_and_gate(W, c, o, x, "g_norm_swish_gate" if fused else "g_norm", gated)
    return linear(W, "o_proj", o.reshape(len(x), -1))


def layer_gla(W, c, x):
    H, Hk = c["num_heads"], c.get("num_kv_heads") or c["num_heads"]
    q, k, v = [project(W, c, x, name, n) for name, n in (("q", H), ("k", Hk), ("v", Hk))]
    f = FEATURES[c.get("feature_map")]
    gate = -softplus(-heads(linear(W, "gk_proj.1", linear(W, "gk_proj.0", x)), Hk)) / c.get("gate_logit_normalizer", 16)
    if c.get("clamp_min") is not None:
        gate = np.maximum(gate, c["clamp_min"])
    k, v, gate = [repeat_heads(y, H) for y in (f(k), v, gate)]
    return fla_output(W, c, gla(f(q) * q.shape[-1] ** -0.5, k, v, gate), x)


# ---------------------------------------------------------------- RetNet (fla retnet)
def retention(q, k, v):
    """q scaled; q, k rotated."""
    t = np.arange(len(q))
    decay = (1 - 2.0 ** (-5 - np.arange(q.shape[1])))[:, None, None] ** np.maximum(t[:, None] - t, 0)  # [H, t, s]
    return np.einsum("hts,she->the", np.einsum("thd,shd->hts", q, k) * decay * causal(len(q)), v)


def layer_retnet(W, c, x):
    H, Hk = c["num_heads"], c.get("num_kv_heads") or c["num_heads"]
    q, k, v = [project(W, c, x, name, n) for name, n in (("q", H), ("k", Hk), ("v", Hk))]
    f = FEATURES[c.get("feature_map")]
    q, k, v = rotate(f(q), 1e4), repeat_heads(rotate(f(k), 1e4), H), repeat_heads(v, H)
    return fla_output(W, c, retention(q * q.shape[-1] ** -0.5, k, v), x)


# ---------------------------------------------------------------- linear attention (fla linear_attn)
def feature_map(W, c, which, x):
    name = "feature_map_" + ("q" if c.get("tie_feature_map_qk") else which)
    kind = c.get("feature_map", "elementwise_product")
    if kind == "elu":
        return elu_plus_one(x)
    if kind == "relu":
        return np.maximum(x, 0)
    if kind == "identity":
        return x
    if kind == "elementwise_product":
        return linear(W, name + ".layer1", x) * linear(W, name + ".layer2", x)
    if kind == "t2r":
        return np.maximum(linear(W, name + ".layer", x), 0)
    if kind == "dpfp":
        y = np.maximum(np.concatenate([x, -x], -1), 0)
        return np.concatenate([y * np.roll(y, j, -1) for j in range(1, 5)], -1)
    if kind in ("random_relu", "random_exp"):
        x = x * c.get("feature_map_input_scale", x.shape[-1] ** -0.25)
        y = linear(W, name + ".projection", x)
        if kind == "random_relu":
            return np.maximum(y, 0) + c.get("feature_map_offset", 1e-3)
        return np.exp(y - np.sum(x * x, -1, keepdims=True) / 2) * y.shape[-1] ** -0.5
    assert kind == "hedgehog", kind
    y = 2 * linear(W, name + ".layer", x)
    y = np.exp(np.concatenate([y, -y], -1))
    return y / y.sum(-1, keepdims=True)


def linear_attention(q, k, v, normalised):
    """q, k are features, q scaled."""
    a = np.einsum("thd,shd->hts", q, k) * causal(len(q))
    if normalised:
        a = a / (a.sum(-1, keepdims=True) + 1e-10)
    return np.einsum("hts,she->the", a, v)


def layer_linear_attn(W, c, x):
    H, Hk = c["num_heads"], c.get("num_kv_heads") or c["num_heads"]
    q, k, v = [heads(linear(W, name + "_proj", x), n) for name, n in (("q", H), ("k", Hk), ("v", Hk))]
    q, k = feature_map(W, c, "q", q), feature_map(W, c, "k", k)
    q = q / (q.sum(-1, keepdims=True) + 1e-4) if c.get("norm_q") else q
    k = k / (k.sum(-1, keepdims=True) + 1e-4) if c.get("norm_k") else k
    o = linear_attention(q * q.shape[-1] ** -0.5, repeat_heads(k, H), repeat_heads(v, H), c.get("norm_feature_map"))
    return linear(W, "o_proj", norm_and_gate(W, c, o, x, "norm", False).reshape(len(x), -1))


# ---------------------------------------------------------------- ANNA (arXiv 2509.09001, hash tables)
def hash_buckets(c, P, x):
    """[T, H, tables]: the bucket of each vector of x [T, H, D]; the first hash is the lowest digit."""
    if c.get("hash_family", "simhash") == "simhash":  # P [H, tables, hashes, D]
        return (np.einsum("hazd,thd->thaz", P, x) >= 0) @ (1 << np.arange(P.shape[2]))
    y = np.einsum("hazid,thd->thazi", P, x)  # cross-polytope: P [H, tables, hashes, D, D]
    index, D = np.abs(y).argmax(-1), x.shape[-1]
    negative = np.take_along_axis(y, index[..., None], -1)[..., 0] < 0
    return (index + D * negative) @ ((2 * D) ** np.arange(P.shape[2]))


def hash_attention(q, k, v, include_self):
    """Buckets q, k [T, H, tables]: each value's weight is the number of tables in which its key collides with the query."""
    seen = causal(len(q)) - (0 if include_self else np.eye(len(q)))
    collisions = (q[:, None] == k[None]).sum(-1) * seen[:, :, None]  # [t, s, H]
    return np.einsum("tsh,she->the", collisions, v) / np.maximum(collisions.sum(1)[..., None], 1)


def layer_anna(W, c, x):
    q, k, v = [heads(linear(W, name + "_proj", x), c["num_heads"]) for name in "qkv"]
    q, k = [hash_buckets(c, W["hash_proj"], l2_norm(y)) for y in (q, k)]
    o = hash_attention(q, k, v, c.get("anna_include_self", True))
    return linear(W, "o_proj", norm_and_gate(W, c, o, x, "o_norm", False).reshape(len(x), -1))


# ---------------------------------------------------------------- DeltaNet and Gated DeltaNet (fla delta_net, gated_deltanet); with L log-linear
def level_weights(weights):
    """[T, H, T]: weights [T, H, levels] of token t at level bit_length(t xor s), the last one for all beyond."""
    T, _, levels = weights.shape
    level = [[min((t ^ s).bit_length(), levels - 1) for s in range(T)] for t in range(T)]
    return np.stack([weights[t][:, level[t]] for t in range(T)])


def log_linear_weights(W, logits):
    return level_weights(softplus(W["L"] * heads(logits, len(W["L"]))))


def delta_rule(q, k, v, beta, g, weights=None):
    """o_t = Σ_{s≤t} q_t A_t ... A_{s+1} k_sᵀ β_s v_s with A_r = e^{g_r} (I - β_r k_rᵀk_r). q, k, v [T, H, ·], beta, g [T, H]."""
    o = np.zeros_like(v)
    for t in range(len(q)):
        row = q[t]  # [H, D]: q_t A_t ... A_{s+1}
        for s in range(t, -1, -1):
            score = beta[s] * np.sum(row * k[s], -1)
            o[t] += (score if weights is None else weights[t, :, s] * score)[:, None] * v[s]
            row = np.exp(g[s])[:, None] * (row - score[:, None] * k[s])
    return o


def delta_inputs(W, c, x, f, H, Hv):
    """q, k through their convolutions, if any, and f; v through silu."""
    y = {n: linear(W, n + "_proj", x) for n in "qkv"}
    if c.get("use_short_conv", True):
        y = {n: short_convolution(W, n + "_conv1d", y[n], lambda z: z) for n in "qkv"}
    return heads(f(y["q"]), H), heads(f(y["k"]), H), heads(silu(y["v"]), Hv)


def layer_delta_net(W, c, x):
    H = c["num_heads"]
    f = {"silu": silu, "relu": lambda y: np.maximum(y, 0), "elu": elu_plus_one, "identity": lambda y: y}[c.get("qk_activation", "silu")]
    q, k, v = delta_inputs(W, c, x, f, H, H)
    norm = (lambda y: y / y.sum(-1, keepdims=True)) if c.get("qk_norm") == "sum" else l2_norm
    beta = sigmoid(linear(W, "b_proj", x)) if c.get("use_beta", True) else np.ones((len(x), H))
    beta = beta * (2 if c.get("allow_neg_eigval") else 1)
    o = delta_rule(norm(q) * q.shape[-1] ** -0.5, norm(k), v, beta, np.zeros_like(beta))
    o = norm_and_gate(W, c, o, x, "o_norm", c.get("use_gate", False))
    return linear(W, "o_proj", o.reshape(len(x), -1))


def fla_projections(c, W):
    """Qwen3-Next's tensors under fla's names. Its fused projections lie key head by key head: q, k, v, z and b, a of each."""
    H, Hv, D, E = c["num_heads"], c["num_v_heads"], c["head_dim"], c["value_head_dim"]
    r = Hv // H
    split = lambda name, sizes: [y.reshape(-1, y.shape[-1]) for y in np.split(
        W[name + ".weight"].reshape(H, sum(sizes), -1), np.cumsum(sizes)[:-1], 1)]
    named = dict(zip(("q_proj", "k_proj", "v_proj", "g_proj"), split("in_proj_qkvz", [D, D, r * E, r * E])))
    named.update(zip(("b_proj", "a_proj"), split("in_proj_ba", [r, r])))
    named.update(zip(("q_conv1d", "k_conv1d", "v_conv1d"), np.split(W["conv1d.weight"], [H * D, 2 * H * D])))
    return {**{name + ".weight": y for name, y in named.items()}, "A_log": W["A_log"], "dt_bias": W["dt_bias"],
            "o_norm.weight": W["norm.weight"], "o_proj.weight": W["out_proj.weight"]}


def layer_gated_deltanet(W, c, x):
    W = fla_projections(c, W) if "in_proj_qkvz.weight" in W else W
    H, Hv = c["num_heads"], c.get("num_v_heads") or c["num_heads"]
    q, k, v = delta_inputs(W, c, x, silu, H, Hv)
    scale = 1.0 if "L" in W else q.shape[-1] ** -0.5  # the log-linear form has none
    q, k = repeat_heads(l2_norm(q) * scale, Hv), repeat_heads(l2_norm(k), Hv)
    beta = sigmoid(linear(W, "b_proj", x)) * (2 if c.get("allow_neg_eigval") else 1)
    g = -np.exp(W["A_log"]) * softplus(linear(W, "a_proj", x) + W["dt_bias"])
    weights = log_linear_weights(W, linear(W, "l_proj", x)) if "L" in W else None
    o = norm_and_gate(W, c, delta_rule(q, k, v, beta, g, weights), x, "o_norm", c.get("use_gate", True))
    return linear(W, "o_proj", o.reshape(len(x), -1))


# ---------------------------------------------------------------- KDA (fla kda, Kimi Linear)
def kda(q, k, v, beta, g):
    """delta_rule with A_r = (I - β_r k_rᵀk_r) diag(e^{g_r}), g [T, H, D]."""
    o = np.zeros_like(v)
    for t in range(len(q)):
        row = q[t]  # [H, D]: q_t A_t ... A_{s+1}
        for s in range(t, -1, -1):
            score = beta[s] * np.sum(row * k[s], -1)
            o[t] += score[:, None] * v[s]
            row = np.exp(g[s]) * (row - score[:, None] * k[s])
    return o


def layer_kda(W, c, x):
    H = c.get("num_heads", 16)
    Hv, D = c.get("num_v_heads") or H, c.get("head_dim", 128)
    y = {n: linear(W, n + "_proj", x) for n in "qkv"}
    conv = lambda n: short_convolution(W, n + "_conv1d", y[n]) if c.get("use_short_conv", True) else silu(y[n])
    q, k, v = heads(conv("q"), H), heads(conv("k"), H), heads(conv("v"), Hv)
    q, k = repeat_heads(l2_norm(q) * D**-0.5, Hv), repeat_heads(l2_norm(k), Hv)
    beta = sigmoid(linear(W, "b_proj", x)) * (2 if c.get("allow_neg_eigval") else 1)
    f, rate = heads(linear(W, "f_proj.1", linear(W, "f_proj.0", x)) + W["dt_bias"], Hv), np.exp(W["A_log"])[:, None]
    g = -rate * softplus(f) if c.get("lower_bound") is None else c["lower_bound"] * sigmoid(rate * f)
    o = rms_norm(kda(q, k, v, beta, g), W["o_norm.weight"], c["norm_eps"])
    gate = sigmoid(heads(linear(W, "g_proj.1", linear(W, "g_proj.0", x)), Hv))
    return linear(W, "o_proj", (o * gate).reshape(len(x), -1))


# ---------------------------------------------------------------- Mamba-2 (SSD); with L log-linear
def ssd(u, b, query, delta, A, D, weights=None):
    """u [T, H, P], b and query [T, H, N], delta [T, H], A [H], D [H, 1 or P], level weights [T, H, T] or none."""
    elapsed = np.cumsum(A * delta, 0)
    pairs = np.exp(np.minimum(elapsed[:, None] - elapsed[None], 0))  # [t, s, H], used for s ≤ t
    a = np.einsum("thn,shn,tsh->hts", query, b, pairs) * causal(len(u))
    if weights is not None:
        a = a * weights.swapaxes(0, 1)
    return np.einsum("hts,shp->thp", a, u * delta[..., None]) + D * u


def gate_and_norm(W, c, y, z, groups):
    """fla's spellings: no norm at all, or one before the gate."""
    if not c.get("rmsnorm", True):
        return y * silu(z)
    first = c.get("norm_before_gate")
    y = (y if first else y * silu(z)).reshape(len(y), groups, -1)
    y = rms_norm(y, W["norm.weight"].reshape(groups, -1), c["norm_eps"]).reshape(z.shape)
    return y * silu(z) if first else y


def layer_mamba2(W, c, x):
    H, P, N, G = c["num_heads"], c["head_dim"], c["state_size"], c.get("n_groups", 1)
    inner = H * P
    z, xbc, dt, dl = np.split(linear(W, "in_proj", x), np.cumsum([inner, inner + 2 * G * N, H]), -1)
    u, b, query = np.split(short_convolution(W, "conv1d", xbc), [inner, inner + G * N], -1)
    low, high = [float(y["__float__"]) if isinstance(y, dict) else y
                 for y in c.get("time_step_limit") or c.get("dt_limit") or (0.0, np.inf)]
    delta = np.clip(softplus(dt + W["dt_bias"]), low, high)
    b, query = repeat_heads(heads(b, G), H), repeat_heads(heads(query, G), H)
    skip = W["D"].reshape(H, -1)  # [H, 1] or, with D_has_hdim, [H, P]
    y = ssd(heads(u, H), b, query, delta, -np.exp(W["A_log"]), skip, log_linear_weights(W, dl) if "L" in W else None)
    groups = 1 if c.get("full_norm") else G  # full_norm: a fixture's own key, for norm_groups 1
    return linear(W, "out_proj", gate_and_norm(W, c, y.reshape(len(x), inner), z, groups))


# ---------------------------------------------------------------- Mamba (S6); falcon_mamba has RMS norms inside
def selective_scan(u, dt, z, b, query, A, D):
    """u, dt, z [T, I], b and query [T, N], A [I, N], D [I]; softplus of dt, gate z."""
    delta = softplus(dt)
    elapsed = np.cumsum(delta, 0)
    pairs = np.maximum(elapsed[:, None] - elapsed[None], 0)  # [t, s, I], used for s ≤ t
    y = D * u
    for n in range(A.shape[1]):
        decay = np.exp(pairs * A[:, n]) * causal(len(u))[:, :, None]
        y = y + query[:, n:n + 1] * np.einsum("tsi,s,si->ti", decay, b[:, n], delta * u)
    return y * silu(z)


def layer_mamba(W, c, x):
    N, R = W["A_log"].shape[1], W["dt_proj.weight"].shape[1]
    u, z = np.split(linear(W, "in_proj", x), 2, -1)
    u = short_convolution(W, "conv1d", u)
    parts = np.split(linear(W, "x_proj", u), [R, R + N], -1)
    if c["model_type"] == "falcon_mamba":
        parts = [rms_norm(y, 1.0, c.get("mixer_rms_eps", 1e-6)) for y in parts]
    delta, b, query = parts
    return linear(W, "out_proj", selective_scan(u, linear(W, "dt_proj", delta), z, b, query, -np.exp(W["A_log"]), W["D"]))


# ---------------------------------------------------------------- gated short convolution (LFM2)
def gated_convolution(B, C, x, W, name):
    """W holds `name`.weight [D, 1, window] and perhaps `name`.bias."""
    return C * short_convolution(W, name, B * x, lambda y: y)


def layer_gated_convolution(W, c, x):
    return linear(W, "out_proj", gated_convolution(*np.split(linear(W, "in_proj", x), 3, -1), W, "conv"))


# ---------------------------------------------------------------- RG-LRU (Griffin, RecurrentGemma)
def rg_lru(x, input_gate, recurrent_gate, rate):
    """x and the gates' logits [T, W], rate [W] = -8 softplus(Λ): h [T, W]."""
    log_a = rate * sigmoid(recurrent_gate)
    factor = np.sqrt(-np.expm1(2 * log_a))
    factor[0] = 1
    write, elapsed = factor * sigmoid(input_gate) * x, np.cumsum(log_a, 0)
    pairs = np.exp(np.minimum(elapsed[:, None] - elapsed[None], 0)) * causal(len(x))[:, :, None]
    return np.einsum("tsw,sw->tw", pairs, write)


def layer_rg_lru(W, c, x):
    inner = short_convolution(W, "conv_1d", linear(W, "linear_x", x), lambda y: y)
    def gate(name):
        weight = W[f"rg_lru.{name}_weight"]
        y = np.einsum("tbi,bij->tbj", heads(inner, len(weight)), weight) + W[f"rg_lru.{name}_bias"]
        return y.reshape(len(x), -1)
    h = rg_lru(inner, gate("input_gate"), gate("recurrent_gate"), -8 * softplus(W["rg_lru.recurrent_param"]))
    return linear(W, "linear_out", h * gelu_by_tanh(linear(W, "linear_y", x)))


# ---------------------------------------------------------------- H3, and the attention of its models
def convolve(kernel, x):
    """Σ_{s ≤ t} kernel[t - s] x[s], both [T, ...]."""
    return np.stack([sum(kernel[t - s] * x[s] for s in range(t + 1)) for t in range(len(x))])


def shift_kernel(W, T):
    """[T, D]: the shift SSM's impulse response, s_t[n] = s_(t-1)[n-1] + B[n] k_t read by C."""
    B, C = W["ssm_k_kernel.kernel.B"], W["ssm_k_kernel.kernel.C"][0]
    state, kernel = B, []
    for _ in range(T):
        kernel.append((C * state).sum(1))
        state = np.concatenate([np.zeros((len(B), 1)), state[:, :-1]], 1)
    kernel[0] = kernel[0] + W["ssm_k_D"]
    return np.array(kernel)


def diagonal_kernel(W, c, T):
    """[T, Hs]: 2 Re Σ_n C dA^t dB."""
    pair = lambda y: y[..., 0] + 1j * y[..., 1]
    step = np.exp(W["kernel.kernel.log_dt"])[:, None]
    ssm = np.arange(len(step)) % len(W["kernel.kernel.A_imag"])
    A = (-np.exp(W["kernel.kernel.inv_A_real"]) + 1j * W["kernel.kernel.A_imag"])[ssm]
    B, C = pair(W["kernel.kernel.B"])[ssm], pair(W["kernel.kernel.C"])[0]
    if c.get("discretization") == "zoh":
        dA, dB = np.exp(step * A), B * (np.exp(step * A) - 1) / A
    else:
        dA, dB = (1 + step * A / 2) / (1 - step * A / 2), B * step / (1 - step * A / 2)
    kernel = np.array([2 * np.real((C * dA**t * dB).sum(1)) for t in range(T)])
    kernel[0] += W["D"]
    return kernel


def h3(q, k, v, shift, diagonal, head_dim):
    """q, k, v [T, D] in channels h·head_dim + i; kernels shift [T, D], diagonal [T, Hs] → [T, head_dim, Hs]."""
    rows = lambda y: y.reshape(len(y), -1, head_dim).swapaxes(1, 2)
    u = np.einsum("tih,tjh->tijh", rows(convolve(shift, k)), rows(v))
    return np.einsum("tih,tijh->tjh", rows(q), convolve(diagonal[:, None, None], u))


def layer_h3(W, c, x):
    q, k, v = [linear(W, name + "_proj", x) for name in "qkv"]
    o = h3(q, k, v, shift_kernel(W, len(x)), diagonal_kernel(W, c, len(x)), c.get("head_dim", 1))
    return linear(W, "output_linear", o.reshape(len(x), -1))  # channel j·Hs + h


def softmax_attention(q, k, v, window=None):
    """q scaled."""
    T = len(q)
    a = np.einsum("thd,shd->hts", q, k)
    a = np.exp(a - a.max(-1, keepdims=True)) * causal(T) * np.triu(np.ones((T, T)), 1 - (window or T))
    return np.einsum("hts,shd->thd", a / a.sum(-1, keepdims=True), v)


def layer_h3_attention(W, c, x):
    q, k, v = [heads(linear(W, name + "_proj", x), c["num_attention_heads"]) for name in "qkv"]
    width = c.get("rotary_dim", 0)
    if width:
        q, k = [np.concatenate([rotate(y[..., :width], 10000.0), y[..., width:]], -1) for y in (q, k)]
    o = softmax_attention(q * q.shape[-1] ** -0.5, k, v)
    return linear(W, "o_proj", o.reshape(len(x), -1))


# ---------------------------------------------------------------- softmax attention (transformers, fla transformer)
def positions(c, x):
    """Rotated as the config says: rope_theta absent is 10000, null is no rotation."""
    theta, width = c.get("rope_theta", 1e4), int(x.shape[-1] * c.get("partial_rotary_factor", 1))
    return x if theta is None else np.concatenate([rotate(x[..., :width], theta), x[..., width:]], -1)


def qk_norm(W, c, name, x):
    kind = c.get("qk_norm", "none")
    if kind in ("none", False):
        return x
    weight = W[name + ".weight"] + (1 if kind == "rms_one_plus" else 0)
    return rms_norm(x, weight, 1e-5 if kind is True else c["norm_eps"])  # fla's true has an eps of its own


def layer_softmax_attention(W, c, x):
    H, Hk = c["num_heads"], c.get("num_kv_heads") or c["num_heads"]
    q, k, v = [heads(linear(W, name + "_proj", x), n) for name, n in (("q", H), ("k", Hk), ("v", Hk))]
    q, gate = np.split(q, 2, -1) if c.get("output_gate") else (q, None)
    q, k = [positions(c, qk_norm(W, c, name + "_norm", y)) for name, y in (("q", q), ("k", k))]
    scale = c.get("softmax_scale") or q.shape[-1] ** -0.5
    o = softmax_attention(q * scale, repeat_heads(k, H), repeat_heads(v, H), c.get("window_size"))
    return linear(W, "o_proj", (o if gate is None else o * sigmoid(gate)).reshape(len(x), -1))


# ---------------------------------------------------------------- latent attention (MLA without positions)
def latent_attention(q, key, latent):
    """q [T, H, R + P] absorbed and scaled, key [T, R + P]: the sums of the first `latent` numbers [T, H, latent]."""
    k = np.repeat(key[:, None], q.shape[1], 1)
    return softmax_attention(q, k, k[..., :latent])


def layer_latent_attention(W, c, x):
    """With keys and values expanded, as the definition has them."""
    H, N, P, V, R = [c[key] for key in ("num_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank")]
    query = linear(W, "q_proj", x) if c.get("q_lora_rank") is None else \
        linear(W, "q_b_proj", rms_norm(linear(W, "q_a_proj", x), W["q_a_layernorm.weight"], 1e-6))
    latent, shared = np.split(linear(W, "kv_a_proj_with_mqa", x), [R], -1)
    k, v = np.split(heads(linear(W, "kv_b_proj", rms_norm(latent, W["kv_a_layernorm.weight"], 1e-6)), H), [N], -1)
    k = np.concatenate([k, np.repeat(shared[:, None], H, 1)], -1)
    o = softmax_attention(heads(query, H) * (N + P) ** -0.5, k, v)
    return linear(W, "o_proj", o.reshape(len(x), -1))


LAYERS = {"softmax_attention": layer_softmax_attention, "transformer": layer_softmax_attention, "delta_net": layer_delta_net, "gated_deltanet": layer_gated_deltanet,
          "h_gated_deltanet": layer_gated_deltanet, "log_linear_gated_deltanet": layer_gated_deltanet,
          "hla": layer_hla, "anna": layer_anna, "gla": layer_gla, "retnet": layer_retnet, "linear_attn": layer_linear_attn, "mamba2": layer_mamba2,
          "mamba": layer_mamba, "falcon_mamba": layer_mamba, "h3": layer_h3, "gated_convolution": layer_gated_convolution,
          "rg_lru": layer_rg_lru, "kda": layer_kda, "latent_attention": layer_latent_attention, "rwkv6": oracle_rwkv6.layer_rwkv6, "rwkv7": oracle_rwkv7.layer_rwkv7}


# ---------------------------------------------------------------- whole models
def mlp(W, x):
    if "up_proj.weight" not in W:  # fla before 2025-02-09: one matrix, gate rows first
        gate, up = np.split(linear(W, "gate_proj", x), 2, -1)
    else:
        gate, up = linear(W, "gate_proj", x), linear(W, "up_proj", x)
    return linear(W, "down_proj", silu(gate) * up)


def fla_layers(c):
    """The mixer of each layer and its keys; fla's attn makes some of them softmax attention."""
    types = c.get("layer_types") or [c["model_type"]] * c["num_hidden_layers"]
    c = {**c, "handed_on": {}}  # what one layer leaves for later ones
    layers = [(kind, {**c, **((c.get("layer_config") or [{}] * len(types))[i])}) for i, kind in enumerate(types)]
    attn = c.get("attn") or {"layers": []}
    return [("softmax_attention", {**attn, "hidden_size": c["hidden_size"]}) if i in attn["layers"] else layer
            for i, layer in enumerate(layers)]


def fla_logits(c, W, ids):
    x = W["model.embeddings.weight"][ids]
    for i, (kind, own) in enumerate(fla_layers(c)):
        L = below(W, f"model.layers.{i}.")
        x = x + LAYERS[kind](below(L, "attn."), own, rms_norm(x, L["attn_norm.weight"], c["norm_eps"]))
        x = x + mlp(below(L, "mlp."), rms_norm(x, L["mlp_norm.weight"], c["norm_eps"]))
    x = rms_norm(x, W["model.norm.weight"], c["norm_eps"])
    return x @ W["model.embeddings.weight" if c.get("tie_word_embeddings") else "lm_head.weight"].T


def rwkv_logits(c, W, ids):
    module = oracle_rwkv6 if c["model_type"] == "rwkv6" else oracle_rwkv7
    norm = lambda L, name, x: oracle_rwkv7.layer_norm(L, name, x, c["norm_eps"])
    x = W["model.embeddings.weight"][ids]
    x = norm(W, "model.layers.0.pre_norm", x) if c.get("norm_first", True) else x
    for i, (kind, own) in enumerate(fla_layers(c)):
        L = below(W, f"model.layers.{i}.")
        x = x + LAYERS[kind](below(L, "attn."), own, norm(L, "attn_norm", x))
        x = x + module.channel_mixing(below(L, "ffn."), c, norm(L, "ffn_norm", x))
    return norm(W, "model.norm", x) @ W["model.embeddings.weight" if c.get("tie_word_embeddings") else "lm_head.weight"].T


def tied(c):
    """transformers' defaults; H3 always."""
    return c.get("tie_word_embeddings", c["model_type"] in ("mamba", "falcon_mamba", "h3"))


def mamba_logits(c, W, ids):
    c = {**c, "norm_eps": c.get("norm_eps", c.get("layer_norm_epsilon"))}
    embeddings = W.get("backbone.embeddings.weight", W.get("backbone.embedding.weight"))
    x = embeddings[ids]
    for i in range(c["num_hidden_layers"]):
        L = below(W, f"backbone.layers.{i}.")
        x = x + LAYERS[c["model_type"]](below(L, "mixer."), c, rms_norm(x, L["norm.weight"], c["norm_eps"]))
    x = rms_norm(x, W["backbone.norm_f.weight"], c["norm_eps"])
    return x @ (embeddings if tied(c) else W["lm_head.weight"]).T


def log_linear_mamba2_logits(c, W, ids):
    c = {**c, "norm_eps": c.get("norm_eps", c.get("layer_norm_epsilon"))}
    x = W["backbone.embeddings.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        L = below(W, f"backbone.layers.{i}.")
        x = x + layer_mamba2(below(L, "mixer."), c, rms_norm(x, L["mixer_norm.weight"], c["norm_eps"]))
        x = x + mlp(below(L, "mlp."), rms_norm(x, L["mlp_norm.weight"], c["norm_eps"]))
    return rms_norm(x, W["backbone.norm_f.weight"], c["norm_eps"]) @ W["lm_head.weight"].T


def layer_norm(W, name, x):
    x = x - x.mean(-1, keepdims=True)
    return rms_norm(x, W[name + ".weight"], 1e-5) + W[name + ".bias"]


def gelu_by_tanh(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def h3_logits(c, W, ids):
    embeddings = W["backbone.embeddings.word_embeddings.weight"]
    x = embeddings[ids]
    for i in range(c["num_hidden_layers"]):
        L = below(W, f"backbone.layers.{i}.")
        mixer = layer_h3_attention if i in c.get("attn_layer_idx", []) else layer_h3
        x = x + mixer(below(L, "mixer."), c, layer_norm(L, "norm1", x))
        x = x + linear(L, "mlp.fc2", gelu_by_tanh(linear(L, "mlp.fc1", layer_norm(L, "norm2", x))))
    return layer_norm(W, "backbone.ln_f", x) @ embeddings.T


def logits(c, W, ids):
    """[T, vocab] of token ids [T]."""
    whole = {"mamba": mamba_logits, "falcon_mamba": mamba_logits, "mamba2": mamba_logits, "h3": h3_logits, "rwkv6": rwkv_logits, "rwkv7": rwkv_logits,
             "log_linear_mamba2": log_linear_mamba2_logits, "hattention": log_linear_mamba2_logits}
    return whole.get(c["model_type"], fla_logits)(c, W, ids)
