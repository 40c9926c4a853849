"""The report's style sheet: light and dark by the reader's setting, one column when narrow, plain when printed."""

from __future__ import annotations

STYLE = """
:root{--ground:#fbfbf9;--card:#fff;--text:#1c232e;--soft:#5c6675;--line:#e1e4e8;--accent:#2b62c4;
--met:#1b7a4a;--missed:#bf3128;--undecided:#8f6200;--met-ground:#e9f6ef;--missed-ground:#fcedeb;
--undecided-ground:#fbf3df}
@media (prefers-color-scheme:dark){:root{--ground:#14171c;--card:#1b1f26;--text:#e4e8ee;--soft:#98a2b1;--line:#2c323c;
--accent:#79a8ff;--met:#5fcf95;--missed:#ff8a80;--undecided:#e8bd5a;--met-ground:#16291f;--missed-ground:#331c1b;
--undecided-ground:#2e2614}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1060px;margin:0 auto;padding:28px 20px 40px}
h1{font-size:1.55rem;line-height:1.25;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:0 0 14px;letter-spacing:-.005em}
h3{font-size:.78rem;margin:26px 0 8px;color:var(--soft);text-transform:uppercase;letter-spacing:.07em;font-weight:600}
.subtitle{margin:4px 0 0;color:var(--soft);overflow-wrap:anywhere}
header{margin-bottom:18px}
.banner{display:flex;gap:14px;align-items:flex-start;padding:13px 16px;margin:10px 0;border-radius:10px;
border:1px solid var(--tone);background:var(--tone-ground)}
.banner p{margin:2px 0 0}
.banner strong{font-size:1.1rem;color:var(--tone)}
.banner .of{margin-left:8px;color:var(--soft)}
.banner .sign{flex:none;width:28px;height:28px;border-radius:50%;background:var(--tone);color:var(--ground);
font-weight:700;display:grid;place-items:center}
.met{--tone:var(--met);--tone-ground:var(--met-ground)}
.missed{--tone:var(--missed);--tone-ground:var(--missed-ground)}
.undecided{--tone:var(--undecided);--tone-ground:var(--undecided-ground)}
.badge{display:inline-block;margin-left:8px;padding:0 8px;border-radius:99px;border:1px solid currentColor;
color:var(--soft);font-size:.74rem;font-weight:500;line-height:1.5;vertical-align:.1em;letter-spacing:0}
.badge.simulated{color:var(--undecided)}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px;margin-top:18px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:10px}
.tiles div{border:1px solid var(--line);border-radius:8px;padding:9px 12px;min-width:0}
.tiles span,.tiles small{display:block;color:var(--soft);font-size:.78rem;line-height:1.35}
.tiles b{display:block;font-size:1.28rem;font-weight:600;font-variant-numeric:tabular-nums;line-height:1.35}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:6px 12px 6px 0;border-bottom:1px solid var(--line);vertical-align:top;font-weight:400}
tbody th{font-weight:600;white-space:nowrap}
thead th,thead td{color:var(--soft);font-size:.8rem}
tbody tr:last-child>*{border-bottom:0}
.number{text-align:right;white-space:nowrap}
.weak,.meaning{color:var(--soft)}
.meaning{font-size:.84rem;padding-left:8px}
.word{color:var(--tone);font-weight:600;white-space:nowrap}
.notes{margin:12px 0 0;padding-left:18px;color:var(--soft);font-size:.9rem}
.note{color:var(--soft);font-size:.9rem;margin:10px 0 0}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:14px 22px}
figure{margin:0;min-width:0}
figcaption{font-weight:600;font-size:.9rem;margin-bottom:2px}
svg{display:block;width:100%;height:auto}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;fill:var(--soft)}
svg .grid{stroke:var(--line);stroke-width:1}
svg .curve{fill:none;stroke:var(--accent);stroke-width:2;stroke-linejoin:round}
svg .area{fill:var(--accent);opacity:.13}
svg .mark{fill:var(--card);stroke:var(--accent);stroke-width:2}
svg .limit{stroke:var(--missed);stroke-width:1.5;stroke-dasharray:5 4}
svg .limit-label{fill:var(--missed)}
svg .dots{stroke:var(--accent);stroke-width:4.4;stroke-linecap:round;opacity:.5;fill:none}
svg .failures{stroke:var(--missed);stroke-width:1.8;fill:none}
details{margin-top:22px}
summary{cursor:pointer;color:var(--soft);font-size:.9rem}
details table{margin-top:8px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:0}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
footer{margin-top:22px;color:var(--soft);font-size:.84rem}
@media (max-width:560px){main{padding:16px 12px 30px}section{padding:15px 13px}.meaning{display:none}
dl{grid-template-columns:1fr}dd{margin-bottom:6px}
th,td{padding:5px 8px 5px 0}.scroll{font-size:.84rem}
.objectives thead{display:none}.objectives tr{display:grid;grid-template-columns:max-content 1fr max-content;
gap:0 12px;padding:7px 0;border-bottom:1px solid var(--line)}.objectives tr>*{border:0;padding:0}
.objectives tr>:nth-child(3)::before{content:"limit ";color:var(--soft)}
.objectives tr>:nth-child(4){grid-column:1/-1;text-align:left}
.objectives tr>:nth-child(4)::before{content:"measured ";color:var(--soft)}
.objectives .why{grid-column:1/-1;color:var(--soft);font-size:.9rem}}
@media print{body{background:#fff}section{break-inside:auto;border-color:#ccc}figure,tr{break-inside:avoid}}
"""
