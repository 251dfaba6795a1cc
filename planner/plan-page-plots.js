/** PlanPagePlots: the script of a plan's page: draws each plot into its place, as wide as that is, and again when the theme changes. */
(() => {
  const HEIGHT = 260;
  const COLOURS = ['#2f7ed8', '#d9822b', '#3a9d5d'];
  const plots = JSON.parse(document.getElementById('plan').textContent);
  const dark = matchMedia('(prefers-color-scheme: dark)');
  let drawn = [];

  function draw() {
    for (const plot of drawn) plot.destroy();
    const ink = dark.matches ? '#ddd' : '#222';
    const axis = label => ({ label, stroke: ink, grid: { stroke: '#8884' }, ticks: { stroke: '#8884' } });
    drawn = plots.map(({ id, x, y, xs, series, marks }) => {
      const place = document.getElementById(id);
      return new uPlot(
        {
          width: place.clientWidth,
          height: HEIGHT,
          scales: { x: { time: false }, y: { range: (_, __, most) => [0, most * 1.05 || 1] } },
          axes: [axis(x), axis(y)],
          series: [
            { label: x },
            ...series.map(({ name }, index) => ({
              label: name,
              stroke: COLOURS[index],
              width: 2,
              points: { size: 5 },
              ...(name === 'objective' && { dash: [6, 6], points: { show: false } }),
            })),
          ],
          hooks: {
            draw: [
              plot => {
                for (const mark of marks) {
                  const at = Math.round(plot.valToPos(mark.x, 'x', true));
                  plot.ctx.save();
                  plot.ctx.strokeStyle = ink;
                  plot.ctx.fillStyle = ink;
                  plot.ctx.setLineDash([2, 4]);
                  plot.ctx.beginPath();
                  plot.ctx.moveTo(at, plot.bbox.top);
                  plot.ctx.lineTo(at, plot.bbox.top + plot.bbox.height);
                  plot.ctx.stroke();
                  plot.ctx.fillText(mark.name, at + 6, plot.bbox.top + 14);
                  plot.ctx.restore();
                }
              },
            ],
          },
        },
        [xs, ...series.map(({ values }) => values)],
        place,
      );
    });
  }

  // A place's width can change after the window's has been told, so the places themselves are watched.
  const widths = new ResizeObserver(changes => {
    for (const { target, contentRect } of changes) {
      drawn[plots.findIndex(({ id }) => id === target.id)].setSize({ width: contentRect.width, height: HEIGHT });
    }
  });

  draw();
  for (const { id } of plots) widths.observe(document.getElementById(id));
  dark.addEventListener('change', draw);
})();
