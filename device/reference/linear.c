#include <assert.h>

#include "device/reference/parts.h"

void plec_reference_linear(double *y, const struct plec_matrix *m, const double *x, uint32_t n,
                           double *row) {
    assert(n <= m->cols);
    for (uint32_t r = 0; r < m->rows; r++) {
        plec_matrix_row_f64(row, m, r);
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += row[i] * x[i];
        y[r] = sum;
    }
}
