// Draws what the server counted: stacked bars, the plan's line, hatches. Decides nothing: labels, ticks, limits and
// which buckets are still filling come with the page. Never talks to the network.

const LABEL_GAP_PX = 72;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif';
const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    admitted: of("admitted"), refused: of("refused"), degraded: of("degraded"),
    ink: of("ink"), muted: of("muted"), line: of("line"), surface: of("surface"),
  };
}

function hatch(ctx, colour, gap, weight) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = gap;
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour;
  pen.lineWidth = Math.max(1, gap * weight);
  pen.beginPath();
  for (const shift of [-gap, 0, gap]) {
    pen.moveTo(shift, gap);
    pen.lineTo(shift + gap, 0);
  }
  pen.stroke();
  return ctx.createPattern(tile, "repeat");
}

function top(model, from, to) {
  let bars = 0, limit = 0;
  for (let i = from; i <= to; i++) {
    bars = Math.max(bars, model.admitted[i] + model.refused[i]);
    limit = Math.max(limit, model.limit[i] ?? 0);
  }
  // The plan's line stands in the picture unless the bars would be too low to read beside it.
  return { bars, limit, shown: limit > 0 && limit <= bars * 4 };
}

export class Chart {
  constructor(box, model, main) {
    this.box = box;
    this.main = main;
    this.plain = box.dataset.pane === "k";
    this.model = model;
    this.tip = box.parentElement.querySelector(".chart-tip");
    this.tone = colours();
    this.plot = null;
    this.watch = new ResizeObserver(() => this.resize());
    this.build();
    this.watch.observe(box);
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("blur", () => this.point(null));
  }

  columns() {
    const model = this.model;
    const x = model.label.map((_, i) => i);
    if (this.plain) return [x, model.k];
    return [x, model.admitted.map((n, i) => n + model.refused[i]), model.admitted];
  }

  build() {
    this.plot?.destroy();
    this.tone = colours();
    const { tone, plain } = this;
    const bars = uPlot.paths.bars({ size: [0.78, 56], radius: 0.08 });
    const axis = { stroke: tone.muted, font: FONT, ticks: { show: false } };
    const bar = (fill) => ({ fill, width: 0, paths: bars, points: { show: false } });
    const options = {
      width: this.width(),
      height: this.box.clientHeight,
      padding: [plain ? 8 : 22, 20, plain ? 8 : 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: true },
        sync: { key: "tallygate", setSeries: false },
      },
      select: { show: true },
      scales: {
        x: { time: false, range: (_, from, to) => this.span(from, to) },
        y: { range: (u) => this.height(u) },
      },
      axes: [
        { ...axis, show: !plain, size: 28, grid: { show: false }, splits: (u) => this.ticks(u),
          values: (_, places) => places.map((i) => this.model.label[i] ?? "") },
        { ...axis, size: 64, gap: 8, space: plain ? 28 : 44, incrs: STEPS,
          // The small pane has room for two labels: nothing, and its own top.
          ...(plain ? { splits: () => [0, this.most()] } : {}),
          grid: { stroke: tone.line, width: 1 }, values: (_, values) => values.map((v) => grouped.format(v)) },
      ],
      series: plain
        ? [{}, { ...bar(tone.muted) }]
        : [{}, { ...bar(tone.refused) }, { ...bar(tone.admitted) }],
      hooks: { draw: [(u) => this.marks(u)], setCursor: [(u) => this.read(u)], setScale: [() => this.zoomed()] },
    };
    this.plot = new uPlot(options, this.columns(), this.box);
  }

  width() {
    return Math.max(240, this.box.clientWidth);
  }

  resize() {
    const width = this.width();
    if (this.plot && width !== this.plot.width) this.plot.setSize({ width, height: this.box.clientHeight });
  }

  span(from, to) {
    const last = this.model.label.length - 1;
    if (from == null || to - from < 1) return [-0.6, last + 0.6];
    return [from <= 0 ? -0.6 : from, to >= last ? last + 0.6 : to];
  }

  most() {
    return Math.max(1, ...this.model.k);
  }

  height(u) {
    if (this.plain) return [0, this.most() * 1.15];
    const from = Math.max(0, Math.ceil(u.scales.x.min ?? 0));
    const to = Math.min(this.model.label.length - 1, Math.floor(u.scales.x.max ?? Infinity));
    const { bars, limit, shown } = top(this.model, from, to);
    return [0, Math.max(1, shown ? Math.max(bars, limit) : bars) * 1.08];
  }

  ticks(u) {
    const perBucket = u.bbox.width / devicePixelRatio / Math.max(1, u.scales.x.max - u.scales.x.min);
    for (const places of this.model.ticks) {
      const gaps = places.slice(1).map((place, i) => place - places[i]);
      if (!gaps.length || Math.min(...gaps) * perBucket >= LABEL_GAP_PX) return places;
    }
    return this.model.ticks.at(-1) ?? [];
  }

  marks(u) {
    const { ctx, bbox } = u;
    const { model, tone } = this;
    const edge = (i) => Math.min(bbox.left + bbox.width, Math.max(bbox.left, u.valToPos(i, "x", true)));
    ctx.save();
    ctx.fillStyle = hatch(ctx, tone.muted, Math.round(6 * devicePixelRatio), 0.16);
    ctx.globalAlpha = 0.45;
    model.filling.forEach((on, i) => {
      if (on) ctx.fillRect(edge(i - 0.5), bbox.top, edge(i + 0.5) - edge(i - 0.5), bbox.height);
    });
    ctx.globalAlpha = 1;
    if (!this.plain) {
      this.degradedPart(u, edge);
      this.limitLine(u, edge);
    }
    ctx.restore();
  }

  // As much of the bar is hatched as was decided in degraded mode, but never less than can be seen.
  degradedPart(u, edge) {
    const { ctx } = u;
    const floor = u.valToPos(0, "y", true);
    ctx.fillStyle = hatch(ctx, this.tone.degraded, Math.round(6 * devicePixelRatio), 0.4);
    this.model.degraded.forEach((number, i) => {
      if (!number) return;
      const height = Math.max(4 * devicePixelRatio, floor - u.valToPos(number, "y", true));
      ctx.fillRect(edge(i - 0.5), floor - height, edge(i + 0.5) - edge(i - 0.5), height);
    });
  }

  limitLine(u, edge) {
    const { ctx, bbox } = u;
    const { model, tone } = this;
    const label = model.limit_label;
    if (!label) return;
    const inside = u.scales.y.max;
    ctx.strokeStyle = ctx.fillStyle = tone.ink;
    ctx.lineWidth = 1.25 * devicePixelRatio;
    ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    let drawn = null, joined = false;
    model.limit.forEach((limit, i) => {
      const visible = limit != null && limit <= inside;
      if (visible) {
        const y = u.valToPos(limit, "y", true);
        if (!joined) ctx.moveTo(edge(i - 0.5), y);
        ctx.lineTo(edge(i - 0.5), y);
        ctx.lineTo(edge(i + 0.5), y);
        drawn = y;
      }
      joined = visible;
    });
    ctx.stroke();
    // In the free margin above the bars, with a piece of the line before it: on the line it would hide what it judges.
    ctx.font = FONT.replace("12px", `${12 * devicePixelRatio}px`);
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    const text = drawn == null ? `${label}, above this picture ↑` : label;
    const [right, y] = [bbox.left + bbox.width, bbox.top - 12 * devicePixelRatio];
    ctx.fillText(text, right, y);
    const end = right - ctx.measureText(text).width - 6 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(end - 23 * devicePixelRatio, y);
    ctx.lineTo(end, y);
    ctx.stroke();
  }

  read(u) {
    if (!this.tip || u.cursor.idx == null || u.cursor.left < 0) {
      if (this.tip) this.tip.hidden = true;
      return;
    }
    if (this.plain) return;
    const i = u.cursor.idx;
    const { model } = this;
    const lines = [
      model.title[i],
      `${grouped.format(model.admitted[i])} admitted`,
      `${grouped.format(model.refused[i])} refused`,
    ];
    if (model.kind === "support") lines.push(`reached ${grouped.format(model.k[i])} ${model.k[i] === 1 ? "server" : "servers"}`);
    if (model.degraded[i]) lines.push(`${grouped.format(model.degraded[i])} ${model.kind === "support" ? "in degraded mode" : "decided locally"}`);
    if (model.limit[i] != null) lines.push(`plan ${grouped.format(model.limit[i])}`);
    if (model.filling[i]) lines.push("still filling");
    this.tip.replaceChildren(...lines.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
    this.tip.hidden = false;
    const left = u.valToPos(i, "x") + u.bbox.left / devicePixelRatio;
    const room = this.box.clientWidth - this.tip.offsetWidth;
    const beside = left + 16 > room ? left - this.tip.offsetWidth - 16 : left + 16;
    this.tip.style.transform = `translateX(${Math.max(0, Math.min(room, beside))}px)`;
  }

  key(event) {
    const last = this.model.label.length - 1;
    const now = this.plot.cursor.idx ?? last;
    const place = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.reset();
    if (place === undefined) return;
    event.preventDefault();
    this.point(Math.max(0, Math.min(last, place)));
  }

  point(place) {
    const left = place == null ? -10 : this.plot.valToPos(place, "x");
    this.plot.setCursor({ left, top: place == null ? -10 : 10 });
    if (place == null && this.tip) this.tip.hidden = true;
  }

  isZoomed() {
    const { min, max } = this.plot?.scales.x ?? {};
    return min != null && max - min < this.model.label.length - 0.5;
  }

  zoomed() {
    const button = this.box.closest("figure").querySelector("[data-reset]");
    if (button && this.plot) button.hidden = !this.isZoomed();
  }

  reset() {
    this.plot.setScale("x", { min: -0.6, max: this.model.label.length - 0.4 });
  }

  update(model) {
    const same = model.label.length === this.model.label.length;
    this.model = model;
    const keep = same && this.isZoomed();
    this.plot.setData(this.columns(), !keep);
    if (keep) this.plot.redraw(true, true);
  }
}

// Whole numbers only: there is no half request.
const STEPS = [1, 2, 5].flatMap((n) => Array.from({ length: 12 }, (_, e) => n * 10 ** e)).sort((a, b) => a - b);

export function draw(root) {
  const charts = [];
  for (const figure of root.querySelectorAll("figure[data-chart]")) {
    const model = JSON.parse(figure.dataset.chart);
    for (const box of figure.querySelectorAll(".chart")) charts.push({ figure, chart: new Chart(box, model) });
    figure.querySelector("[data-reset]")?.addEventListener("click", () => {
      charts.filter((entry) => entry.figure === figure).forEach((entry) => entry.chart.reset());
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(({ chart }) => chart.build()));
  return charts;
}
