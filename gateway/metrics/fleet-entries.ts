/** FleetEntries: the standing of the whole as metrics: how many batchers there are, how many jobs wait for them, and how many there should be. */
import { isFresh } from '../../shared/batcher-card.ts';
import type { FleetStanding } from '../fleet-standing.ts';
import type { ScaleSignal } from '../scale-signal.ts';
import { type SeriesEntry, seriesKey } from './series.ts';

export function fleetEntries({ cards, queues }: FleetStanding, signalOf: (model: string) => ScaleSignal): SeriesEntry[] {
  const now = Date.now();
  const batchers = Map.groupBy(cards, card =>
    seriesKey('sluice_gateway_batchers', { model: card.model, state: isFresh(card, now) ? card.state : 'stale' }),
  );
  return [
    ...[...batchers].map(([key, some]): SeriesEntry => [key, some.length]),
    // The own queues of a model's batchers are added up.
    ...queues.map(
      ({ model, kind, waitingCount }): SeriesEntry => [seriesKey('sluice_gateway_queued_jobs', { model, queue: kind }), waitingCount],
    ),
    ...[...new Set(cards.map(card => card.model))].flatMap(model => scaleEntries(model, signalOf(model))),
  ];
}

function scaleEntries(model: string, { desiredCount, requestsPerSecond, kneeRatio, queueSeconds }: ScaleSignal): SeriesEntry[] {
  return [
    [seriesKey('sluice_gateway_desired_batchers', { model }), desiredCount],
    [seriesKey('sluice_gateway_request_rate', { model }), requestsPerSecond],
    ...(kneeRatio === undefined ? [] : [[seriesKey('sluice_gateway_knee_ratio', { model }), kneeRatio] satisfies SeriesEntry]),
    ...(queueSeconds === undefined ? [] : [[seriesKey('sluice_gateway_queue_seconds', { model }), queueSeconds] satisfies SeriesEntry]),
  ];
}
