/** Vitest: two projects. Unit files run side by side; end-to-end ones start servers and engines, so they run one after the other. */
import { defineConfig } from 'vitest/config';

const END_TO_END = ['test/e2e/**/*.test.ts', 'test/**/*.e2e.test.ts'];

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: END_TO_END,
          environment: 'node',
          setupFiles: ['test/property-seed.ts'],
          // Generous: a loaded machine is slow, and no test asserts on time.
          testTimeout: 60_000,
          hookTimeout: 60_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          name: 'e2e',
          include: END_TO_END,
          environment: 'node',
          setupFiles: ['test/property-seed.ts'],
          fileParallelism: false,
          testTimeout: 180_000,
          hookTimeout: 180_000,
          teardownTimeout: 30_000,
          // After the unit tests, not beside them.
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
