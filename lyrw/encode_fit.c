/* encode_fit.c: the scale, or scale and minimum, that whole-number codes fit values best with. */
#include <math.h>

#include "lyrw/codec/round.h"
#include "lyrw/cursor.h"
#include "lyrw/encode_block.h"

/* Candidate scales put the end of the range this many tenths of a code before or past the last one:
 * within (short codes are unused) they differ in how the other values fall, past it the end is
 * clipped. Wider ranges gain nothing measurable on normal values. */
enum { FIRST_TENTH = -20, LAST_TENTH = 10 };

double plec_largest_magnitude(const float *x, int n) {
    double largest = 0;
    for (int i = 0; i < n; i++)
        if (fabs((double)x[i]) > largest) largest = fabs((double)x[i]);
    return largest;
}

int plec_nearest_code(double x, double scale, double minimum, int q_min, int q_max) {
    double q = scale == 0 ? 0 : rint((x - minimum) / scale);
    return q < q_min ? q_min : q > q_max ? q_max : (int)q;
}

bool plec_store_f16(uint8_t *p, double *rounded, double value) {
    uint16_t bits = plec_f32_f16((float)value);
    plec_store_u16(p, bits);
    *rounded = plec_f16_f32(bits);
    return isfinite(*rounded);
}

static double signed_extreme(const float *x, int n) {
    double extreme = 0;
    for (int i = 0; i < n; i++)
        if (fabs((double)x[i]) > fabs(extreme)) extreme = x[i];
    return extreme;
}

double plec_fit_scale(const float *x, int n, int q_min, int q_max) {
    double extreme = signed_extreme(x, n), best = 0, best_gain = 0;
    if (extreme == 0) return 0;
    for (int tenth = FIRST_TENTH; tenth <= LAST_TENTH; tenth++) {
        double scale = extreme / (q_min - tenth / 10.0), xq = 0, qq = 0;
        for (int i = 0; i < n; i++) {
            double q = plec_nearest_code(x[i], scale, 0, q_min, q_max);
            xq += x[i] * q;
            qq += q * q;
        }
        /* the squared error is sum x^2 - gain once the scale is xq / qq */
        if (qq > 0 && xq * xq / qq > best_gain) {
            best_gain = xq * xq / qq;
            best = xq / qq;
        }
    }
    return best;
}

/* Least squares of x = scale * q + minimum for the codes that `start` gives. */
static struct plec_affine least_squares(const float *x, int n, int q_max, bool not_above_zero,
                                        struct plec_affine start) {
    double q1 = 0, q2 = 0, x1 = 0, xq = 0;
    for (int i = 0; i < n; i++) {
        double q = plec_nearest_code(x[i], start.scale, start.minimum, 0, q_max);
        q1 += q;
        q2 += q * q;
        x1 += x[i];
        xq += x[i] * q;
    }
    double determinant = n * q2 - q1 * q1; /* 0: all codes equal */
    if (determinant <= 0) return start;
    struct plec_affine fit = {(n * xq - q1 * x1) / determinant, (q2 * x1 - q1 * xq) / determinant};
    if (not_above_zero && fit.minimum > 0) fit = (struct plec_affine){xq / q2, 0};
    return fit.scale < 0 ? start : fit;
}

static double affine_error(const float *x, int n, int q_max, struct plec_affine map) {
    double error = 0;
    for (int i = 0; i < n; i++) {
        int q = plec_nearest_code(x[i], map.scale, map.minimum, 0, q_max);
        double difference = map.scale * q + map.minimum - x[i];
        error += difference * difference;
    }
    return error;
}

struct plec_affine plec_fit_affine(const float *x, int n, int q_max, bool not_above_zero) {
    double low = x[0], high = x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
    }
    if (not_above_zero && low > 0) low = 0;
    struct plec_affine best = {(high - low) / q_max, low};
    if (high <= low) return (struct plec_affine){0, low};
    double best_error = affine_error(x, n, q_max, best);
    for (int tenth = FIRST_TENTH; tenth <= LAST_TENTH; tenth++) {
        struct plec_affine start = {(high - low) / (q_max + tenth / 10.0), low};
        struct plec_affine fit = least_squares(x, n, q_max, not_above_zero, start);
        double error = affine_error(x, n, q_max, fit);
        if (error < best_error) {
            best_error = error;
            best = fit;
        }
    }
    return best;
}
