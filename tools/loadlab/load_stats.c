/* Samples, histograms, and how they are printed. */
#include "load.h"

#include <math.h>
#include <stdlib.h>

void sample(struct samples *samples, double value) {
    if (samples->count == samples->room) {
        samples->room = samples->room ? 2 * samples->room : 4096;
        samples->values = realloc(samples->values, sizeof(double) * samples->room);
        if (!samples->values) fail("out of memory");
    }
    samples->values[samples->count++] = value;
}

void histogram_add(struct histogram *histogram, double value_s) {
    double ns = value_s * 1e9;
    int bucket = ns < 1 ? 0 : (int)(log2(ns) * BUCKETS_PER_OCTAVE);
    if (bucket >= BUCKETS_PER_OCTAVE * OCTAVES) bucket = BUCKETS_PER_OCTAVE * OCTAVES - 1;
    histogram->counts[bucket]++;
    histogram->count++;
    histogram->sum += value_s;
    if (value_s > histogram->max) histogram->max = value_s;
}

static int by_value(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

/* Nearest rank: the smallest sample that at least `share` of all do not exceed. */
static double quantile(const struct samples *samples, double share) {
    size_t rank = (size_t)ceil(share * (double)samples->count);
    return samples->values[rank ? rank - 1 : 0];
}

void print_samples(const char *name, struct samples *samples) {
    double sum = 0;
    if (!samples->count) {
        printf("\"%s\":null,", name);
        return;
    }
    qsort(samples->values, samples->count, sizeof(double), by_value);
    for (size_t at = 0; at < samples->count; at++) sum += samples->values[at];
    printf("\"%s\":{\"count\":%zu,\"mean\":%.9f,\"p50\":%.9f,\"p90\":%.9f,\"p95\":%.9f,\"p99\":%.9f,\"max\":%.9f},",
           name, samples->count, sum / (double)samples->count, quantile(samples, 0.5), quantile(samples, 0.9),
           quantile(samples, 0.95), quantile(samples, 0.99), samples->values[samples->count - 1]);
}

static double histogram_quantile(const struct histogram *histogram, double share) {
    long wanted = (long)ceil(share * (double)histogram->count), seen = 0;
    for (int bucket = 0; bucket < BUCKETS_PER_OCTAVE * OCTAVES; bucket++)
        if ((seen += histogram->counts[bucket]) >= wanted) return exp2((bucket + 0.5) / BUCKETS_PER_OCTAVE) / 1e9;
    return histogram->max;
}

void print_histogram(const char *name, const struct histogram *histogram) {
    if (!histogram->count) {
        printf("\"%s\":null,", name);
        return;
    }
    printf("\"%s\":{\"count\":%ld,\"mean\":%.9f,\"p50\":%.9f,\"p90\":%.9f,\"p99\":%.9f,\"max\":%.9f},", name,
           histogram->count, histogram->sum / (double)histogram->count, histogram_quantile(histogram, 0.5),
           histogram_quantile(histogram, 0.9), histogram_quantile(histogram, 0.99), histogram->max);
}
