"""What `dtplan export --as torch` says, held against the placements and the styles of --as hf.

From the member "torch" alone follows where parallelize_module and fully_shard keep every parameter: that has to be
where the plan does."""
import math
import re

TABLES = {"wte"}  # modules that are nn.Embedding; others with weights of two axes are nn.Linear
OF_HF = {"colwise": "colwise", "colwise_gather_output": "colwise", "embedding_colwise": "colwise", "rowwise": "rowwise",
         "rowwise_split_input": "rowwise", "embedding_rowwise": "rowwise"}


def style_of(torch, module):
    """The style of a module, and its mesh dims."""
    for pattern, spec in torch["parallelize_module"].items():
        if re.fullmatch(re.escape(pattern).replace(r"\*", r"\d+"), module):
            spec = {"style": spec} if isinstance(spec, str) else spec
            return spec["style"], spec.get("mesh_dims", torch["tensor_dims"])
    return None, []


def tensor_axis(torch, p):
    """The axis that parallelize_module splits, None: it is whole; and over which mesh dims."""
    module, leaf = p["name"].rsplit(".", 1)
    style, dims = style_of(torch, module)
    if style not in ("colwise", "rowwise") or (style == "rowwise" and leaf == "bias"):
        return None, []
    rows = (style == "rowwise") != (module in TABLES)
    return 1 if rows and leaf == "weight" else 0, dims


def kept_by(exported, p):
    """The placements of a parameter that follow from the member torch."""
    torch = exported["torch"]
    if p["name"] in torch["redistribute"]:
        return p["kept"]
    shard, (axis, dims) = torch["fully_shard"], tensor_axis(torch, p)
    out = []
    for m, _ in exported["mesh"]:
        split = axis if m in dims else None
        if shard and m in shard["mesh_dims"]:
            split = shard["dims"].get(p["name"])
        out.append("R" if split is None else f"S({split})")
    return out


def bytes_on_rank(exported, p):
    """Of a parameter as the forward pass reads it, in f32."""
    n = 4
    for axis, size in enumerate(p["shape"]):
        parts = math.prod(k for (_, k), place in zip(exported["mesh"], p["read"]) if place == f"S({axis})")
        n *= -(-size // parts)
    return n


def bucket_findings(exported):
    """Groups of fully_shard and buckets of gradients: each parameter once, within bucket_bytes where there are several."""
    torch, params = exported["torch"], {p["name"]: p for p in exported["params"]}
    limit, groups = torch["bucket_bytes"], (torch["fully_shard"] or {"modules": []})["modules"]
    for group in [g for g in groups if isinstance(g, list)]:
        held = sum(bytes_on_rank(exported, params[n]) for n in torch["fully_shard"]["dims"] if n.startswith(tuple(m + "." for m in group)))
        if len(group) > 1 and held > limit:
            yield f"the group {group} has {held} bytes, a bucket {limit}"
    flat = [name for group in groups for name in ([group] if isinstance(group, str) else group)]
    if len(set(flat)) != len(flat):
        yield f"groups: {groups}"
    reduced = [name for bucket in torch["gradient_buckets"] for name in bucket]
    if len(set(reduced)) != len(reduced) or set(reduced) - set(params):
        yield f"gradient_buckets: {torch['gradient_buckets']}"
    for bucket in torch["gradient_buckets"]:
        held = sum(bytes_on_rank(exported, params[name]) for name in bucket)
        if len(bucket) > 1 and held > limit:
            yield f"a bucket of {held} bytes, at most {limit}"


def findings(exported, placements, hf, modules=True):
    """Texts: what does not hold."""
    torch = exported["torch"]
    yield from bucket_findings(exported)
    for key in placements:
        if key not in ("format", "lost") and exported[key] != placements[key]:
            yield f"{key} is not that of the placements"
    if torch["form"] != ("modules" if modules else "placements"):
        yield f"form {torch['form']}"
    if torch["form"] == "placements":
        if torch["parallelize_module"] or torch["fully_shard"] or torch["redistribute"]:
            yield f"the form is placements: {torch}"
        return
    for p in exported["params"]:
        if kept_by(exported, p) != p["kept"]:
            yield f"{p['name']}: {kept_by(exported, p)}, the plan has {p['kept']}"
    known = {p["name"] for p in exported["params"]}
    unknown = (set(torch["redistribute"]) | set((torch["fully_shard"] or {"dims": {}})["dims"])) - known
    if unknown:
        yield f"no parameters: {unknown}"
    no_style = {re.sub(r"\.\d+\.", ".*.", n.rsplit(".", 1)[0]) for item in hf["lost"] if item["what"] == "style" for n in item["names"]}
    for pattern, style in hf["tp_plan"].items():
        ours, dims = style_of(torch, pattern.replace("*", "0"))
        ours = ours if hf["mesh_dim"] in dims else None
        whole = ours in ("output", "sequence") and style == "replicate"  # whole values alone go from module to module in hf
        if ours != OF_HF.get(style) and not whole and pattern not in no_style:
            yield f"{pattern}: {ours}, as hf {style}"
    if any(item["what"] == "inside_module" for item in exported["lost"]):
        yield f"lost: {exported['lost']}"
