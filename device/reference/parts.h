/* parts.h: what the files of the reference executor share. */
#ifndef PLEC_DEVICE_REFERENCE_PARTS_H
#define PLEC_DEVICE_REFERENCE_PARTS_H

#include "device/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The logistic function. */
double plec_reference_sigmoid(double z);

/* y [m->rows] f64 = the first n columns of m . x [n] f64; n <= m->cols. row [m->cols] f64: scratch.
 */
void plec_reference_linear(double *y, const struct plec_matrix *m, const double *x, uint32_t n,
                           double *row);

#ifdef __cplusplus
}
#endif
#endif
