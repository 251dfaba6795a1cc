/** MetricsPage: what a process tells on /metrics (Prometheus' text format), by name; label sets of one name are added up. */

interface Sample {
  name: string;
  labels: string;
  value: number;
}

const SAMPLE_LINE = /^([A-Za-z_:][\w:]*)(\{.*\})?\s+(\S+)(?:\s+-?\d+)?$/;

export class MetricsPage {
  readonly #samples: readonly Sample[];

  /** Throws on a line that is neither comment nor sample. */
  constructor(text: string) {
    this.#samples = text
      .split('\n')
      .filter(line => line.trim() !== '' && !line.startsWith('#'))
      .map(line => {
        const match = SAMPLE_LINE.exec(line);
        if (!match) throw new Error(`not a line of metrics: ${line.slice(0, 100)}`);
        return { name: match[1]!, labels: match[2] ?? '', value: Number(match[3]) };
      });
  }

  static async read(url: string): Promise<MetricsPage> {
    const response = await fetch(url);
    const text = await response.text();
    if (!response.ok) throw new Error(`${url} answered ${response.status}`);
    return new MetricsPage(text);
  }

  /** Throws when there is no such metric: a figure that was never counted is not zero. */
  total(name: string): number {
    const values = this.#samples.filter(sample => sample.name === name).map(sample => sample.value);
    if (values.length === 0) throw new Error(`there is no metric ${name}`);
    return values.reduce((sum, value) => sum + value, 0);
  }
}
