"""The style sheet of the report: two colour schemes, from a telephone's width up."""

STYLE = """\
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1c2330; --soft: #5b6575; --line: #dfe3e9;
  --saved: #2b9c78; --hits: #2b9c78; --analysed: #d9711c; --shared: #7265c7; --bypassed: #8a94a3; --key: #3f7fc4;
  --store: #b0559b; }
@media (prefers-color-scheme: dark) { :root { --page: #12161c; --card: #1a2029; --text: #e4e8ee; --soft: #9aa5b4;
  --line: #2c3542; --saved: #45c39a; --hits: #45c39a; --analysed: #f0944a; --shared: #9d92ea; --bypassed: #8793a5;
  --key: #6aa7e8; --store: #d680c2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 .75rem; }
header p, footer, small, .none, figcaption, .axis, .tile span { color: var(--soft); }
header p { margin: .25rem 0 1rem; overflow-wrap: anywhere; }
section, .tile { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
section { padding: 1rem; margin-top: 1rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; }
.tile { padding: .75rem 1rem; display: flex; flex-direction: column; }
.tile strong { font-size: 1.6rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.bar { display: flex; height: 1.6rem; border-radius: .3rem; overflow: hidden; background: var(--line); }
.bar i { flex: 0 1 0; min-width: 2px; }
.thin { display: flex; height: .8rem; }
.thin i { min-width: 0; }
.saved { background: var(--saved); } .hits { background: var(--hits); } .analysed { background: var(--analysed); }
.shared { background: var(--shared); } .bypassed { background: var(--bypassed); } .key { background: var(--key); }
.store { background: var(--store); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; margin: .6rem 0 .9rem; padding: 0;
  font-size: .9rem; }
.legend i { display: inline-block; width: .75rem; height: .75rem; border-radius: .15rem; margin-right: .4rem; }
.chart { display: flex; align-items: flex-end; gap: 1px; height: 8rem; border-bottom: 1px solid var(--line); }
.chart b { flex: 1 1 0; height: 100%; display: flex; flex-direction: column-reverse; }
.chart i { display: block; min-height: 2px; }
figure { margin: .5rem 0 0; }
figcaption, .axis { font-size: .85rem; }
.axis { display: flex; justify-content: space-between; margin-bottom: .9rem; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td:first-child { overflow-wrap: anywhere; min-width: 6.5rem; }
.row { display: grid; grid-template-columns: minmax(6rem, 15rem) 1fr 7rem 7rem; gap: .2rem .9rem; align-items: center;
  padding: .15rem 0; }
.row small { text-align: right; font-variant-numeric: tabular-nums; }
.name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
@media (max-width: 40rem) { .row { grid-template-columns: 1fr 1fr; padding: .35rem 0; }
  .name, .thin { grid-column: 1 / -1; } .row small { text-align: left; } }
footer { margin-top: 1.25rem; font-size: .85rem; overflow-wrap: anywhere; }
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""
