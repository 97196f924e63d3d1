#!/usr/bin/env bash
# Models of images, small, on two ranks against one device: losses, gradients, running statistics; the files are what
# make_images.py writes. Usage: images.sh BIN
set -u
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
bad() {
    echo "FAIL: $*"
    failed=$((failed + 1))
}
python3 models/make_images.py "$here" || bad "make_images.py"
for model in resnet50 unet3d; do
    cmp "$here/$model.json" "models/$model.json" || bad "models/$model.json is not what make_images.py writes"
done
verify() {
    "$bin/dtrun" verify "models/$1.json" --comm sim --outputs none --steps 2 "${@:2}" >"$here/out" 2>&1 || bad "$*: $(tail -3 "$here/out")"
}
small=(--dim batch=8 --dim image=64 --dim wide=8 --dim classes=10)
verify resnet50 "${small[@]}" --mesh x:2 --rules batch:x
verify resnet50 "${small[@]}" --mesh x:2 --rules mid0:x,mid1:x,mid2:x,mid3:x
verify unet3d --dim batch=4 --dim image=16 --dim wide=4 --mesh x:2 --rules batch:x
exit $((failed > 0))
