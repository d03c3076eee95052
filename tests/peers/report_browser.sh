#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Opens report.html in a headless chromium at the widths of a phone and of a desk, light and dark,
# and prints it to PDF. Fails if the page is wider than its window or if text is too small. The
# pictures are for the eye.
#   tests/peers/report_browser.sh REPORT.html [FOLDER]
set -eu
report=$(realpath "$1") out=$(realpath -m "${2:-report-pictures}")
command -v chromium >/dev/null || { echo "skipped: no chromium here"; exit 77; }
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$report" "$work/report.html"
browse() {
    chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
        --allow-file-access-from-files --user-data-dir="$work/profile" --virtual-time-budget=8000 \
        "$@" 2>/dev/null
}
# A window has a least width above that of a phone, so the page is shown in a frame.
frame() {
    cat >"$work/frame.html" <<END
<!DOCTYPE html><meta charset="utf-8"><style>html,body{margin:0}iframe{border:0;display:block}</style>
<iframe id="f" width="$1" height="900" src="report.html"></iframe><pre id="result"></pre>
<script>
addEventListener("load", () => {
  const page = document.getElementById("f").contentDocument, body = page.scrollingElement;
  if (location.hash) for (const d of page.querySelectorAll("details")) d.open = true;
  let small = 0;
  for (const t of page.querySelectorAll("p,td,th,dd,dt,figcaption,li,text,caption,pre")) {
    const box = t.getBoundingClientRect();
    if (!t.textContent.trim() || !box.width) continue;
    const svg = t.ownerSVGElement, scale = svg ? t.getScreenCTM().a : 1;
    if (parseFloat(getComputedStyle(t).fontSize) * scale < 9.5) small++;
  }
  const height = body.scrollHeight;
  document.getElementById("result").textContent =
    "RESULT " + body.scrollWidth + " " + body.clientWidth + " " + small + " " + height + " END";
  document.getElementById("f").height = height;
});
</script>
END
}
failed=0
for width in 390 1280; do
    frame $width
    read -r _ wide window small height _ < <(
        browse --window-size=1400,1000 --dump-dom "file://$work/frame.html" | grep -o 'RESULT .* END')
    echo "$width px: page $wide of $window px wide, $height px high, $small texts below 9.5 px"
    [ "$wide" -le "$window" ] && [ "$small" -eq 0 ] || failed=1
    for scheme in light dark; do
        browse --blink-settings="preferredColorScheme=$([ $scheme = dark ] && echo 0 || echo 1)" \
            --window-size="$((width < 500 ? 500 : width)),$((height < 16000 ? height : 16000))" \
            --screenshot="$out/$width-$scheme.png" "file://$work/frame.html"
    done
done
browse --no-pdf-header-footer --print-to-pdf="$out/report.pdf" "file://$work/report.html"
echo "pictures in $out"
exit $failed
