#!/usr/bin/env bash
# dtplan viz draws what docs/formats/viz.md shows, its JSON fits the schema, and its SVG is one XML document.
# Usage: viz.sh BIN_DIR
set -eu
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
"$bin/dtplan" viz --mesh x:4,y:2 --shape batch=10,d_ff=6 --layout "batch@x, +sum(y)" --svg "$here/a.svg" >"$here/text"
awk '/^```/ {open = !open; plain = open && $0 == "```"; next} plain' docs/formats/viz.md >"$here/shown"
diff "$here/shown" "$here/text"
"$bin/dtplan" viz models/mlp_digits.json --mesh x:2 --rules batch:x --tensor images --json >"$here/model.json"
"$bin/dtplan" viz --mesh x:2,y:3 --shape 5,7,2 --layout "P('y', None, 'x')" --json --svg "$here/b.svg" >"$here/own.json"
"$bin/dtplan" viz --mesh 2,3 --shape 5,7,2,4 --layout "Layout(['y', UNSHARDED, 'x', UNSHARDED], mesh)" \
    --json >"$here/rank4.json"
"$bin/dtplan" viz --mesh x:2 --shape 2,2,2,2,2,2,2,3 --layout S7 --json >"$here/rank8.json"
for arguments in "" "--json --svg $here/no.svg"; do # only JSON shows more than three dims
    # shellcheck disable=SC2086
    if "$bin/dtplan" viz --mesh x:2 --shape 2,2,2,2 --layout S0 $arguments >"$here/none" 2>"$here/err"; then exit 1; fi
    grep -q 'rank 4 cannot be drawn' "$here/err" && [ ! -s "$here/none" ] && [ ! -e "$here/no.svg" ]
done
/usr/bin/env python3 - "$here" <<'PYTHON'
import json
import sys
import xml.dom.minidom

here = sys.argv[1]
for name in ("a", "b"):
    svg = xml.dom.minidom.parse(f"{here}/{name}.svg").documentElement
    assert svg.tagName == "svg" and svg.getElementsByTagName("rect").length > 4, name
for name in ("model", "own", "rank4", "rank8"):
    with open(f"{here}/{name}.json", encoding="utf-8") as file:
        data = json.load(file)
    sizes = [1] * len(data["shape"])
    for rank in data["ranks"]:
        ends = [o + s for o, s in zip(rank["offset"], rank["size"])]
        sizes = [max(a, b) for a, b in zip(sizes, ends)]
    assert sizes == data["shape"], (name, sizes)
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        continue
    with open("docs/formats/viz.schema.json", encoding="utf-8") as file:
        Draft202012Validator(json.load(file)).validate(data)
PYTHON
echo "drawing, 2 SVG files and 4 JSON reports as documented"
