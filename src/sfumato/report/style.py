"""The style sheet of a report: one column of text, system fonts, light, dark, phone and print."""

from __future__ import annotations

from sfumato.report.palette import STEPS, colour_rules

_BASE = """
*{box-sizing:border-box}
html{font-size:17px;-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.6;
 font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif;
 overflow-wrap:break-word;-webkit-print-color-adjust:exact;print-color-adjust:exact}
h1,h2,h3,.lead,.figure b{font-family:Charter,"Bitstream Charter","Iowan Old Style","Palatino Linotype",
 "URW Palladio L",P052,Georgia,serif}
h1{font-size:2.15rem;line-height:1.18;font-weight:600;margin:.2rem 0 .6rem;letter-spacing:-.01em}
h2{font-size:1.5rem;line-height:1.25;font-weight:600;margin:0 0 .9rem;scroll-margin-top:3.2rem}
h2 .no{color:var(--soft);font-weight:400;margin-right:.55rem}
h3{font-size:1.12rem;line-height:1.35;font-weight:600;margin:2rem 0 .5rem}
p{margin:0 0 .9rem;max-width:40rem}
a{color:var(--blue);text-decoration-thickness:1px;text-underline-offset:.16em}
a:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:2px solid var(--blue);
 outline-offset:2px}
code,pre,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;
 font-size:.86em}
code{background:var(--wash);padding:.08em .3em;border-radius:4px;overflow-wrap:anywhere}
pre{background:var(--wash);padding:.8rem 1rem;border-radius:8px;overflow-x:auto;line-height:1.5;
 margin:0 0 1rem}
pre code{background:none;padding:0}
ul{margin:0 0 .9rem;padding-left:1.15rem;max-width:40rem}
li{margin:.2rem 0}
.page{max-width:77rem;margin:0 auto;padding:1.6rem 2rem 4rem}
.kicker{color:var(--soft);font-size:.8rem;letter-spacing:.09em;text-transform:uppercase;margin:0}
.lead{font-size:1.16rem;line-height:1.55;color:var(--ink);max-width:42rem}
.soft,.note,figcaption{color:var(--soft)}
.note,figcaption{font-size:.86rem;line-height:1.5}
.warn{border-left:3px solid var(--gold);padding:.15rem 0 .15rem .9rem;max-width:40rem;margin:0 0 1rem}
.warn.strong{border-color:var(--red)}
nav.toc{font-size:.88rem;line-height:1.45}
nav.toc ol{list-style:none;margin:0;padding:0}
nav.toc li{margin:0}
nav.toc a{display:flex;padding:.24rem 0;color:var(--ink);text-decoration:none}
nav.toc a:hover{color:var(--blue);text-decoration:underline}
nav.toc .no{flex:0 0 1.7rem;color:var(--soft)}
header{padding-bottom:1.6rem}
section{padding:2.2rem 0 1.2rem;border-top:1px solid var(--line)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.8rem;
 margin:1.3rem 0 .4rem}
.figure{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:.75rem .9rem}
.figure b{display:block;font-size:1.5rem;line-height:1.2;font-weight:600;font-variant-numeric:lining-nums}
.figure span{color:var(--soft);font-size:.82rem;line-height:1.35;display:block;margin-top:.15rem}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,15.6rem),1fr));gap:1rem;
 margin:1rem 0}
.card{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:.85rem 1rem .9rem;
 min-width:0}
.card h3{margin:0 0 .55rem;font-size:1rem;overflow-wrap:anywhere}
.card h3 small{font-family:system-ui,sans-serif;font-weight:400;color:var(--soft);font-size:.78rem;
 margin-left:.35rem}
figure{margin:1rem 0 1.4rem;max-width:100%}
figcaption{max-width:40rem;margin-top:.45rem}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;fill:var(--ink)}
svg .q{fill:var(--soft)}
.chart{max-width:26rem}
svg .halo{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr));gap:1.2rem 2rem;
 align-items:start}
.pair>figure{margin:.4rem 0 1rem}
.axis{stroke:var(--line);fill:none;stroke-width:1}
.curve{stroke:var(--blue);fill:none;stroke-width:2;stroke-linejoin:round}
.thin{stroke:var(--blue);fill:none;stroke-width:1;opacity:.65}
.dash{stroke:var(--soft);fill:none;stroke-width:1;stroke-dasharray:3 3}
.level{stroke:var(--gold);fill:none;stroke-width:2}
.band{fill:var(--fill);opacity:.55}
.whisker{stroke:var(--ink);stroke-width:1.4;fill:none}
.dot{fill:var(--blue)}
.dot.b{fill:var(--gold)}.dot.c{fill:var(--red)}
.column{fill:var(--blue)}
.column.n{fill:var(--soft);opacity:.55}
table{border-collapse:collapse;font-size:.88rem;line-height:1.4;font-variant-numeric:tabular-nums;
 width:100%}
caption{text-align:left;color:var(--soft);font-size:.86rem;padding:0 0 .4rem}
th,td{text-align:left;vertical-align:top;padding:.38rem .9rem .38rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600}
thead th{color:var(--soft);font-weight:500;font-size:.8rem;vertical-align:bottom;white-space:nowrap}
td.num,th.num{text-align:right;white-space:nowrap}
.scroll th code,.scroll td code{white-space:nowrap}
.scroll th:first-child{min-width:7.5rem}
.scroll td.long{min-width:17rem}
th .note{font-weight:400}
tr.mine td,tr.mine th{background:var(--wash)}
.scroll{overflow-x:auto;margin:0 0 1rem;max-width:100%;
 background:linear-gradient(to right,var(--paper) 30%,transparent),
 linear-gradient(to left,var(--paper) 30%,transparent) 100% 0,
 linear-gradient(to right,transparent 1px,var(--line) 1px,transparent),
 linear-gradient(to left,transparent 1px,var(--line) 1px,transparent) 100% 0;
 background-repeat:no-repeat;background-size:2.4rem 100%,2.4rem 100%,.6rem 100%,.6rem 100%;
 background-attachment:local,local,scroll,scroll}
.facts{max-width:46rem;margin:0 0 1.1rem}
.facts th{width:11rem;color:var(--soft);font-weight:500;font-size:.86rem}
.bars{table-layout:fixed}
.bars td,.bars th{border:0;padding:.1rem .5rem .1rem 0;vertical-align:middle;font-weight:400}
.bars th{width:42%;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;font-size:.82rem}
.bars td.num{width:4.9rem;padding-right:0;font-size:.82rem}
.bars.wrap th{white-space:normal;width:55%;line-height:1.3;padding:.22rem .8rem .22rem 0}
.list{max-width:44rem}
.bar{display:block;height:.68rem;border-radius:2px;background:var(--blue);min-width:1px}
.meter{display:flex;height:1rem;border-radius:5px;overflow:hidden;background:var(--wash);max-width:40rem;
 border:1px solid var(--line);margin:.3rem 0 .5rem}
.meter i{display:block;background:var(--soft)}.meter i.mine{background:var(--blue)}
.multiples{display:grid;grid-template-columns:repeat(auto-fill,minmax(6.2rem,1fr));gap:.8rem .9rem;
 margin:.6rem 0 1rem}
.multiples figure{margin:0}
.multiples figcaption{margin:0 0 .2rem;font-size:.78rem;color:var(--ink);white-space:nowrap;overflow:hidden;
 text-overflow:ellipsis}
.tiles{max-width:44rem}
.tiles path,.tiles rect{stroke:var(--paper)}
img.map{display:block;width:100%;image-rendering:pixelated;image-rendering:crisp-edges;
 image-rendering:pixelated}
.scale{display:flex;align-items:center;gap:.5rem;font-size:.8rem;color:var(--soft);margin:.2rem 0 .9rem;
 font-variant-numeric:tabular-nums;flex-wrap:wrap}
.scale svg{width:9rem;flex:none}
.key{columns:9.4rem;font-size:.8rem;line-height:1.45;color:var(--soft);list-style:none;padding:0;
 max-width:none;margin:.4rem 0 1rem}
.key b{color:var(--ink);font-weight:600;display:inline-block;min-width:1.9rem;
 font-variant-numeric:tabular-nums}
.key li{margin:0;break-inside:avoid}
details{margin:.3rem 0 1rem}
summary{cursor:pointer;color:var(--blue);font-size:.9rem;padding:.2rem 0}
.digest{overflow-wrap:anywhere;font-size:.8rem}
.skip{position:absolute;left:-999rem}
.skip:focus{left:1rem;top:1rem;background:var(--panel);padding:.4rem .8rem;z-index:9}
footer{border-top:1px solid var(--line);color:var(--soft);font-size:.84rem;padding-top:1rem;margin-top:1rem}
@media(min-width:70rem){
 .page{display:grid;grid-template-columns:13.5rem minmax(0,1fr);column-gap:3.6rem}
 .page>header,.page>footer{grid-column:2}
 nav.toc{grid-column:1;grid-row:1/span 3;position:sticky;top:2.2rem;align-self:start;padding-top:.4rem;
  max-height:calc(100vh - 3rem);overflow-y:auto}
 main{grid-column:2}
}
@media(max-width:69.99rem){nav.toc{border-top:1px solid var(--line);padding:1rem 0 1.2rem;margin-top:1rem}
 nav.toc ol{columns:15rem}}
@media(max-width:34rem){html{font-size:16px}.page{padding:1.1rem 1rem 3rem}h1{font-size:1.7rem}
 h2{font-size:1.32rem}
 section{padding:1.7rem 0 .8rem}.facts th{width:7.2rem}.figures{grid-template-columns:repeat(2,
 minmax(0,1fr));gap:.6rem}
 .figure{padding:.6rem .7rem}.figure b{font-size:1.22rem}.bars th{width:44%}}
@media print{
 html{font-size:10.5pt}
 body{background:#fff}
 .page{display:block;max-width:none;padding:0}
 nav.toc{position:static;max-height:none}
 nav.toc ol{columns:2}
 section{break-inside:auto}
 h2,h3,caption,figcaption{break-after:avoid}
 figure,.card,.figure,tr,.multiples figure{break-inside:avoid}
 .scroll{overflow:visible}
 .scroll table{font-size:.78rem}
 pre{white-space:pre-wrap}
 a{color:inherit;text-decoration:none}
}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
"""

_INTERNAL = """
.internal-bar{position:fixed;z-index:5;top:0;left:0;right:0;background:var(--alarm);color:var(--onalarm);
 font-size:.82rem;line-height:1.3;font-weight:600;letter-spacing:.03em;padding:.42rem 1rem;
 text-align:center}
.internal-foot{display:none}
.mark{font:600 .66rem/1 system-ui,sans-serif;letter-spacing:.08em;color:var(--onalarm);
 background:var(--alarm);
 border-radius:4px;padding:.24rem .42rem;vertical-align:.28em;margin-left:.6rem;white-space:nowrap}
.page{padding-top:3.6rem}
@media(min-width:70rem){nav.toc{top:4rem}}
@media print{
 .page{padding-top:0}
 .internal-bar{position:static}
 .internal-foot{display:block;position:fixed;top:42%;left:-10%;right:-10%;text-align:center;
 transform:rotate(-32deg);
  font:700 76pt/1 sans-serif;letter-spacing:.06em;color:#7c1d12;opacity:.09}
}
@page{margin:18mm 14mm;
 @top-center{content:"INTERNAL - compares with the truth - do not publish";font:600 8.5pt sans-serif;
 color:#7c1d12}
 @bottom-center{content:"INTERNAL - page " counter(page);font:600 8.5pt sans-serif;color:#7c1d12}}
"""

_PUBLIC = """
@page{margin:16mm 14mm}
"""


def build_style(*, internal: bool) -> str:
    """The style sheet; with `internal`, the marks on every screen and every printed page too."""
    steps = "".join(
        f".s{step}{{fill:var(--s{step})}}.d{step}{{fill:var(--d{step})}}"
        f"svg text.x{step}{{fill:var(--x{step})}}"
        for step in range(STEPS)
    )
    return (
        f":root{{color-scheme:light dark;{colour_rules('light')}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{colour_rules('dark')}}}}}"
        f"{_BASE}{steps}{_INTERNAL if internal else _PUBLIC}"
    )
