// SPDX-License-Identifier: Apache-2.0
#include "report/style.h"

#include "report/svg.h"

namespace sf::report {

std::string_view chart_style() {
  return R"css(:root {
  --paper: #ffffff; --card: #ffffff; --ink: #17212e; --soft: #5d6b7c; --line: #d5dbe3; --grid: #e9edf2;
  --c0: #2563c9; --c1: #e2761b; --c2: #1f9d72; --c3: #c9374f; --c4: #7a53c6; --c5: #0f97ab; --c6: #a8791b; --c7: #7c8899;
  --r0: #12397a; --r1: #1b53a6; --r2: #2a6fc4; --r3: #3f8bd8; --r4: #5ba5e2; --r5: #7dbce8; --r6: #9dcfea; --r7: #b5dbe8;
  --r8: #c7e3e6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #10161f; --card: #18202c; --ink: #e8edf4; --soft: #9aa8b9; --line: #34404f; --grid: #263140;
    --c0: #6ea3f5; --c1: #f29a4e; --c2: #4cc79a; --c3: #ef7387; --c4: #ab8bf0; --c5: #4cc3d6; --c6: #d8ac55; --c7: #a3afbf;
    --r0: #d3e6ff; --r1: #aed2fd; --r2: #8abdf8; --r3: #68a6ee; --r4: #4c8edd; --r5: #3a77c4; --r6: #3064a5; --r7: #2a5488;
    --r8: #26476f;
  }
}
.chart { font: 12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; display: block; width: 100%; height: auto; }
.chart text { fill: var(--soft); }
.chart .t { font-size: 15px; font-weight: 650; fill: var(--ink); }
.chart .l { fill: var(--ink); }
.chart .v { font-size: 12.5px; font-weight: 650; fill: var(--ink); }
.chart .a { font-variant-numeric: tabular-nums; }
.chart .g { stroke: var(--grid); fill: none; }
.chart .x { stroke: var(--line); fill: none; }
.chart .m { stroke: var(--soft); stroke-dasharray: 3 4; fill: none; }
.chart .s { fill: none; stroke: var(--k); stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.chart .h { stroke-width: 1; opacity: .32; }
.chart .b { fill: var(--k); opacity: .16; }
.chart .f { fill: var(--k); }
.c0 { --k: var(--c0); } .c1 { --k: var(--c1); } .c2 { --k: var(--c2); } .c3 { --k: var(--c3); }
.c4 { --k: var(--c4); } .c5 { --k: var(--c5); } .c6 { --k: var(--c6); } .c7 { --k: var(--c7); }
.r0 { --k: var(--r0); } .r1 { --k: var(--r1); } .r2 { --k: var(--r2); } .r3 { --k: var(--r3); } .r4 { --k: var(--r4); }
.r5 { --k: var(--r5); } .r6 { --k: var(--r6); } .r7 { --k: var(--r7); } .r8 { --k: var(--r8); }
)css";
}

std::string_view page_style() {
  return R"css(* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 40px 28px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 15px; margin: 0 0 10px; }
.sub { color: var(--soft); margin: 0 0 28px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px; margin-bottom: 22px; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.tile { padding: 12px 16px 10px; }
.tile .n { font-size: 20px; white-space: nowrap; font-weight: 680; letter-spacing: -.01em; font-variant-numeric: tabular-nums; }
.tile .w { color: var(--soft); font-size: 13px; }
.cards { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 22px; }
.card { padding: 18px 20px 10px; min-width: 0; }
.card p { color: var(--soft); font-size: 13px; margin: 4px 0 8px; }
.wide { grid-column: 1 / -1; padding-bottom: 18px; }
@media (max-width: 860px) { .cards { grid-template-columns: minmax(0, 1fr); } main { padding: 24px 14px 40px; } }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
td, th { text-align: left; padding: 5px 14px 5px 0; border-top: 1px solid var(--grid); vertical-align: top; }
tr:first-child td, tr:first-child th { border-top: 0; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; }
td { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
thead th { border-top: 0; }
.num { text-align: right; }
footer { color: var(--soft); font-size: 12.5px; margin-top: 26px; }
@media print { .card, .tile { break-inside: avoid; } }
)css";
}

std::string standalone(const std::string& svg) {
  size_t end = svg.find(">\n");
  std::string style = "<style>" + std::string(chart_style()) +
                      "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"var(--card)\"/>\n";
  return svg.substr(0, end + 2) + style + svg.substr(end + 2);
}

}  // namespace sf::report
