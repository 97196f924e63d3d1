#!/usr/bin/env python3
"""Writes tests/interop/onnx/*.onnx: the modules of make_pt2.py, smaller, by both exporters of torch.onnx.

Run by hand where torch, onnx and onnxscript are installed: python3 make_onnx.py FOLDER. NAME.npz has the inputs of one
call and what the module gives for them. Source lines and sizes that an exporter noted are left out."""
import io
import os
import sys

import numpy as np
import onnx
import torch
from torch import nn

import make_pt2 as modules


def shrink(model):
    """No texts but those that name modules."""
    model.ClearField("metadata_props")
    model.graph.ClearField("value_info")
    model.graph.ClearField("metadata_props")
    for n in model.graph.node:
        n.doc_string = ""
        kept = [(p.key, p.value) for p in n.metadata_props if p.key == "pkg.torch.onnx.name_scopes"]
        n.ClearField("metadata_props")
        for key, value in kept:
            n.metadata_props.add(key=key, value=value)
    for v in list(model.graph.initializer) + list(model.graph.input) + list(model.graph.output):
        v.ClearField("metadata_props")
    return model


def export(module, feeds, dynamo, opset, dynamic):
    names = list(feeds)
    file = io.BytesIO()
    sizes = {k: {0: "batch", 1: "decoder_length" if k == "decoder_ids" else "length"} for k in names} if dynamic else None
    if dynamo:
        program = torch.onnx.export(module, (), kwargs=feeds, opset_version=opset, dynamo=True, verbose=False,
                                    dynamic_shapes={k: {a: torch.export.Dim(n) for a, n in v.items()} for k, v in sizes.items()}
                                    if dynamic else None)
        return shrink(program.model_proto)
    torch.onnx.export(module, tuple(feeds.values()), file, input_names=names, opset_version=opset, dynamo=False,
                      dynamic_axes=sizes, export_params=True, do_constant_folding=True)
    return shrink(onnx.load_from_string(file.getvalue()))


def rows(folder):
    """Nodes by hand: rows along a later axis, at constants and at what is fed, Mod and Tile."""
    from onnx import helper, numpy_helper
    array = lambda name, x: numpy_helper.from_array(np.array(x), name)
    node, info = helper.make_node, helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Gather", ["x", "some"], ["a"], axis=1), node("Gather", ["x", "ids"], ["b"], axis=2),
         node("Mod", ["ids", "three"], ["m"]), node("Gather", ["table", "m"], ["c"], axis=0),
         node("Tile", ["c", "times"], ["d"]), node("Mod", ["minus", "three"], ["n"]), node("Gather", ["table", "n"], ["e"])],
        "rows", [info("x", 1, [4, 6, 8]), info("ids", 7, [4, 3]), info("minus", 7, [4, 3])],
        [info("a", 1, [4, 3, 8]), info("b", 1, [4, 6, 4, 3]), info("d", 1, [4, 6, 10]), info("e", 1, [4, 3, 5])],
        [array("some", [4, 1, -1]), array("three", 3), array("times", [1, 2, 2]),
         array("table", np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, os.path.join(folder, "rows_17.onnx"))
    rng = np.random.default_rng(2)
    feeds = {"x": rng.normal(size=(4, 6, 8)).astype(np.float32), "ids": rng.integers(0, 8, (4, 3)), "minus": rng.integers(-8, 8, (4, 3))}
    table = numpy_helper.to_array(model.graph.initializer[3])
    out = (feeds["x"][:, [4, 1, -1]], feeds["x"][:, :, feeds["ids"]], np.tile(table[feeds["ids"] % 3], (1, 2, 2)), table[feeds["minus"] % 3])
    np.savez(os.path.join(folder, "rows_17.npz"), **{f"in.{k}": v for k, v in feeds.items()}, **{f"out.{i}": v for i, v in enumerate(out)})


def windows(folder):
    """Nodes by hand: convolutions with every kind of padding, pools, batch norm; the values are those of onnxruntime."""
    import onnxruntime
    from onnx import helper, numpy_helper
    node, info, rng = helper.make_node, helper.make_tensor_value_info, np.random.default_rng(3)
    weights = {"w": (6, 4, 3, 3), "b": (6,), "g": (4, 2, 3, 2), "t": (6, 2, 3, 3), "s": (6,), "m": (6,)}
    nodes = [node("Conv", ["x", "w", "b"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2]),
             node("Conv", ["x", "w"], ["z"], auto_pad="SAME_LOWER", strides=[1, 2], kernel_shape=[3, 3]),
             node("Conv", ["x", "g"], ["u"], group=2, pads=[0, 1, 2, 0], strides=[1, 2], dilations=[2, 1]),
             node("BatchNormalization", ["y", "s", "b", "m", "v"], ["n"], epsilon=1e-3),
             node("ConvTranspose", ["n", "t"], ["c"], group=3, strides=[2, 2], pads=[1, 0, 1, 1], output_padding=[1, 1]),
             node("MaxPool", ["z"], ["p"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
             node("AveragePool", ["z"], ["q"], kernel_shape=[3, 3], strides=[2, 1], pads=[1, 1, 1, 1]),
             node("AveragePool", ["z"], ["r"], kernel_shape=[2, 3], pads=[1, 1, 1, 1], count_include_pad=1),
             node("GlobalAveragePool", ["u"], ["h"])]
    outs = "nucpqrh"
    graph = helper.make_graph(nodes, "windows", [info("x", 1, [2, 4, 9, 8])], [info(k, 1, None) for k in outs],
                              [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), k) for k, s in weights.items()]
                              + [numpy_helper.from_array(rng.uniform(0.5, 1.5, 6).astype(np.float32), "v")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"x": rng.normal(size=(2, 4, 9, 8)).astype(np.float32)}
    got = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    onnx.save(model, os.path.join(folder, "windows_17.onnx"))
    np.savez(os.path.join(folder, "windows_17.npz"), **{f"in.{k}": v for k, v in feeds.items()}, **{f"out.{i}": v for i, v in enumerate(got)})


def resizes(folder):
    """Nodes by hand: images of other sizes, by factors and to sizes; the values are those of onnxruntime."""
    import onnxruntime
    from onnx import helper, numpy_helper
    node, info = helper.make_node, helper.make_tensor_value_info
    lists = {"double": [1.0, 1, 2, 2], "half": [1.0, 1, 0.5, 1.5], "wide": [1.0, 1, 1, 3]}
    sizes = {"to": [2, 3, 5, 9], "line": [2, 18, 5]}
    nodes = [node("Resize", ["x", "", "double"], ["a"], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
             node("Resize", ["x", "", "wide"], ["b"], mode="nearest"),
             node("Resize", ["x", "", "double"], ["c"], mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
             node("Resize", ["x", "", "half"], ["d"], mode="linear"),
             node("Resize", ["x", "", "", "to"], ["e"], mode="linear", coordinate_transformation_mode="align_corners"),
             node("Reshape", ["x", "flat"], ["y"]),
             node("Resize", ["y", "", "", "line"], ["f"], mode="linear")]
    weights = [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in lists.items()]
    weights += [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in {**sizes, "flat": [2, 18, 4]}.items()]
    graph = helper.make_graph(nodes, "resizes", [info("x", 1, [2, 3, 6, 4])], [info(k, 1, None) for k in "abcdef"], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    feeds = {"x": np.random.default_rng(5).normal(size=(2, 3, 6, 4)).astype(np.float32)}
    got = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    onnx.save(model, os.path.join(folder, "resizes_18.onnx"))
    np.savez(os.path.join(folder, "resizes_18.npz"), **{f"in.{k}": v for k, v in feeds.items()}, **{f"out.{i}": v for i, v in enumerate(got)})


def main(folder):
    ids = lambda n, l, below: torch.randint(0, below, (n, l))
    mask = lambda l: (torch.arange(l)[None] < torch.tensor([l, 5, 3, l])[:, None]).long()
    gpt = lambda: modules.Gpt(vocab=31, d=16, heads=4, positions=16)
    llama = lambda **more: modules.Llama(vocab=29, d=16, heads=4, kv=2, hidden=24, **more)
    bert = lambda: modules.Bert(vocab=27, d=16, heads=4, positions=16)
    for name, make, inputs, dynamo, opset, dynamic in (
        ("gpt_17", gpt, lambda: {"ids": ids(4, 10, 31)}, False, 17, False),
        ("gpt_18", gpt, lambda: {"ids": ids(4, 6, 31)}, True, 18, True),
        ("llama_18", llama, lambda: {"ids": ids(4, 6, 29)}, True, 18, True),
        ("llama_23", llama, lambda: {"ids": ids(4, 10, 29)}, True, 23, False),
        ("loss_18", lambda: llama(loss=True), lambda: {"ids": ids(4, 6, 29)}, True, 18, True),
        ("bert_17", bert, lambda: {"ids": ids(4, 10, 27), "mask": mask(10)}, False, 17, False),
        ("bert_18", bert, lambda: {"ids": ids(4, 6, 27), "mask": mask(6)}, True, 18, True),
        ("vit_18", lambda: modules.Vit(d=16, image=12), lambda: {"pixels": torch.randn(4, 3, 12, 12)}, True, 18, False),
        ("t5_17", lambda: modules.T5(d=8, layers=1), lambda: {"ids": ids(4, 6, 41), "decoder_ids": ids(4, 8, 41)}, False, 17, True),
        ("dlrm_17", lambda: modules.Dlrm(d=8), lambda: {"dense": torch.randn(8, 13), "sparse": torch.randint(0, 20, (8, 3))},
         False, 17, False),
    ):
        torch.manual_seed(7)
        module, feeds = make().eval(), inputs()
        for m in module.modules():  # exporters merge weights that have the same elements
            if isinstance(m, nn.LayerNorm):
                nn.init.normal_(m.weight, 1, 0.1)
                nn.init.normal_(m.bias, 0, 0.1)
        out = module(**feeds)
        out = out if isinstance(out, tuple) else (out,)
        model = export(module, feeds, dynamo, opset, dynamic)
        onnx.save(model, os.path.join(folder, name + ".onnx"))
        np.savez(os.path.join(folder, name + ".npz"), **{f"in.{k}": v.numpy() for k, v in feeds.items()},
                 **{f"out.{i}": v.detach().numpy() for i, v in enumerate(out)})
        print(name, os.path.getsize(os.path.join(folder, name + ".onnx")), len(model.graph.node))


if __name__ == "__main__":
    main(sys.argv[1])
    rows(sys.argv[1])
    windows(sys.argv[1])
    resizes(sys.argv[1])
